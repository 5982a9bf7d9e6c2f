"""Admission webhooks: a write is tried as a dry run, sent to the webhooks, then executed.

Only the last step changes the store, atomically, after all webhooks have allowed the object. If the object changed in
the meantime, the webhooks are called again with the new version.
"""

from copy import deepcopy
from dataclasses import replace
from typing import Final

from muster.localcluster.apiserver.api import Answer, Api
from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.delete import Deleter
from muster.localcluster.apiserver.routing import Call
from muster.localcluster.apiserver.status import conflict
from muster.localcluster.apiserver.store import Object, Record, key_of
from muster.localcluster.apiserver.watch import Watch
from muster.localcluster.apiserver.webhook_configurations import Request, has_matching_rule
from muster.localcluster.apiserver.webhooks import Webhooks
from muster.localcluster.apiserver.write import RevisionConflict, Writer

_TRIES: Final = 5
_OPERATIONS: Final = {"POST": "CREATE", "PUT": "UPDATE", "PATCH": "UPDATE", "DELETE": "DELETE"}
_OPTIONS: Final = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}


class Admission:
    """Admission of requests to the API."""

    def __init__(self, cluster: Cluster, writer: Writer, deleter: Deleter) -> None:
        self._cluster, self._writer, self._deleter = cluster, writer, deleter
        self._webhooks = Webhooks(cluster)

    async def close(self) -> None:
        await self._webhooks.close()

    async def answer(self, api: Api, call: Call) -> Answer | Watch:
        """Like `Api.answer`, after admission. Raises StatusError."""
        if not self.applies_to(call):
            return api.answer(call)
        if call.method == "DELETE":
            for record in self._to_be_deleted(call):
                await self._review_deletion(call, record)
            return api.answer(call)
        for _ in range(_TRIES):
            await self._review_write(call)
            try:
                return api.answer(call)
            except RevisionConflict:
                continue
        name = call.target.name or ""
        raise conflict(call.target.kind.plural, call.target.kind.group, name, "it changes too often to be admitted")

    async def create(self, call: Call, obj: Object) -> Record:
        """Create an object for a controller inside the API server. Raises StatusError."""
        if self.applies_to(call):
            trial = replace(call, trial=True)
            await self._review(call, "CREATE", self._writer.create_object(trial, deepcopy(obj)), None)
        return self._writer.create_object(call, obj)

    def applies_to(self, call: Call) -> bool:
        """Whether a webhook may have to be called."""
        target = call.target
        operation = _OPERATIONS.get(call.method)
        if operation is None or target.subresource not in ("", "status"):
            return False
        return has_matching_rule(self._cluster, operation, target.kind, target.subresource)

    async def _review_write(self, call: Call) -> None:
        target, trial = call.target, replace(call, trial=True, warnings=[], at_revision=0)
        if call.method == "POST":
            await self._review(call, "CREATE", self._writer.create(trial), None)
            return
        before = self._cluster.store.get(target.kind.collection, key_of(target.namespace, target.name or ""))
        record = self._writer.update(trial) if call.method == "PUT" else self._writer.patch(trial)
        call.at_revision = before.revision if before is not None else 0
        await self._review(call, "UPDATE", record, before)

    async def _review_deletion(self, call: Call, record: Record) -> None:
        await self._review(call, "DELETE", None, record)

    async def _review(self, call: Call, operation: str, new: Record | None, old: Record | None) -> None:
        target = call.target
        metadata = (new or old or _NO_OBJECT).metadata
        if operation == "CREATE":
            call.uid, call.name = metadata["uid"], metadata["name"]
        request = Request(
            operation,
            target.kind,
            target.namespace,
            metadata["name"],
            target.subresource,
            self._as_served(call, new),
            self._as_served(call, old),
            call.dry_run,
            {"kind": _OPTIONS[operation], "apiVersion": "meta.k8s.io/v1"},
            call.user,
        )
        call.warnings += await self._webhooks.call_all(request)

    def _as_served(self, call: Call, record: Record | None) -> Object | None:
        """The object in the client's version."""
        if record is None:
            return None
        convert = call.target.kind.from_stored
        return record.object if convert is None else convert(record.object)

    def _to_be_deleted(self, call: Call) -> list[Record]:
        if call.target.name is not None:
            return [self._cluster.record(call.target.kind, call.target.namespace, call.target.name)]
        return self._deleter.selected(call)


_NO_OBJECT: Final = Record("", {"metadata": {"name": ""}}, 0)

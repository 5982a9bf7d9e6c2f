"""Executes resource requests, independent of HTTP."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from muster.localcluster.apiserver.binding import bind
from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.content_negotiation import ObjectForm, representation
from muster.localcluster.apiserver.delete import Deleter
from muster.localcluster.apiserver.eviction import evict
from muster.localcluster.apiserver.read import Reader
from muster.localcluster.apiserver.routing import Call
from muster.localcluster.apiserver.status import StatusError, method_not_allowed, success
from muster.localcluster.apiserver.store import Record
from muster.localcluster.apiserver.watch import Watch, Watches
from muster.localcluster.apiserver.write import Writer

_VERBS_OF_OBJECTS: Final = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_VERBS_OF_COLLECTIONS: Final = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}


@dataclass(slots=True)
class Answer:
    """Complete response."""

    status: int
    body: bytes
    warnings: list[str] = field(default_factory=list)


class Api:
    """Resource API of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.reader = Reader(cluster)
        self.writer = Writer(cluster)
        self.deleter = Deleter(cluster)
        self.watches = Watches(cluster)
        self._verbs: dict[str, Callable[[Call], Answer]] = {
            "get": lambda call: Answer(200, self.reader.get(call)),
            "list": lambda call: Answer(200, self.reader.list(call)),
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_many,
        }

    def answer(self, call: Call) -> Answer | Watch:
        """Execute the call. Raises StatusError."""
        target = call.target
        if target.subresource not in ("", "status"):
            return self._of_subresource(call)
        verb = (_VERBS_OF_OBJECTS if target.name is not None else _VERBS_OF_COLLECTIONS).get(call.method)
        if verb is None:
            raise method_not_allowed()
        if verb == "list" and call.flag("watch"):
            return self.watches.start(call)
        if verb not in target.kind.verbs:
            raise method_not_allowed()
        if verb == "create" and target.kind.namespaced and target.namespace is None:
            raise method_not_allowed()
        return self._verbs[verb](call)

    def _of_subresource(self, call: Call) -> Answer:
        target = call.target
        match target.subresource, call.method:
            case "binding", "POST":
                bind(self.cluster, target.namespace or "", target.name or "", call.body, dry_run=call.dry_run)
                return Answer(201, success(201))
            case "eviction", "POST":
                evict(self.cluster, self.deleter, call)
                return Answer(201, success(201))
            case "log", "GET":
                self.cluster.record(target.kind, target.namespace, target.name or "")
                raise StatusError(
                    500, "logs are not available: containers of the local cluster are simulated", reason="InternalError"
                )
        raise method_not_allowed()

    def _create(self, call: Call) -> Answer:
        return self._response(call, 201, self.writer.create(call))

    def _update(self, call: Call) -> Answer:
        return self._response(call, 200, self.writer.update(call))

    def _patch(self, call: Call) -> Answer:
        return self._response(call, 200, self.writer.patch(call))

    def _delete(self, call: Call) -> Answer:
        record, removed = self.deleter.delete(call)
        kind = call.target.kind
        if not removed or kind.collection in ("pods", "namespaces"):
            return self._response(call, 200, record)
        details = {"name": record.metadata["name"], "group": kind.group, "kind": kind.plural}
        details["uid"] = record.metadata["uid"]
        return Answer(200, success(details={name: value for name, value in details.items() if value}))

    def _delete_many(self, call: Call) -> Answer:
        records = self.deleter.delete_many(call)
        form = representation(call.target.kind, call.accept, "")
        return Answer(200, form.many(records, {"resourceVersion": str(self.cluster.store.revision)}))

    def _response(self, call: Call, status: int, record: Record) -> Answer:
        kind = call.target.kind
        plain = "as=" not in call.accept
        form = ObjectForm(kind) if plain else representation(kind, call.accept, call.query.get("includeObject", ""))
        return Answer(status, form.one(record), call.warnings)

"""The controller of ProvisioningRequests: one for each gang that wants one and waits for nodes.

A gang wants one if its pods have the annotation `muster.dev/provisioning-request: "true"`. They are annotated as
consumers of the request at once, so that the autoscaler does not add nodes for single ones. The request is created when
the coordinator reports that nodes would help (reason Unschedulable), for all members that wait, as soon as these stay
the same for a moment: conditions of a large gang are not written at once. It is deleted when none waits any more. It is
replaced when other members wait before it was provisioned, or none of those that it was provisioned for; and, with a
growing pause, after it has ended in vain. Owner references end it with the pods.

A pod that consumes a request of somebody else, such as Kueue's, is left to that.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

import structlog
from msgspec import Struct

from muster.gangs.facts import ObjectReference
from muster.kube.api_resources import PODS, PROVISIONING_REQUESTS
from muster.kube.object_changes import ObjectChanges, Removed
from muster.kube.objects import Pod, PodGroup
from muster.kube.paths import object_path, pod_path
from muster.kube.timestamps import BadTimestamp, parse_timestamp
from muster.lifecycle.controller import ControllerContext
from muster.lifecycle.event_recorder import EventRecorder
from muster.lifecycle.object_client import Object, ObjectClient
from muster.lifecycle.provisioning.members import Member, Members
from muster.lifecycle.provisioning.request import (
    API_VERSION,
    CLASS,
    CLASS_ANNOTATION,
    CONSUMES,
    GANG,
    MAX_POD_SETS,
    PLURAL,
    State,
    Waiting,
    asks_for,
    pod_sets,
    pod_template,
    provisioning_request,
    request_name,
    shares_template,
    state_of,
    templates_of,
)
from muster.lifecycle.work_queue import WorkQueue
from muster.retry.backoff import backoff_seconds

BATCH_SECONDS: Final = 0.5
"""Changes within this time are answered together: all members of a gang get their condition in one report."""
FIRST_PAUSE_SECONDS: Final = 60.0
MAX_PAUSE_SECONDS: Final = 3600.0
_CONCURRENT_CALLS: Final = 16
_ACTION: Final = "Provisioning"

_log = structlog.get_logger(__name__)


class _History(Struct):
    """What was seen of a gang: requests that ended in vain, and who waits; it ends with the last waiting member."""

    failures: int = 0
    ended_uid: str = ""
    note: str = ""
    sets: list[Object] = []
    """spec.podSets for the members that waited when they were last looked at."""


class ProvisioningController:
    """Reconciles the requests of gangs, each by the gang's id. What is kept of a gang ends with its waiting members."""

    def __init__(self, context: ControllerContext) -> None:
        self._enabled = context.settings.provisioning_requests
        self._client = ObjectClient(context.session)
        self._events = EventRecorder(self._client, context.settings.instance)
        self._members = Members(frozenset(context.settings.scheduler_names))
        self._requests: dict[str, PodGroup] = {}
        """Existing requests by uid, each until it is deleted."""
        self._uids: dict[str, str] = {}
        """Their uids by gang id."""
        self._histories: dict[str, _History] = {}
        if not self._enabled:
            return
        self._queue = WorkQueue(
            "provisioning",
            self._reconcile,
            lambda: {*self._members.gangs(), *self._uids},
            context.leadership,
            context.informers,
            namespace_of=_namespace,
        )
        context.informers.add_handler(PODS, self._on_pods)
        context.informers.add_handler(PROVISIONING_REQUESTS, self._on_requests)

    async def run(self) -> None:
        """Runs until cancelled."""
        if self._enabled:
            await self._queue.run()

    # -- informer handlers

    def _on_pods(self, changes: ObjectChanges[Pod]) -> None:
        for item in changes.items:
            for gang_id in self._members.put(item):
                self._queue.add(gang_id, BATCH_SECONDS)

    def _on_requests(self, changes: ObjectChanges[PodGroup]) -> None:
        for item in changes.items:
            if isinstance(item, Removed):
                before = self._requests.pop(item.uid, None)
                gang_id = _gang_id(before) if before is not None else ""
                if self._uids.get(gang_id) == item.uid:
                    del self._uids[gang_id]
            elif gang_id := _gang_id(item):
                self._requests[item.metadata.uid] = item
                self._uids[gang_id] = item.metadata.uid
            if gang_id:
                self._queue.add(gang_id)

    # -- reconciliation

    async def _reconcile(self, gang_id: str) -> float | None:
        name = request_name(gang_id)
        every = self._members.of(gang_id)
        members = [member for member in every if member.consumes in ("", name)]
        request = self._requests.get(self._uids.get(gang_id, ""))
        waiting = [member.waiting for member in members if member.asks]
        await self._annotate(members, name)
        if not waiting:
            self._histories.pop(gang_id, None)
            if request is not None:
                await self._delete(request)
            return None
        history = self._histories.setdefault(gang_id, _History())
        sets = pod_sets(name, waiting)
        settled, history.sets = sets == history.sets, sets
        if request is None:
            if not settled:
                return BATCH_SECONDS
            await self._create(gang_id, waiting, history)
            return None
        state = state_of(request)
        if state.message:
            await self._report(
                gang_id, waiting, history, f"no nodes are provisioned for gang {gang_id}: {state.message}"
            )
        if state.ended:
            return await self._retry(request, state, history)
        outdated = not shares_template(request, sets) if state.provisioned else asks_for(request) != sets
        if outdated and not settled:
            return BATCH_SECONDS
        if outdated:
            await self._delete(request)  # created anew when it is observed to be gone
        return None

    async def _annotate(self, members: Sequence[Member], name: str) -> None:
        """Marks members as consumers of the request, whether it exists yet or not; those that do not want it any more
        as none.
        """
        marks: dict[bool, dict[str, str | None]] = {
            True: {CONSUMES: name, CLASS_ANNOTATION: CLASS},
            False: {CONSUMES: None, CLASS_ANNOTATION: None},
        }
        wrong = [member for member in members if member.wants is not bool(member.consumes)]
        for start in range(0, len(wrong), _CONCURRENT_CALLS):
            async with asyncio.TaskGroup() as tasks:
                for member in wrong[start : start + _CONCURRENT_CALLS]:
                    body = {"metadata": {"uid": member.waiting.uid, "annotations": marks[member.wants]}}
                    tasks.create_task(self._client.patch(pod_path(member.namespace, member.waiting.name), body))

    async def _create(self, gang_id: str, waiting: list[Waiting], history: _History) -> None:
        name, namespace = request_name(gang_id), _namespace(gang_id)
        templates = templates_of(waiting)
        if len(templates) > MAX_POD_SETS:
            note = (
                f"gang {gang_id} has {len(templates)} kinds of pods, and a ProvisioningRequest at most {MAX_POD_SETS}: "
                "make them equal, or remove the annotation from its pods"
            )
            await self._report(gang_id, waiting, history, note)
            return
        for template in templates:  # decoded one by one: each may be large (I12)
            body = pod_template(name, template, waiting)
            path = object_path("v1", "podtemplates", namespace)
            if await self._client.create(path, body) is None and not await self._adopt(namespace, body["metadata"]):
                await self._client.create(path, body)  # it has just ended with its owners
        body = provisioning_request(name, namespace, gang_id, waiting)
        await self._client.create(object_path(API_VERSION, PLURAL, namespace), body)
        _log.info("provisioning_requested", gang=gang_id, request=name, pods=len(waiting), roles=len(templates))

    async def _adopt(self, namespace: str, metadata: Object) -> bool:
        """Gives an existing template to the members that wait: its owners may be gone, and it would end with them.
        False: it is gone.
        """
        path = object_path("v1", "podtemplates", namespace, metadata["name"])
        owned = {"metadata": {"ownerReferences": metadata["ownerReferences"]}}
        return await self._client.patch(path, owned) is not None

    async def _retry(self, request: PodGroup, state: State, history: _History) -> float | None:
        """Deletes a request that ended in vain, after a pause that doubles with each in a row."""
        if history.ended_uid != request.metadata.uid:
            history.ended_uid = request.metadata.uid
            history.failures += 1
        pause = backoff_seconds(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, history.failures)
        try:
            ended_at = parse_timestamp(state.ended_at or request.metadata.creation_timestamp or "")
        except BadTimestamp:
            ended_at = 0
        left = ended_at + pause - time.time()
        if left > 0:
            return min(left, pause)
        await self._delete(request)
        return None

    async def _delete(self, request: PodGroup) -> None:
        metadata = request.metadata
        await self._client.delete(object_path(API_VERSION, PLURAL, metadata.namespace, metadata.name), metadata.uid)

    async def _report(self, gang_id: str, waiting: list[Waiting], history: _History, note: str) -> None:
        if history.note == note:
            return
        first = min(waiting, key=lambda member: member.name)
        about = ObjectReference("v1", "Pod", _namespace(gang_id), first.name, first.uid)
        await self._events.record(about, "NotProvisioned", note, action=_ACTION)
        history.note = note


def _gang_id(request: PodGroup) -> str:
    """The id of its gang, if the request is one of ours."""
    gang_id = (request.metadata.annotations or {}).get(GANG, "")
    ours = gang_id.count("/") >= 2 and _namespace(gang_id) == request.metadata.namespace
    return gang_id if ours and request.metadata.name == request_name(gang_id) else ""


def _namespace(gang_id: str) -> str:
    """The namespace of a gang id: "dialect/namespace/name"."""
    return gang_id.split("/", 2)[1]

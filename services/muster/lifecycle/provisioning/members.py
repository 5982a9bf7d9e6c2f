"""Keeps the pods of gangs that want ProvisioningRequests, as the controller needs them."""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from muster.dialects.muster_annotations import PROVISIONING_REQUEST
from muster.dialects.registry import membership_of
from muster.kube.gang_marks import gang_marks
from muster.kube.object_changes import Removed
from muster.kube.objects import UNREADABLE, Pod
from muster.lifecycle.provisioning.request import CONSUMES, CONSUMES_FORMERLY, Waiting, request_name, template_of


class Member(Struct, frozen=True):
    """A pod that is not bound, of a gang that wants a request, or wanted one."""

    gang_id: str
    namespace: str
    waiting: Waiting
    wants: bool
    asks: bool
    """It wants a request, and Muster reported that nodes would help it."""
    consumes: str
    """The request whose consumer it is, whoever created that; empty: none."""


class Members:
    """Members by gang, each until its pod is bound, ends, or is removed (I11). Gated pods are none."""

    def __init__(self, scheduler_names: frozenset[str]) -> None:
        self._scheduler_names = scheduler_names
        self._gang_of: dict[str, str] = {}
        self._by_gang: dict[str, dict[str, Member]] = {}

    def put(self, change: Pod | Removed) -> set[str]:
        """Applies a change of a pod; returns the gangs that it changes."""
        uid = change.uid if isinstance(change, Removed) else change.metadata.uid
        after = None if isinstance(change, Removed) else self._member(change)
        gang_id = self._gang_of.get(uid)
        before = self._by_gang[gang_id][uid] if gang_id is not None else None
        if before == after:
            return set()
        if before is not None:
            del self._gang_of[uid]
            of_gang = self._by_gang[before.gang_id]
            del of_gang[uid]
            if not of_gang:
                del self._by_gang[before.gang_id]
        if after is not None:
            self._gang_of[uid] = after.gang_id
            self._by_gang.setdefault(after.gang_id, {})[uid] = after
        return {member.gang_id for member in (before, after) if member is not None}

    def of(self, gang_id: str) -> list[Member]:
        """The members of a gang, by name."""
        return sorted(self._by_gang.get(gang_id, {}).values(), key=lambda member: member.waiting.name)

    def gangs(self) -> list[str]:
        """Ids of gangs with members."""
        return list(self._by_gang)

    def _member(self, pod: Pod) -> Member | None:
        metadata, annotations = pod.metadata, pod.metadata.annotations or {}
        wants, consumes = annotations.get(PROVISIONING_REQUEST) == "true", _consumed(annotations)
        if not (wants or consumes) or pod.spec.node_name or metadata.deletion_timestamp is not None:
            return None
        if pod.spec.scheduling_gates:  # whoever gated it may yet add annotations, as Kueue does
            return None
        if pod.spec.scheduler_name not in self._scheduler_names or pod.status.phase in ("Succeeded", "Failed"):
            return None
        marks = gang_marks(pod)
        membership = membership_of(marks) if marks else None
        if membership is None or not membership.gang_id:
            return None
        if not wants and consumes != request_name(membership.gang_id):
            return None
        waiting = Waiting(metadata.uid, metadata.name, template_of(pod))
        return Member(membership.gang_id, metadata.namespace, waiting, wants, wants and _asks(pod), consumes)


def _consumed(annotations: Mapping[str, str]) -> str:
    return next((annotations[key] for key in (CONSUMES, CONSUMES_FORMERLY) if key in annotations), "")


class _Condition(Struct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = None


_conditions: Final = msgspec.json.Decoder(list[_Condition] | None)
_WAITS_FOR_NODES: Final = _Condition("PodScheduled", "False", "Unschedulable")


def _asks(pod: Pod) -> bool:
    if not pod.status.conditions:
        return False
    try:
        return _WAITS_FOR_NODES in (_conditions.decode(pod.status.conditions) or ())
    except UNREADABLE:
        return False

"""Progress of Sakkara's groups: status, placement and times in the ConfigMap, ranks in labels of the pods.

    status              Waiting, Ready, Assigned, Permitted, Bound, Ended; Preempted
    placement           {"root": {"rack-0": {"node-0": {"pod-0": {}, "pod-4": {}}}}}
    rank                [(pod-0,0) (pod-4,1)]
    preemptor           the group that preempted it, until it is assigned nodes again
    schedBeginTime, schedEndTime, schedTotalTimeMilli, schedSolverTimeMilli

Before a pod is bound it gets labels with its rank, the number of attempts, and the status Permitted; when all pods are
bound the status becomes Bound. Pending pods have no labels, unless they lost a node that they had. The pod of a group
of one has rank 0.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from muster.dialects.progress import MemberProgress, ObjectWrite, PodWrite, Progress, Stage, Writes
from muster.topology.ranks import natural_order

MEMBER_RANK: Final = "sakkara.member.rank"
MEMBER_STATUS: Final = "sakkara.member.status"
MEMBER_RETRIES: Final = "sakkara.member.retries"

STATUS, PLACEMENT, RANK, PREEMPTOR, OMITTED = "status", "placement", "rank", "preemptor", "omitted"
BEGIN, END = "schedBeginTime", "schedEndTime"
TOTAL_MILLI, SOLVER_MILLI = "schedTotalTimeMilli", "schedSolverTimeMilli"

KEYS: Final = (STATUS, PLACEMENT, RANK, PREEMPTOR, OMITTED, BEGIN, END, TOTAL_MILLI, SOLVER_MILLI)
"""Keys of the ConfigMap that are written."""

MAX_BYTES: Final = 900_000
"""Limit on placement and ranks together, encoded. A patch and a ConfigMap's data may have 1 MiB each."""

_WAITING: Final = "Waiting"
_BOUND: Final = "Bound"
_PERMITTED: Final = "Permitted"
_STATUSES: Final[Mapping[Stage, str]] = {
    Stage.GATHERING: _WAITING,
    Stage.READY: "Ready",
    Stage.ASSIGNED: "Assigned",
    Stage.PERMITTED: _PERMITTED,
    Stage.BOUND: _BOUND,
    Stage.ENDED: "Ended",
    Stage.TIMED_OUT: _WAITING,
    Stage.PREEMPTED: "Preempted",
}
_ASSIGNED: Final = frozenset({Stage.ASSIGNED, Stage.PERMITTED, Stage.BOUND, Stage.ENDED})
_PENDING: Final = frozenset({Stage.GATHERING, Stage.READY, Stage.TIMED_OUT})
_ROOT: Final = "root"

_Data = dict[str, str | None]
"""Keys of the ConfigMap. None removes a key."""


def write_progress(progress: Progress) -> Writes:
    """Returns the writes to the group's ConfigMap and to its pods."""
    objects: tuple[ObjectWrite, ...] = ()
    if progress.facts.definition is not None:
        data = {**_status(progress), **_placement_and_rank(progress), **_times(progress)}
        objects = (ObjectWrite(progress.facts.definition, "configmaps", patch={"data": data}),)
    return Writes(objects, _labels(progress))


def labels_at_bind(rank: int | None, attempts: int) -> Mapping[str, str]:
    """Returns the labels that a pod gets before it is bound, so that its first container can read its rank."""
    return {MEMBER_RANK: str(rank or 0), MEMBER_STATUS: _PERMITTED, MEMBER_RETRIES: str(attempts)}


def _status(progress: Progress) -> _Data:
    data: _Data = {STATUS: _STATUSES[progress.stage]}
    if progress.preemptor:
        data[PREEMPTOR] = _preemptor(progress)
    elif progress.stage in _ASSIGNED:
        data[PREEMPTOR] = None
    return data


def _preemptor(progress: Progress) -> str:
    """Returns the preemptor's name, with its namespace if that differs from the group's."""
    namespace, _, name = progress.preemptor.partition("/")[2].partition("/")
    return name if namespace == progress.facts.namespace else f"{namespace}/{name}"


def _placement_and_rank(progress: Progress) -> _Data:
    placed = [each for each in progress.members if each.node] if progress.stage in _ASSIGNED else []
    if not placed:
        return {PLACEMENT: None, RANK: None, OMITTED: None}
    if len(placed) == 1:
        placed = [replace(placed[0], rank=placed[0].rank or 0)]
    placed.sort(key=_by_rank)
    placement = _placement(placed)
    rank = "[" + " ".join(f"({each.name},{each.rank})" for each in placed if each.rank is not None) + "]"
    size = len(msgspec.json.encode((placement, rank)))
    if size > MAX_BYTES:
        reason = f"placement and rank have {size} bytes, too many for a ConfigMap; each pod has its rank as a label"
        return {PLACEMENT: None, RANK: None, OMITTED: reason}
    return {PLACEMENT: placement, RANK: rank, OMITTED: None}


def _placement(members: list[MemberProgress]) -> str:
    """Returns the pods by domain and node, from the top of the tree. Nodes outside the tree are below the root."""
    tree: dict[str, Any] = {}
    for each in members:
        domain = tree
        for name in (_ROOT, *each.domains, each.node):
            domain = domain.setdefault(name, {})
        domain[each.name] = {}
    return msgspec.json.encode(tree).decode()


def _times(progress: Progress) -> _Data:
    """Returns the known times. Times of the last start stay until the next start begins."""
    if progress.stage in (Stage.BOUND, Stage.ENDED):
        return _final_times(progress)
    if progress.stage in (Stage.GATHERING, Stage.PREEMPTED) or not progress.began:
        return {}
    return {BEGIN: _rfc_3339(progress.began), END: None, TOTAL_MILLI: None, SOLVER_MILLI: None}


def _final_times(progress: Progress) -> _Data:
    data: _Data = {}
    if progress.began:
        data[BEGIN] = _rfc_3339(progress.began)
    if progress.ended:
        data[END] = _rfc_3339(progress.ended)
    if progress.began and progress.ended:
        data[TOTAL_MILLI] = str(max(0, round(1000 * (progress.ended - progress.began))))
    if progress.solver_seconds:
        data[SOLVER_MILLI] = str(round(1000 * progress.solver_seconds))
    return data


def _rfc_3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _labels(progress: Progress) -> tuple[PodWrite, ...]:
    if progress.stage is Stage.BOUND:
        bound = (each for each in progress.members if each.bound)
        return tuple(
            PodWrite(each.uid, each.name, {**labels_at_bind(each.rank, each.attempts), MEMBER_STATUS: _BOUND})
            for each in bound
        )
    if progress.stage in _PENDING:
        status = _STATUSES[progress.stage]
        without_node = (each for each in progress.members if each.rank is not None and not each.node)
        return tuple(
            PodWrite(
                each.uid, each.name, {MEMBER_STATUS: status, MEMBER_RETRIES: str(each.attempts), MEMBER_RANK: None}
            )
            for each in without_node
        )
    return ()


def _by_rank(member: MemberProgress) -> tuple[bool, int, list[str | int]]:
    rank = member.rank
    return rank is None, rank if rank is not None else 0, natural_order(member.name)

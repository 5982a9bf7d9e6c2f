"""What Sakkara's users find written of their group: in its ConfigMap where it is and how it got there, and on its pods.

    status              Waiting, Ready, Assigned, Permitted, Bound; Preempted
    placement           {"root": {"rack-0": {"node-0": {"pod-0": {}, "pod-4": {}}}}}
    rank                [(pod-0,0) (pod-4,1)]
    preemptor           the group that it was evicted for, until it has places again
    schedBeginTime, schedEndTime, schedTotalTimeMilli, schedSolverTimeMilli

A pod has its rank, how often its group was tried, and the status Permitted as labels before it is bound; when all are,
the status becomes Bound. Pods that wait have no labels, unless they had a place and lost it. A group of one has rank 0.
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

LARGEST_BYTES: Final = 900_000
"""Of placement and ranks together, as a patch has them: it may have 1 MiB, and so may a ConfigMap's data."""

_WAITING: Final = "Waiting"
_BOUND: Final = "Bound"
_PERMITTED: Final = "Permitted"
_STATUS: Final[Mapping[Stage, str]] = {
    Stage.GATHERING: _WAITING,
    Stage.READY: "Ready",
    Stage.ASSIGNED: "Assigned",
    Stage.PERMITTED: _PERMITTED,
    Stage.BOUND: _BOUND,
    Stage.TIMED_OUT: _WAITING,
    Stage.PREEMPTED: "Preempted",
}
_HAVE_PLACES: Final = frozenset({Stage.ASSIGNED, Stage.PERMITTED, Stage.BOUND})
_HAVE_NONE: Final = frozenset({Stage.GATHERING, Stage.READY, Stage.TIMED_OUT})
_ROOT: Final = "root"

_Data = dict[str, str | None]
"""Keys of the ConfigMap; None: to be removed."""


def tell(progress: Progress) -> Writes:
    """What is to be written now that the group has come so far."""
    objects: tuple[ObjectWrite, ...] = ()
    if progress.facts.definition is not None:
        data = {**_standing(progress), **_where(progress), **_times(progress)}
        objects = (ObjectWrite(progress.facts.definition, "configmaps", patch={"data": data}),)
    return Writes(objects, _labels(progress))


def labels_at_bind(rank: int | None, tries: int) -> Mapping[str, str]:
    """Labels that a pod has before it is bound, so that its first container finds its rank."""
    return {MEMBER_RANK: str(rank or 0), MEMBER_STATUS: _PERMITTED, MEMBER_RETRIES: str(tries)}


def _standing(progress: Progress) -> _Data:
    data: _Data = {STATUS: _STATUS[progress.stage]}
    if progress.preemptor:
        data[PREEMPTOR] = _name_for(progress)
    elif progress.stage in _HAVE_PLACES:  # until then it tells why the group waits again
        data[PREEMPTOR] = None
    return data


def _name_for(progress: Progress) -> str:
    """The preemptor's name, with its namespace if that is another one."""
    namespace, _, name = progress.preemptor.partition("/")[2].partition("/")
    return name if namespace == progress.facts.namespace else f"{namespace}/{name}"


def _where(progress: Progress) -> _Data:
    placed = [each for each in progress.members if each.node] if progress.stage in _HAVE_PLACES else []
    if not placed:
        return {PLACEMENT: None, RANK: None, OMITTED: None}
    if len(placed) == 1:
        placed = [replace(placed[0], rank=placed[0].rank or 0)]
    placed.sort(key=_by_rank)
    placement = _placement(placed)
    rank = "[" + " ".join(f"({each.name},{each.rank})" for each in placed if each.rank is not None) + "]"
    size = len(msgspec.json.encode((placement, rank)))
    if size > LARGEST_BYTES:
        why = f"placement and rank have {size} bytes, more than a ConfigMap holds; each pod has its rank as a label"
        return {PLACEMENT: None, RANK: None, OMITTED: why}
    return {PLACEMENT: placement, RANK: rank, OMITTED: None}


def _placement(members: list[MemberProgress]) -> str:
    """Who is where, from the top of the tree; a node outside of it stands below the root."""
    tree: dict[str, Any] = {}
    for each in members:
        domain = tree
        for name in (_ROOT, *each.domains, each.node):
            domain = domain.setdefault(name, {})
        domain[each.name] = {}
    return msgspec.json.encode(tree).decode()


def _times(progress: Progress) -> _Data:
    """What is not known is left as it stands, and so are the times of a start until the next one begins."""
    if progress.stage is Stage.BOUND:
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
            PodWrite(each.uid, each.name, {**labels_at_bind(each.rank, each.tries), MEMBER_STATUS: _BOUND})
            for each in bound
        )
    if progress.stage in _HAVE_NONE:
        status = _STATUS[progress.stage]
        unseated = (each for each in progress.members if each.rank is not None and not each.node)
        return tuple(
            PodWrite(each.uid, each.name, {MEMBER_STATUS: status, MEMBER_RETRIES: str(each.tries), MEMBER_RANK: None})
            for each in unseated
        )
    return ()


def _by_rank(member: MemberProgress) -> tuple[bool, int, list[str | int]]:
    rank = member.rank
    return rank is None, rank if rank is not None else 0, natural_order(member.name)

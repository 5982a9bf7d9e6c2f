"""Surplus of running gangs: bound pods and whole subgroups that a gang can lose and keep its minimums, in their order.

Pods go one by one: the lowest deletion cost first, then the highest position, then the youngest. The leader, and pods
that nobody would recreate, only go with the whole gang. A subgroup keeps its size, or goes whole: one that lacks
members first, then the one whose highest deletion cost is lowest, then the last; a gang keeps as many whole subgroups
of each policy as must start together. What goes one by one is counted first; whole subgroups go as far as the gang's
minimum then permits.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.gang.subgroups import NO_POLICY, RunningSubgroup, running_subgroups
from muster.gangs.facts import INDEX_0, PodFacts
from muster.gangs.selection import PodSelection


def spare(gang: Gang) -> int:
    """How many bound pods the gang has above its minimum, if it may lose some of them and keep the others."""
    if not _is_elastic(gang):
        return 0
    return max(0, len(gang.bound) - gang.required)


class SpareSubgroup(NamedTuple):
    """A subgroup that can go whole: its pods, but for those that can go one by one."""

    id: str
    pods: list[PodFacts]
    singly: list[PodFacts]


class Losses(NamedTuple):
    """The bound pods of a gang by how it can lose them. Any of `singly` and `subgroups` together leave its minimums."""

    singly: list[PodFacts]
    subgroups: list[SpareSubgroup]
    rest: list[PodFacts]
    """Lost with the whole gang only."""


def losses(gang: Gang, selection: PodSelection) -> Losses:
    """The bound pods of a gang by how it can lose them, each kind in the order in which it gives them up."""
    in_order = given_up_order(gang)
    left, kept = spare(gang), kept_pods(gang, in_order)
    if gang.facts is None or not gang.facts.subgroups:
        singly = [pod for pod in in_order if pod.uid not in kept][:left]
        gone = {pod.uid for pod in singly}
        return Losses(singly, [], [pod for pod in in_order if pod.uid not in gone])
    groups = running_subgroups(gang, selection)
    of_pod = {pod.uid: group for group in groups for pod in group.pods}
    counts = Counter({group.id: len(group.pods) for group in groups})
    singly = []
    for pod in in_order if left else ():
        group = of_pod[pod.uid]
        if len(singly) < left and pod.uid not in kept and counts[group.id] > group.size:
            counts[group.id] -= 1
            singly.append(pod)
    gone = {pod.uid for pod in singly}
    subgroups: list[SpareSubgroup] = []
    left -= len(singly)
    whole = Counter(group.policy for group in groups if group.whole)
    for _, group in sorted(enumerate(groups), key=_first_given_up) if left else ():
        pods = [pod for pod in group.pods if pod.uid not in gone]
        needed = group.whole and whole[group.policy] <= gang.facts.subgroups[group.policy].minimum
        if group.policy == NO_POLICY or needed or len(pods) > left or any(pod.uid in kept for pod in group.pods):
            continue
        left -= len(pods)
        whole[group.policy] -= group.whole
        subgroups.append(SpareSubgroup(group.id, pods, [pod for pod in group.pods if pod.uid in gone]))
    gone.update(pod.uid for subgroup in subgroups for pod in subgroup.pods)
    return Losses(singly, subgroups, [pod for pod in in_order if pod.uid not in gone])


def _is_elastic(gang: Gang) -> bool:
    """The gang may lose members and keep others."""
    return gang.facts is not None and not gang.facts.evicted_whole and gang.minimum_known


def _first_given_up(numbered: tuple[int, RunningSubgroup]) -> tuple[bool, int, int]:
    number, group = numbered
    return group.whole, max(pod.deletion_cost for pod in group.pods), -number


def keeps_minimums(gang: Gang, lost: Collection[str], selection: PodSelection) -> bool:
    """The gang may be shrunk by these pods, which are bound or being evicted."""
    if gang.facts is None or not _is_elastic(gang) or len(gang.bound.keys() - lost) < gang.required:
        return False
    if not gang.facts.subgroups:
        return True
    whole: Counter[int] = Counter()
    shrunk = set()
    for group in running_subgroups(gang, selection, lost):
        left = sum(pod.uid not in lost for pod in group.pods)
        if group.policy == NO_POLICY or left == len(group.pods):
            whole[group.policy] += group.whole
            continue
        if 0 < left < group.size:
            return False
        whole[group.policy] += left >= group.size
        if not left and group.whole:
            shrunk.add(group.policy)
    return all(whole[policy] >= gang.facts.subgroups[policy].minimum for policy in shrunk)


def given_up_order(gang: Gang) -> list[PodFacts]:
    """The bound pods in the order in which the gang gives them up."""
    return sorted((gang.pods[uid] for uid in gang.bound), key=given_up_key(gang))


def given_up_key(gang: Gang) -> Callable[[PodFacts], tuple[int, int, int, str]]:
    """Key of the order in which a gang gives up its pods: by deletion cost, then the highest position, the youngest."""

    def key(pod: PodFacts) -> tuple[int, int, int, str]:
        return pod.deletion_cost, -_position(gang, pod), -pod.created_seconds, pod.name

    return key


def kept_pods(gang: Gang, pods: Iterable[PodFacts]) -> frozenset[str]:
    """Uids of those that are only lost with the whole gang: its leader, and pods that nobody would recreate."""
    pods = list(pods)
    leader = _leader(gang, pods)
    return frozenset(pod.uid for pod in pods if pod.uncontrolled or pod is leader)


def _position(gang: Gang, pod: PodFacts) -> int:
    """The pod's ordinal, else the one of its rank; 0: it has neither."""
    return pod.ordinal or gang.permit.ranks.get(pod.uid, -INDEX_0) + INDEX_0


def _leader(gang: Gang, pods: Iterable[PodFacts]) -> PodFacts | None:
    """The pod with the lowest position, which the gang keeps whatever it costs; None: no position is known."""
    known = ((position, pod.created_seconds, pod.name, pod) for pod in pods if (position := _position(gang, pod)))
    return min(known, key=lambda each: each[:3], default=(None,))[-1]

"""Subgroups of a gang: which members are in which, and which of them an attempt may place.

The first policy that selects a member, and whose labels the member has, decides its subgroup; other members are in
none. Before the start of the gang, a subgroup is complete if it has as many members as it needs; the others are placed
once they are complete. After the start, a subgroup that runs and lacks members takes them one by one, and grows in
batches; one that preemption shrank does not grow for a while (`elastic/growth`).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.gang.state import PartGrowth
from muster.gangs.facts import PodFacts, SubgroupPolicy
from muster.gangs.quoting import quoted
from muster.gangs.selection import PodSelection
from muster.topology.ranks import natural_order

MAX_SUBGROUPS: Final = 100
"""Subgroups of one gang with pending members."""

NO_POLICY: Final = -1
"""In place of the index of a policy: members without a subgroup."""

_DELIMITER: Final = "#"  # never part of a gang's id
_Key = tuple[int, tuple[str, ...]]
"""Index of the policy, and the values of its labels."""
_ALONE: Final[_Key] = (NO_POLICY, ())


def gang_id_of(requested: str) -> str:
    """The id of a gang, given the id under which it, or one of its subgroups, is in a solve request."""
    return requested.partition(_DELIMITER)[0]


def subgroup_id(gang: Gang, name: str) -> str:
    """The id of a subgroup of the gang in solve requests."""
    return f"{gang.id}{_DELIMITER}{name}"


def subgroup_name_of(requested: str) -> str:
    """The name of a subgroup, given its id in a solve request; empty for a gang."""
    return requested.partition(_DELIMITER)[2]


class Subgroup(NamedTuple):
    """Members of one subgroup, or those in none: pending ones, and how many are on which node with which class."""

    id: str
    """The id in solve requests."""
    policy: int
    pending: list[PodFacts]
    held: Counter[tuple[str, str]]


class RunningSubgroup(NamedTuple):
    """Bound members of one subgroup, or those in none."""

    id: str
    policy: int
    size: int
    """Least number of members with which it starts; 0 for those in none."""
    pods: list[PodFacts]

    @property
    def whole(self) -> bool:
        """Whether the subgroup has the members that it needs."""
        return self.policy != NO_POLICY and len(self.pods) >= self.size


class Attempt(NamedTuple):
    """The subgroups that an attempt may place, and the least number of members of each."""

    subgroups: list[tuple[Subgroup, int]]
    needed: dict[int, int]
    """Subgroups that must be placed, by policy."""
    members: int
    """Least number of members in all; 0: as many as the subgroups need."""
    later: bool
    """The gang has started: any of its subgroups may be placed."""


def divide(gang: Gang, selection: PodSelection) -> list[Subgroup]:
    """The subgroups with pending members or members that have a place, in the order of policies and names."""
    assert gang.facts is not None
    known: dict[str, _Key] = {}
    found: dict[_Key, Subgroup] = {}

    def subgroup(label_set: str) -> Subgroup:
        key = known.get(label_set)
        if key is None:
            key = known[label_set] = _key(gang, selection.labels(label_set))
        group = found.get(key)
        if group is None:
            group = found[key] = Subgroup(_id(gang, key), key[0], [], Counter())
        return group

    for pod in gang.pending.values():
        subgroup(pod.label_set).pending.append(pod)
    for uid in gang.bound:
        pod = gang.pods[uid]
        subgroup(pod.label_set).held[pod.node, pod.class_id] += 1
    for seat in (*gang.unbound_seats, *gang.acknowledged.values()):
        subgroup(seat.label_set).held[seat.node, seat.class_id] += 1
    return [found[key] for key in sorted(found, key=_order)]


def running_subgroups(gang: Gang, selection: PodSelection, leaving: Collection[str] = ()) -> list[RunningSubgroup]:
    """The subgroups with bound members, in the order of policies and names. `leaving` members count, too."""
    assert gang.facts is not None
    known: dict[str, _Key] = {}
    found: dict[_Key, list[PodFacts]] = {}
    for uid in gang.bound if not leaving else dict.fromkeys((*gang.bound, *leaving)):
        if (pod := gang.pods.get(uid)) is None:
            continue
        key = known.get(pod.label_set)
        if key is None:
            key = known[pod.label_set] = _key(gang, selection.labels(pod.label_set))
        found.setdefault(key, []).append(pod)
    policies = gang.facts.subgroups
    return [
        RunningSubgroup(_id(gang, key), key[0], policies[key[0]].size if key[0] != NO_POLICY else 0, found[key])
        for key in sorted(found, key=_order)
    ]


def is_bound_by_others(gang: Gang, selection: PodSelection) -> bool:
    """The gang runs without a permit: another scheduler bound as many members, and whole subgroups, as must start
    together.
    """
    if not gang.bound_by_others:
        return False
    return _are_enough(gang, (each.policy for each in running_subgroups(gang, selection) if each.whole))


def has_subgroups(gang: Gang, selection: PodSelection) -> bool:
    """As many subgroups as must start together have their size, by members that run or have a seat."""
    subgroups = divide(gang, selection)
    return _are_enough(gang, (each.policy for each in subgroups if each.held.total() >= _size(gang, each)))


def _are_enough(gang: Gang, whole: Iterable[int]) -> bool:
    """So many whole subgroups, by policy, are those that must start together."""
    counts = Counter(whole)
    return gang.facts is None or all(counts[index] >= each.minimum for index, each in enumerate(gang.facts.subgroups))


def parts_of(gang: Gang, uids: Iterable[str], selection: PodSelection) -> set[str]:
    """Ids of the subgroups in which these members are; that of the gang for members in none."""
    if gang.facts is None or not gang.facts.subgroups:
        return {gang.id}
    label_sets = {gang.pods[uid].label_set for uid in uids if uid in gang.pods}
    return {_id(gang, _key(gang, selection.labels(label_set))) for label_set in label_sets}


def surplus_parts(gang: Gang, selection: PodSelection) -> list[str]:
    """Ids of the subgroups with pending surplus of a gang that has its minimum: those that have their size; that of the
    gang for members in none.
    """
    if gang.facts is None or not gang.facts.subgroups:
        return [gang.id]
    return [each.id for each in divide(gang, selection) if each.pending and _is_complete(gang, each)]


class HeldOff(NamedTuple):
    """Members of a gang that are not placed, since their part was shrunk a short while ago."""

    growth: PartGrowth
    """Of the part that may grow first."""
    name: str
    """The name; empty: it is no subgroup."""
    uids: frozenset[str]
    others: bool
    """The gang has other pending members that may be placed."""


def held_off(gang: Gang, selection: PodSelection) -> HeldOff | None:
    """Pending members of a gang that do not grow it yet; None: there are none."""
    if gang.growth.held_off is None or not gang.has_minimum:
        return None
    if gang.facts is None or not gang.facts.subgroups:
        return HeldOff(gang.growth.held_off, "", frozenset(gang.pending), others=False)
    paused: list[tuple[PartGrowth, Subgroup]] = []
    others = False
    for each in divide(gang, selection):
        if (growth := _hold_off(gang, each)) is not None and each.pending:
            paused.append((growth, each))
        elif each.pending and len(each.pending) >= _least(gang, each):
            others = True
    if not paused:
        return None
    first, subgroup = min(paused, key=lambda pair: pair[0].not_before)
    uids = frozenset(pod.uid for _, each in paused for pod in each.pending)
    return HeldOff(first, subgroup_name_of(subgroup.id), uids, others)


def attempt_of(gang: Gang, selection: PodSelection, *, to_run: bool = False) -> Attempt | str:
    """Subgroups and members that an attempt may place, or why there is nothing to place now. `to_run`: after the start,
    it must place as many members as the gang's minimum needs.
    """
    subgroups = divide(gang, selection)
    waiting = sum(bool(each.pending) for each in subgroups if each.policy != NO_POLICY)
    if waiting > MAX_SUBGROUPS:
        return f"its pods are in {waiting} subgroups, but at most {MAX_SUBGROUPS} are supported: make them larger"
    if not gang.permit.granted:
        return _first(gang, subgroups)
    return _later(gang, subgroups, gang.must_place_to_run if to_run else gang.must_place)


def _first(gang: Gang, subgroups: list[Subgroup]) -> Attempt | str:
    assert gang.facts is not None
    policies, needed = gang.facts.subgroups, gang.must_place
    pending = [each for each in subgroups if each.pending]
    complete = [each for each in pending if len(each.pending) + each.held.total() >= _size(gang, each)]
    counts = Counter(each.policy for each in complete)
    held = Counter(each.policy for each in subgroups if not each.pending and each.held.total() >= _size(gang, each))
    for index, policy in enumerate(policies):
        if (exist := counts[index] + held[index]) < policy.minimum:
            missing = f"{exist} of {policy.minimum} subgroups {quoted(policy.name)}"
            return f"{missing} have the {policy.size} members that each needs"
    members = sum(len(each.pending) for each in complete)
    if members < needed:
        left = len(gang.pending) - members
        return (
            f"{members} of {needed} members are in complete subgroups; {left} others are in subgroups that have fewer "
            "members than they need"
        )
    if members == needed:
        return Attempt([(each, len(each.pending)) for each in complete], dict(counts), 0, later=False)
    least = [(each, max(1, _size(gang, each) - each.held.total())) for each in complete]
    places = sum(each.held.total() for each in subgroups)  # they count for their subgroup, and not as members to place
    enough = sum(policy.minimum * policy.size for policy in policies) - places >= needed
    minimums = {index: max(0, policies[index].minimum - held[index]) if index >= 0 else 0 for index in counts}
    return Attempt(least, minimums, 0 if enough else needed, later=False)


def _later(gang: Gang, subgroups: list[Subgroup], needed: int) -> Attempt | str:
    least, has_minimum = [], gang.has_minimum
    for each in subgroups:
        if has_minimum and _hold_off(gang, each) is not None:
            continue
        minimum = _least(gang, each)
        if has_minimum and _is_complete(gang, each) and not (gang.nominated or _is_placed_in_part(gang, each)):
            minimum = len(each.pending)  # its surplus is one batch
        if 0 < minimum <= len(each.pending):
            least.append((each, minimum))
    least.sort(key=lambda subgroup: subgroup[0].held.total() >= _size(gang, subgroup[0]))  # surplus comes last
    if not least:
        return f"{len(gang.pending)} later pods are in subgroups that have fewer members than they need"
    return Attempt(least, {}, needed if needed > 1 else 0, later=True)


def _least(gang: Gang, subgroup: Subgroup) -> int:
    """The least number of later members of a subgroup that are placed."""
    held = subgroup.held.total()
    return 1 if held and gang.placed_singly else max(1, _size(gang, subgroup) - held)


def _is_complete(gang: Gang, subgroup: Subgroup) -> bool:
    """The pending members are surplus of the subgroup, too: it has its size without them."""
    return subgroup.policy == NO_POLICY or subgroup.held.total() >= _size(gang, subgroup)


def _is_placed_in_part(gang: Gang, subgroup: Subgroup) -> bool:
    growth = gang.growth.parts.get(subgroup.id)
    return growth is not None and growth.in_part


def _hold_off(gang: Gang, subgroup: Subgroup) -> PartGrowth | None:
    """The hold-off of a subgroup of a gang that has its minimum; None: it may be placed. One that runs and lacks
    members is completed at once.
    """
    growth = gang.growth.parts.get(subgroup.id)
    if growth is None or not growth.held_off:
        return None
    return growth if _is_complete(gang, subgroup) or not subgroup.held else None


def _size(gang: Gang, subgroup: Subgroup) -> int:
    assert gang.facts is not None
    return gang.facts.subgroups[subgroup.policy].size if subgroup.policy != NO_POLICY else 1


def assignments(policies: Iterable[SubgroupPolicy], labels: Mapping[str, str]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The subgroups to which policies assign a member, in their order: the first one counts. Each is the index of the
    policy, and the values of its labels.
    """
    for index, policy in enumerate(policies):
        values = tuple([labels.get(key, "") for key in policy.keys])
        if all(values) and policy.labels.matches(labels):
            yield index, values


def _key(gang: Gang, labels: Mapping[str, str]) -> _Key:
    assert gang.facts is not None
    return next(assignments(gang.facts.subgroups, labels), _ALONE)


def _id(gang: Gang, key: _Key) -> str:
    assert gang.facts is not None
    index, values = key
    return subgroup_id(gang, "/".join((gang.facts.subgroups[index].name, *values))) if index >= 0 else gang.id


def _order(key: _Key) -> tuple[bool, int, list[list[str | int]]]:
    return key[0] < 0, key[0], [natural_order(value) for value in key[1]]

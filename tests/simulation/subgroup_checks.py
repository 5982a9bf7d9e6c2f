"""Checks of gangs with subgroups and in composites when their permits are written, by labels of pods and the tree in
the coordinator's cache.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from muster.coordinator.core.effects import Persist
from muster.coordinator.core.events import Record, RecordState, Seat
from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.machine import Machine
from muster.gangs.facts import SubgroupPolicy

if TYPE_CHECKING:
    from builders.core.scenario import Scenario

LABEL = "subgroup:"


def subgroup_of(label_set: str) -> str:
    """The label that says in which subgroup a pod is; empty: in none."""
    return next((label for label in label_set.split("+") if label.startswith(LABEL)), "")


def part_of(gang: Gang, uid: str) -> str:
    """The subgroup of a member; empty: it is in none, or gone."""
    divided = gang.facts is not None and gang.facts.subgroups
    return subgroup_of(gang.pods[uid].label_set) if divided and uid in gang.pods else ""


def part_of_request(id_: str) -> str:
    """The subgroup that has this id in a solve request; empty: it is none."""
    return f"{LABEL}{name.partition('/')[2]}" if (name := id_.partition("#")[2]) else ""


def lacks_members(gang: Gang, part: str) -> bool:
    """The subgroup runs with fewer members than it needs."""
    if not part or gang.facts is None:
        return False
    seats = (*gang.unbound_seats, *gang.acknowledged.values())
    there = [gang.pods[uid].label_set for uid in gang.bound] + [seat.label_set for seat in seats]
    count = sum(subgroup_of(each) == part for each in there)
    return 0 < count < max((policy.size for policy in gang.facts.subgroups), default=0)


def check_subgroups(scenario: Scenario, persist: Persist) -> None:
    """I1 of subgroups: a gang starts with as many subgroups as it needs, each with its size and in one domain; members
    that get seats later are in the domain of their subgroup.
    """
    for record in persist.puts:
        gang = scenario.leader.cache.gangs[record.gang]
        if record.state is RecordState.UNPERMITTED or gang.facts is None or not gang.facts.subgroups:
            continue
        (policy,) = gang.facts.subgroups
        if record.state is RecordState.BINDING and not gang.permitted:
            _check_start(scenario.leader, gang, record, policy)
        _check_domains(scenario, gang, record, policy)


def check_shrunk(scenario: Scenario, persist: Persist) -> None:
    """A gang that loses some of its pods keeps its minimum, and the size or nothing of each subgroup; and as many whole
    subgroups as it needs, if it loses a whole one. Leaders and pods that nobody would recreate stay,
    unless they borrowed capacity.
    """
    for record in persist.puts:
        gang = scenario.leader.cache.gangs[record.gang]
        lost = {pod.uid for pod in record.evicting} - _evicting_before(scenario, record)
        if not lost or record.state is RecordState.UNPERMITTED or gang.facts is None:
            continue
        assert not gang.facts.evicted_whole, f"surplus: {gang.id} is shrunk, and may not be"
        assert len(gang.bound) >= gang.required, f"surplus: {gang.id} is shrunk to {len(gang.bound)} of {gang.required}"
        bare = [uid for uid in lost if gang.pods[uid].uncontrolled and not record.revoked]
        assert not bare, f"surplus: {gang.id} loses {bare}, which nobody would recreate"
        for policy in gang.facts.subgroups:
            left = Counter(subgroup_of(gang.pods[uid].label_set) for uid in gang.bound)
            taken = Counter(subgroup_of(gang.pods[uid].label_set) for uid in lost)
            for name in taken:
                whole = not name or not left[name] or left[name] >= policy.size
                assert whole, f"surplus: {name} of {gang.id} is shrunk to {left[name]} of {policy.size}"
            if any(name and not left[name] and taken[name] >= policy.size for name in taken):
                count = sum(each >= policy.size for name, each in left.items() if name)
                assert count >= policy.minimum, f"surplus: {gang.id} keeps {count} of {policy.minimum} subgroups"


def _evicting_before(scenario: Scenario, record: Record) -> set[str]:
    """Pods that were to be evicted by all versions of the record that are, or are about to be, in etcd."""
    written = [scenario.etcd[record.gang]] if record.gang in scenario.etcd else []
    written += [each for effect in scenario.under_way if isinstance(effect, Persist) for each in effect.puts]
    return {pod.uid for each in written if each.gang == record.gang for pod in each.evicting}


def _check_start(leader: Machine, gang: Gang, record: Record, policy: SubgroupPolicy) -> None:
    started: Counter[str] = Counter(subgroup_of(gang.pods[seat.uid].label_set) for seat in record.seats)
    already: Counter[str] = Counter(subgroup_of(gang.pods[uid].label_set) for uid in gang.bound)
    counts = started + already
    for name in started:
        enough = counts[name] >= policy.size or not name
        assert enough, f"I1: {name} of {gang.id} starts with {counts[name]} of {policy.size}"
    whole = sum(count >= policy.size for name, count in counts.items() if name)
    assert whole >= policy.minimum, f"I1: {gang.id} starts with {whole} of {policy.minimum} subgroups"


def _check_domains(scenario: Scenario, gang: Gang, record: Record, policy: SubgroupPolicy) -> None:
    """Seats that are not recorded yet are near each other and the members with a place."""
    if not policy.constraints:
        return
    known = {(seat.uid, seat.node) for seat in _recorded(scenario, record)}
    new: defaultdict[str, set[object]] = defaultdict(set)
    old: defaultdict[str, set[object]] = defaultdict(set)
    for seat in record.seats:
        if seat.node and seat.uid in gang.seats:
            where = old if (seat.uid, seat.node) in known else new
            where[subgroup_of(seat.label_set)].add(_rack(scenario.leader, policy.tree, seat.node))
    for uid in gang.bound:
        old[subgroup_of(gang.pods[uid].label_set)].add(_rack(scenario.leader, policy.tree, gang.pods[uid].node))
    for seat in gang.acknowledged.values():
        old[subgroup_of(seat.label_set)].add(_rack(scenario.leader, policy.tree, seat.node))
    for name, racks in new.items():
        if name and len(old[name]) <= 1 and None not in old[name]:  # pods and nodes may have been moved since
            together = racks | old[name]
            assert len(together) == 1, f"constraints: {name} of {gang.id} is divided over {len(together)} domains"


def _recorded(scenario: Scenario, record: Record) -> Iterable[Seat]:
    """Seats in all versions of the record that are, or are about to be, in etcd."""
    written = [scenario.etcd[record.gang]] if record.gang in scenario.etcd else []
    written += [each for effect in scenario.under_way if isinstance(effect, Persist) for each in effect.puts]
    return [seat for each in written if each.gang == record.gang for seat in each.seats]


def check_composites(scenario: Scenario, persist: Persist) -> None:
    """Gangs that start together share the domains of the composites that contain them, with those that run."""
    leader, held = scenario.leader, defaultdict[tuple[str, str, str], set[object]](set)
    starting = [record for record in persist.puts if record.state is RecordState.BINDING]
    starting = [record for record in starting if not leader.cache.gangs[record.gang].permitted]
    for record in starting:
        gang = leader.cache.gangs[record.gang]
        for each in gang.facts.composites if gang.facts is not None and not gang.bound else ():
            if each.level:
                racks = {_rack(leader, each.tree, seat.node) for seat in record.seats}
                held[each.name, each.tree, each.level] |= racks
    for (name, _, level), racks in held.items():
        assert len(racks) == 1, f"constraints: composite {name} starts in {len(racks)} of {level}"


def _rack(leader: Machine, tree_name: str, node: str) -> object:
    """The domain of the node; None: it does not exist any more."""
    tree = leader.cache.trees.get(tree_name)
    assert tree is not None, "constraints: gangs start by a tree that does not exist"
    facts = leader.cache.ledger.nodes.get(node)
    return leader.cache.trees.path(tree, facts)[:1] if facts is not None else None

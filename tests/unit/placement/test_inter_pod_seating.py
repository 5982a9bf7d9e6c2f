"""Members seated many at a time get the nodes that they would get one by one."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.placement.clusters import alone, answers, cluster, node, seats
from builders.placement.inter_pod_rules import HOST, ZONE, member, preferred_affinity, spread
from muster.gangs.facts import NodeFacts, SpreadConstraint, Taint, TaintEffect
from muster.placement.inter_pod.seating import water_fill

SPOT = Taint("spot", "", TaintEffect.PREFER_NO_SCHEDULE)

sizes = st.lists(
    st.tuples(st.sampled_from(["z0", "z1", "z2"]), st.integers(0, 4), st.booleans()), min_size=1, max_size=6
)


def nodes_of(listed: list[tuple[str, int, bool]]) -> list[NodeFacts]:
    return [
        node(f"n{index}", cpu, labels={ZONE: zone, HOST: f"n{index}"}, taints=[SPOT] if tainted else [])
        for index, (zone, cpu, tainted) in enumerate(listed)
    ]


@settings(max_examples=200, deadline=None)
@given(sizes, st.integers(1, 10), st.sampled_from(["zone", "host"]))
def test_preferences_are_followed_as_if_seated_one_by_one(
    listed: list[tuple[str, int, bool]], wanted: int, over: str
) -> None:
    nodes = nodes_of(listed)
    rules = spread(ZONE, hard=False) if over == "zone" else preferred_affinity(-100, HOST)
    state = {each.name: cpu for each, (_, cpu, _) in zip(nodes, listed, strict=True)}
    wanted = min(wanted, sum(state.values()))
    if not wanted:
        return
    [answer] = answers(cluster(nodes, [member(**rules)]), alone("g", ("x", wanted)))
    key = ZONE if over == "zone" else HOST
    domain = {each.name: (each.labels[key], bool(each.taints)) for each in nodes}
    members: Counter[str] = Counter()
    expected: Counter[tuple[bool, int]] = Counter()  # tainted, how many members the domain had: how often
    for _ in range(wanted):
        free = [each for each in nodes if state[each.name]]
        best = min(free, key=lambda each: (bool(each.taints), members[each.labels[key]], each.name))
        expected[bool(best.taints), members[best.labels[key]]] += 1
        members[best.labels[key]] += 1
        state[best.name] -= 1
    got: Counter[str] = Counter()
    for name, count in seats(answer).items():
        got[domain[name][0]] += count
    assert sorted(got.values()) == sorted(members.values())
    tainted = sum(count for name, count in seats(answer).items() if domain[name][1])
    assert tainted == sum(count for (is_tainted, _), count in expected.items() if is_tainted)


@settings(max_examples=200, deadline=None)
@given(sizes, st.integers(1, 10), st.integers(1, 2), st.integers(1, 2))
def test_two_spread_constraints_fill_all_domains(
    listed: list[tuple[str, int, bool]], wanted: int, zones: int, hosts: int
) -> None:
    nodes = nodes_of(listed)
    both = member(spread=(SpreadConstraint(zones, ZONE, "job"), SpreadConstraint(hosts, HOST, "job")))
    [answer] = answers(cluster(nodes, [both]), alone("g", ("x", wanted), minimum=1, partial=True))
    if not any(cpu for _, cpu, _ in listed):
        return
    placed = seats(answer)
    by_zone = {zone: sum(placed.get(n.name, 0) for n in nodes if n.labels[ZONE] == zone) for zone, _, _ in listed}
    by_host = [placed.get(each.name, 0) for each in nodes]
    assert max(by_zone.values()) - min(by_zone.values()) <= zones
    assert max(by_host) - min(by_host) <= hosts


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=6), st.integers(0, 30))
def test_water_filling_raises_the_lowest_first(domains: list[tuple[int, int]], wanted: int) -> None:
    counts, capacity = np.array(domains).T
    wanted = min(wanted, int(capacity.sum()))
    shares = water_fill(counts, capacity, wanted, np.arange(len(counts)))
    raised = [(count, state) for count, state in domains]
    for _ in range(wanted):
        at = min((i for i, (_, state) in enumerate(raised) if state), key=lambda i: (raised[i][0], i))
        raised[at] = raised[at][0] + 1, raised[at][1] - 1
    assert (counts + shares).tolist() == [count for count, _ in raised]

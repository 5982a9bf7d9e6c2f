"""Pre-enqueue checks: whether a group may enter the queue, as PreEnqueue plugins of kube-scheduler decide for a pod.

`why_not_yet` is run for every group that an event touched (`Cache.check_readiness`). Its checks, in their order, of
each gang of the group:

- none of its pods is being evicted because the whole gang is;
- if it has its minimum, neither it nor all subgroups with pending members were shrunk a short while ago
  (`elastic/growth`);
- no claim of its pending pods has a stale allocation (`permits/deallocation`);
- its definition exists, and nothing in the declaration is invalid;
- all gangs of its gang group exist, are valid, and declare the same group; or, in composites, so many that each
  composite starts with as many children as it needs;
- its constraints can be satisfied on the levels of its topology tree;
- as many members exist as must start together, and have not timed out;
- its subgroups have the members that they need;
- its members are equal, if it declares that they are;
- its `minResources` are free in the whole cluster, at most for `starvation-after`.

A check returns the reason in words, which users see as the reason of phase Gathering, or None if the gang passes. The
reason is reported with the wait (`report/waits`) that it stands for.
Members that are placed singly (repair, match policy once-satisfied) only need constraints that can be satisfied.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from muster.coordinator.core.cache.device_choices import still_allocated
from muster.coordinator.core.cache.ledger import Ledger
from muster.coordinator.core.cache.nodes import TopologyTrees
from muster.coordinator.core.cache.stale_claims import pods_of, stale_claims
from muster.coordinator.core.gang.composite_trees import lacks_children
from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.gang.subgroups import attempt_of, has_subgroups, held_off
from muster.coordinator.core.gang.uncounted import not_created, uncounted
from muster.coordinator.core.report.reasons import in_units
from muster.coordinator.core.report.waits import Lack, Wait, of_problem
from muster.devices.facts import Claim
from muster.dialects.registry import timeout_annotations
from muster.gangs.counted_resources import is_device_resource
from muster.gangs.facts import Amounts, GangFacts, LevelConstraint, LevelPolicy, PodClass, Severity
from muster.gangs.quoting import quoted
from muster.topology.constraints import as_text, contradictions, on_levels
from muster.topology.ranks import natural_order
from muster.topology.trees import missing_tree, never_parsed


def why_not_yet(
    gangs: Sequence[Gang],
    known: Mapping[str, Gang],
    trees: TopologyTrees,
    ledger: Ledger,
    gang_of: Mapping[str, Gang],
) -> Lack | None:
    """Why `gangs`, placed together, may not be tried; None: they may. `known` are all gangs by id, `gang_of` by uid of
    their pods. Minimum resources come last: nodes would not help before the rest is there.
    """
    last: Lack | None = None
    for gang in gangs:
        lack = _lacks(gang, known, trees, ledger, gang_of)
        if lack is not None:
            named = lack if len(gangs) == 1 else Lack(lack.wait, f"gang {gang.label}: {lack.message}")
            if lack.wait is not Wait.MINIMUM_RESOURCES:
                return named
            last = last or named
    return _as(Wait.GROUP_INCOMPLETE, lacks_children(gangs, known)) or last


def why_not_alone(
    gang: Gang, known: Mapping[str, Gang], trees: TopologyTrees, ledger: Ledger, gang_of: Mapping[str, Gang]
) -> Lack | None:
    """Why a gang may not be tried whatever the others of its tree of composites do; None: it may."""
    return _lacks(gang, known, trees, ledger, gang_of)


def why_not_hold(gangs: Sequence[Gang], known: Mapping[str, Gang], trees: TopologyTrees) -> str | None:
    """Why `gangs` may not even hold the reservations that they have; None: they may. Too few members are no reason:
    more may be created while they wait.
    """
    return next((lack.message for gang in gangs if (lack := _wrongly_declared(gang, known, trees)) is not None), None)


def groups_agree(gang: Gang, known: Mapping[str, Gang]) -> bool:
    """All gangs of the declared group exist and declare the same group."""
    facts = gang.facts
    return facts is not None and all(
        (partner := known.get(id_)) is not None and partner.facts is not None and partner.facts.group == facts.group
        for id_ in facts.group
    )


def _lacks(
    gang: Gang, known: Mapping[str, Gang], trees: TopologyTrees, ledger: Ledger, gang_of: Mapping[str, Gang]
) -> Lack | None:
    if gang.eviction.whole:
        message = f"its pods are being evicted {_evicted_by(gang)}; it starts again when they are gone"
        return Lack(Wait.EVICTED, message)
    if gang.bind.paused:
        message = (
            f"its pods could not be bound again and again, and are placed again after a pause: {gang.bind.failure}"
        )
        return Lack(Wait.BIND_FAILED, message)
    if (paused := held_off(gang, ledger.selection)) is not None and not paused.others:
        what = f"its subgroup {quoted(paused.name)}" if paused.name else "it"
        seconds = paused.growth.hold_off_seconds
        return Lack(Wait.SHRUNK, f"{what} was shrunk, and may grow again {seconds:g} s after that")
    if gang.pending and (stale := _stale(gang, ledger, gang_of)):
        return Lack(Wait.DEALLOCATING, f"{still_allocated(stale[0])}, and is being deallocated")
    if gang.placed_singly:
        if not gang.pending:
            return None
        contradiction = _as(Wait.DECLARATION, _contradictory(gang, trees))
        return contradiction or _as(Wait.INCOMPLETE, _lacks_subgroups(gang, ledger))
    lack = _wrongly_declared(gang, known, trees)
    if lack is not None or gang.facts is None:
        return lack
    if gang.counted < gang.required:
        if gang.timed_out:
            return Lack(Wait.TIMED_OUT, _timed_out(gang))
        return Lack(Wait.INCOMPLETE, _too_few(gang, gang.facts.minimum))
    if (reason := _lacks_subgroups(gang, ledger)) is not None:
        return Lack(Wait.INCOMPLETE, reason)
    if gang.permit.granted:
        return None
    if (reason := heterogeneity(gang, ledger.classes)) is not None:
        return Lack(Wait.DECLARATION, reason)
    return _as(Wait.MINIMUM_RESOURCES, None if gang.timing.waived else lacks_free_resources(gang, ledger))


def _stale(gang: Gang, ledger: Ledger, gang_of: Mapping[str, Gang]) -> list[Claim]:
    """Claims of its pending pods with a stale allocation."""
    found = stale_claims(gang, gang_of, ledger.devices)
    return [each for each in found if not gang.pending.keys().isdisjoint(pods_of(each, gang_of, ledger.devices))]


def _as(wait: Wait, reason: str | None) -> Lack | None:
    return None if reason is None else Lack(wait, reason)


def _wrongly_declared(gang: Gang, known: Mapping[str, Gang], trees: TopologyTrees) -> Lack | None:
    facts = gang.facts
    if facts is None:
        return Lack(Wait.UNDECLARED, "its definition does not exist yet")
    for problem in facts.problems:
        if problem.severity is Severity.BLOCKING:
            return Lack(of_problem(problem.reason), problem.message)
    for id_ in facts.group if not (gang.permit.granted or facts.composites) else ():
        partner = known.get(id_)
        if partner is not gang and (reason := _partner_lacks(gang, id_, partner)) is not None:
            return Lack(Wait.GROUP_INCOMPLETE, reason)
    return _as(Wait.DECLARATION, _contradictory(gang, trees))


def _contradictory(gang: Gang, trees: TopologyTrees) -> str | None:
    """The contradiction to its tree and constraints, for which placement would refuse the whole request."""
    facts = gang.facts
    if facts is None or not facts.named_trees:
        return None
    for each in facts.composites:
        shared = (LevelConstraint(each.level, LevelPolicy.PACK, hard=True),) if each.level else ()
        if shared and (reason := _unsatisfiable(each.tree, shared, (1, 1), trees)) is not None:
            return f"composite {quoted(each.name)}: {reason}"
    for policy in facts.subgroups:
        tree = trees.get(policy.tree)
        constraints = on_levels(policy.constraints, tree.level_names) if tree is not None else ()
        reason = _unsatisfiable(policy.tree, constraints, (policy.size, policy.size), trees)
        if reason is not None:
            return f"subgroups {quoted(policy.name)}: {reason}"
    if facts.subgroups and (wrong := next((each for each in gang.constraints if each.hard and not _packs(each)), None)):
        return f'constraint "{as_text(wrong)}" is not supported for a gang with subgroups: only "hard pack" is'
    if not (facts.constraints or facts.tree):
        return None
    return _unsatisfiable(facts.tree, gang.constraints, _sizes(gang, facts), trees)


def _packs(constraint: LevelConstraint) -> bool:
    return constraint.policy is LevelPolicy.PACK


def _unsatisfiable(
    name: str, constraints: Sequence[LevelConstraint], sizes: tuple[int, int], trees: TopologyTrees
) -> str | None:
    tree = trees.get(name)
    if tree is None:
        return missing_tree(name, trees.named())
    if not constraints:
        return None
    if never_parsed(tree) and any(each.hard for each in constraints):
        return f'topology tree "{tree.name}" cannot be read: {tree.problems[0].message}'
    return _first_contradiction(tuple(constraints), tree.level_names, *sizes, tree.name)


@lru_cache(maxsize=128)  # gangs are checked with every change of a pod; an entry has at most 4,096 characters of text
def _first_contradiction(
    constraints: tuple[LevelConstraint, ...], levels: tuple[str, ...], minimum: int, wanted: int, tree: str
) -> str | None:
    return next(iter(contradictions(constraints, levels, minimum, wanted, tree=tree)), None)


def _lacks_subgroups(gang: Gang, ledger: Ledger) -> str | None:
    """Why no subgroups of the gang may be placed now; None: some may, or the gang has none, or all seats that it needs
    to start.
    """
    if gang.facts is None or not gang.facts.subgroups or (gang.permit.granted and not gang.pending):
        return None
    if not gang.permit.granted and gang.missing <= 0 and has_subgroups(gang, ledger.selection):
        return None
    attempt = attempt_of(gang, ledger.selection)
    return attempt if isinstance(attempt, str) else None


def _sizes(gang: Gang, facts: GangFacts) -> tuple[int, int]:
    """Least and greatest number of members with a place after the next attempt."""
    have_a_place = gang.member_count - len(gang.pending)
    if gang.placed_singly:
        return have_a_place + 1, gang.member_count
    least = have_a_place + max(0, gang.missing)
    return least, max(least, gang.member_count, facts.total if gang.counted < gang.required else 0)


def _evicted_by(gang: Gang) -> str:
    if gang.eviction.preemptor:
        return f"for gang {gang.eviction.preemptor.split('/', 1)[-1]}"
    return "by its repair policy"


def _timed_out(gang: Gang) -> str:
    mark = next(iter(timeout_annotations(gang.id, True)), "of the timeout")
    count = len(gang.hold.marked) + len(gang.hold.marking)
    tried = gang.group.solve.explanation
    last = f"; at its last attempt {tried.summary}" if tried is not None and tried.gang in ("", gang.id) else ""
    return (
        f"{count} of its pods timed out and are not scheduled; edit its declaration, replace the pods, or remove the "
        f"annotation {mark} from them{last}"
    )


def _partner_lacks(gang: Gang, id_: str, partner: Gang | None) -> str | None:
    label = id_.split("/", 1)[1]
    if partner is None or partner.facts is None:
        return f"gang {label} of its gang group does not exist; it must declare the group {_members(gang)}"
    for problem in partner.facts.problems:
        if problem.severity is Severity.BLOCKING:
            return f"gang {label} of its gang group: {problem.message}"
    assert gang.facts is not None
    if partner.facts.group != gang.facts.group:
        return f"gang {label} of its gang group does not declare the same group; it must declare {_members(gang)}"
    return None


def _members(gang: Gang) -> str:
    """The gang group that a gang declares, as a list."""
    names = gang.facts.group if gang.facts is not None else ()
    return f"[{', '.join(quoted(name.split('/', 1)[1]) for name in names)}]"


def _too_few(gang: Gang, minimum: int) -> str:
    return f"{_existing(gang, minimum)}{not_created(gang)}"


def _existing(gang: Gang, minimum: int) -> str:
    if gang.required < minimum:
        return f"{gang.counted} of {gang.required} members exist, besides {len(gang.succeeded)} that succeeded"
    found = uncounted(gang)
    details = f" ({'; '.join(found.in_words())})" if found.in_words() else ""
    verb = "exist" if not found.existing else "can be scheduled"
    return f"{gang.counted} of {minimum} members {verb}{details}"


_COMPARED: Final = {
    "node_selector": "its node selector",
    "required_node_affinity": "its node affinity",
    "preferred_node_affinity": "its preferred node affinity",
    "tolerations": "its tolerations",
    "required_pod_affinity": "its pod affinity",
    "required_pod_anti_affinity": "its pod anti-affinity",
    "preferred_pod_affinity": "its preferred pod affinity",
    "spread": "its topology spread constraints",
    "host_ports": "its host ports",
}
"""Fields that homogeneous pods have in common besides requests; volumes and labels may differ."""
_MOST_NAMED: Final = 5


def heterogeneity(gang: Gang, classes: Mapping[str, PodClass]) -> str | None:
    """Which members of a homogeneous gang differ from the first in what they request of a node, and in what; None:
    none.
    """
    if gang.facts is None or not gang.facts.uniform:
        return None
    members = [*gang.pending, *gang.seats, *gang.acknowledged, *gang.bound]
    if len({gang.pods[uid].class_id for uid in members}) < 2:
        return None
    pods = sorted((gang.pods[uid] for uid in members), key=lambda pod: natural_order(pod.name))
    first = classes[pods[0].class_id]
    others: dict[str, str] = {}
    for pod in pods[1:]:
        if pod.class_id != pods[0].class_id and (what := _difference(first, classes[pod.class_id])):
            others[pod.name] = what
    if not others:
        return None
    name, what = next(iter(others.items()))
    more = [each for each in others if each != name][: _MOST_NAMED - 1]
    beyond = f" and {len(others) - 1 - len(more)} more" if len(others) - 1 > len(more) else ""
    also = f"; so do {', '.join(more)}{beyond}" if more else ""
    return f"its pods must be equal, but {name} differs from {pods[0].name} in {what}{also}"


def _difference(first: PodClass, other: PodClass) -> str:
    """The difference in words; empty: homogeneous pods may differ so. Devices are not compared: of pods that share a
    ResourceClaim, one requests them.
    """
    before, after = dict(first.requests), dict(other.requests)
    for name in sorted(before.keys() | after.keys()):
        if is_device_resource(name):
            continue
        if before.get(name, 0) != after.get(name, 0):
            return f"{name}: {in_units(name, after.get(name, 0))}, not {in_units(name, before.get(name, 0))}"
    return next((words for field, words in _COMPARED.items() if getattr(first, field) != getattr(other, field)), "")


def lacks_free_resources(gang: Gang, ledger: Ledger) -> str | None:
    """Which of the resources that the gang declares are not free in the whole cluster, in words; None: all are.

    Amounts up to what its own members request are left to placement, which knows more than the sum and can choose
    victims. Reservations of its group count as free for it, and it does not wait once it has all seats that it needs to
    start.
    """
    facts = gang.facts
    if facts is None or not facts.resources or gang.missing <= 0 or _free(facts.resources, ledger):
        return None
    seated = _requested((class_id for each in gang.group.gangs for class_id in _held(each)), ledger)
    waiting = _requested((pod.class_id for pod in gang.pending.values()), ledger)
    requested = Counter[str]() if gang.group.non_strict else _requested(_held(gang), ledger) + waiting
    short = []
    for name, amount in facts.resources:
        free = ledger.free_in_all(name) + seated[name] if amount > requested[name] else amount
        if free < amount:
            short.append(f"{in_units(name, amount)} {name} ({in_units(name, max(0, free))} free)")
    return f"its minimum resources are not free in the cluster: {', '.join(short)}" if short else None


def may_be_free(gang: Gang, ledger: Ledger) -> bool:
    """Whether a gang for which `lacks_free_resources` named a resource may have it now; a quick check of the sums."""
    if gang.facts is None or gang.places or len(gang.group.gangs) > 1:  # what they hold counts as free for them
        return True
    return _free(gang.facts.resources, ledger)


def _free(amounts: Amounts, ledger: Ledger) -> bool:
    return all(amount <= ledger.free_in_all(name) for name, amount in amounts)


def could_be_free(amounts: Amounts, ledger: Ledger) -> bool:
    """The schedulable nodes have these amounts in all."""
    capacity = ledger.capacity
    rows = [capacity.rows[node.name] for node in ledger.nodes.values() if node.ready and not node.unschedulable]
    in_all = capacity.allocatable[rows].sum(axis=0, dtype=np.float64)
    columns = capacity.resources
    return all(name in columns and amount <= in_all[columns[name]] for name, amount in amounts)


def _held(gang: Gang) -> Iterator[str]:
    """Classes of its members that have a seat or are bound."""
    yield from (seat.class_id for seat in (*gang.unbound_seats, *gang.acknowledged.values()))
    yield from (gang.pods[uid].class_id for uid in gang.bound)


def _requested(class_ids: Iterable[str], ledger: Ledger) -> Counter[str]:
    requested: Counter[str] = Counter()
    for class_id, count in Counter(class_ids).items():
        for name, amount in ledger.classes[class_id].requests:
            requested[name] += amount * count
    return requested

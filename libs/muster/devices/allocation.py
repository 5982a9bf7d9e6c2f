"""Allocates devices of nodes to claims: counts for many nodes, concrete devices for one.

Counts are computed per shape (see `instance`), not per node: nodes whose devices differ only in what the claims do not
read share one computation, and a node is looked at again only after its slices or allocations changed.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from muster.devices.counting import Copies, copies_of
from muster.devices.facts import Allocation, Claim, Device, DeviceClass, DeviceId, DeviceResult, Selection, Slice
from muster.devices.instance import (
    Instance,
    Member,
    PoolInstance,
    Problem,
    Shape,
    instance_of,
    pool_instance,
    problem_of,
    shape_of,
)
from muster.devices.pools import NodePool, PoolKey, Pools, Stamp
from muster.devices.search import BUDGET, Outcome, Pick, search
from muster.devices.selectors import Matches, SelectorResults, Selectors
from muster.gangs.facts import NodeFacts, NodeOperator, NodeRequirement, NodeSelectorTerm
from muster.gangs.node_filters import term_matches

_MAX_PROBLEMS: Final = 64
_MAX_SHAPES: Final = 4096


class Answer(Struct, frozen=True):
    """Allocations of the claims if the outcome is FOUND. `reason`: why they can be allocated nowhere."""

    outcome: Outcome
    allocations: tuple[Allocation, ...] = ()
    reason: str = ""


class _Known(Struct):
    """Counts of one list of claims: numbers of shapes, by node with the stamp of its pools, and counts by limit."""

    problem: Problem
    shared: int
    nodes: dict[str, tuple[Stamp, int]] = {}
    pools: dict[PoolKey, tuple[int, dict[int, PoolInstance]]] = {}
    """Pools that nodes share, in a version, by view."""
    shapes: dict[Shape, int] = {}
    counts: dict[tuple[int, int], Copies] = {}


class Devices:
    """Pools, classes and allocated devices of a cluster.

    Size: the slices and allocated devices that exist, and counts of at most 64 lists of claims; these hold an entry per
    node, which `remove_node` drops, one per pool that nodes share, and at most 4,096 shapes. A change of a device class
    drops all counts.
    """

    def __init__(self, matches: Matches, budget: int = BUDGET, results: SelectorResults | None = None) -> None:
        """`results`: of another view of the same slices."""
        self.pools = Pools()
        self.results: Final = results or SelectorResults(matches)
        self.classes: dict[str, DeviceClass] = {}
        self.allocated: set[DeviceId] = set()
        self._budget: Final = budget
        self._known: OrderedDict[tuple[tuple[Claim, ...], int], _Known] = OrderedDict()
        self.computed = 0
        """Shapes for which counts were computed."""

    # -- changes

    def put_slice(self, slice_: Slice) -> None:
        self.pools.put(slice_)

    def remove_slice(self, name: str) -> None:
        removed = self.pools.remove(name)
        self.results.forget(name)
        if removed is not None and (key := (removed.driver, removed.pool)) not in self.pools.keys:
            for known in self._known.values():
                known.pools.pop(key, None)

    def put_class(self, device_class: DeviceClass) -> None:
        self.classes[device_class.name] = device_class
        self._known.clear()

    def remove_class(self, name: str) -> None:
        self.classes.pop(name, None)
        self._known.clear()

    def remove_node(self, name: str) -> None:
        """Forget the counts of a node that was removed."""
        self.pools.remove_node(name)
        for known in self._known.values():
            known.nodes.pop(name, None)

    def allocate_ids(self, ids: Iterable[DeviceId]) -> None:
        """Mark devices as allocated; not those with admin access."""
        for each in ids:
            self.allocated.add(each)
            self.pools.touch((each.driver, each.pool))

    def release_ids(self, ids: Iterable[DeviceId]) -> None:
        """Mark devices as free."""
        for each in ids:
            self.allocated.discard(each)
            self.pools.touch((each.driver, each.pool))

    # -- counts

    def how_many(self, node: NodeFacts, claims: Sequence[Claim], limit: int, shared: int = 0) -> Copies:
        """How many pods with the claims from number `shared` on fit; those before are allocated once for all.

        Claims that are allocated already only restrict the node.
        """
        return self._count(self._knowledge(claims, shared), node, claims, limit)

    def number_on(self, node: NodeFacts) -> int:
        """Devices of the pools that have devices for the node."""
        return sum(pool.devices for pool in self.pools.on_node(node))

    def uncounted_on(self, node: NodeFacts, claims: Sequence[Claim]) -> int:
        """Devices that have to be looked at for `how_many` of these claims, none of which is allocated."""
        known = self._known.get((tuple(map(_anonymous, claims)), 0))
        if known is None:
            return self.number_on(node)
        found = known.nodes.get(node.name)
        if found is not None and found[0] == self.pools.stamp(node):
            return 0
        return sum(pool.devices for pool in self.pools.on_node(node) if self._known_pool(known, pool) is None)

    def _knowledge(self, claims: Sequence[Claim], shared: int) -> _Known:
        key = (tuple(_anonymous(each) for each in claims if each.allocation is None), shared)
        known = self._known.get(key)
        if known is None:
            once = sum(each.allocation is None for each in claims[:shared])
            known = _Known(problem_of(_unallocated(claims), self.classes), once)
            self._known[key] = known
            if len(self._known) > _MAX_PROBLEMS:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return known

    def _count(self, known: _Known, node: NodeFacts, claims: Sequence[Claim], limit: int) -> Copies:
        if not all(usable_on(each, node) for each in claims):
            return Copies(0)
        number, shape = self._shape(known, node)
        copies = known.counts.get((number, limit))
        if copies is None:
            if shape is None:
                shape = self._shape_on(known, node)
            copies = copies_of(shape, known.problem, limit, known.shared, self._budget)
            self.computed += 1
            if len(known.counts) >= _MAX_SHAPES:
                known.counts.clear()
            known.counts[number, limit] = copies
        return copies

    def _shape(self, known: _Known, node: NodeFacts) -> tuple[int, Shape | None]:
        """Number of the shape of a node, and the shape if it had to be built."""
        stamp = self.pools.stamp(node)
        found = known.nodes.get(node.name)
        if found is not None and found[0] == stamp:
            return found[1], None
        shape = self._shape_on(known, node)
        if len(known.shapes) >= _MAX_SHAPES:
            known.shapes.clear()
            known.nodes.clear()
            known.counts.clear()
        number = known.shapes.setdefault(shape, len(known.shapes))
        known.nodes[node.name] = stamp, number
        return number, shape

    def _shape_on(self, known: _Known, node: NodeFacts) -> Shape:
        """The shape of a node. A pool that nodes share is looked at once for all that see the same devices of it."""
        pools = self.pools.on_node(node)
        return shape_of([self._known_pool(known, pool) or self._look_at(known, pool) for pool in pools])

    def _known_pool(self, known: _Known, pool: NodePool) -> PoolInstance | None:
        """The shared pool, if it was looked at since it changed."""
        if not pool.view:
            return None
        version, by_view = known.pools.get(pool.key, (0, {}))
        return by_view.get(pool.view) if version == self.pools.versions[pool.key] else None

    def _look_at(self, known: _Known, pool: NodePool) -> PoolInstance:
        found = pool_instance(known.problem, pool, self.allocated, self.results)
        if pool.view:
            version = self.pools.versions[pool.key]
            if known.pools.get(pool.key, (0,))[0] != version:
                known.pools[pool.key] = version, {}
            known.pools[pool.key][1][pool.view] = found.without_members()
        return found

    # -- concrete devices

    def selector_lists(self, claims: Sequence[Claim]) -> list[Selectors]:
        """The lists of selectors that decide about devices for unallocated claims."""
        selections = problem_of(_unallocated(claims), self.classes).selections
        return list(dict.fromkeys(each.selectors for each in selections))

    def unevaluated(self, node: NodeFacts, lists: Sequence[Selectors]) -> Iterator[tuple[Slice, Selectors]]:
        """Slices with devices for the node, and the lists that were not evaluated for them."""
        for pool in self.pools.on_node(node):
            for part in pool.parts:
                yield from ((part.slice, each) for each in lists if not self.results.knows(part.slice, each))

    def evaluate(self, node: NodeFacts, lists: Sequence[Selectors]) -> Iterator[None]:
        """Evaluates lists of selectors for the devices of the node, in steps: a list for one slice, which has at most
        128 devices. `allocate` and `how_many` use the results.
        """
        for slice_, selectors in self.unevaluated(node, lists):
            self.results.excluded_by(slice_, selectors)
            yield

    def allocate(self, node: NodeFacts, claims: Sequence[Claim]) -> Answer:
        """Allocate the unallocated claims together on the node, a claim that is listed several times once.

        Nothing is marked as allocated.
        """
        unique = {(each.namespace, each.name): each for each in claims}
        if not all(usable_on(each, node) for each in unique.values()):
            return Answer(Outcome.IMPOSSIBLE)
        problem = problem_of(_unallocated(tuple(unique.values())), self.classes)
        if problem.blocked:
            return Answer(Outcome.IMPOSSIBLE, reason=problem.blocked)
        instance = instance_of(problem, self.pools.on_node(node), self.allocated, self.results)
        found = search(instance.shape, problem, shared=len(problem.claims), budget=self._budget)
        if found.outcome is not Outcome.FOUND:
            return Answer(found.outcome)
        chosen: list[list[Pick]] = [[] for _ in problem.claims]
        for pick in found.picks:
            chosen[problem.slots[pick.slot].claim].append(pick)
        free = [iter([each for each in members if each.free]) for members in instance.members]
        allocations = tuple(
            _allocation(problem, instance, number, picks, free, node) for number, picks in enumerate(chosen)
        )
        return Answer(found.outcome, allocations)


def usable_on(claim: Claim, node: NodeFacts) -> bool:
    """The devices of an allocated claim can be used on the node; an unallocated claim has no devices yet."""
    selector = None if claim.allocation is None else claim.allocation.node_selector
    return selector is None or any(term_matches(term, node) for term in selector)


def held(claims: Iterable[Claim]) -> set[DeviceId]:
    """Devices that are allocated to the claims; admin access holds none."""
    return {
        each.id
        for claim in claims
        if claim.allocation is not None
        for each in claim.allocation.results
        if not each.admin_access
    }


def _unallocated(claims: Sequence[Claim]) -> tuple[Claim, ...]:
    return tuple(each for each in claims if each.allocation is None)


def _anonymous(claim: Claim) -> Claim:
    """The claim without its names: claims from one template are counted once."""
    return Claim("", "", requests=claim.requests, constraints=claim.constraints)


def _allocation(
    problem: Problem,
    instance: Instance,
    number: int,
    picks: list[Pick],
    free: Sequence[Iterator[Member]],
    node: NodeFacts,
) -> Allocation:
    """Devices for the picks of a claim: first those that are held, the next `free` ones of their groups, then those
    with admin access among the others.
    """
    claim = problem.claims[number]
    first = next((index for index, slot in enumerate(problem.slots) if slot.claim == number), 0)
    used: set[DeviceId] = set()
    others: dict[int, Iterator[Member]] = {}
    found: dict[int, tuple[DeviceResult, Member]] = {}
    for admin in (False, True):
        for position, pick in enumerate(picks):
            if problem.slots[pick.slot].options[pick.option].admin is not admin:
                continue
            members = free[pick.group]
            if admin:
                members = others.setdefault(pick.group, iter(instance.members[pick.group]))
            member = next(each for each in members if each.id not in used)
            used.add(member.id)
            request = claim.requests[pick.slot - first]
            alternative = request.alternatives[pick.option]
            result = DeviceResult(request.path(alternative), member.id, admin, alternative.tolerations)
            found[position] = result, member
    ordered = [found[position] for position in range(len(picks))]
    return Allocation(tuple(result for result, _ in ordered), _node_selector([each for _, each in ordered], node.name))


def _node_selector(members: Sequence[Member], node_name: str) -> Selection:
    """Nodes where all devices can be used: the node if one is local to it, else all selectors; None: everywhere."""
    labels: list[NodeRequirement] = []
    fields: list[NodeRequirement] = []
    for each in members:
        slice_ = each.part.slice
        device = slice_.devices[each.position]
        source: Slice | Device = device if slice_.per_device else slice_
        if source.node_name or device.binds_to_node:
            return (NodeSelectorTerm(fields=(NodeRequirement("metadata.name", NodeOperator.IN, (node_name,)),)),)
        for term in source.node_selector or ():
            labels += [requirement for requirement in term.labels if requirement not in labels]
            fields += [requirement for requirement in term.fields if requirement not in fields]
    return (NodeSelectorTerm(tuple(labels), tuple(fields)),) if labels or fields else None

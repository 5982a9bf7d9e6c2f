"""Exact search for an allocation on one node, over groups of equal devices, with a budget of steps.

Depth first, in the order of claims and requests, so that earlier alternatives of earlier requests are preferred.
A request picks groups in one order only: their devices are interchangeable, and so is the order of picks. States that
failed are remembered. Blocks are groups that share counters, such as the partitions of one card; of blocks in the same
state one is tried, and without equal blocks pods with the same claims are ordered by their first pick. A request is not
tried if the requests from it on consume more counters than remain, each as little as it can, in shares of what the node
has.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from muster.devices.blocks import Block, blocks_of
from muster.devices.facts import MAX_RESULTS, Claim
from muster.devices.instance import Option, Problem, Shape, Slot
from muster.devices.presolve import ViableSlot, viable

BUDGET: Final = 100_000
"""Steps of one search, about 0.3 s of processor time: each pick takes one, and one more for each 8 groups."""
MAX_DEPTH: Final = 400
"""Slots and devices of one search; beyond this it would exceed Python's stack."""


_EPSILON: Final = 1e-6


class Outcome(Enum):
    """Outcome of a search."""

    FOUND = "found"
    IMPOSSIBLE = "proved impossible"
    NOT_FOUND = "not found within the budget"


class Pick(NamedTuple):
    """A device of a group for an option of a slot."""

    slot: int
    option: int
    group: int


class Found(NamedTuple):
    """The outcome, the picks if there are any, and the steps that the search took."""

    outcome: Outcome
    picks: tuple[Pick, ...] = ()
    steps: int = 0


class _BudgetExhausted(Exception):
    pass


def depth_of(claims: Iterable[Claim]) -> int:
    """Slots and devices, at most, of a search for unallocated claims; compare with MAX_DEPTH."""
    return sum(
        1 + max((each.count or MAX_RESULTS for each in request.alternatives), default=0)
        for claim in claims
        if claim.allocation is None
        for request in claim.requests
    )


def search(shape: Shape, problem: Problem, copies: int = 1, shared: int = 0, budget: int = BUDGET) -> Found:
    """Allocates the first `shared` claims once and the others `copies` times.

    Each claim is tried alone first: most proofs need no more than that.
    """
    viable_slots = [viable(shape, problem, number, slot) for number, slot in enumerate(problem.slots)]
    if not all(slot.options for slot in viable_slots):
        return Found(Outcome.IMPOSSIBLE)
    once = [each for each in viable_slots if each.claim < shared]
    each_pod = [each for each in viable_slots if each.claim >= shared]
    slots = once + each_pod * copies
    devices = sum(max(each.wanted or MAX_RESULTS for _, each in slot.options) for slot in slots)
    if len(slots) + devices > MAX_DEPTH:
        return Found(Outcome.NOT_FOUND)
    steps = 0
    tries = [(slots, len(once))]
    claims = sorted({slot.claim for slot in slots})
    if len(claims) > 1:
        alone = [[slot for slot in viable_slots if slot.claim == claim] for claim in claims]
        tries = [*((each, len(each)) for each in alone), *tries]
    for some, first in tries:
        found = _Search(shape, problem, some, first, budget - steps)
        try:
            possible = found.fill(0)
        except _BudgetExhausted:
            return Found(Outcome.NOT_FOUND, steps=budget)
        steps += found.steps
        if not possible:
            return Found(Outcome.IMPOSSIBLE, steps=steps)
    return Found(Outcome.FOUND, tuple(found.picks), steps)


class _Search:
    """One search; its state is changed by picks and restored when they fail."""

    def __init__(self, shape: Shape, problem: Problem, slots: list[ViableSlot], first: int, budget: int) -> None:
        self._groups: Final = shape.groups
        self._incomplete: Final = shape.incomplete
        self._constraints: Final = problem.constraints
        self._slots: Final = slots
        self._first: Final = first
        self._per_pod: Final = len({each.slot for each in slots[first:]})
        self._left: Final = budget
        self.steps = 0
        self.picks: list[Pick] = []
        self._free = [each.free for each in shape.groups]
        self._counters = list(shape.counters)
        self._failed: set[tuple[object, ...]] = set()
        # Of the claim at hand: devices by group, number of devices, state of constraints.
        self._used = [0] * len(shape.groups)
        self._size = 0
        self._values: list[int | frozenset[int]] = []
        # Option and group of the first pick of the pod before, and of this pod.
        self._before = (0, 0)
        self._lead = (0, 0)
        self._order: Final = self._orders()
        self._share: Final = [1 / each if each > 0 else 0.0 for each in shape.counters]
        self._least: Final = self._least_shares()
        self._blocks: Final = blocks_of(shape)
        kinds = [each.kind for each in self._blocks]
        self._symmetric: Final = len(set(kinds)) < len(kinds)
        self._places: Final = {
            group: (block, place) for block in self._blocks for place, group in enumerate(block.groups)
        }

    def _orders(self) -> dict[int, list[int]]:
        """Groups by the selection that uses them; those that few selections use come first,
        then those without counters.
        """
        bits = {option.bit for slot in self._slots for _, option in slot.options}
        flexibility = [(each.usable.bit_count(), bool(each.consumes)) for each in self._groups]
        order = sorted(range(len(self._groups)), key=flexibility.__getitem__)
        return {bit: [each for each in order if self._groups[each].usable & bit] for bit in bits}

    def _least_shares(self) -> list[float]:
        """For each slot, the least sum of shares of counters that it and the slots after it consume."""
        consumed = [sum(self._share[counter] * amount for counter, amount in each.consumes) for each in self._groups]
        least = {bit: min((consumed[each] for each in order), default=0.0) for bit, order in self._order.items()}
        sums = [0.0]
        for slot in reversed(self._slots):
            sums.append(sums[-1] + min(max(each.wanted, 1) * least[each.bit] for _, each in slot.options))
        return sums[::-1]

    def fill(self, number: int) -> bool:
        """Allocate the slots from this one on."""
        if number == len(self._slots):
            return True
        if self._least[number] > _EPSILON + sum(
            share * max(left, 0) for share, left in zip(self._share, self._counters, strict=True)
        ):
            return False
        slot = self._slots[number]
        kept = self._used, self._size, self._values, self._before, self._lead
        per_pod = number - self._first
        starts_pod = per_pod >= 0 and per_pod % self._per_pod == 0
        if number == 0 or starts_pod or self._slots[number - 1].claim != slot.claim:
            self._used = [0] * len(self._groups)
            self._size = 0
            self._values = [frozenset() if distinct else -1 for _, distinct in self._constraints[slot.claim]]
        ordered = starts_pod and per_pod > 0 and not self._symmetric
        if starts_pod:
            self._before = self._lead if ordered else (0, 0)
        for index, option in slot.options:
            if ordered and index < self._before[0]:
                continue
            if self._size + option.wanted > MAX_RESULTS:
                continue
            if starts_pod:
                self._lead = (index, -1)
            if option.wanted == 0:
                if self._fill_all(number, index, option):
                    return True
                continue
            start = self._before[1] if ordered and index == self._before[0] else 0
            if self._pick(number, index, option, option.wanted, max(start, 0), starts_pod):
                return True
        self._used, self._size, self._values, self._before, self._lead = kept
        return False

    def _step(self, cost: int) -> None:
        self.steps += cost
        if self.steps > self._left:
            raise _BudgetExhausted

    def _pick(self, number: int, index: int, option: Option, missing: int, start: int, leads: bool) -> bool:
        """Pick the missing devices of a slot from the groups at `start` and after it in the order of the option."""
        if not missing:
            return self.fill(number + 1)
        order = self._order[option.bit]
        self._step(1 + (len(order) + len(self._groups)) // 8)
        free, used = self._free, self._used
        left = missing
        for position in range(start, len(order)):
            group = order[position]
            unused = self._groups[group].total - used[group]
            left -= unused if option.admin else min(free[group], unused)
            if left <= 0:
                break
        if left > 0:
            return False
        key = self._state(number, index, missing, start)
        if key in self._failed:
            return False
        tried: set[tuple[object, ...]] = set()
        for position in range(start, len(order)):
            group = order[position]
            if self._symmetric:
                block, place = self._places[group]
                state = (place, self._block_state(block))
                if state in tried:
                    continue
                tried.add(state)
            if used[group] >= self._groups[group].total or (not option.admin and not free[group]):
                continue
            if leads:
                self._lead = (index, position)
            values = self._take(number, index, option, group)
            if values is None:
                continue
            if self._pick(number, index, option, missing - 1, position, False):
                return True
            self._give_back(option, group, values)
        self._failed.add(key)
        return False

    def _state(self, number: int, index: int, missing: int, start: int) -> tuple[object, ...]:
        """Tells states apart from which the search could continue differently; equal blocks in any order are equal."""
        values = tuple(self._values)
        if self._symmetric and not start:
            blocks = sorted(map(self._block_state, self._blocks))
            return number, index, missing, self._size, values, tuple(blocks)
        lead = None if self._symmetric else self._lead
        rest = tuple(self._free), tuple(self._used), tuple(self._counters)
        return number, index, missing, start, lead, self._size, values, rest

    def _block_state(self, block: Block) -> tuple[int, ...]:
        return (
            block.kind,
            *(self._free[each] for each in block.groups),
            *(self._used[each] for each in block.groups),
            *(self._counters[each] for each in block.counters),
        )

    def _fill_all(self, number: int, index: int, option: Option) -> bool:
        """Take every device that the option selects, if all can be taken, and allocate the slots after it."""
        self._step(1 + len(self._groups) // 8)
        if self._incomplete & option.bit:
            return False
        taken: list[tuple[int, list[int | frozenset[int]]]] = []
        possible = True
        for number_, group in enumerate(self._groups):
            if not group.selected & option.bit:
                continue
            available = group.total if option.admin else self._free[number_]
            if (
                not group.usable & option.bit
                or available < group.total
                or self._used[number_]
                or self._size + group.total > MAX_RESULTS
            ):
                possible = False
                break
            for _ in range(group.total):
                values = self._take(number, index, option, number_)
                if values is None:
                    possible = False
                    break
                taken.append((number_, values))
            if not possible:
                break
        if possible and taken and self.fill(number + 1):
            return True
        for number_, values in reversed(taken):
            self._give_back(option, number_, values)
        return False

    def _take(self, number: int, index: int, option: Option, group: int) -> list[int | frozenset[int]] | None:
        """Take a device of the group; returns the state of constraints before, or None if it must not be taken."""
        facts = self._groups[group]
        before = self._values
        values = before
        if option.constraints:
            values = list(before)
            rules = self._constraints[self._slots[number].claim]
            for each in option.constraints:
                attribute, _ = rules[each]
                value, state = facts.values[attribute], values[each]
                if value < 0:
                    return None
                if isinstance(state, frozenset):
                    if value in state:
                        return None
                    values[each] = state | {value}
                elif state in (-1, value):
                    values[each] = value
                else:
                    return None
        counters = self._counters
        for counter, amount in facts.consumes:
            counters[counter] -= amount
        if any(counters[counter] < 0 for counter, _ in facts.consumes):
            for counter, amount in facts.consumes:
                counters[counter] += amount
            return None
        self._values = values
        self._used[group] += 1
        self._size += 1
        if not option.admin:
            self._free[group] -= 1
        self.picks.append(Pick(self._slots[number].slot, index, group))
        return before

    def _give_back(self, option: Option, group: int, values: list[int | frozenset[int]]) -> None:
        for counter, amount in self._groups[group].consumes:
            self._counters[counter] += amount
        self._values = values
        self._used[group] -= 1
        self._size -= 1
        if not option.admin:
            self._free[group] += 1
        self.picks.pop()


def options_of(slots: Sequence[Slot]) -> list[Option]:
    """All options of slots."""
    return [option for slot in slots for option in slot.options]

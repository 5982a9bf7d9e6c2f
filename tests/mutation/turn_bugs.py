"""Planted bugs of turns: namespaces in solve requests, and slow groups."""

from mutation.bug import Bug

_TURNS = "unit/coordinator/test_namespace_turns.py"
_SLOW = "unit/coordinator/test_slow_groups.py"

TURN_BUGS = (
    Bug(
        "a request takes the head of the queue only",
        "queue/turns.py",
        "        if len(self._heaps) == 1:\n",
        "        if True:\n",
        first=_TURNS + "::test_a_gang_waits_for_two_solves_beside_20000_of_another_namespace",
    ),
    Bug(
        "groups that cannot share a request wait for all those that can",
        "queue/turns.py",
        "(first if first not in walk.namespaces else None), False",
        "None, False",
        first=_TURNS + "::test_a_gang_waits_for_two_solves_beside_20000_of_another_namespace",
    ),
    Bug(
        "the same namespaces have a turn in every request",
        "queue/turns.py",
        "            self._heaps[namespace] = self._heaps.pop(namespace)\n",
        "            pass\n",
        first=_TURNS + "::test_a_gang_waits_for_two_solves_beside_20000_of_another_namespace",
    ),
    Bug(
        "turns of namespaces of lower priority take as many groups as others",
        "queue/turns.py",
        "(namespace in self.namespaces and head[0][:2] != self._level)",
        "False",
        first=_TURNS + "::test_a_namespace_of_lower_priority_has_one_group_in_a_request",
    ),
    Bug(
        "a group that conflicts with one solve after another waits for ever",
        "queue/turns.py",
        "return answer is Answer.TAKEN or not self._first_waits",
        "return True",
        first=_TURNS + "::test_a_namespace_that_conflicts_with_solves_under_way_is_waited_for",
    ),
    Bug(
        "an edit of a gang is the end of its namespace's turn",
        "queue/turns.py",
        "        self._counts[namespace] -= 1\n",
        "        self._counts[namespace] -= 1\n        self._heaps[namespace] = self._heaps.pop(namespace)\n",
        first=_TURNS + "::test_an_edit_does_not_cost_a_namespace_its_turn",
    ),
    Bug(
        "groups that are put back at their position have an entry for each time",
        "queue/turns.py",
        "heap[:] = dict.fromkeys(entry for entry in heap if self._is_valid(entry))",
        "heap[:] = [entry for entry in heap if self._is_valid(entry)]",
        first=_TURNS + "::test_groups_put_back_at_their_position_cost_no_more_each_time",
    ),
    Bug(
        "groups whose turn it is come first in their request",
        "queue/queue.py",
        "in sorted(popped, key=itemgetter(0))]",
        "in popped]",
        first=_TURNS,
    ),
    Bug(
        "a place is left to thousands of equal groups of another namespace",
        "solve/solve.py",
        "            if group.solve.yields >= MAX_YIELDS and not group.surplus:\n",
        "            if False:\n",
        first=_TURNS + "::test_a_place_is_left_to_equal_gangs_of_other_namespaces_twice_at_most",
    ),
    Bug(
        "slow groups of one namespace have all turns",
        "queue/turns.py",
        "            if group_id is not None or not waiting:\n",
        "            if not waiting:\n",
        first=_SLOW,
    ),
)

"""Planted bugs that make the core spin (I12): limits of the test world detect them, long before a time limit does."""

from mutation.bug import Bug

SPIN_BUGS = (
    Bug(
        "gangs stay touched, so that a step never ends",
        "reconcile.py",
        "            touched, cache.touched = cache.touched, {}\n",
        "            touched = dict(cache.touched)\n",
    ),
    Bug(
        "retries that were sent are due for ever",
        "permits/binding.py",
        "            del self._retries[uid]\n",
        "            pass\n",
    ),
    Bug(
        "every step looks at all gangs",
        "reconcile.py",
        "            touched, cache.touched = cache.touched, {}\n",
        "            touched = {**dict.fromkeys(cache.gangs.values(), False), **cache.touched}\n"
        "            cache.touched = {}\n",
        first="unit/coordinator/test_step_calls.py",
    ),
    Bug(
        "a void entry of a priority queue is read for ever",
        "priority_queue.py",
        "            heappop(heap)\n",
        "            pass\n",
    ),
    Bug(
        "a group that was overtaken is not in the next solve, and later ones yield to it again",
        "solve/solve.py",
        "            first = self._concurrent.overtaken\n",
        "            first: list[Group] = []\n",
        first="simulation/test_found_scenarios.py",
    ),
)

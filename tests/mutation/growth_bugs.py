"""Planted bugs that leave entries of what is gone in maps of the core (I11)."""

from mutation.bug import Bug, found_scenario

GROWTH_BUGS = (
    Bug(
        "the number of representatives of a class outlives its gangs",
        "queue/queue.py",
        "            if self._classes.first(key) is None and not self._active_representatives[key]:\n",
        "            if False:\n",
        first="simulation/test_found_scenarios.py",
    ),
    Bug(
        "the heap of active groups keeps void entries",
        "queue/turns.py",
        "        if len(heap) > 2 * self._counts[namespace] + _SPARE:\n",
        "        if False:\n",
        first="unit/coordinator/test_nothing_grows.py",
    ),
    Bug(
        "the heap of a priority queue keeps void entries",
        "priority_queue.py",
        "        if not self._entries or len(self._heap) > 2 * len(self._entries) + SPARE:\n",
        "        if False:\n",
        first="unit/coordinator/test_priority_queue.py",
    ),
    Bug(
        "the reported reasons of deleted gangs are kept",
        "reconcile.py",
        "            self._reports.forget(gang)\n",
        "",
    ),
    Bug(
        "deleted gangs are looked at for ever when capacity becomes free",
        "reconcile.py",
        "            self._wants_free.pop(gang, None)\n            self._short.pop(gang, None)\n            self._pre",
        "            self._short.pop(gang, None)\n            self._pre",
    ),
    Bug(
        "deleted gangs remain potential victims",
        "reconcile.py",
        "            self._preemption.running.forget(gang)\n",
        "",
    ),
    Bug(
        "stages of deleted gangs are kept",
        "reconcile.py",
        "                del self._stages[gang]\n",
        "                pass\n",
    ),
    Bug(
        "disbanded groups keep their place among those that preempt or starve",
        "reconcile.py",
        "            self._preemption.forget(group)\n",
        "",
    ),
    Bug(
        "declarations of deleted gangs are kept for their partners",
        "cache/cache.py",
        "        if gang.facts is not None:\n            self._leave_partners(gang.facts)\n",
        "        if False:\n            self._leave_partners(gang.facts)\n",
    ),
    Bug(
        "pauses of reports about trees are kept",
        "report/reports.py",
        "            del self._not_before[name]\n",
        "            pass\n",
        first="unit/coordinator/test_nothing_grows.py",
    ),
    Bug(
        "a removed gang that was touched by a deadline is reconciled and kept",
        "reconcile.py",
        "            if self._cache.gangs.get(gang.id) is not gang:",
        "            if False:",
        first=found_scenario("a gang that is removed when it may start in any case is forgotten"),
    ),
)

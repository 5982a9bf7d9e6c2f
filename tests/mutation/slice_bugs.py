"""Planted bugs that do the work of a long step in one slice (I12)."""

from mutation.bug import Bug

_TESTS = "unit/coordinator/test_step_slices.py"

SLICE_BUGS = (
    Bug(
        "all stale representatives leave the active groups in one slice",
        "queue/turns.py",
        "        return self._offered % OFFERS == 0\n",
        "        return False\n",
        first=_TESTS,
    ),
    Bug(
        "all running gangs are listed as potential victims in one slice",
        "preemption/potential_victims.py",
        "                if number % OBJECTS == 0:\n                    yield\n                if gang in self._",
        "                if number < 0:\n                    yield\n                if gang in self._",
        first=_TESTS,
    ),
    Bug(
        "subgroups of all running gangs are looked for in one slice",
        "preemption/potential_victims.py",
        "                return True\n            if number % OBJECTS == 0:\n",
        "                return True\n            if number < 0:\n",
        first=_TESTS,
    ),
    Bug(
        "gang groups of any size are checked in one slice",
        "reconcile.py",
        "                in_slice += max(1, len(group.gangs))\n",
        "                in_slice += 1\n",
        first=_TESTS,
    ),
    Bug(
        "all records are recovered in one slice",
        "permits/permits.py",
        "            resumed.append((gang, record))\n        if number % GANGS == 0:\n",
        "            resumed.append((gang, record))\n        if number < 0:\n",
        first=_TESTS,
    ),
    Bug(
        "all lost binds are given up in one slice",
        "permits/binding.py",
        "            yield from _lose(cache, gang, [uid])\n            if number % OBJECTS == 0:\n",
        "            yield from _lose(cache, gang, [uid])\n            if number < 0:\n",
        first=_TESTS,
    ),
    Bug(
        "all results of one call to bind are taken in in one slice",
        "permits/binding.py",
        "            if number % OBJECTS == 0:\n                yield\n            gang = ",
        "            if number < 0:\n                yield\n            gang = ",
        first=_TESTS,
    ),
    Bug(
        "all binds that are due are retried in one slice",
        "permits/binding.py",
        "gang in start if gang in by_gang})\n            if number % GANGS == 0:\n",
        "gang in start if gang in by_gang})\n            if number < 0:\n",
        first=_TESTS,
    ),
    Bug(
        "all held seats that cannot be kept are released in one slice",
        "hold/hold_and_wait.py",
        "                    if looked_at % OBJECTS == 0:\n",
        "                    if looked_at < 0:\n",
        first=_TESTS,
    ),
    Bug(
        "gangs stay in queue order after their numbers were reported",
        "report/reports.py",
        "        self._in_order.discard(gang)\n",
        "",
        first="unit/coordinator/test_reports.py",
    ),
    Bug(
        "all gangs are reported in one slice",
        "report/reports.py",
        "            reports.append(self._news(gang, now))\n            if number % GANGS == 0:\n",
        "            reports.append(self._news(gang, now))\n            if number < 0:\n",
        first=_TESTS,
    ),
    Bug(
        "all waits that are over time out in one slice",
        "hold/hold_and_wait.py",
        "                self._watch(group)\n            if number % OBJECTS == 0:\n",
        "                self._watch(group)\n            if number < 0:\n",
        first=_TESTS,
    ),
    Bug(
        "all repairs that took too long are given up in one slice",
        "preemption/repair.py",
        "others_may_go=others_may_go))\n            if number % GANGS == 0:\n",
        "others_may_go=others_may_go))\n            if number < 0:\n",
        first=_TESTS,
    ),
    Bug(
        "waits that are not over are not looked at again",
        "hold/hold_and_wait.py",
        "            else:\n                self._watch(group)\n            if number",
        "            if number",
        first="unit/coordinator/test_deadlocks.py",
    ),
)

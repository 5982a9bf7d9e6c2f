"""Planted bugs of binds that a restore of the API server has undone."""

from mutation.bug import Bug

_TESTS = "unit/coordinator/test_restored_backup.py"
_BINDING = "permits/binding.py"

RESTORE_BUGS = (
    Bug(
        "an acknowledged bind is believed for ever",
        _BINDING,
        "            yield from _lose(cache, gang, [uid])\n",
        "            pass\n",
        first=_TESTS,
    ),
    Bug(
        "a bind that was under way during a restore is believed for ever",
        _BINDING,
        "        if self._under_way.pop(uid, None) is not None:\n",
        "        if self._under_way.pop(uid, None) is self:\n",
        first=_TESTS,
    ),
    Bug(
        "a bind that is observed late is given up although nothing was restored",
        _BINDING,
        "        if self._under_way.pop(uid, None) is not None:\n",
        "        if self._under_way.pop(uid, None) is not self:\n",
        first=_TESTS,
    ),
    Bug(
        "a bound pod that a snapshot shows without a node has for ever to be bound again",
        _BINDING,
        "            self._expect(gang, uid, now)\n        yield from _lose",
        "            pass\n        yield from _lose",
        first=_TESTS,
    ),
    Bug(
        "binds that cannot be observed while cluster-state is away are given up",
        "machine.py",
        "        if self._synced:\n            if self._confirmations",
        "        if self:\n            if self._confirmations",
        first=_TESTS,
    ),
    Bug(
        "a pod that is shown without a node counts as bound, too",
        "gang/members.py",
        "            del self.bound[before.uid]\n",
        "",
        first=_TESTS,
    ),
    Bug(
        "a victim that a restore has taken off its node is evicted all the same",
        "gang/members.py",
        "        self.eviction.remove(before.uid)\n        if before.uid in self.bound:\n",
        "        if before.uid in self.bound:\n",
        first=_TESTS,
    ),
    Bug(
        "a snapshot that is behind frees the capacity of bound pods",
        "cache/cache.py",
        "            self.ledger.reserve([gang.acknowledged[uid]])\n",
        "",
        first=_TESTS,
    ),
    Bug(
        "an undone bind keeps its place where a deleted pod lives again",
        _BINDING,
        "        if taken and not (gang.bound or gang.seats):\n",
        "        taken = []\n        if taken and not (gang.bound or gang.seats):\n",
        first=_TESTS,
    ),
    Bug(
        "a gang whose binds are all undone gives up only the places that others have",
        _BINDING,
        "            taken = list(gang.acknowledged)\n",
        "            pass\n",
        first=_TESTS,
    ),
    Bug(
        "reasons that a restore took off pods are not reported again",
        "machine.py",
        "                if self.cache.went_back:\n",
        "                if not self.cache:\n",
        first=_TESTS,
    ),
    Bug(
        "a gang that placement found infeasible in what was undone is not tried again",
        "reconcile.py",
        "                self._stages[gang] = None\n            self._cache.touch(gang, edited=True)\n",
        "                self._stages[gang] = None\n            self._cache.touch(gang)\n",
        first=_TESTS,
    ),
    Bug(
        "a member that others had bound helps a gang to start after a restore has undone that",
        "cache/cache.py",
        "        if gang.permit.granted:\n            self.ledger.reserve",
        "        if gang:\n            self.ledger.reserve",
        first="simulation/test_found_scenarios.py",
    ),
    Bug(
        "a member of a gang without a permit is repaired when its bind is undone",
        "cache/cache.py",
        "            gang.lose_seat(uid)\n            gang.forget_lost()\n",
        "            gang.lose_seat(uid)\n",
        first="simulation/test_found_scenarios.py",
    ),
    Bug(
        "the volume of an undone bind is never free again",
        "cache/ledger.py",
        "                if pod.phase.ended or not pod.node:\n",
        "                if pod.phase.ended:\n",
        first=_TESTS,
    ),
    Bug(
        "timeout marks that a restore undoes are not written again",
        "hold/hold_and_wait.py",
        "            if gang.hold.marking and gang.group.persist_id is None:\n",
        "            if False:\n",
        first=_TESTS,
    ),
    Bug(
        "timeout marks stay whose removal a restore undoes",
        "hold/hold_and_wait.py",
        "            if gang.hold.unmarking:\n                effects",
        "            if False:\n                effects",
        first=_TESTS,
    ),
)

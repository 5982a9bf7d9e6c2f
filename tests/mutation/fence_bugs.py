"""Planted bugs of binding's leader fence, which the simulator detects: two leaders at once, and delayed calls."""

from mutation.bug import Bug, found_scenario

_FENCE = "../../binding/leader_fence.py"

FENCE_BUGS = (
    Bug(
        "running calls of a former leader go on beside those of the next one",
        _FENCE,
        "            stop(_superseded(of_call, epoch))\n",
        "            pass\n",
    ),
    Bug(
        "a made-up leader epoch locks the leader out",
        _FENCE,
        "        if current and current != self._confirmed:\n            self._change_to(current)\n"
        "        if epoch == current:\n",
        "        self._change_to(max(epoch, self._confirmed))\n        if epoch == self._confirmed:\n",
    ),
    Bug(
        "any leader epoch is admitted that was confirmed once",
        _FENCE,
        "        if epoch != self._confirmed:\n            await self._confirm(epoch)\n",
        "        if epoch not in self.__dict__.setdefault('known', set()):\n            await self._confirm(epoch)\n"
        "            self.known.add(epoch)\n",
        first=found_scenario("a late call of a leader is refused although its epoch was confirmed once"),
    ),
    Bug(
        "after a restore of etcd a leader with a lower epoch is locked out",
        _FENCE,
        "        if epoch == current:\n            return\n",
        "        if epoch == current and epoch >= self.__dict__.setdefault('highest', 0):\n"
        "            self.highest = epoch\n            return\n",
    ),
)

"""Planted bugs of volumes: choices for seats, and what counts as capacity."""

from mutation.bug import Bug

_CHOICES = "unit/coordinator/test_volume_choices.py"
_GANGS = "unit/coordinator/test_static_volumes.py"

VOLUME_BUGS = (
    Bug(
        "a volume that is chosen for one pod is chosen for another",
        "cache/volume_choices.py",
        "            self._discard_free(volume)\n            self.taken[volume] = seat.uid\n",
        "            self.taken[volume] = seat.uid\n",
        first=_CHOICES,
    ),
    Bug(
        "a claim never leaves its volume to another one that has no other",
        "cache/volume_choices.py",
        "                    claims.append(owner)\n",
        "                    pass\n",
        first=_CHOICES,
    ),
    Bug(
        "a volume seems to be free between the bind of its pod and its own",
        "cache/ledger.py",
        "                self.volumes.bound(seat)\n",
        "                self.volumes.release(seat)\n",
        first=_GANGS,
    ),
    Bug(
        "volumes that a former leader chose are chosen again",
        "cache/ledger.py",
        "                self.volumes.take(seat)\n",
        "                pass\n",
        first=_GANGS,
    ),
    Bug(
        "a pod is bound although no volume was chosen for its claim",
        "permits/binding.py",
        "    if volumes.claims:\n        unbindable",
        "    if False:\n        unbindable",
        first=_GANGS,
    ),
    Bug(
        "a gang starts without volumes for its claims",
        "solve/request.py",
        "    if ledger.volumes.claims:\n",
        "    if False:\n",
        first=_GANGS,
    ),
    Bug(
        "a seat is lost when the storage capacity that it used is provisioned",
        "cache/ledger.py",
        "        return any(not is_storage_capacity(name) for name in exceeded)\n",
        "        return True\n",
        first=_GANGS,
    ),
    Bug(
        "choices are kept for pods that are gone",
        "cache/volume_choices.py",
        "        if seat is not None:\n            self.release(seat)\n",
        "        pass\n",
        first=_GANGS,
    ),
)

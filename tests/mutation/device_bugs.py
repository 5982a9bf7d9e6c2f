"""Planted bugs in the choice of devices."""

from mutation.bug import Bug

_CHOICES = "unit/coordinator/test_device_choices.py"
_EXTENDED = "unit/coordinator/test_extended_resources.py"
_CLAIMS = "unit/coordinator/test_device_claims.py"
_SHORTAGES = "unit/coordinator/test_device_shortages.py"
_SHARED = "unit/coordinator/test_shared_device_claims.py"
_STALE = "unit/coordinator/test_stale_allocations.py"

DEVICE_BUGS = (
    Bug(
        "reserved devices are chosen again",
        "cache/device_choices.py",
        "        self._holdings.hold(seat.uid, _held(seat))",
        "        pass",
        first=_CLAIMS,
    ),
    Bug(
        "devices of a lost seat are never free again",
        "cache/device_choices.py",
        "        self._holdings.hold(uid, ())",
        "        pass",
        first=_CHOICES,
    ),
    Bug(
        "a new leader keeps devices that another claim got",
        "permits/permits.py",
        "    return devices.is_kept(seat) and not",
        "    return not",
        first=_CLAIMS,
    ),
    Bug(
        "a pod is bound without the devices of a claim that is gone",
        "cache/device_choices.py",
        "        return any(claim is None or (",
        "        return any(claim is not None and (",
        first=_CLAIMS,
    ),
    Bug(
        "a pod is bound before the devices of other members are allocated",
        "permits/binding.py",
        "pods[seat.uid].claims or pods[seat.uid].device_claims or seat.devices for",
        "pods[seat.uid].claims for",
        first=_CLAIMS,
    ),
    Bug(
        "devices of bound pods are held after the pods",
        "cache/device_choices.py",
        "            self._bound.discard(uid)\n            self.release(uid)",
        "            pass",
        first=_CHOICES,
    ),
    Bug(
        "extended resources get no devices",
        "solve/request.py",
        "        if ledger.classes[class_id].extended and ledger.nodes[node].device_backed",
        "        if False",
        first=_EXTENDED,
    ),
    Bug(
        "a claim for extended resources is written after the bind of others",
        "permits/binding.py",
        "pods[seat.uid].device_claims or seat.devices for seat in seats)",
        "pods[seat.uid].device_claims for seat in seats)",
        first=_EXTENDED,
    ),
    Bug(
        "pods are bound with devices that a plugin offers by now",
        "permits/binding.py",
        " or lacks_extended(cache.ledger, seat):",
        ":",
        first=_EXTENDED,
    ),
    Bug(
        "a new leader takes the claim for extended resources for one of others",
        "cache/device_choices.py",
        'if name != EXTENDED_CLAIM else self._extended.get(seat.uid, "")',
        'if name != EXTENDED_CLAIM else ""',
        first=_EXTENDED,
    ),
    Bug(
        "a pod is placed while its claim has a stale allocation",
        "queue/pre_enqueue.py",
        "        return Lack(Wait.DEALLOCATING,",
        "        _ = Lack(Wait.DEALLOCATING,",
        first=_STALE,
    ),
    Bug(
        "devices are chosen for a claim that still has others",
        "cache/device_choices.py",
        "if claim.owner == seat.uid and claim.is_allocated_to_owner:",
        "if False:",
        first=_CHOICES,
    ),
    Bug(
        "claims of pods with a seat are deallocated",
        "permits/deallocation.py",
        "    return [claim for claim in claims if gang.has_no_place(claim.owner)]",
        "    return devices.allocated_to(gang.pods.keys())",
        first=_STALE,
    ),
    Bug(
        "a stale allocation that is observed later stays",
        "cache/cache.py",
        "            self._touch_owners()\n",
        "            ledger.devices.take_changed_owners()\n",
        first=_STALE,
    ),
    Bug(
        "a deallocation that failed is not repeated",
        "permits/deallocation.py",
        "            order.fail()\n            order.retry(now + backoff_seconds(INITIAL_RETRY_SECONDS, "
        "MAX_RETRY_SECONDS, order.failures))\n            for",
        "            for",
        first=_STALE,
    ),
    Bug(
        "a deallocation is repeated in the version that was observed first",
        "permits/deallocation.py",
        "            same = order is not None and order.version == claim.version\n",
        "            same = order is not None\n",
        first=_STALE,
    ),
    Bug(
        "a deallocation of which the call failed is not repeated",
        "permits/deallocation.py",
        "            if (order := self._sent(gang, uid)) is not None:\n                order.fail()",
        "            if (order := self._sent(gang, uid)) is None:\n                order.fail()",
        first=_STALE,
    ),
    Bug(
        "a new leader binds the rest of a gang of which a device was taken",
        "permits/permits.py",
        "    if starts_with_claims(gang, seats):",
        "    if False:",
        first=_STALE,
    ),
    Bug(
        "a pod is bound with a device that another claim got meanwhile",
        "permits/binding.py",
        "    return unbindable | devices.taken(seats)",
        "    return unbindable",
        first=_STALE,
    ),
    Bug(
        "a snapshot removes no device objects",
        "cache/cache.py",
        "            device_objects=self.ledger.devices.missing(batch),\n",
        "",
        first=_CLAIMS,
    ),
    Bug(
        "more devices are searched together than one search can have",
        "cache/device_choices.py",
        " and depth <= MAX_DEPTH",
        "",
        first=_CHOICES,
    ),
    Bug(
        "an explanation does not know whose claims have the devices",
        "report/device_shortages.py",
        "        uids = (holder,) if claim is None else claim.reserved_for",
        "        uids = (holder,)",
        first=_SHORTAGES,
    ),
    Bug(
        "pods share devices that one of them cannot use on its node",
        "cache/device_choices.py",
        "            if claim.id in chosen and not usable_on(",
        "            if claim.id not in chosen and not usable_on(",
        first=_SHARED,
    ),
    Bug(
        "a claim is chosen again for pods of another gang before it is allocated",
        "cache/device_choices.py",
        "        return any(uid not in group for uid in sharers)",
        "        return False",
        first=_SHARED,
    ),
    Bug(
        "later pods of a gang wait for the claim that the gang holds",
        "cache/device_choices.py",
        "        return any(uid not in group for uid in sharers)",
        "        return True",
        first=_SHARED,
    ),
    Bug(
        "later pods of a gang get other devices of the claim that the gang holds",
        "cache/device_choices.py",
        "                    by_claim[claim.id] = next(iter(sharers.values()))",
        "                    pass",
        first=_SHARED,
    ),
    Bug(
        "a claim is closed for ever after its pods",
        "cache/device_choices.py",
        "        self._share(uid, {})",
        "        pass",
        first=_SHARED,
    ),
    Bug(
        "a new leader keeps the choice for one of the pods that share it",
        "cache/device_choices.py",
        "        own = {seat.uid, *claims, *(uid for claim in claims for uid in self._sharers.get(claim, ()))}",
        "        own = {seat.uid, *claims}",
        first=_SHARED,
    ),
    Bug(
        "a claim of a PodGroup is reserved for the pod",
        "cache/device_choices.py",
        '(pod.group_name, pod.group_uid) if name in pod.group_claims else ("", "")',
        '("", "")',
        first=_CHOICES,
    ),
    Bug(
        "a pod that waits for a shared claim preempts for devices of its own",
        "solve/solve.py",
        "        if not placed and (claim := claim_in_allocation(",
        "        if False and (claim := claim_in_allocation(",
        first=_SHARED,
    ),
)

"""Finds ResourceClaims with a stale allocation: all pods that it is for have neither a node nor a seat (I5, I6).

A claim that pods share may be reserved for pods of several gangs, or for a PodGroup. If one of these pods has a place,
or is not known here, the allocation is in use.
"""

from collections.abc import Collection, Mapping

from muster.coordinator.core.cache.device_choices import DeviceChoices
from muster.coordinator.core.gang.gang import Gang
from muster.devices.facts import Claim


def stale_claims(gang: Gang, gang_of: Mapping[str, Gang], devices: DeviceChoices) -> list[Claim]:
    """Claims with a stale allocation that is for pods of the gang, too. `gang_of`: by uid of the pod."""
    if not devices.has_allocations:
        return []
    unplaced = gang.pods.keys() - gang.seats.keys() - gang.acknowledged.keys() - gang.bound.keys()
    groups = {group for uid in unplaced if (group := gang.pods[uid].group_uid)}
    return [
        claim
        for claim in devices.allocated_to({*unplaced, *groups})
        if all(_is_unplaced(claim, uid, gang_of, devices) for uid in claim.allocated_to)
    ]


def pods_of(claim: Claim, gang_of: Mapping[str, Gang], devices: DeviceChoices) -> list[str]:
    """Uids of the known pods that the claim is allocated to, in order; of a PodGroup those that use the claim."""
    found = set[str]()
    for uid in claim.allocated_to:
        found.update(_users(claim, uid, gang_of, devices) or {uid} & gang_of.keys())
    return sorted(found)


def _is_unplaced(claim: Claim, uid: str, gang_of: Mapping[str, Gang], devices: DeviceChoices) -> bool:
    """The pod, or all pods of the PodGroup that use the claim, have no place."""
    if uid in gang_of:
        return gang_of[uid].has_no_place(uid)
    users = _users(claim, uid, gang_of, devices)
    return claim.idle and bool(users) and all(gang_of[each].has_no_place(each) for each in users)


def _users(claim: Claim, group: str, gang_of: Mapping[str, Gang], devices: DeviceChoices) -> Collection[str]:
    """Pods that use the PodGroup's claim: those that have ended do not any more."""
    pods = (gang_of[uid].pods[uid] for uid in devices.pods_of_group(group))
    return [pod.uid for pod in pods if claim.name in pod.group_claims and not pod.phase.ended]

"""Actions on devices and ResourceClaims: of drivers, users, other schedulers, and of a binding service that dies."""

import random

from msgspec.structs import replace

from builders.core.objects import EXTENDED
from builders.core.shared_claims import is_shared
from builders.devices.facts import claim as claim_for
from builders.devices.facts import way
from builders.devices.streamed import allocated, class_object, slice_object
from muster.coordinator.core.effects import Bind
from muster.devices.facts import Claim, DeviceId
from muster.gangs.facts import (
    DeviceObject,
    DeviceObjectKind,
    NodeOperator,
    NodeRequirement,
    NodeSelectorTerm,
    PodFacts,
)
from simulation.actions import ACTION_KINDS, Action, action
from simulation.world import Sharing, World

WEIGHTS = {
    "edit_devices": 1.0,
    "claim_devices": 1.0,
    "extend_devices": 0.5,
    "install_plugin": 0.4,
    "share_claim": 0.4,
    "take_device": 1.5,
    "leave_allocation": 2.0,
    "return_device": 1.0,
    "delete_claim": 1.5,
    "write_claims": 4.0,
    "toggle_lost_claims": 1.0,
    "fail_deallocate": 0.7,
}
"""Weights of these actions in scenarios with devices; other scenarios have none of them."""


def beginning(dice: random.Random) -> list[Action]:
    """Nodes with devices, and gangs of which each pod will claim some."""
    published = [Action("edit_devices", (node, dice.choice((2, 3, 4, 4)), 0)) for node in range(2)]
    claimed = (Action("claim_devices", (slot, dice.choice((0, 1, 1, 1, 2)))) for slot in range(6))
    shared = (Action("share_claim", (slot, dice.choice((0, 0, 0, 0, 0, 1, 2, 3)))) for slot in range(6))
    extended = (Action("extend_devices", (slot, int(dice.random() < 0.25))) for slot in range(6))
    return [*published, *claimed, *shared, *extended]


def drawn(dice: random.Random) -> Action:
    """One of these actions."""
    [name] = dice.choices(list(WEIGHTS), list(WEIGHTS.values()))
    return Action(name, tuple(dice.randrange(bound) for bound in ACTION_KINDS[name].bounds.values()))


@action(0, which=4, count=5, broken=6)
def edit_devices(world: World, which: int, count: int, broken: int) -> None:
    """The driver of a node publishes so many devices in a new generation of its pool, or none; `broken`: a part of the
    pool is missing.
    """
    name = world.node(which)
    if name is None:
        return
    world.share(name)  # devices of running pods may be gone
    published = slice_object(name, count, generation=world.number(), slices=2 if broken == 1 else 1)
    if not count:
        published = DeviceObject(DeviceObjectKind.SLICE, name)
    world.scenario.change(device_objects=[published, class_object(extended_resource=EXTENDED)])


@action(0, slot=6, count=3)
def claim_devices(world: World, slot: int, count: int) -> None:
    """From now on each pod of the gang claims so many devices, or none."""
    world.claimed[slot] = count
    world.number()


@action(0, slot=6, on=2)
def extend_devices(world: World, slot: int, on: int) -> None:
    """From now on each pod of the gang requests its devices as an extended resource, or claims them."""
    (world.extended.add if on else world.extended.discard)(slot)
    world.number()


@action(0, which=4, count=4)
def install_plugin(world: World, which: int, count: int) -> None:
    """A device plugin of the node offers so many of the extended resource from now on; 0: it is removed."""
    name = world.node(which)
    if name is not None and count != world.scenario.plugins[name]:
        world.share(name)  # it offers fewer than running pods have
        world.scenario.plugins[name] = count
        world.scenario.change(nodes=[world.scenario.cluster.nodes[name]])
        world.number()


@action(0, slot=6, how=4)
def share_claim(world: World, slot: int, how: int) -> None:
    """From now on the pods of the gang that are created share one claim, see `Sharing`; 0: each has one of its own."""
    world.shared.pop(slot, None)
    if how:
        world.shared[slot] = Sharing(how)
    world.number()


@action(0, which=8)
def take_device(world: World, which: int) -> None:
    """Another scheduler allocates a device that is not allocated to a claim, whatever was decided here."""
    scenario = world.scenario
    if free := _free_devices(world):
        device, number = free[which % len(free)], world.number()
        world.share(device.pool)
        scenario.claims.contested.add(device)
        theirs = replace(claim_for(way(1), name=f"theirs{number}"), namespace="others", uid=f"theirs{number}")
        scenario.claims.put(allocated(theirs, device.device, node=device.pool))


@action(0, which=40, device=8)
def leave_allocation(world: World, which: int, device: int) -> None:
    """A call of a former leader, of which nobody knows any more, allocates a device to the claim of a pending pod, or
    creates one for its extended resources.
    """
    scenario = world.scenario
    pods = sorted((pod for pod in scenario.cluster.pods.values() if world.uses_devices(pod)), key=lambda pod: pod.uid)
    pods = [pod for pod in pods if not (pod.node or pod.deleting)]
    free = _free_devices(world)
    pod = pods[which % len(pods)] if pods else None
    claim = scenario.claims.first_of(pod) if pod is not None else None
    if free and pod is not None and claim is not None and claim.allocation is None:
        id_ = free[device % len(free)]
        world.share(id_.pool)  # it may be reserved for others
        scenario.claims.contested.add(id_)
        left = allocated(claim, id_.device, node=id_.pool)
        if is_shared(claim.name) and left.allocation is not None:
            term = NodeSelectorTerm(fields=(NodeRequirement("metadata.name", NodeOperator.IN, (id_.pool,)),))
            local = replace(left.allocation, node_selector=(term,))
            scenario.claims.put(replace(left, allocation=local, reserved_for=(pod.group_uid or pod.uid,)))
        else:
            scenario.claims.put(replace(left, reserved_for=(claim.owner,) if device % 2 else ()))


@action(0, which=8)
def return_device(world: World, which: int) -> None:
    """A claim of another scheduler is deleted."""
    theirs = [claim for claim in world.scenario.claims.all() if claim.namespace == "others"]
    if theirs:
        world.scenario.claims.remove(theirs[which % len(theirs)])


def _free_devices(world: World) -> list[DeviceId]:
    """Devices that are not allocated to a claim."""
    claims = world.scenario.claims.all()
    taken = {each.id for claim in claims if claim.allocation for each in claim.allocation.results}
    return [each for each in sorted(world.scenario.devices()) if each not in taken]


@action(0, which=40)
def delete_claim(world: World, which: int) -> None:
    """A user deletes the claim of a pod that is not bound; or the controller of claims creates one anew."""
    scenario = world.scenario
    pods = sorted((pod for pod in scenario.cluster.pods.values() if pod.device_claims), key=lambda pod: pod.uid)
    pods = [pod for pod in pods if not (pod.node or pod.deleting)]
    if not pods:
        return
    pod = pods[which % len(pods)]
    claim = scenario.claims.get(pod.namespace, pod.device_claims[0])
    if is_shared(pod.device_claims[0]):
        _delete_shared(world, pod, claim)
    elif claim is None:
        new, made = world.claiming(pod, world.scenario.cluster.requested_devices(pod.class_id)[1])
        scenario.change(pods=[replace(new, problem="")], device_objects=[made])
    elif claim.allocation is None:
        problem = f"ResourceClaim {claim.name} does not exist"
        gone = DeviceObject(DeviceObjectKind.CLAIM, claim.id)
        scenario.change(pods=[replace(pod, problem=problem)], device_objects=[gone])
    elif not claim.deleting:
        problem = f"ResourceClaim {claim.name} is being deleted"
        deleting = scenario.claims.written(replace(claim, deleting=True))
        scenario.change(pods=[replace(pod, problem=problem)], device_objects=[deleting])


def _delete_shared(world: World, pod: PodFacts, claim: Claim | None) -> None:
    """A user deletes a claim that pods share and that is not allocated, or creates it anew."""
    scenario, name = world.scenario, pod.device_claims[0]
    sharing = [each for each in scenario.cluster.pods.values() if each.device_claims == (name,) and not each.node]
    sharing = [each for each in sharing if each.namespace == pod.namespace]
    if claim is None:
        anew = scenario.claims.written(world.shared_claim(pod.namespace, name, 1))
        scenario.change(pods=[replace(each, problem="") for each in sharing], device_objects=[anew])
    elif claim.allocation is None:
        problem = f"ResourceClaim {name} does not exist"
        gone = DeviceObject(DeviceObjectKind.CLAIM, claim.id)
        scenario.change(pods=[replace(each, problem=problem) for each in sharing], device_objects=[gone])


@action(0, which=4)
def write_claims(world: World, which: int) -> None:
    """binding dies after it has written the claims of a call, which remains in flight."""
    calls = [each for each in world.scenario.under_way if isinstance(each, Bind) and (each.devices or each.extended)]
    if calls:
        world.scenario.binding.leader_calls()
        world.scenario.claims.write(calls[which % len(calls)])


@action(0)
def toggle_lost_claims(world: World) -> None:
    """From now on binding does not remove what it wrote for pods that are not bound, or does again."""
    world.scenario.claims.lost = not world.scenario.claims.lost


@action(0, times=4)
def fail_deallocate(world: World, times: int) -> None:
    """The next deallocations fail."""
    world.scenario.claims.failures = times + 1

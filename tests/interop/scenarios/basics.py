"""Scenarios of one workload after another: starts, completion, deletion."""

from builders.e2e.observations import WAITING
from interop.sandbox import Sandbox
from interop.scenarios.rivals import one_started


async def first_start(box: Sandbox) -> None:
    """A gang starts whole on nodes that have no capacity to spare. Nothing warns of its declaration."""
    await box.nodes(box.size)
    gang = await box.gang("first")
    await box.started(gang)
    assert not box.declaration_warnings(), f"warnings: {box.declaration_warnings()}"


async def reports(box: Sandbox) -> None:
    """`muster gangs` lists the gang, and nothing else that the controller creates."""
    await box.nodes(box.size)
    gang = await box.gang("listed")
    await box.started(gang)
    await box.until(lambda: any(each.bound == gang.size for each in box.coordinator_gangs()), "the gang is listed")
    reported = {each.dialect: each.name for each in box.coordinator_gangs()}
    if box.kind.has_plain_pods:
        reported.pop("plain", None)
    assert len(reported) == 1, f"`muster gangs` lists a gang of each of the dialects {sorted(reported)}"


async def start_and_deletion(box: Sandbox) -> None:
    """A gang starts and is deleted."""
    await box.nodes(box.size)
    gang = await box.gang("warm-up")
    await box.started(gang)
    await box.delete(gang)
    await box.gone(gang)


async def completion(box: Sandbox) -> None:
    """After all pods have succeeded the workload completes and is not listed as pending, and the next gang gets the
    nodes.
    """
    await box.nodes(box.size)
    gang = await box.gang("done")
    await box.started(gang)
    await box.succeed(gang)
    await box.completed(gang)
    await box.until(
        lambda: not any(each.phase in WAITING for each in box.coordinator_gangs(gang)), f"{gang.name} is not pending"
    )
    await box.started(await box.gang("next"))


async def deletion(box: Sandbox) -> None:
    """Deleting the workload leaves no pod, no PodGroup, no record, and no capacity that is still reserved."""
    await box.nodes(box.size)
    gang, waiting = await box.gang("deleted"), await box.gang("waiting")
    started, pending = await one_started(box, gang, waiting)
    await box.waits(pending)
    await box.delete(pending)
    await box.gone(pending)
    await box.delete(started)
    await box.gone(started)
    await box.nothing_left()
    await box.started(await box.gang("after"))


async def deletion_unobserved(box: Sandbox) -> None:
    """The workload is deleted while no coordinator runs; the next one leaves no record and frees the capacity."""
    await box.nodes(box.size)
    gang = await box.gang("deleted")
    await box.started(gang)
    await box.kill_coordinator()
    await box.delete(gang)
    await box.until(lambda: not box.pods(gang), f"no pod of {gang.name} is left")
    await box.cluster.begin()
    await box.gone(gang)
    await box.nothing_left()
    await box.started(await box.gang("after"))

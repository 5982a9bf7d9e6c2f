"""Scenarios of members, nodes and processes that fail."""

import asyncio

from builders.e2e.cluster import node_of
from interop.gang import JSON, Gang
from interop.sandbox import Sandbox
from interop.workload_kind import OnFailure


async def failed_member(box: Sandbox) -> None:
    """A member fails; the gang runs with all members again, or as its controller decides."""
    await box.nodes(box.size)
    gang = await box.gang("failing")
    await box.started(gang)
    before = box.uids(gang)
    failed = box.kind.failing(box.pods(gang))
    await box.fail(failed)
    await _restored(box, gang, failed, before)


async def lost_node(box: Sandbox) -> None:
    """A node is lost with a member, and no other is free: the new pods wait, all of them if the controller restarts the
    gang. When a node is added, the gang runs with all members again, or as its controller decides.
    """
    await box.nodes(box.size)
    gang = await box.gang("losing")
    await box.started(gang)
    before = box.uids(gang)
    lost = box.kind.failing(box.pods(gang))
    await box.lose_node(node_of(lost))
    if box.kind.on_failure is OnFailure.RESTARTS_GANG:
        await box.until(lambda: not before & box.uids(gang), "the old pods terminate")
        await box.waits(gang)
    elif box.kind.on_failure is OnFailure.REPLACED:
        await box.until(lambda: len(box.uids(gang) - before) > 0, f"{gang.name} has a new pod")
    await box.nodes(1)
    await _restored(box, gang, lost, before)


async def _restored(box: Sandbox, gang: Gang, failed: JSON, before: set[str]) -> None:
    if box.kind.on_failure is OnFailure.STAYS:
        await box.started(gang, box.size - 1)
    else:
        restarts = box.kind.on_failure is OnFailure.RESTARTS_GANG
        await box.started(gang, without=before if restarts else {failed["metadata"]["uid"]})


async def crashes(box: Sandbox) -> None:
    """The controller is killed after the first pod was created, the coordinator when the permit was written."""
    await box.nodes(box.size)
    declared = await box.gang("crashed")
    await box.until(lambda: box.pods(declared), "the controller has created a pod")
    await box.kill_controller()
    await box.start_controller()
    await box.started(declared)
    await box.delete(declared)
    await box.gone(declared)
    permitted = box.kill_coordinator_at_permit()
    gang, _ = await asyncio.gather(box.gang("permitted"), permitted)
    await box.cluster.begin()
    await box.started(gang)

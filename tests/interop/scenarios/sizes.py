"""Scenarios of gangs that grow and shrink."""

from typing import Final

from interop.sandbox import Sandbox
from interop.scenarios.rivals import HIGH

_LENT: Final = 2
"""Pods above the minimum that run on reserved capacity."""


async def scale(box: Sandbox) -> None:
    """Pods beyond the first ones start as they fit; fewer pods leave the others running, also below the minimum, and
    they come back when there are more again.
    """
    scaled = box.kind.scaled
    assert scaled is not None
    await box.nodes(box.size + 1)
    gang = await box.gang("elastic", options=box.kind.elastic)
    await box.started(gang)
    first = box.uids(gang)
    for patch in scaled(gang, box.size + 2):
        await box.patch(patch)
    await box.until(
        lambda: len(box.pods(gang)) == box.size + 2 and len(box.running(gang)) == box.size + 1,
        f"{box.size + 2} pods of {gang.name} exist and {box.size + 1}, which fit, run",
    )
    running = {pod["metadata"]["uid"] for pod in box.running(gang)}
    assert first <= running, f"pods that ran were replaced\n{box.described()}"
    for size in (box.size, box.size - 1, box.size):
        for patch in scaled(gang, size):
            await box.patch(patch)
        await box.started(gang, size)


async def shrink(box: Sandbox) -> None:
    """A gang of higher priority takes the pods above the minimum and no others; when it is deleted, they come back."""
    scaled = box.kind.scaled
    assert scaled is not None
    await box.nodes(2 * box.size)
    gang = await box.gang("elastic", options=box.kind.elastic)
    await box.started(gang)
    for patch in scaled(gang, box.size + 2):
        await box.patch(patch)
    await box.started(gang, box.size + 2)
    members = box.uids(gang)
    high = await box.gang("high", priority_class=HIGH)
    await box.started(high)
    await box.until(lambda: len(box.running(gang)) == box.size, f"{box.size} pods of {gang.name} run")
    assert box.uids(gang) - members == box.uids(gang) - {pod["metadata"]["uid"] for pod in box.running(gang)}, (
        f"pods that the gang needs were replaced\n{box.described()}"
    )
    await box.delete(high)
    await box.started(gang, box.size + 2)


async def lend(box: Sandbox) -> None:
    """Capacity is reserved for a gang that waits for a long time. Pods above the minimum of another one run on it until
    the gang that waits can start with it: then it starts whole, and they come back when it is deleted.
    """
    scaled = box.kind.scaled
    assert scaled is not None
    await box.nodes(box.size + _LENT)
    gang = await box.gang("elastic", options=box.kind.elastic)
    await box.started(gang)
    waiting = await box.gang("waiting")
    await box.waits(waiting)
    await box.until(lambda: box.has_event("CapacityReserved"), f"capacity is reserved for {waiting.name}")
    for patch in scaled(gang, box.size + _LENT):
        await box.patch(patch)
    await box.started(gang, box.size + _LENT)
    members = box.uids(gang)
    assert not box.bound(waiting), f"pods of {waiting.name} are bound\n{box.described()}"
    await box.nodes(waiting.size - _LENT)
    await box.started(waiting)
    await box.until(lambda: len(box.running(gang)) == box.size, f"{box.size} pods of {gang.name} run")
    assert {pod["metadata"]["uid"] for pod in box.running(gang)} <= members, (
        f"pods that the gang needs were replaced\n{box.described()}"
    )
    await box.delete(waiting)
    await box.started(gang, box.size + _LENT)

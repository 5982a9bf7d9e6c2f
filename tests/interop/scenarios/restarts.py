"""Scenarios of gangs whose controller deletes all pods and creates them again."""

import asyncio
from typing import Final

from interop.gang import JSON, Gang
from interop.sandbox import Sandbox
from interop.scenarios.rivals import one_started

_STOP_SECONDS: Final = 3.0
_IN_FLIGHT_SECONDS: Final = 1.0


async def restart(box: Sandbox) -> None:
    """The controller deletes all pods and creates them again; the gang starts whole again."""
    await box.nodes(box.size)
    gang = await box.gang("again")
    await box.started(gang)
    before = await box.restart(gang)
    await box.started(gang, without=before)


async def restart_with_rival(box: Sandbox) -> None:
    """The gang is restarted while another waits for its nodes, which become free one after another: one of them starts
    whole, the other holds nothing.
    """
    await box.nodes(2 * box.size - 1)
    gang = await box.gang("again")
    await box.started(gang)
    await box.stop_slowly(_not_failing(box, gang), 1.0)
    rival = await box.gang("rival")
    await box.waits(rival)
    before = await box.restart(gang)
    await box.until(lambda: not before & box.uids(gang), "the old pods terminate")
    started, waiting = await one_started(box, gang, rival)
    await box.waits(waiting)
    await box.delete(started)
    await box.started(waiting)


async def restart_while_terminating(box: Sandbox) -> None:
    """New pods exist before the last old one has terminated: none of them is bound until all can be."""
    await box.nodes(box.size)
    gang = await box.gang("again")
    await box.started(gang)
    slow = _not_failing(box, gang)
    await box.stop_slowly(slow, _STOP_SECONDS)
    before = await box.restart(gang)
    await box.started(gang, without=before)
    _check_no_early_bind(box, gang, slow, before)


async def restart_with_crashes(box: Sandbox) -> None:
    """The same while the controller and the coordinator are killed and started again."""
    await box.nodes(box.size)
    gang = await box.gang("again")
    await box.started(gang)
    slow = _not_failing(box, gang)
    await box.stop_slowly(slow, _STOP_SECONDS)
    before = await box.restart(gang)
    await box.until(lambda: not before & box.uids(gang), "the old pods terminate")
    await asyncio.gather(box.kill_controller(), box.kill_coordinator())
    await asyncio.gather(box.start_controller(), box.cluster.begin())
    await box.started(gang, without=before)
    _check_no_early_bind(box, gang, slow, before)


async def restart_unobserved(box: Sandbox) -> None:
    """The same while no coordinator runs; the next one finds the permit of the former run, and old and new pods."""
    await box.nodes(box.size)
    gang = await box.gang("again")
    await box.started(gang)
    slow = _not_failing(box, gang)
    await box.stop_slowly(slow, 2 * _STOP_SECONDS)
    await box.kill_coordinator()
    before = await box.restart(gang)
    await box.until(lambda: not before & box.uids(gang), "the old pods terminate")
    await box.cluster.begin()
    await box.started(gang, without=before)
    _check_no_early_bind(box, gang, slow, before)


def _not_failing(box: Sandbox, gang: Gang) -> JSON:
    """A pod other than the one whose failure may cause the restart: that one ends at once."""
    pods = box.pods(gang)
    failing = box.kind.failing(pods)
    return next(pod for pod in pods if pod is not failing)


def _check_no_early_bind(box: Sandbox, gang: Gang, slow: JSON, before: set[str]) -> None:
    """After all pods of the run before were terminating, no new pod was bound until a slow one of them had ended.

    Pods from before that time replace members that fail while others run; their binds may be under way.
    """
    starts, ended = box.starts, box.starts.ends[slow["metadata"]["uid"]]
    restarted = max(starts.deletions[uid] for uid in before)
    binds = {uid: at for uid, at in starts.bindings[gang.namespace, gang.name].items() if uid not in before}
    early = [
        ended - at
        for uid, at in binds.items()
        if restarted < at < ended and (starts.seen[uid] > restarted or at > restarted + _IN_FLIGHT_SECONDS)
    ]
    assert not early, (
        f"a new pod was bound {max(early):.2f} s before {slow['metadata']['name']} of the run before had ended"
    )
    if min(starts.seen[uid] for uid in binds) > ended:
        box.remark = "the controller creates the new pods only after the last old one has ended"

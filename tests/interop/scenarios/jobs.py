"""Scenarios of Jobs only."""

from typing import Final

from interop.gang import JSON
from interop.sandbox import Sandbox

_EXIT_CODE: Final = 42


async def fails_as_a_whole(box: Sandbox) -> None:
    """A podFailurePolicy with FailJob ends the Job at once; the next gang gets the nodes."""
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1, _EXIT_CODE]}}
    await box.nodes(box.size)
    gang = await box.gang("fatal", options={"podFailurePolicy": {"rules": [rule]}})
    await box.started(gang)
    await box.fail(box.pods(gang)[0])
    await box.until(lambda: not box.pods(gang), f"the Job controller has deleted all pods of {gang.name}")
    await box.started(await box.gang("next"))


async def succeeds_by_policy(box: Sandbox) -> None:
    """With a successPolicy of index 0 the Job ends when that pod succeeds; the next gang gets the nodes."""
    policy = {"rules": [{"succeededIndexes": "0", "succeededCount": 1}]}
    await box.nodes(box.size)
    gang = await box.gang("led", options={"successPolicy": policy})
    await box.started(gang)
    leader = next(pod for pod in box.pods(gang) if _index(pod) == "0")
    await box.succeed(gang, leader)
    await box.until(lambda: not box.pods(gang), f"the Job controller has deleted all pods of {gang.name}")
    await box.started(await box.gang("next"))


def _index(pod: JSON) -> str:
    return str(pod["metadata"]["annotations"].get("batch.kubernetes.io/job-completion-index"))

"""Scenarios of Jobs only."""

from typing import Final

from interop.gang import JSON
from interop.kinds.kubernetes import with_minimum
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


async def fails_by_index(box: Sandbox) -> None:
    """With FailIndex a pod that fails is not created again: the others run on, and complete the Job without it. The
    next gang gets the nodes.
    """
    rule = {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [1, _EXIT_CODE]}}
    options = {"podFailurePolicy": {"rules": [rule]}, "backoffLimitPerIndex": 1, "backoffLimit": None}
    await box.nodes(box.size)
    gang = await box.gang("partial", options=options)
    await box.started(gang)
    await box.fail(box.pods(gang)[0])
    await box.started(gang, box.size - 1)
    await box.succeed(gang)
    await box.until(lambda: not box.pods(gang), f"no pod of {gang.name} is left")
    await box.started(await box.gang("next"))


async def counts_failures(box: Sandbox) -> None:
    """With Count a pod that fails is created again, up to the limit of the Job: then no pod is left, and the next gang
    gets the nodes.
    """
    rule = {"action": "Count", "onExitCodes": {"operator": "In", "values": [1, _EXIT_CODE]}}
    await box.nodes(box.size)
    gang = await box.gang("counted", options={"podFailurePolicy": {"rules": [rule]}, "backoffLimit": 1})
    await box.started(gang)
    failed = box.pods(gang)[0]
    await box.fail(failed)
    await box.started(gang, without={failed["metadata"]["uid"]})
    await box.fail(box.pods(gang)[0])
    await box.until(lambda: not box.pods(gang), f"the Job controller has deleted all pods of {gang.name}")
    await box.started(await box.gang("next"))


async def changes_minimum(box: Sandbox) -> None:
    """`minCount` of a Job that waits is lowered: as many pods start. It is raised while they run: they run on, and the
    others start when they fit.
    """
    await box.nodes(box.size - 1)
    gang = await box.gang("mutable")
    await box.waits(gang)
    box.starts.expect(gang.namespace, gang.name, box.size - 1)
    await box.patch(with_minimum(gang, box.size - 1))
    await box.until(lambda: len(box.running(gang)) == box.size - 1, f"{box.size - 1} pods of {gang.name} run")
    members = {pod["metadata"]["uid"] for pod in box.running(gang)}
    await box.patch(with_minimum(gang, box.size))
    await box.nodes(1)
    await box.started(gang)
    assert members <= box.uids(gang), f"pods that ran were replaced\n{box.described()}"


def _index(pod: JSON) -> str:
    return str(pod["metadata"]["annotations"].get("batch.kubernetes.io/job-completion-index"))

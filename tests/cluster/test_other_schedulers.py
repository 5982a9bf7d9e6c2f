"""Muster and kube-scheduler on the same nodes, with more pods for each than fit."""

import pytest

from cluster.gangs import job
from cluster.release import Release

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(1200)]

JOBS_EACH = 8
SCHEDULERS = ("muster", "default-scheduler")


async def test_all_jobs_of_both_schedulers_complete(release: Release) -> None:
    """Both may choose the same capacity: the kubelet rejects a pod then (OutOfcpu), and its Job replaces it."""
    names = {f"{scheduler}-{number}": scheduler for number in range(JOBS_EACH) for scheduler in SCHEDULERS}
    jobs = [job(name, 4, scheduler=scheduler, cpu="200m", seconds=5) for name, scheduler in names.items()]
    kubectl = release.cluster.kubectl
    await release.cluster.apply(jobs)
    try:
        await kubectl("wait", "--for=condition=complete", *(f"job/{name}" for name in names), "--timeout=290s")
        pods = (await release.cluster.get("pods", "-l", "batch.kubernetes.io/job-name"))["items"]
        rejected = [each["spec"]["schedulerName"] for each in pods if each["status"].get("reason") == "OutOfcpu"]
        print(f"\npods that a kubelet rejected, by scheduler: {[(each, rejected.count(each)) for each in SCHEDULERS]}")
    finally:
        await kubectl("delete", "jobs", *names)

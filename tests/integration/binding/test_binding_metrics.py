"""Metrics of binding: pods by outcome, requests and retries."""

from builders.binding.service import Rig
from builders.e2e.faults import BINDS
from builders.telemetry.metrics import Figures


async def test_every_pod_counts_once_by_outcome(muster: Rig) -> None:
    pods = await muster.pods("bound", "gone", "refused")
    bound, gone, refused = pods
    await muster.kube.delete("Pod", "gone")
    before = Figures.here()

    await muster.bind([bound, gone], "node-0")
    await muster.bind([bound], "node-1")
    with muster.faults.refuse(BINDS, 403):
        await muster.bind([refused], "node-0")

    now = Figures.here()
    assert now("muster_pods_bound_total") - before("muster_pods_bound_total") == 1
    for reason in ("gone", "conflict", "failed"):
        name = "muster_bind_errors_total"
        assert now(name, reason=reason) - before(name, reason=reason) == 1, reason
    for code, requests in {"201": 1, "404": 1, "409": 1, "403": 1}.items():
        name = "rest_client_requests_total"
        assert now(name, method="POST", code=code) - before(name, method="POST", code=code) >= requests, code
    assert now("muster_writes_in_flight") == now("muster_writes_pending") == 0


async def test_retries_are_counted_by_reason(muster: Rig) -> None:
    pods = await muster.pods("a", "b")
    before = Figures.here()

    with muster.faults.refuse(BINDS, 503, times=1):
        await muster.bind(pods[:1], "node-0")
    with muster.faults.refuse(BINDS, 500, times=1):
        await muster.bind(pods[1:], "node-0")

    now = Figures.here()
    for reason in ("server_unavailable", "write_failed"):
        name = "muster_write_retries_total"
        assert now(name, reason=reason) - before(name, reason=reason) >= 1, reason

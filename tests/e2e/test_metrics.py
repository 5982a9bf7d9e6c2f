"""Metrics over HTTP: exactly the documented ones are exposed, and values follow the gangs."""

import asyncio
from collections.abc import Callable

import pytest

from builders.deploy.promtool import promtool
from builders.docs.metrics import documented_metrics
from builders.e2e.world import World
from builders.gangs.manifests import gang
from builders.telemetry.metrics import Figures
from builders.wait import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

SCHEDULED = {"result": "scheduled", "profile": "muster"}
UNSCHEDULABLE = {"result": "unschedulable", "profile": "muster"}
SOLVE = {"rpc_method": "muster.placement.v1.PlacementService/Solve", "rpc_response_status_code": "OK"}
BIND = {"rpc_method": "muster.binding.v1.BindingService/Bind", "rpc_response_status_code": "OK"}
OF_PYTHON = ("process_", "python_")
OPTIONAL = ("console", "forecast")
"""Services that these tests do not start."""


async def figures_by_service(world: World) -> dict[str, Figures]:
    addresses = world.cluster.stack.metrics_addresses
    figures = await asyncio.gather(*(Figures.at(address) for address in addresses.values()))
    return dict(zip(addresses, figures, strict=True))


async def until(world: World, holds: Callable[[dict[str, Figures]], bool]) -> dict[str, Figures]:
    """All metrics, as soon as the condition holds: some are updated a moment later than other observations."""

    async def as_wanted() -> dict[str, Figures] | None:
        now = await figures_by_service(world)
        return now if holds(now) else None

    return await eventually(as_wanted, seconds=20, every_seconds=0.05)


async def test_metrics_follow_the_gangs(world: World) -> None:
    await world.nodes(4)
    before = await figures_by_service(world)
    small, big = gang("small").of(3).with_priority(0), gang("big").of(5).with_priority(0)

    await world.create(small)
    await world.bound(small)
    await world.create(big)
    await world.unschedulable(big)
    waits = await until(
        world,
        lambda now: (
            now["coordinator"]("scheduler_pending_pods", queue="unschedulable") == 5
            and now["coordinator"]("muster_watch_lag_seconds_count")
            > before["coordinator"]("muster_watch_lag_seconds_count")
            and now["lifecycle"]("muster_leader") == 1  # takes a few seconds after a test that killed it
        ),
    )

    def more(service: str, name: str, **labels: str) -> float:
        return waits[service](name, **labels) - before[service](name, **labels)

    assert more("binding", "muster_pods_bound_total") == 3
    assert more("binding", "rest_client_requests_total", method="POST", code="201") >= 3
    assert more("binding", "rpc_server_call_duration_seconds_count", **BIND) == 1
    assert more("coordinator", "rpc_client_call_duration_seconds_count", **BIND) == 1
    assert more("coordinator", "scheduler_schedule_attempts_total", **SCHEDULED) == 1
    assert more("coordinator", "scheduler_schedule_attempts_total", **UNSCHEDULABLE) >= 1
    assert more("coordinator", "scheduler_scheduling_attempt_duration_seconds_count", **SCHEDULED) == 1
    assert more("coordinator", "scheduler_pod_scheduling_sli_duration_seconds_count") == 1
    assert more("coordinator", "muster_gang_phase_duration_seconds_count", phase="binding") == 1
    assert more("coordinator", "muster_gangs", phase="satisfied") == 1
    assert more("coordinator", "muster_gangs", phase="queued") == 1
    assert 1 <= more("coordinator", "muster_watch_lag_seconds_count") <= 3
    assert more("coordinator", "muster_etcd_request_duration_seconds_count", operation="commit") >= 1
    assert more("placement", "muster_solve_groups_total", outcome="placed") == 1
    assert more("placement", "muster_solve_duration_seconds_count") >= 2
    assert more("placement", "rpc_server_call_duration_seconds_count", **SOLVE) >= 2
    assert more("cluster-state", "muster_facts", kind="pods") == 8
    assert waits["coordinator"]("muster_leader") == 1
    assert [waits[name]("muster_cache_synced") for name in ("coordinator", "placement")] == [1, 1]
    assert waits["cluster-state"]("muster_subscribers") >= 2

    await world.nodes(4)
    await world.bound(big)
    await until(world, lambda now: now["coordinator"]("scheduler_pending_pods") == 0)

    urgent = gang("urgent").of(2).with_priority(1000)
    await world.create(urgent)
    await world.bound(urgent)
    preempted = await until(world, lambda now: now["binding"]("muster_evictions_total", outcome="evicted") > 0)
    assert preempted["coordinator"]("scheduler_preemption_attempts_total") >= 1
    assert preempted["coordinator"]("scheduler_preemption_victims_sum") >= 2


async def test_promtool_accepts_the_exposed_metrics(world: World) -> None:
    for figures in (await figures_by_service(world)).values():
        promtool("check", "metrics", given=figures.text)


async def test_exactly_the_documented_metrics_are_exposed(world: World) -> None:
    documented, all_told = documented_metrics(), await figures_by_service(world)
    told_by: dict[str, set[str]] = {}
    for service, figures in all_told.items():
        for name, kind in figures.types.items():
            if name.startswith(OF_PYTHON):
                continue
            assert name in documented, f"{service} tells {name}, of which docs/metrics.md says nothing"
            assert kind == documented[name].kind, name
            assert figures.labels.get(name, documented[name].labels) == documented[name].labels, name
            told_by.setdefault(name, set()).add(service)

    assert told_by.keys() == {name for name, metric in documented.items() if metric.section not in OPTIONAL}
    for name, metric in documented.items():
        if metric.section == "Every service":
            assert told_by[name] == all_told.keys(), name
        elif metric.section in all_told:
            assert told_by[name] == {metric.section}, name

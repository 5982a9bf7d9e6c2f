"""Quota reserved for PodGroups: concurrent pods, reviewed over HTTPS by several replicas."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from builders.e2e.faults import Requests
from builders.kube.webhook import CONFIGURATIONS
from builders.lifecycle.quota_service import COSCHEDULING, LEDGER, POD_GROUPS, PODS, QUOTAS, QuotaCluster, condition
from builders.lifecycle.replicas import LEASE, LifecycleCluster
from builders.wait import eventually

LEDGERS = Requests("", "/configmaps.*")


@pytest.fixture
async def quota(rig: LifecycleCluster, tmp_path: Path) -> AsyncIterator[QuotaCluster]:
    await rig.install("scheduling.incubator.k8s.io_podgroups.yaml")
    yield QuotaCluster(rig, tmp_path)


async def ended(quota: QuotaCluster, *names: str, phase: str = "Succeeded") -> None:
    for name in names:
        await quota.api.patch(f"{PODS}/{name}/status", {"status": {"phase": phase}})


async def test_quota_reserved_for_a_group_is_not_available_to_other_pods(quota: QuotaCluster) -> None:
    async with quota.guarded():
        await quota.quota(cpu="10")
        await quota.group("train", cpu="6")
        assert await quota.wait_for_reason("train", "QuotaReserved") == "cpu=6 is reserved for its pods"
        refused = await quota.create("greedy", cpu="5")
        assert (refused.status, refused.reason) == (403, "Forbidden")
        assert refused.message == (
            'admission webhook "quota.muster.dev" denied the request: exceeded quota: team, requested: cpu=5, '
            "used: cpu=6, limited: cpu=10 (used includes reservations: cpu=6 for PodGroup train)"
        )
        assert (await quota.create("modest", cpu="4")).status == 201
        assert await quota.statuses(["t0", "t1", "t2"], of="train", cpu="2") == [201] * 3
        assert (await quota.create("late", cpu="1")).status == 403


async def test_a_group_that_does_not_fit_waits_with_a_reason_until_it_fits(quota: QuotaCluster) -> None:
    async with quota.guarded():
        await quota.quota(cpu="10")
        await quota.create("other", cpu="5")
        await quota.group("train", cpu="6")
        assert await quota.wait_for_reason("train", "QuotaExceeded") == (
            'spec.totalResources of PodGroup "default/train" does not fit: exceeded quota: team, requested: cpu=6, '
            "used: cpu=5, limited: cpu=10"
        )
        refused = await quota.create("t0", of="train", cpu="2")
        assert refused.status == 403
        assert "waits until its spec.totalResources fits" in refused.message
        await quota.api.delete(f"{PODS}/other")
        await quota.wait_for_reason("train", "QuotaReserved")
        await until_created(quota, "t0", of="train", cpu="2")
        path = "/apis/events.k8s.io/v1/namespaces/default/events"
        events = await quota.api.until(path, lambda reply: len(reply.body["items"]) > 1)
        assert {each["reason"] for each in events.body["items"]} == {"QuotaExceeded", "QuotaReserved"}


async def test_reservations_are_returned_as_pods_end(quota: QuotaCluster) -> None:
    async with quota.guarded():
        await quota.quota(cpu="4")
        await quota.group("train", cpu="4")
        assert await quota.statuses(["t0", "t1"], of="train", cpu="2") == [201, 201]
        assert (await quota.create("other", cpu="2")).status == 403
        await ended(quota, "t0")
        await until_created(quota, "other", cpu="2")


async def test_a_deleted_group_returns_all(quota: QuotaCluster) -> None:
    async with quota.guarded():
        await quota.quota(cpu="4")
        await quota.group("train", cpu="4")
        await quota.wait_for_reason("train", "QuotaReserved")
        await quota.api.delete(f"{POD_GROUPS}/train")
        await until_created(quota, "other", cpu="4")


async def test_a_pod_created_right_after_its_group_reserves_for_it(quota: QuotaCluster) -> None:
    async with quota.guarded(2):
        await quota.quota(cpu="8")
        for name in ("a", "b"):
            await quota.group(name, cpu="6")
            await quota.create(f"{name}0", of=name, cpu="1")
        pods = await quota.api.names(PODS)
        assert len(pods) == 1
        [won] = pods
        assert await quota.statuses([f"{won[0]}{index}" for index in range(1, 6)], of=won[0], cpu="1") == [201] * 5


async def test_concurrent_pods_on_two_replicas_do_not_use_reserved_quota(quota: QuotaCluster) -> None:
    async with quota.guarded(2):
        await quota.quota(cpu="20")
        await quota.group("train", cpu="12")
        await quota.wait_for_reason("train", "QuotaReserved")
        others, members = await asyncio.gather(
            quota.statuses([f"o{index}" for index in range(20)], cpu="1"),
            quota.statuses([f"t{index}" for index in range(12)], of="train", cpu="1"),
        )
        assert members == [201] * 12
        assert (others.count(201), others.count(403)) == (8, 12)


async def test_groups_and_pods_that_come_at_once_never_exceed_together(quota: QuotaCluster) -> None:
    """Groups with reserved quota get all their pods admitted, the others none."""
    names = ["a", "b", "c", "d"]
    async with quota.guarded(2):
        await quota.quota(cpu="10")
        await asyncio.gather(*(quota.group(name, cpu="4") for name in names))
        created = await asyncio.gather(
            *(quota.statuses([f"{name}{index}" for index in range(4)], of=name, cpu="1") for name in names),
            quota.statuses([f"o{index}" for index in range(10)], cpu="1"),
        )
        for statuses in created[:4]:
            assert statuses in ([201] * 4, [403] * 4)
        won = sum(statuses == [201] * 4 for statuses in created[:4])
        reserved = [name for name in names if await reserves(quota, name)]
        assert won <= len(reserved)
        assert 4 * len(reserved) + created[4].count(201) <= 10


async def test_pods_that_somebody_else_refuses_take_nothing_from_others(quota: QuotaCluster) -> None:
    async with quota.guarded():
        await quota.quota(cpu="4")
        await quota.create("same", cpu="2")
        for _ in range(5):
            assert (await quota.create("same", cpu="2")).reason == "AlreadyExists"
        assert (await quota.create("other", cpu="2")).status == 201


async def test_namespaces_without_quota_have_no_ledger(quota: QuotaCluster) -> None:
    async with quota.guarded():
        await quota.group("train", cpu="6")
        assert (await quota.create("t0", of="train", cpu="4")).status == 201
        assert (await quota.api.get(LEDGER)).status == 404
        assert condition(await quota.api.get(f"{POD_GROUPS}/train")) == {}


async def test_a_group_stops_waiting_when_the_quota_is_deleted(quota: QuotaCluster) -> None:
    async with quota.guarded():
        await quota.quota(cpu="1")
        await quota.group("train", cpu="6")
        assert "more than the whole quota" in await quota.wait_for_reason("train", "QuotaExceeded")
        await quota.api.delete(f"{QUOTAS}/team")
        await quota.wait_for_reason("train", "NoQuota")
        await quota.api.until(LEDGER, lambda reply: reply.status == 404)


async def test_the_condition_changes_when_no_quota_limits_the_group(quota: QuotaCluster) -> None:
    async with quota.guarded():
        await quota.quota(cpu="8")
        await quota.group("train", cpu="6")
        await quota.wait_for_reason("train", "QuotaReserved")
        await quota.api.delete(f"{QUOTAS}/team")
        await quota.wait_for_reason("train", "NoQuota")


async def test_an_invalid_total_is_reported(quota: QuotaCluster) -> None:
    async with quota.guarded():
        await quota.quota(cpu="10")
        await quota.group("train", cpu="lots")
        wait_for_reason = await quota.wait_for_reason("train", "InvalidTotal")
        assert 'spec.totalResources is a list with "cpu" in it, of which "lots" is not a quantity' in wait_for_reason


async def test_coscheduling_reserves_min_resources_even_without_conditions(
    quota: QuotaCluster, rig: LifecycleCluster
) -> None:
    crd = rig.manifest("scheduling.x-k8s.io_podgroups.yaml")
    del crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["conditions"]
    await rig.create_crd(crd)
    async with quota.guarded():
        await quota.quota(cpu="4")
        await quota.create("other", cpu="1")
        await quota.group("train", path=COSCHEDULING, cpu="4")
        waits = "muster.dev/quota-waits"

        def annotation(reply: Any) -> str:
            return str((reply.body["metadata"].get("annotations") or {}).get(waits, ""))

        wait_for_reason = await quota.api.until(f"{COSCHEDULING}/train", lambda reply: bool(annotation(reply)))
        assert "spec.minResources of PodGroup" in annotation(wait_for_reason)
        await quota.api.delete(f"{PODS}/other")
        await quota.api.until(f"{COSCHEDULING}/train", lambda reply: not annotation(reply))


async def test_reservations_outlive_the_replicas(quota: QuotaCluster) -> None:
    async with quota.guarded():
        await quota.quota(cpu="10")
        await quota.group("train", cpu="6")
        await quota.wait_for_reason("train", "QuotaReserved")
    await quota.api.delete(f"{CONFIGURATIONS}/muster-quota")
    async with quota.guarded():
        assert await quota.statuses(["o0", "o1"], cpu="4") in ([201, 403], [403, 201])
        assert await quota.statuses(["t0", "t1"], of="train", cpu="3") == [201, 201]


async def test_a_malformed_ledger_is_rebuilt(quota: QuotaCluster) -> None:
    await quota.api.created(
        "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "muster-quota.default"}, "data": {"ledger": "?"}}
    )
    async with quota.guarded():
        await quota.quota(cpu="10")
        await quota.group("train", cpu="6")
        await quota.wait_for_reason("train", "QuotaReserved")
        assert (await quota.create("other", cpu="5")).status == 403


@pytest.mark.parametrize(("policy", "status"), [("Fail", 500), ("Ignore", 201)])
async def test_while_nothing_can_be_agreed_on_the_policy_decides(quota: QuotaCluster, policy: str, status: int) -> None:
    async with quota.guarded(policy=policy, faulty=True):
        await quota.quota(cpu="10")
        await quota.create("first", cpu="1")
        with quota.rig.faults.refuse(LEDGERS, 503):
            assert (await quota.create("second", cpu="1")).status == status


async def test_a_decision_whose_response_was_lost_is_not_counted_twice(quota: QuotaCluster) -> None:
    async with quota.guarded(faulty=True):
        await quota.quota(cpu="4")
        await quota.create("first", cpu="1")
        with quota.rig.faults.cut(Requests("PUT", "/configmaps.*"), times=1, carried_out=True) as lost:
            await quota.create("same", cpu="3")  # refused, or decided anew: the write may be tried again on its way
            await lost.struck(1)
        await quota.create("same", cpu="3")
        assert sorted(await quota.api.names(PODS)) == ["first", "same"]


async def test_another_leader_completes_reservations_and_releases(quota: QuotaCluster) -> None:
    async with quota.guarded(2):
        await quota.quota(cpu="4")
        await quota.create("other", cpu="4")
        await quota.group("train", cpu="4")
        await quota.wait_for_reason("train", "QuotaExceeded")
        lease = (await quota.api.get(LEASE)).body["spec"]["holderIdentity"]
        await quota.stop(lease)
        await quota.api.delete(f"{PODS}/other")
        await quota.wait_for_reason("train", "QuotaReserved")


async def until_created(quota: QuotaCluster, name: str, *, of: str = "", **requests: str) -> None:
    """The API server counts ended pods with a delay."""

    async def created() -> bool:
        return (await quota.create(name, of=of, **requests)).status == 201

    await eventually(created, f"pod {name} is admitted", seconds=20, every_seconds=0.05)


async def reserves(quota: QuotaCluster, name: str) -> bool:
    reply = await quota.api.until(f"{POD_GROUPS}/{name}", lambda reply: bool(condition(reply)))
    return bool(condition(reply)["status"] == "True")

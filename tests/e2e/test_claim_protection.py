"""Claims that have the finalizer since their creation: by the chart's policy on a real API server, or by a patch."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from builders.deploy.admission_policies import policies_and_bindings
from builders.e2e.devices import (
    API,
    CLAIMS_FOR_TRIAL,
    claims_of,
    create_with_finalizers,
    gpus,
    has_a_device_each,
    run_claims_with_finalizer,
    with_claims,
)
from builders.e2e.faults import Requests
from builders.e2e.world import World
from builders.gangs.manifests import Workload, gang
from builders.wait import eventually
from muster.localcluster.kubelets.devices.cards import CardKind, Cards

pytestmark = pytest.mark.asyncio(loop_scope="session")

EIGHT = Cards(CardKind.GPU, 8)
FINALIZERS = Requests("PATCH", "/resourceclaims/[^/]+")
FIRST_ALLOCATIONS = Requests("PATCH", "/resourceclaims/[^/]+/status")
POLICIES: Final = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
BINDINGS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"


@pytest.mark.parametrize("victims", ["binding", "coordinator", "coordinator binding"])
@pytest.mark.parametrize("carried_out", [False, True])
async def test_killed_at_the_only_write_of_the_second_claim_i5_i6(
    world: World, victims: str, carried_out: bool
) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(*[8] * 9, cards=EIGHT)
    await run_claims_with_finalizer(world)
    a = await with_claims(world, gang("a").of(4).declared_by("koordinator"), gpus(world))
    with world.cluster.faults.hold(FIRST_ALLOCATIONS, let_pass=1, carried_out=carried_out) as held:
        await create_with_finalizers(world, a)
        await held.until(2)
        for name in victims.split():
            await world.cluster.stack.kill(name)
        held.drop()
        await world.cluster.stack.start()
    await has_a_device_each(world, a)


async def test_claims_are_protected_by_the_policy_and_go_with_their_pods(world: World) -> None:
    async with policy_in_force(world):
        await world.nodes(*[8] * 9, cards=EIGHT)
        before = await with_claims(world, gang("before").of(CLAIMS_FOR_TRIAL), gpus(world))
        await world.create(before)
        await has_a_device_each(world, before)
        await world.delete(before)
        await eventually(lambda: _without_claims(world, before), "the claims of all pods are gone")
        a = await with_claims(world, gang("a").of(4), gpus(world))
        with world.cluster.faults.seen(FINALIZERS) as additions, world.cluster.faults.seen(FIRST_ALLOCATIONS) as writes:
            await world.create(a)
            await has_a_device_each(world, a)
        assert (len(additions), len(writes)) == (0, 4)
        b = await with_claims(world, gang("b").of(2), gpus(world))
        await world.create(b, only=(0,))
        for workload in (a, b):
            await world.delete(workload)
        await eventually(lambda: _without_claims(world, a), "the claims of all pods are gone")


async def _without_claims(world: World, workload: Workload) -> bool:
    return not await claims_of(world, workload)


@asynccontextmanager
async def policy_in_force(world: World) -> AsyncIterator[None]:
    """The chart's policy applies until the end of the block. Skips the test on servers that have no such policies."""
    if not world.cluster.api_server.is_real:
        pytest.skip("the embedded API server has no admission policies: run make test-kubernetes")
    world.cluster.api_server.needs_controllers()
    if (await world.cluster.try_call("GET", POLICIES)).status == 404:
        pytest.skip("this API server does not serve MutatingAdmissionPolicy admissionregistration.k8s.io/v1")
    [created] = policies_and_bindings("", "claimProtectionPolicy.enabled")
    paths = []
    try:
        for path, each in zip((POLICIES, BINDINGS), created, strict=True):
            await world.cluster.call("POST", path, each)
            paths.append(f"{path}/{each['metadata']['name']}")
        await eventually(lambda: _protects(world), "the policy is in force")
        yield
    finally:
        for path in reversed(paths):
            await world.cluster.call("DELETE", path)


async def _protects(world: World) -> bool:
    """Whether a new claim would have the finalizer."""
    requests: list[dict[str, Any]] = [{"name": "gpu", "exactly": {"deviceClassName": "none"}}]
    claim = {"metadata": {"generateName": "trial-"}, "spec": {"devices": {"requests": requests}}}
    path = f"/apis/{API}/namespaces/default/resourceclaims?dryRun=All"
    return bool((await world.cluster.call("POST", path, claim))["metadata"].get("finalizers"))

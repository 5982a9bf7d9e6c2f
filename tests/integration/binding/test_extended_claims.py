"""Claims for extended resources: created, allocated and named by the pod before its bind, deleted if that fails."""

from typing import Any

import msgspec
import pytest

from builders.binding.device_claims import CLAIMS, DRIVER, FINALIZER, allocation, devices_of, user, users_of
from builders.binding.service import Object, Rig, names
from builders.e2e.faults import BINDS, Requests
from muster.binding.extended_claims import claim_name
from muster.binding.v1 import binding_pb2 as pb

BOUND, FAILED, GONE = pb.BindResult.OUTCOME_BOUND, pb.BindResult.OUTCOME_FAILED, pb.BindResult.OUTCOME_GONE
WITHHELD = pb.BindResult.OUTCOME_WITHHELD
GPU = "nvidia.com/gpu"
ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
CREATIONS = Requests("POST", "/resourceclaims")
ALL = Requests("", "/namespaces/ml/.*")
POD_STATUS = Requests("PATCH", "/pods/[^/]+/status")


def extended(*devices: str, count: int = 1, device_class: str = DRIVER) -> pb.ExtendedClaim:
    exactly = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    return pb.ExtendedClaim(
        spec=msgspec.json.encode(spec),
        allocation=msgspec.json.encode(allocation(*devices)),
        mappings=[pb.RequestMapping(container="main", resource=GPU, request="gpu")],
    )


def name_for(pod: Object) -> str:
    return claim_name(pod["metadata"]["name"], pod["metadata"]["uid"])


async def bind_one(muster: Rig, pod: Object, given: pb.ExtendedClaim, **more: Any) -> pb.BindResult:
    [result] = await muster.bind([pod], extended={pod["metadata"]["uid"]: given}, **more)
    return result


async def claims(muster: Rig) -> list[Object]:
    return list((await muster.get(CLAIMS))["items"])


async def status_of(muster: Rig, pod: Object) -> Object | None:
    """The pod's status.extendedResourceClaimStatus."""
    found = await muster.get(f"/api/v1/namespaces/ml/pods/{pod['metadata']['name']}")
    return found.get("status", {}).get("extendedResourceClaimStatus")  # type: ignore[no-any-return]


async def test_the_claim_is_created_allocated_and_named_by_the_pod(muster: Rig) -> None:
    [pod] = await muster.pods("trainer-0")
    with muster.faults.seen(ALL) as requests:
        result = await bind_one(muster, pod, extended("gpu-0"))
    assert (result.outcome, result.message) == (BOUND, "")
    order = [tuple(each.path.split("/")[-3:]) for each in requests]
    name = name_for(pod)
    assert order == [
        ("namespaces", "ml", "resourceclaims"),
        ("resourceclaims", name, "status"),
        ("pods", "trainer-0", "status"),
        ("pods", "trainer-0", "binding"),
    ]
    [claim] = await claims(muster)
    metadata = claim["metadata"]
    assert metadata["name"].startswith("trainer-0-extended-resources-")
    assert metadata["annotations"] == {ANNOTATION: "true"}
    assert metadata["finalizers"] == [FINALIZER]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "trainer-0", "uid": pod["metadata"]["uid"], "controller": True}
    assert metadata["ownerReferences"] == [owner]
    assert (devices_of(claim), claim["status"]["reservedFor"]) == (["gpu-0"], [user(pod)])
    mapping = {"containerName": "main", "resourceName": GPU, "requestName": "gpu"}
    assert await status_of(muster, pod) == {"resourceClaimName": metadata["name"], "requestMappings": [mapping]}


async def test_a_repeated_call_finds_the_claim(muster: Rig) -> None:
    [pod] = await muster.pods("trainer-0")
    await bind_one(muster, pod, extended("gpu-0"))
    again = await bind_one(muster, pod, extended("gpu-0"))
    assert again.outcome == BOUND
    assert [devices_of(each) for each in await claims(muster)] == [["gpu-0"]]


async def test_a_lost_answer_to_the_creation_makes_no_second_claim(muster: Rig) -> None:
    [pod] = await muster.pods("trainer-0")
    with muster.faults.cut(CREATIONS, times=1, carried_out=True):
        result = await bind_one(muster, pod, extended("gpu-0"))
    assert result.outcome == BOUND
    assert [devices_of(each) for each in await claims(muster)] == [["gpu-0"]]


@pytest.mark.parametrize(
    ("faulty", "status"),
    [(BINDS, 403), (POD_STATUS, 403), (Requests("PUT", "/resourceclaims/[^/]+/status"), 403)],
    ids=["bind", "status of the pod", "allocation"],
)
async def test_i5_a_pod_that_is_not_bound_leaves_no_claim(muster: Rig, faulty: Requests, status: int) -> None:
    [pod] = await muster.pods("trainer-0")
    with muster.faults.refuse(faulty, status, times=1):
        result = await bind_one(muster, pod, extended("gpu-0"))
    assert result.outcome == FAILED
    assert await claims(muster) == []
    assert await status_of(muster, pod) is None
    assert (await bind_one(muster, pod, extended("gpu-1"))).outcome == BOUND
    assert [devices_of(each) for each in await claims(muster)] == [["gpu-1"]]


async def test_a_claim_that_may_not_be_created_is_the_reason(muster: Rig) -> None:
    [pod] = await muster.pods("trainer-0")
    with muster.faults.refuse(CREATIONS, 403):
        result = await bind_one(muster, pod, extended("gpu-0"))
    assert result.outcome == FAILED
    assert "extended-resources" in result.message
    assert "cannot be created: 403" in result.message


async def test_an_allocation_of_an_earlier_placement_is_replaced(muster: Rig) -> None:
    """A crash left the claim of a pod that was not bound."""
    [pod] = await muster.pods("trainer-0")
    with muster.faults.refuse(Requests("DELETE", "/resourceclaims/.*"), 403), muster.faults.refuse(BINDS, 403):
        first = await bind_one(muster, pod, extended("gpu-0"))
    assert "may stay allocated" in first.message
    left = (await claims(muster))[0]["metadata"]["uid"]
    assert (await bind_one(muster, pod, extended("gpu-3"))).outcome == BOUND
    [claim] = await claims(muster)
    assert (claim["metadata"]["uid"], devices_of(claim), users_of(claim)) == (left, ["gpu-3"], ["trainer-0"])


async def test_a_claim_with_other_requests_is_made_anew(muster: Rig) -> None:
    [pod] = await muster.pods("trainer-0")
    with muster.faults.refuse(Requests("DELETE", "/resourceclaims/.*"), 403), muster.faults.refuse(BINDS, 403):
        await bind_one(muster, pod, extended("gpu-0"))
    given = extended("gpu-0", "gpu-1", count=2)
    assert (await bind_one(muster, pod, given)).outcome == BOUND
    [claim] = await claims(muster)
    assert claim["spec"]["devices"]["requests"][0]["exactly"]["count"] == 2
    assert devices_of(claim) == ["gpu-0", "gpu-1"]


async def test_a_claim_of_the_name_that_is_not_the_pods_is_not_touched(muster: Rig) -> None:
    [pod] = await muster.pods("trainer-0")
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
    stranger = {"metadata": {"name": name_for(pod)}, "spec": {"devices": {"requests": [request]}}}
    made = await muster.kube.create("ResourceClaim", stranger)
    result = await bind_one(muster, pod, extended("gpu-0"))
    assert result.outcome == FAILED
    assert "was not created for the extended resources of the pod" in result.message
    [found] = await claims(muster)
    assert found["metadata"]["uid"] == made["metadata"]["uid"]
    assert devices_of(found) == []


async def test_i6_no_pod_of_a_gang_is_bound_if_one_claim_fails(muster: Rig) -> None:
    pods = await muster.pods(*names(2))
    given = {pod["metadata"]["uid"]: extended(f"gpu-{number}") for number, pod in enumerate(pods)}
    with muster.faults.refuse(CREATIONS, 403, times=1), muster.faults.seen(BINDS) as binds:
        results = await muster.bind(pods, extended=given, volumes_first=True)
    assert sorted(each.outcome for each in results) == sorted((FAILED, WITHHELD))
    assert binds == []
    assert await claims(muster) == []


async def test_the_devices_of_a_deleted_pod_are_released(muster: Rig) -> None:
    [pod] = await muster.pods("trainer-0")
    with muster.faults.hold(BINDS) as held:
        call = muster.bind_call([pod], extended={pod["metadata"]["uid"]: extended("gpu-0")})
        await held.until(1)
        await muster.kube.delete("Pod", "trainer-0")
        held.release()
        response = await call.read()
    assert [each.outcome for each in response.results] == [GONE]
    assert await claims(muster) == []


@pytest.mark.parametrize(
    ("claim", "problem"),
    [
        (pb.ExtendedClaim(spec=b"{}", allocation=b"{}"), "not the spec of a ResourceClaim in JSON"),
        (pb.ExtendedClaim(spec=b'{"devices":{"requests":[]}}', allocation=b"{}"), "it has no requests"),
        (pb.ExtendedClaim(spec=extended("a").spec), "it has no allocation"),
        (pb.ExtendedClaim(spec=extended("a").spec, allocation=extended("a").allocation), "mappings need a container"),
    ],
    ids=["spec", "no requests", "no allocation", "no mappings"],
)
async def test_invalid_claims_are_rejected(muster: Rig, claim: pb.ExtendedClaim, problem: str) -> None:
    [pod] = await muster.pods("trainer-0")
    with pytest.raises(Exception, match=problem):
        await bind_one(muster, pod, claim)

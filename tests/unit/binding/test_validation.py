"""Validation of requests: invalid ones are rejected with the offending value quoted."""

from typing import Any

import grpc
import pytest

from muster.binding.v1 import binding_pb2 as pb
from muster.binding.validation import (
    annotations_problem,
    condition_problem,
    event_problem,
    validate_bind,
    validate_evict,
)
from muster.clusterstate.v1 import clusterstate_pb2 as state_pb
from muster.rpc.errors import RpcError


def pod_binding(uid: str = "u", namespace: str = "ml", name: str = "pod-0", node: str = "node-0") -> pb.PodBinding:
    return pb.PodBinding(uid=uid, namespace=namespace, name=name, node=node)


def test_valid_names_pass() -> None:
    other = pod_binding(uid="v", name="a.b-c.0", node="ip-10-0-0-1.ec2.internal")
    validate_bind(pb.BindRequest(pods=[pod_binding(), other]))
    validate_bind(pb.BindRequest())


@pytest.mark.parametrize(
    ("pods", "problem"),
    [
        ([pod_binding(uid="")], "pod 'ml/pod-0' has no uid"),
        ([pod_binding(), pod_binding(name="pod-1")], "uid 'u' .* is given twice"),
        ([pod_binding(name="../../nodes/x")], "pod 'ml/../../nodes/x' is not a valid namespace/name"),
        ([pod_binding(name="..")], "is not a valid namespace/name"),
        ([pod_binding(name="")], "is not a valid namespace/name"),
        ([pod_binding(namespace="ML")], "'ML/pod-0' is not a valid namespace/name"),
        ([pod_binding(node="")], "node '' is not a valid node name"),
        ([pod_binding(node="a b")], "node 'a b' is not a valid node name"),
        ([pod_binding(node="n" * 300)], "node 'n{63}…' is not a valid node name"),
    ],
)
def test_invalid_binds_are_rejected(pods: list[pb.PodBinding], problem: str) -> None:
    with pytest.raises(RpcError, match=problem) as refused:
        validate_bind(pb.BindRequest(pods=pods))
    assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT


def with_claims(*claims: pb.DeviceClaim, uid: str = "u") -> pb.PodBinding:
    return pb.PodBinding(uid=uid, namespace="ml", name=f"pod-{uid}", node="node-0", device_claims=claims)


def device_claim(name: str = "gpu", uid: str = "c", allocation: str = "") -> pb.DeviceClaim:
    return pb.DeviceClaim(name=name, uid=uid, allocation=allocation.encode())


def test_pods_may_share_a_resource_claim() -> None:
    first, second = with_claims(device_claim()), with_claims(device_claim(allocation='{"devices": {}}'), uid="v")
    validate_bind(pb.BindRequest(pods=[first, second]))


@pytest.mark.parametrize(
    ("pods", "problem"),
    [
        ([with_claims(device_claim("a/b"))], "pod 'ml/pod-u': ResourceClaim 'a/b' is not a valid name"),
        ([with_claims(device_claim(uid=""))], "ResourceClaim 'gpu' has no uid"),
        ([with_claims(device_claim(), device_claim())], "ResourceClaim 'gpu' is given twice"),
        (
            [with_claims(device_claim()), with_claims(device_claim(uid="d"), uid="v")],
            "pod 'ml/pod-v': ResourceClaim 'gpu' has uid 'd'; another pod gives 'c'",
        ),
        (
            [with_claims(device_claim(allocation="{}")), with_claims(device_claim(allocation="{ }"), uid="v")],
            "pod 'ml/pod-v': ResourceClaim 'gpu' has another allocation than another pod gives",
        ),
        ([with_claims(device_claim(allocation="[]"))], r"allocation '\[\]': not an AllocationResult in JSON"),
        (
            [with_claims(device_claim(allocation='{"devices": {"results": [{"driver": "d"}]}}'))],
            'device "d//" for request "": a request, a driver, a pool and a device are required',
        ),
        ([with_claims(device_claim(allocation=" " * 2**20 + "{}"))], "1048578 bytes; the limit is 1048576"),
    ],
)
def test_invalid_resource_claims_are_rejected(pods: list[pb.PodBinding], problem: str) -> None:
    with pytest.raises(RpcError, match=problem) as refused:
        validate_bind(pb.BindRequest(pods=pods))
    assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT


def condition(**fields: str) -> pb.PodCondition:
    known: dict[str, Any] = {"uid": "u", "namespace": "ml", "name": "pod-0", "type": "PodScheduled", "status": "False"}
    return pb.PodCondition(**(known | fields))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, ""),
        ({"uid": ""}, "condition 'PodScheduled' of pod 'ml/pod-0': no uid"),
        ({"name": "a/b"}, "condition 'PodScheduled' of pod 'ml/a/b': not a valid namespace/name"),
        ({"type": ""}, "condition '' of pod 'ml/pod-0': no type"),
        ({"status": "No"}, "condition 'PodScheduled' of pod 'ml/pod-0': status 'No' is not True, False or Unknown"),
    ],
)
def test_condition_problems(change: dict[str, str], problem: str) -> None:
    assert condition_problem(condition(**change)) == problem


def event(regarding: dict[str, str] | None = None, **fields: str) -> pb.Event:
    known_object = {"api_version": "v1", "kind": "Pod", "namespace": "ml", "name": "pod-0"} | (regarding or {})
    known = {"type": "Warning", "reason": "FailedScheduling", "action": "Scheduling", "note": "note"}
    return pb.Event(regarding=state_pb.ObjectReference(**known_object), **(known | fields))


def test_event_problems() -> None:
    assert event_problem(event()) == ""
    assert event_problem(event({"namespace": "", "kind": "Node"})) == "", "nodes have no namespace"
    assert "type 'Bad' is not Normal or Warning" in event_problem(event(type="Bad"))
    assert "no reason or no action" in event_problem(event(action=""))
    assert "no kind, or not a valid name" in event_problem(event({"name": "x/y"}))


@pytest.mark.parametrize(
    ("pods", "problem"),
    [
        ([pb.PodName(namespace="ml", name="pod-0")], "pod 'ml/pod-0' has no uid"),
        ([pb.PodName(uid="u", namespace="ml", name="pod-0")] * 2, "uid 'u' .* is given twice"),
        ([pb.PodName(uid="u", namespace="ml", name="../x")], "pod 'ml/../x' is not a valid namespace/name"),
    ],
)
def test_invalid_evictions_are_rejected(pods: list[pb.PodName], problem: str) -> None:
    with pytest.raises(RpcError, match=problem) as refused:
        validate_evict(pb.EvictRequest(pods=pods))
    assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT


POD = pb.PodName(uid="u", namespace="ml", name="pod-0")


@pytest.mark.parametrize(
    "key", ["a", "A", "a.b_c-d", "gang.scheduling.koordinator.sh/timeout", "x" * 63, "p" * 253 + "/" + "x" * 63]
)
def test_valid_annotation_keys_pass(key: str) -> None:
    assert annotations_problem(pb.PodAnnotations(pod=POD, set={key: "1"})) == ""
    assert annotations_problem(pb.PodAnnotations(pod=POD, remove=[key])) == ""


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        (pb.PodAnnotations(pod=pb.PodName(namespace="ml", name="pod-0")), "no uid"),
        (pb.PodAnnotations(pod=pb.PodName(uid="u", name="pod-0")), "not a valid namespace/name"),
        (pb.PodAnnotations(pod=POD, set={"": "1"}), "'' is not a valid key"),
        (pb.PodAnnotations(pod=POD, set={"a b": "1"}), "'a b' is not a valid key"),
        (pb.PodAnnotations(pod=POD, set={"a/b/c": "1"}), "'a/b/c' is not a valid key"),
        (pb.PodAnnotations(pod=POD, remove=["x" * 64]), "is not a valid key"),
        (pb.PodAnnotations(pod=POD, set={"a": "1"}, remove=["a"]), "'a' is both set and removed"),
        (pb.PodAnnotations(pod=POD, set={"a": "x" * 262_144}), "262145 bytes; the limit is 262144"),
    ],
)
def test_annotation_problems(annotations: pb.PodAnnotations, problem: str) -> None:
    found = annotations_problem(annotations)
    assert found.startswith("annotations of pod '")
    assert problem in found

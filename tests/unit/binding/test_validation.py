"""Requests that make no sense are refused, and the answer quotes why."""

import grpc
import pytest

from muster.binding.v1 import binding_pb2 as pb
from muster.binding.validation import (
    check_bind,
    check_evict,
    problem_of_annotations,
    problem_of_condition,
    problem_of_event,
)
from muster.clusterstate.v1 import clusterstate_pb2 as state_pb
from muster.rpc.errors import RpcError


def seat(uid: str = "u", namespace: str = "ml", name: str = "pod-0", node: str = "node-0") -> pb.PodBinding:
    return pb.PodBinding(uid=uid, namespace=namespace, name=name, node=node)


def test_names_as_kubernetes_allows_them_pass() -> None:
    check_bind(pb.BindRequest(pods=[seat(), seat(uid="v", name="a.b-c.0", node="ip-10-0-0-1.ec2.internal")]))
    check_bind(pb.BindRequest())


@pytest.mark.parametrize(
    ("pods", "problem"),
    [
        ([seat(uid="")], "pod 'ml/pod-0' has no uid"),
        ([seat(), seat(name="pod-1")], "uid 'u' .* is there twice"),
        ([seat(name="../../nodes/x")], "pod 'ml/../../nodes/x' is no namespace/name"),
        ([seat(name="..")], "is no namespace/name"),
        ([seat(name="")], "is no namespace/name"),
        ([seat(namespace="ML")], "'ML/pod-0' is no namespace/name"),
        ([seat(node="")], "is to go to node ''"),
        ([seat(node="a b")], "is to go to node 'a b'"),
        ([seat(node="n" * 300)], "is to go to node 'n{63}…'"),
    ],
)
def test_binds(pods: list[pb.PodBinding], problem: str) -> None:
    with pytest.raises(RpcError, match=problem) as refused:
        check_bind(pb.BindRequest(pods=pods))
    assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT


def condition(**fields: str) -> pb.PodCondition:
    known = {"uid": "u", "namespace": "ml", "name": "pod-0", "type": "PodScheduled", "status": "False"}
    return pb.PodCondition(**(known | fields))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, ""),
        ({"uid": ""}, "condition 'PodScheduled' of pod 'ml/pod-0': no uid"),
        ({"name": "a/b"}, "condition 'PodScheduled' of pod 'ml/a/b': no namespace/name that Kubernetes allows"),
        ({"type": ""}, "condition '' of pod 'ml/pod-0': no type"),
        ({"status": "No"}, "condition 'PodScheduled' of pod 'ml/pod-0': status 'No' is not True, False or Unknown"),
    ],
)
def test_conditions(change: dict[str, str], problem: str) -> None:
    assert problem_of_condition(condition(**change)) == problem


def event(regarding: dict[str, str] | None = None, **fields: str) -> pb.Event:
    about = {"api_version": "v1", "kind": "Pod", "namespace": "ml", "name": "pod-0"} | (regarding or {})
    known = {"type": "Warning", "reason": "FailedScheduling", "action": "Scheduling", "note": "why"}
    return pb.Event(regarding=state_pb.ObjectReference(**about), **(known | fields))


def test_events() -> None:
    assert problem_of_event(event()) == ""
    assert problem_of_event(event({"namespace": "", "kind": "Node"})) == "", "nodes have no namespace"
    assert "type 'Bad' is not Normal or Warning" in problem_of_event(event(type="Bad"))
    assert "no reason or no action" in problem_of_event(event(action=""))
    assert "no kind, or no name" in problem_of_event(event({"name": "x/y"}))


@pytest.mark.parametrize(
    ("pods", "problem"),
    [
        ([pb.PodName(namespace="ml", name="pod-0")], "pod 'ml/pod-0' has no uid"),
        ([pb.PodName(uid="u", namespace="ml", name="pod-0")] * 2, "uid 'u' .* is there twice"),
        ([pb.PodName(uid="u", namespace="ml", name="../x")], "pod 'ml/../x' is no namespace/name"),
    ],
)
def test_evictions(pods: list[pb.PodName], problem: str) -> None:
    with pytest.raises(RpcError, match=problem) as refused:
        check_evict(pb.EvictRequest(pods=pods))
    assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT


POD = pb.PodName(uid="u", namespace="ml", name="pod-0")


@pytest.mark.parametrize(
    "key", ["a", "A", "a.b_c-d", "gang.scheduling.koordinator.sh/timeout", "x" * 63, "p" * 253 + "/" + "x" * 63]
)
def test_keys_of_annotations_as_kubernetes_allows_them(key: str) -> None:
    assert problem_of_annotations(pb.PodAnnotations(pod=POD, set={key: "1"})) == ""
    assert problem_of_annotations(pb.PodAnnotations(pod=POD, remove=[key])) == ""


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        (pb.PodAnnotations(pod=pb.PodName(namespace="ml", name="pod-0")), "no uid"),
        (pb.PodAnnotations(pod=pb.PodName(uid="u", name="pod-0")), "no namespace/name that Kubernetes allows"),
        (pb.PodAnnotations(pod=POD, set={"": "1"}), "'' is no key that Kubernetes allows"),
        (pb.PodAnnotations(pod=POD, set={"a b": "1"}), "'a b' is no key"),
        (pb.PodAnnotations(pod=POD, set={"a/b/c": "1"}), "'a/b/c' is no key"),
        (pb.PodAnnotations(pod=POD, remove=["x" * 64]), "is no key"),
        (pb.PodAnnotations(pod=POD, set={"a": "1"}, remove=["a"]), "'a' is to be set and to be removed"),
        (pb.PodAnnotations(pod=POD, set={"a": "x" * 262_144}), "262145 bytes; Kubernetes allows 262144"),
    ],
)
def test_annotations(annotations: pb.PodAnnotations, problem: str) -> None:
    told = problem_of_annotations(annotations)
    assert told.startswith("annotations of pod '")
    assert problem in told

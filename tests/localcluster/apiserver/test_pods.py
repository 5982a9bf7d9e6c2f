"""Defaults and validation of new pods."""

from typing import Any

import pytest

from builders.kube.client import PODS, ApiClient, pod

PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


async def test_a_pod_gets_its_defaults(api: ApiClient) -> None:
    created = await api.created(PODS, pod("a", requests={"cpu": "0.5", "memory": "1.5Gi"}))

    metadata, spec, status = created["metadata"], created["spec"], created["status"]
    assert created["kind"] == "Pod" and created["apiVersion"] == "v1"
    assert metadata["uid"] and metadata["creationTimestamp"] and metadata["resourceVersion"].isdigit()
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["priority"] == 0 and spec["preemptionPolicy"] == "PreemptLowerPriority"
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "500m", "memory": "1536Mi"}
    assert [(t["key"], t["effect"], t["tolerationSeconds"]) for t in spec["tolerations"]] == [
        ("node.kubernetes.io/not-ready", "NoExecute", 300),
        ("node.kubernetes.io/unreachable", "NoExecute", 300),
    ]
    assert status == {"phase": "Pending", "qosClass": "Burstable"}


async def test_requests_default_to_limits(api: ApiClient) -> None:
    body = pod("a")
    body["spec"]["containers"][0]["resources"] = {"limits": {"cpu": 1, "memory": "1Gi", "nvidia.com/gpu": "2"}}

    created = await api.created(PODS, body)

    resources = created["spec"]["containers"][0]["resources"]
    assert resources["requests"] == resources["limits"] == {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "2"}
    assert created["status"]["qosClass"] == "Guaranteed"


async def test_own_tolerations_override_the_defaults(api: ApiClient) -> None:
    created = await api.created(PODS, pod("a", tolerations=[{"operator": "Exists"}]))

    assert created["spec"]["tolerations"] == [{"operator": "Exists"}]


async def test_a_gated_pod_has_its_condition(api: ApiClient) -> None:
    created = await api.created(PODS, pod("a", schedulingGates=[{"name": "example.com/wait"}]))

    assert created["status"]["conditions"][0]["reason"] == "SchedulingGated"


async def test_priority_of_the_class_or_the_default_class(api: ApiClient) -> None:
    await api.created(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"})
    await api.created(PRIORITY_CLASSES, {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True})

    high = await api.created(PODS, pod("a", priorityClassName="high"))
    usual = await api.created(PODS, pod("b"))
    system = await api.created(PODS, pod("c", priorityClassName="system-node-critical"))

    assert (high["spec"]["priority"], high["spec"]["preemptionPolicy"]) == (1000, "Never")
    assert (usual["spec"]["priority"], usual["spec"]["priorityClassName"]) == (7, "usual")
    assert system["spec"]["priority"] == 2_000_001_000


async def test_generated_names_differ(api: ApiClient) -> None:
    body = pod(metadata={"generateName": "worker-"})

    first, second = await api.created(PODS, body), await api.created(PODS, body)

    names = {each["metadata"]["name"] for each in (first, second)}
    assert len(names) == 2 and all(name.startswith("worker-") and len(name) == 12 for name in names)


async def test_dry_run_stores_nothing(api: ApiClient) -> None:
    reply = await api.post(f"{PODS}?dryRun=All", pod("a"))

    assert reply.status == 201 and reply.body["spec"]["priority"] == 0
    assert await api.names(PODS) == []


async def test_a_duplicate_name_conflicts(api: ApiClient) -> None:
    await api.created(PODS, pod("a"))

    reply = await api.post(PODS, pod("a"))

    assert (reply.status, reply.reason, reply.message) == (409, "AlreadyExists", 'pods "a" already exists')
    assert reply.body["details"] == {"name": "a", "kind": "pods"}


def _with(change: dict[str, Any], **spec: Any) -> dict[str, Any]:
    body = pod("a", **spec)
    body["spec"]["containers"][0] |= change
    return body


@pytest.mark.parametrize(
    ("body", "field", "reason"),
    [
        (pod("Not_A_Name"), "metadata.name", "FieldValueInvalid"),
        (pod(), "metadata.name", "FieldValueRequired"),
        (pod("a", containers=[]), "spec.containers", "FieldValueRequired"),
        (pod("a", metadata={"labels": {"bad key": "x"}}), "metadata.labels", "FieldValueInvalid"),
        (pod("a", metadata={"labels": {"k": "bad value"}}), "metadata.labels", "FieldValueInvalid"),
        (pod("a", metadata={"annotations": {"-bad": ""}}), "metadata.annotations", "FieldValueInvalid"),
        (pod("a", metadata={"annotations": {"k": "x" * 262_144}}), "metadata.annotations", "FieldValueTooLong"),
        (pod("a", requests={"cpu": "-1"}), "spec.containers[0].resources.requests[cpu]", "FieldValueInvalid"),
        (pod("a", requests={"foo": "1"}), "spec.containers[0].resources.requests[foo]", "FieldValueInvalid"),
        (pod("a", requests={"a.b/gpu": "1"}), "spec.containers[0].resources.limits", "FieldValueRequired"),
        (
            _with({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}),
            "spec.containers[0].resources.requests",
            "FieldValueInvalid",
        ),
        (_with({"image": ""}), "spec.containers[0].image", "FieldValueRequired"),
        (_with({"name": "Upper"}), "spec.containers[0].name", "FieldValueInvalid"),
        (pod("a", restartPolicy="Sometimes"), "spec.restartPolicy", "FieldValueNotSupported"),
        (pod("a", nodeSelector={"k": "bad value"}), "spec.nodeSelector", "FieldValueInvalid"),
        (
            pod("a", tolerations=[{"key": "k", "operator": "Is"}]),
            "spec.tolerations[0].operator",
            "FieldValueNotSupported",
        ),
        (
            pod("a", affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}),
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
            "FieldValueRequired",
        ),
    ],
)
async def test_invalid_pods_are_rejected_with_the_field(api: ApiClient, body: Any, field: str, reason: str) -> None:
    reply = await api.post(PODS, body)

    assert (reply.status, reply.reason) == (422, "Invalid")
    causes = [(cause["field"], cause["reason"]) for cause in reply.body["details"]["causes"]]
    assert (field, reason) in causes
    assert f"{field}: " in reply.message


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b'{"metadata":', 400, "couldn't get version/kind; json parse error"),
        (b"[]", 400, "not a JSON object"),
        (pod("a", requests={"cpu": "much"}), 400, "quantities must match the regular expression"),
        (pod("a", metadata={"labels": {"k": 1}}), 400, "cannot unmarshal number into Go struct field"),
        (pod("a", containers="one"), 400, 'Pod in version "v1" cannot be handled as a Pod'),
        (pod("a") | {"kind": "Node"}, 400, "cannot be handled as a Pod"),
        (pod("a", metadata={"namespace": "other"}), 400, "does not match the namespace sent on the request"),
        (pod("a", priorityClassName="nope"), 403, "no PriorityClass with name nope was found"),
        (pod("a", priority=5), 403, "the integer value of priority (5) must not be provided"),
        (b" " * (3 * 1024 * 1024 + 1), 413, "Request entity too large: limit is 3145728"),
    ],
)
async def test_mistyped_pods_are_rejected(api: ApiClient, body: Any, status: int, words: str) -> None:
    reply = await api.post(PODS, body)

    assert reply.status == status and words in reply.message


async def test_the_namespace_must_exist(api: ApiClient) -> None:
    reply = await api.post("/api/v1/namespaces/nowhere/pods", pod("a"))

    assert (reply.status, reply.message) == (404, 'namespaces "nowhere" not found')


async def test_strict_clients_get_unknown_fields_rejected(api: ApiClient) -> None:
    body = _with({"imagee": "x"}, contianers=[])

    strict = await api.post(f"{PODS}?fieldValidation=Strict", body)
    warned = await api.post(f"{PODS}?fieldValidation=Warn&dryRun=All", body)

    assert strict.status == 400
    assert 'strict decoding error: unknown field "spec.containers[0].imagee"' in strict.message
    assert warned.status == 201
    assert '299 - "unknown field \\"spec.contianers\\""' in warned.headers.getall("Warning")


async def test_there_are_no_logs(api: ApiClient) -> None:
    await api.created(PODS, pod("a"))

    reply = await api.get(f"{PODS}/a/log")

    assert reply.status == 500 and "simulated" in reply.message

"""ProvisioningRequests: members that are equal to placement share a template, and answers are read as they are."""

from typing import Any

import msgspec
import pytest

from builders.lifecycle.provisioning import condition
from muster.kube.objects import Pod, PodGroup, decode_pod, decode_pod_group
from muster.lifecycle.provisioning.request import (
    State,
    Waiting,
    asks_for,
    pod_sets,
    pod_template,
    provisioning_request,
    request_name,
    state_of,
    template_of,
    templates_of,
)

GANG = "coscheduling/ml/train"
NAME = request_name(GANG)


def pod(name: str, **spec: Any) -> Pod:
    resources = {"requests": {"cpu": "1"}}
    containers = [
        {"name": "main", "image": f"{name}:1", "env": [{"name": "RANK", "value": name}], "resources": resources}
    ]
    token = {"name": f"kube-api-access-{name}", "projected": {"sources": []}}
    content = {"containers": containers, "schedulerName": "muster", "volumes": [token], **spec}
    labels = {"app": "train", "apps.kubernetes.io/pod-index": name[-1]}
    return decode_pod(msgspec.json.encode({"metadata": {"name": name, "labels": labels}, "spec": content}))


def waiting(*pods: Pod) -> list[Waiting]:
    return [Waiting(f"uid-{each.metadata.name}", each.metadata.name, template_of(each)) for each in pods]


def existing(*conditions: Any, sets: Any = ()) -> PodGroup:
    content = {"metadata": {"name": NAME}, "spec": {"podSets": sets}, "status": {"conditions": conditions}}
    return decode_pod_group(msgspec.json.encode(content))


def test_members_that_differ_in_name_image_environment_and_token_share_a_template() -> None:
    members = waiting(pod("w-0"), pod("w-1"), pod("w-2"))
    assert [each["count"] for each in pod_sets(NAME, members)] == [3]
    [content] = templates_of(members)
    template = pod_template(NAME, content, members)
    assert pod_sets(NAME, members)[0]["podTemplateRef"] == {"name": template["metadata"]["name"]}
    assert [each["name"] for each in template["metadata"]["ownerReferences"]] == ["w-0", "w-1", "w-2"]
    assert template["template"]["metadata"]["labels"] == {"app": "train"}
    assert "volumes" not in template["template"]["spec"]


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {"pool": "gpu"}},
        {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
        {"overhead": {"cpu": "100m"}},
        {"resources": {"requests": {"cpu": "8"}}},
        {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]},
        {"priorityClassName": "high"},
        {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
        {"initContainers": [{"name": "init", "resources": {"requests": {"cpu": "8"}}}]},
        {"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]},
    ],
)
def test_what_matters_to_placement_makes_another_template(spec: dict[str, Any]) -> None:
    members = waiting(pod("w-0"), pod("w-1", **spec))
    assert [each["count"] for each in pod_sets(NAME, members)] == [1, 1]
    assert len(templates_of(members)) == 2


def test_an_existing_request_is_compared_as_the_api_server_returns_it() -> None:
    members = waiting(pod("w-0"), pod("w-1", nodeSelector={"pool": "gpu"}))
    body = provisioning_request(NAME, "ml", GANG, members)
    sets = list(reversed(body["spec"]["podSets"]))
    assert asks_for(existing(sets=sets)) == pod_sets(NAME, members)
    assert asks_for(existing(sets=sets)) != pod_sets(NAME, members[:1])
    assert asks_for(existing(sets="nonsense")) == []


def test_a_request_is_owned_by_its_first_members() -> None:
    members = waiting(*(pod(f"w-{number:02}") for number in range(40)))
    owners = provisioning_request(NAME, "ml", GANG, members)["metadata"]["ownerReferences"]
    assert [owner["name"] for owner in owners] == [f"w-{number:02}" for number in range(16)]


def test_names_fit_the_api_and_differ_by_gang() -> None:
    names = {request_name(f"coscheduling/{namespace}/{'x' * 253}") for namespace in ("a", "b")}
    assert len(names) == 2
    assert all(len(name) < 63 and name.startswith("muster-") for name in names)


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ([], State()),
        ([condition("Accepted", "True", "ok")], State()),
        ([condition("Provisioned", "False", "no room")], State(message="no room")),
        ([condition("Provisioned", "True", "done")], State(provisioned=True)),
        (
            [condition("Provisioned", "True", "done"), condition("BookingExpired", "True", "late", at="t")],
            State(ended="BookingExpired", ended_at="t", message="late"),
        ),
        ([condition("Failed", "False", "no"), condition("Provisioned", "True", "done")], State(provisioned=True)),
        ([5, {"type": 7}, None], State()),
    ],
)
def test_the_answer_is_read_from_the_conditions(conditions: list[Any], state: State) -> None:
    assert state_of(existing(*conditions)) == state

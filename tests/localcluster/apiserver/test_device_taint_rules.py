"""DeviceTaintRules: defaults and validation."""

from typing import Any

import pytest

from builders.kube.client import ApiClient

RULES = "/apis/resource.k8s.io/v1beta2/devicetaintrules"


def rule(taint: Any, **selector: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a"}, "spec": {"deviceSelector": selector, "taint": taint}}


async def test_a_rule_is_stored_with_the_time_of_its_taint(api: ApiClient) -> None:
    made = await api.created(RULES, rule({"key": "broken", "effect": "NoExecute"}, pool="n1", device="gpu-0"))
    assert made["spec"]["deviceSelector"] == {"pool": "n1", "device": "gpu-0"}
    assert made["spec"]["taint"].pop("timeAdded")
    assert made["spec"]["taint"] == {"key": "broken", "effect": "NoExecute"}
    assert made["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (rule({"key": "k"}), "spec.taint.effect: Required value"),
        (rule({"key": "k", "effect": "Never"}), 'spec.taint.effect: Unsupported value: "Never"'),
        (rule({"key": "", "effect": "None"}), "spec.taint.key: Invalid value"),
        (rule({"key": "k", "effect": "None"}, driver="-"), "spec.deviceSelector.driver: Invalid value"),
        (rule({"key": "k", "effect": "None"}, pool="-"), "spec.deviceSelector.pool: Invalid value"),
        (rule({"key": "k", "effect": "None"}, device="-"), "spec.deviceSelector.device: Invalid value"),
    ],
    ids=["effect", "unknown effect", "key", "driver", "pool", "device"],
)
async def test_invalid_rules_are_rejected(api: ApiClient, body: Any, problem: str) -> None:
    reply = await api.post(RULES, body)
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert problem in reply.message

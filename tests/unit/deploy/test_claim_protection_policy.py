"""The rendered policy that adds the finalizer to new ResourceClaims. tests/e2e has its effect."""

from builders.deploy.admission_policies import policies_and_bindings
from builders.deploy.helm import template
from muster.binding.device_claim_status import FINALIZER


def test_the_policy_adds_the_finalizer_that_binding_looks_for() -> None:
    [(policy, binding)] = policies_and_bindings("", "claimProtectionPolicy.enabled")
    [rule] = policy["spec"]["matchConstraints"]["resourceRules"]
    assert (rule["operations"], rule["resources"]) == (["CREATE"], ["resourceclaims"])
    assert f'value: ["{FINALIZER}"]' in policy["spec"]["mutations"][0]["jsonPatch"]["expression"]
    assert policy["spec"]["failurePolicy"] == "Ignore"
    assert binding["spec"] == {"policyName": policy["metadata"]["name"]}


def test_a_cluster_without_the_api_is_rejected_with_a_reason() -> None:
    result = template("--kube-version=1.35.4", values="claimProtectionPolicy: {enabled: true}")
    assert result.returncode != 0
    assert "claimProtectionPolicy.enabled needs Kubernetes 1.36 or newer" in result.stderr

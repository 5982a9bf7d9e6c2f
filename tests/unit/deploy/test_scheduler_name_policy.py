"""The rendered policy that sets Muster's scheduler name on pods that name a gang. tests/e2e has its effect."""

import re

from builders.deploy.admission_policies import KINDS, LABEL, policies_and_bindings
from builders.deploy.helm import rendered, template
from muster.dialects.kueue_workload import ASKED_FOR
from muster.dialects.registry import DIALECTS, gang_marks, membership_of


def condition(name: str) -> str:
    [(policy, _)] = policies_and_bindings()
    [found] = [each["expression"] for each in policy["spec"]["matchConditions"] if each["name"] == name]
    return str(found)


def names_a_gang(*, label: str = "", annotation: str = "") -> bool:
    labels, annotations = ({key: "x"} if key else {} for key in (label, annotation))
    membership = membership_of(gang_marks("a", labels, annotations))
    return membership is not None and bool(membership.gang_id)


def test_there_is_no_policy_unless_it_is_enabled() -> None:
    assert not [each for each in rendered() if each["kind"] in KINDS]


def test_the_policy_applies_to_new_pods_in_labelled_namespaces() -> None:
    [(policy, binding)] = policies_and_bindings()
    [rule] = policy["spec"]["matchConstraints"]["resourceRules"]
    assert (rule["operations"], rule["resources"]) == (["CREATE"], ["pods"])
    assert binding["spec"]["policyName"] == policy["metadata"]["name"] == binding["metadata"]["name"]
    assert binding["spec"]["matchResources"] == {"namespaceSelector": {"matchLabels": {LABEL: "true"}}}
    assert policy["spec"]["failurePolicy"] == "Fail"


def test_values_set_the_scheduler_name_the_label_and_the_failure_policy() -> None:
    values = "{schedulerNames: [gangs, volcano], schedulerNamePolicy: {namespaceLabel: team, failurePolicy: Ignore}}"
    [(policy, binding)] = policies_and_bindings(values)
    [mutation] = policy["spec"]["mutations"]
    expression = mutation["jsonPatch"]["expression"]
    assert expression == '[JSONPatch{op: "add", path: "/spec/schedulerName", value: "gangs"}]'
    assert binding["spec"]["matchResources"]["namespaceSelector"]["matchLabels"] == {"team": "true"}
    assert policy["spec"]["failurePolicy"] == "Ignore"


def test_kueues_policy_sets_the_scheduler_name_only_if_the_other_policy_is_enabled() -> None:
    [(policy, _)] = policies_and_bindings("", "kueue.workloads")
    assert "schedulerName" not in str(policy["spec"]["mutations"])
    both = policies_and_bindings("{schedulerNames: [gangs]}", "kueue.workloads", "schedulerNamePolicy.enabled")
    [kueue, _] = [policy for policy, _ in both]
    assert 'value: "gangs"' in str(kueue["spec"]["mutations"])


def test_the_policy_knows_every_label_and_annotation_that_names_a_gang() -> None:
    labels, annotations = (
        set(re.findall(r'"([^"]+)"', part)) for part in re.findall(r"\[(.*?)\]", condition("names-a-gang"))
    )
    marks = [dialect.marks for dialect in DIALECTS]
    assert labels == {key for each in marks for key in each.labels if names_a_gang(label=key)}
    named = {key for each in marks for key in each.annotations if names_a_gang(annotation=key)}
    assert annotations == {*named, ASKED_FOR}  # Kueue writes the name beside it


def test_a_cluster_without_the_api_is_rejected_with_a_reason() -> None:
    result = template("--kube-version=1.35.4", values="schedulerNamePolicy: {enabled: true}")
    assert result.returncode != 0
    assert "schedulerNamePolicy.enabled needs Kubernetes 1.36 or newer" in result.stderr

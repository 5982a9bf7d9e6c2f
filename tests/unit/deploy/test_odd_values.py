"""Unusual valid names and values still render valid Kubernetes objects."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from builders.deploy.helm import JSON, NAMESPACE, of_kind, pod_specs, rendered, template

_SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_OWN = "app.kubernetes.io/"


@pytest.mark.parametrize(
    ("release", "expected"),
    {
        "muster": "muster",
        "batch": "batch-muster",
        "team.batch": "team-batch-muster",
        "2nd-muster": "muster-2nd-muster",
        "a" * 32 + "-" + "b" * 20: "a" * 32 + "-muster",
        "muster-" + "c" * 46: "muster-" + "c" * 33,
    }.items(),
)
def test_every_release_name_gives_valid_service_names(release: str, expected: str) -> None:
    made = rendered(release=release)
    services = of_kind(made, "Service")
    assert f"{expected}-coordinator" in services
    assert all(_SERVICE_NAME.fullmatch(name) for name in services)
    assert all(len(name) <= 63 for name in of_kind(made, "Job"))


LIKE_NUMBERS = """
priorityClassName: "10"
fullnameOverride: "on"
resourceQuota: {enabled: true}
metrics: {serviceMonitor: {enabled: true}, prometheusRule: {enabled: true}, dashboard: {enabled: true}}
tls: {mode: secret, secrets: {coordinator: "12", etcd: "1e3", etcdClient: "0x1"}}
etcd: {auth: {existingSecret: "7"}, persistence: {storageClass: "5"}}
tracing: {endpoint: "https://a", headersSecret: "77", tls: {caSecret: "1", certificateSecret: "true"}}
"""
_NAMES = {"name", "namespace", "secretName", "storageClassName", "priorityClassName", f"{_OWN}instance", "matchNames"}


def named(within: Any) -> Iterator[Any]:
    """Every name in any object."""
    if isinstance(within, dict):
        for key, value in within.items():
            if key in _NAMES:
                yield from value if isinstance(value, list) else [value]
            else:
                yield from named(value)
    elif isinstance(within, list):
        for each in within:
            yield from named(each)


def test_numeric_names_stay_strings() -> None:
    result = template("--namespace", "2026", values=LIKE_NUMBERS, release="007")
    assert result.returncode == 0, result.stderr
    made = [each for each in yaml.safe_load_all(result.stdout) if each and each["kind"] != "CustomResourceDefinition"]
    found = list(named(made))
    assert [name for name in found if not isinstance(name, str)] == []
    assert {"007", "2026", "on", "10", "12", "1e3", "0x1", "7", "5", "77", "1", "true"} <= set(found)


def test_selector_labels_cannot_be_overridden() -> None:
    theirs = {f"{_OWN}component": "mine", f"{_OWN}name": "mine", "team": "batch"}
    text = ", ".join(f"{name}: {value}" for name, value in theirs.items())
    made = rendered(f"commonLabels: {{{text}}}\nbinding: {{podLabels: {{{text}}}}}")
    deployment = of_kind(made, "Deployment")["muster-binding"]
    for labels in (deployment["metadata"]["labels"], deployment["spec"]["template"]["metadata"]["labels"]):
        assert (labels[f"{_OWN}component"], labels[f"{_OWN}name"], labels["team"]) == ("binding", "muster", "batch")


def test_pod_annotations_override_the_charts() -> None:
    made = rendered("binding: {podAnnotations: {kubectl.kubernetes.io/default-container: sidecar}}")
    template_of = of_kind(made, "Deployment")["muster-binding"]["spec"]["template"]
    assert template_of["metadata"]["annotations"] == {"kubectl.kubernetes.io/default-container": "sidecar"}


def test_pods_select_linux_nodes() -> None:
    made = dict(pod_specs(rendered("binding: {nodeSelector: {pool: control}}")))
    assert made["muster-binding"]["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "control"}
    assert all(spec["nodeSelector"]["kubernetes.io/os"] == "linux" for spec in made.values())


def security(values: str) -> list[JSON]:
    return [spec["securityContext"] for _, spec in pod_specs(rendered(values))]


def test_user_ids_can_be_left_to_the_cluster() -> None:
    for each in security("runAsUser: null"):
        assert not {"runAsUser", "runAsGroup", "fsGroup"} & each.keys()
        assert each["runAsNonRoot"] is True


def test_large_integers_are_not_rendered_as_floats() -> None:
    for each in security("runAsUser: 1000680000"):
        assert (str(each["runAsUser"]), str(each["fsGroup"])) == ("1000680000", "1000680000")


@pytest.mark.parametrize("share", ["0", "0.25"])
def test_ratios_accept_numbers(share: str) -> None:
    made = rendered(f"tracing: {{endpoint: 'http://a:4317', samplerArgument: {share}}}")
    [container] = of_kind(made, "Deployment")["muster-binding"]["spec"]["template"]["spec"]["containers"]
    assert {"name": "OTEL_TRACES_SAMPLER_ARG", "value": share} in container["env"]


def test_ipv6_addresses_are_accepted() -> None:
    values = "{placement: {implementation: external, external: {address: '[fd00::2]:9000'}},"
    values += " etcd: {enabled: false, external: {endpoints: ['[fd00::1]:2379']}}}"
    made = rendered(values)
    [container] = of_kind(made, "Deployment")["muster-coordinator"]["spec"]["template"]["spec"]["containers"]
    assert {"--etcd=[fd00::1]:2379", "--placement=[fd00::2]:9000"} <= set(container["args"])
    egress = of_kind(made, "NetworkPolicy")["muster-coordinator"]["spec"]["egress"]
    assert {2379, 9000} <= {port["port"] for rule in egress for port in rule["ports"]}


def test_issuers_of_any_kind_are_accepted() -> None:
    issuer = "{name: ours, kind: AWSPCAClusterIssuer, group: awspca.cert-manager.io}"
    made = rendered(f"tls: {{mode: certManager, certManager: {{issuerRef: {issuer}}}}}")
    found = of_kind(made, "Certificate").values()
    assert {each["spec"]["issuerRef"]["kind"] for each in found} == {"AWSPCAClusterIssuer"}


def test_helm_adopts_secrets_of_cert_manager() -> None:
    for certificate in of_kind(rendered("tls: {mode: certManager}"), "Certificate").values():
        assert certificate["spec"]["secretTemplate"] == {
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"meta.helm.sh/release-name": "muster", "meta.helm.sh/release-namespace": NAMESPACE},
        }


def test_a_parent_chart_can_use_a_condition() -> None:
    assert rendered("enabled: true") != []


def test_a_resource_quota_admits_the_priority_class() -> None:
    assert not of_kind(rendered(), "ResourceQuota")
    [quota] = of_kind(rendered("{resourceQuota: {enabled: true}, priorityClassName: mine}"), "ResourceQuota").values()
    [scope] = quota["spec"]["scopeSelector"]["matchExpressions"]
    assert scope == {"scopeName": "PriorityClass", "operator": "In", "values": ["mine"]}


@pytest.mark.parametrize(
    "values",
    [
        "metrics: {enabled: false}",
        "quota: {enabled: true}",
        "deviceWebhook: {enabled: true}",
        "{tls: {mode: none}, deviceWebhook: {enabled: true}}",
        "{tls: {mode: certManager}, quota: {enabled: true}, deviceWebhook: {enabled: true}}",
        "{tls: {mode: none}, quota: {enabled: true}}",
        "{tls: {mode: certManager}, quota: {enabled: true}}",
        "etcd: {enabled: false, external: {endpoints: ['a:1']}}",
        "networkPolicy: {metricsNamespace: ''}",
        "priorityClassName: ''",
    ],
)
def test_features_are_independent(values: str) -> None:
    found = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in rendered(values)]
    assert len(found) == len(set(found))


def test_the_helm_test_creates_permissions_only_if_enabled() -> None:
    kinds = {each["kind"] for each in rendered("rbac: {create: false}")}
    assert not kinds & {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}

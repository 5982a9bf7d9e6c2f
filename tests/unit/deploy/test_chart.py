"""The chart rendered with several sets of values: properties of all of them, and effects of each value."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from builders.deploy.helm import CHART, JSON, NAMESPACE, helm, of_kind, pod_specs, rendered, template
from muster.cli.service_commands import ServiceGroup

VALUES = Path(__file__).parents[2] / "deploy"
SETS = ("default", *sorted(path.stem for path in VALUES.glob("*.yaml")))
TALK_TO_THE_API = {"cluster-state", "binding", "lifecycle", "console", "test"}


@cache
def objects(values: str) -> list[JSON]:
    return rendered("" if values == "default" else (VALUES / f"{values}.yaml").read_text())


def component(name: str) -> str:
    return name.removeprefix("muster-").removeprefix("gangs-")


def service(name: str) -> str:
    """The component, which has the same name in every node pool."""
    return component(name).removesuffix("-train").removesuffix("-serve")


def container_of(values: str, name: str) -> JSON:
    [spec] = [spec for each, spec in pod_specs(objects(values)) if component(each) == name]
    container: JSON = spec["containers"][0]
    return container


@pytest.mark.parametrize("values", SETS)
def test_lint_finds_nothing(values: str) -> None:
    given = [] if values == "default" else ["--values", str(VALUES / f"{values}.yaml")]
    result = helm("lint", str(CHART), "--strict", *given)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("values", SETS)
def test_containers_run_with_least_privilege(values: str) -> None:
    for name, spec in pod_specs(objects(values)):
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] > 0, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert spec["enableServiceLinks"] is False, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys(), name
        assert spec["automountServiceAccountToken"] is (service(name) in TALK_TO_THE_API), name
        assert not any("hostPath" in volume for volume in spec.get("volumes") or ()), name
        for container in spec["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True, name
            assert security["allowPrivilegeEscalation"] is False, name
            assert security["capabilities"] == {"drop": ["ALL"]}, name
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys(), name
            assert "memory" in container["resources"]["limits"], name


@pytest.mark.parametrize("values", SETS)
def test_long_running_containers_have_probes(values: str) -> None:
    for each in objects(values):
        if each["kind"] in ("Deployment", "StatefulSet"):
            for container in each["spec"]["template"]["spec"]["containers"]:
                assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys()


def test_replicas_are_spread_by_host_where_nodes_have_no_zone() -> None:
    for name, spec in pod_specs(objects("default")):
        if component(name) != "test" and not component(name).startswith("etcd-users"):
            # kube-scheduler ignores nodes that lack the label of any constraint, for all of them.
            [constraint] = spec["topologySpreadConstraints"]
            assert constraint["topologyKey"] == "kubernetes.io/hostname", name
            # Otherwise both replicas may end where no replica of the revision before was.
            assert constraint["matchLabelKeys"] == ["pod-template-hash"], name
            [term] = spec["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
            assert term["podAffinityTerm"]["topologyKey"] == "topology.kubernetes.io/zone", name
            assert term["podAffinityTerm"]["labelSelector"] == constraint["labelSelector"], name


def test_an_affinity_replaces_that_of_zones() -> None:
    mine = "{nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: []}}"
    changed = of_kind(rendered(f"binding: {{affinity: {mine}}}"), "Deployment")["muster-binding"]
    assert changed["spec"]["template"]["spec"]["affinity"] == yaml.safe_load(mine)


def test_a_test_that_passed_leaves_nothing() -> None:
    hooks = [each for each in objects("default") if "helm.sh/hook" in each["metadata"].get("annotations", {})]
    assert "Pod" in {each["kind"] for each in hooks}
    for each in hooks:
        policies = each["metadata"]["annotations"]["helm.sh/hook-delete-policy"].split(",")
        assert {"before-hook-creation", "hook-succeeded"} == set(policies), each["kind"]


@pytest.mark.parametrize("values", SETS)
def test_no_secret_is_in_an_argument_or_a_variable(values: str) -> None:
    secrets = {
        value
        for secret in of_kind(objects(values), "Secret").values()
        for key, value in secret["data"].items()
        if key not in ("tls.crt", "ca.crt")
    }
    for name, spec in pod_specs(objects(values)):
        text = yaml.safe_dump(spec)
        assert not any(secret in text for secret in secrets), name
        for container in spec["containers"]:
            assert not any("password=" in argument for argument in container.get("args") or ()), name


@pytest.mark.parametrize("values", SETS)
def test_services_accept_their_arguments(values: str) -> None:
    checked = set()
    for name, spec in pod_specs(objects(values)):
        for container in spec["containers"]:
            run, *arguments = container.get("args") or [""]
            if run == "run":
                service, *flags = arguments
                ServiceGroup().get_command(None, service).make_context(name, flags)  # raises what users would see
                checked.add(service)
    assert "coordinator" in checked


@pytest.mark.parametrize("values", SETS)
def test_accounts_volumes_and_selectors_resolve(values: str) -> None:
    made = objects(values)
    accounts = of_kind(made, "ServiceAccount")
    labels = [
        each["spec"]["template"]["metadata"]["labels"] for each in made if each["kind"] in ("Deployment", "StatefulSet")
    ]
    for name, spec in pod_specs(made):
        assert spec["serviceAccountName"] in accounts, name
        volumes = {volume["name"] for volume in spec.get("volumes") or ()}
        if "StatefulSet" in {each["kind"] for each in made if each["metadata"]["name"] == name}:
            volumes.add("data")
        for container in spec["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes, name
    for service in of_kind(made, "Service").values():
        wanted = service["spec"]["selector"].items()
        assert any(wanted <= each.items() for each in labels), service["metadata"]["name"]


@pytest.mark.parametrize("values", ["default", "least"])
def test_mounted_certificates_and_passwords_exist(values: str) -> None:
    made = of_kind(objects(values), "Secret")
    for name, spec in pod_specs(objects(values)):
        for volume in spec.get("volumes") or ():
            if "secret" in volume:
                assert volume["secret"]["secretName"] in made, (name, volume)


@pytest.mark.parametrize("values", SETS)
def test_objects_have_labels_and_valid_names(values: str) -> None:
    for each in objects(values):
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "muster"
        assert labels["app.kubernetes.io/instance"] == "muster"
        assert labels["app.kubernetes.io/component"]
        if each["kind"] != "CustomResourceDefinition":
            assert len(each["metadata"]["name"]) <= 63


@pytest.mark.parametrize("values", SETS)
def test_roles_equal_the_permissions_files(values: str) -> None:
    roles = of_kind(objects(values), "ClusterRole")
    assert {service(name.removeprefix(f"{NAMESPACE}-")) for name in roles} == {
        "cluster-state",
        "binding",
        "lifecycle",
        *(("console",) if values in ("everything", "pools") else ()),
    }
    for name, role in roles.items():
        file = CHART / "files" / "permissions" / f"{service(name.removeprefix(f'{NAMESPACE}-'))}.yaml"
        permissions = yaml.safe_load(file.read_text())
        allowed = [
            *permissions["rules"],
            *(rule for rules in (permissions.get("optional") or {}).values() for rule in rules),
        ]
        assert all(rule in allowed for rule in role["rules"])
        assert all(rule in role["rules"] for rule in permissions["rules"])


def test_optional_permissions_follow_their_feature() -> None:
    def may_read_maps(values: str, kind: str, name: str) -> bool:
        rules = of_kind(objects(values), kind)[name]["rules"]
        return any("configmaps" in rule["resources"] for rule in rules)

    assert may_read_maps("default", "ClusterRole", "muster-system-muster-cluster-state")
    assert not may_read_maps("least", "ClusterRole", "muster-system-muster-cluster-state")
    assert may_read_maps("everything", "Role", "gangs-lifecycle")
    assert not may_read_maps("default", "Role", "muster-lifecycle")


def test_the_status_of_volcanos_pod_groups_can_be_left_to_volcano() -> None:
    def groups_of(made: list[JSON]) -> set[str]:
        rules = of_kind(made, "ClusterRole")["muster-system-muster-lifecycle"]["rules"]
        return {group for rule in rules for group in rule["apiGroups"]}

    assert "--volcano-status=auto" in container_of("default", "lifecycle")["args"]
    assert "--volcano-namespace=volcano-system" in container_of("default", "lifecycle")["args"]
    assert groups_of(objects("default")) >= {"scheduling.volcano.sh", "batch.volcano.sh"}
    without = rendered("{volcano: {status: never}}")
    assert not groups_of(without) & {"scheduling.volcano.sh", "batch.volcano.sh"}
    assert template(values="{volcano: {status: sometimes}}").returncode != 0


def test_provisioning_requests_are_an_option_with_rights_of_their_own() -> None:
    def may_request(made: list[JSON]) -> bool:
        rules = of_kind(made, "ClusterRole")["muster-system-muster-lifecycle"]["rules"]
        return any("provisioningrequests" in rule["resources"] for rule in rules)

    assert not may_request(objects("default"))
    assert "--provisioning-requests=true" not in container_of("default", "lifecycle")["args"]
    enabled = rendered("{autoscaling: {provisioningRequests: true}}")
    assert may_request(enabled)
    lifecycle = of_kind(enabled, "Deployment")["muster-lifecycle"]["spec"]["template"]["spec"]["containers"][0]
    assert "--provisioning-requests=true" in lifecycle["args"]
    assert template(values="{autoscaling: {provisioningRequests: sometimes}}").returncode != 0


def test_workloads_of_kueue_are_an_option_with_a_right_and_a_policy() -> None:
    def may_read(made: list[JSON]) -> bool:
        rules = of_kind(made, "ClusterRole")["muster-system-muster-cluster-state"]["rules"]
        return any("workloads" in rule["resources"] for rule in rules)

    def policies(made: list[JSON]) -> set[str]:
        return {each["kind"] for each in made if each["kind"].startswith("MutatingAdmissionPolicy")}

    assert not may_read(objects("default"))
    assert not policies(objects("default"))
    enabled = rendered("{kueue: {workloads: true}}")
    assert may_read(enabled)
    state = of_kind(enabled, "Deployment")["muster-cluster-state"]["spec"]["template"]["spec"]["containers"][0]
    assert "--kueue-workloads=true" in state["args"]
    assert policies(enabled) == {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}
    assert not policies(rendered("{kueue: {workloads: true, namespaceLabel: ''}}"))
    assert template(values="{kueue: {workloads: sometimes}}").returncode != 0


def test_plain_text_between_services_is_said_to_each() -> None:
    for name in ("cluster-state", "coordinator", "placement", "binding", "lifecycle"):
        assert "--insecure" not in container_of("default", name)["args"]


def test_servers_accept_only_the_intended_clients() -> None:
    def clients(name: str) -> str:
        [argument] = [each for each in container_of("default", name)["args"] if each.startswith("--tls-clients=")]
        return str(argument.partition("=")[2])

    coordinator, placement = "muster-coordinator.muster-system.svc", "muster-placement.muster-system.svc"
    assert clients("cluster-state") == f"{coordinator},{placement},muster-client"
    assert clients("placement") == clients("binding") == coordinator
    assert clients("coordinator") == f"muster-binding.muster-system.svc,{coordinator},muster-client"
    assert "--listen=127.0.0.1:7005" in container_of("default", "lifecycle")["args"]


def test_forecast_is_an_option_that_may_read() -> None:
    def clients(name: str) -> str:
        [argument] = [each for each in container_of("everything", name)["args"] if each.startswith("--tls-clients=")]
        return str(argument.partition("=")[2])

    assert clients("forecast") == "muster-client,gangs-console.muster-system.svc"
    assert "gangs-forecast.muster-system.svc" in clients("cluster-state").split(",")
    assert "gangs-forecast.muster-system.svc" in clients("coordinator").split(",")
    assert "forecast" not in clients("binding")
    assert not any(name.endswith("-forecast") for name, _ in pod_specs(objects("default")))


def test_the_console_is_off_unless_it_is_enabled() -> None:
    assert not any("console" in name for name, _ in pod_specs(objects("default")))
    assert "console" not in str(container_of("default", "coordinator")["args"])


def test_the_console_authenticates_people_and_may_call_two_services() -> None:
    arguments = container_of("everything", "console")["args"]
    assert {"--authentication=token", "--https-certificate-file=/etc/muster/https/tls.crt"} <= set(arguments)
    assert "--trace-url=https://jaeger.example.com/trace/{trace_id}" in arguments
    [forecast] = [each for each in arguments if each.startswith("--forecast=")]
    assert forecast.startswith("--forecast=dns:///gangs-forecast.muster-system.svc")
    assert "--insecure" not in arguments
    for name in ("cluster-state", "coordinator"):
        [clients] = [each for each in container_of("everything", name)["args"] if each.startswith("--tls-clients=")]
        assert "gangs-console.muster-system.svc" in clients
    [service] = [each for name, each in of_kind(objects("everything"), "Service").items() if name == "gangs-console"]
    assert service["spec"]["ports"][0] == {"name": "https", "port": 443, "targetPort": "https", "protocol": "TCP"}


def test_a_console_in_plain_text_is_refused() -> None:
    refused = template(values="{console: {enabled: true}, tls: {mode: none}}")
    assert refused.returncode != 0
    assert "because people send it their tokens" in refused.stderr
    assert template(values="{console: {enabled: true, httpsSecret: mine}, tls: {mode: none}}").returncode == 0


def test_images_use_a_digest_if_given() -> None:
    digest = "sha256:" + "0123456789abcdef" * 4
    assert container_of("everything", "binding")["image"] == f"registry.example.com:5000/muster@{digest}"
    assert container_of("default", "binding")["image"] == "muster:0.1.0"


def test_placement_can_be_replaced_or_external() -> None:
    assert container_of("default", "placement")["args"][:2] == ["run", "placement"]
    assert container_of("least", "placement")["args"][:2] == ["run", "first-fit"]
    assert not any("placement" in name for name, _ in pod_specs(objects("elsewhere")))
    arguments = container_of("elsewhere", "coordinator")["args"]
    assert "--placement=dns:///solver.ml.svc:9000" in arguments
    assert "--placement-server-name=solver.example.com" in arguments
    [clients] = [each for each in container_of("elsewhere", "cluster-state")["args"] if "--tls-clients" in each]
    assert clients.endswith(",solver.example.com")


def test_etcd_can_be_external() -> None:
    assert "StatefulSet" not in {each["kind"] for each in objects("elsewhere")}
    coordinator = container_of("elsewhere", "coordinator")
    assert "--etcd=etcd-0.example.com:2379,etcd-1.example.com:2379" in coordinator["args"]
    assert "--etcd-user=team-a" in coordinator["args"]
    [spec] = [spec for name, spec in pod_specs(objects("elsewhere")) if component(name) == "coordinator"]
    used = {volume["secret"]["secretName"] for volume in spec["volumes"] if "secret" in volume}
    assert used == {"coordinator-from-vault", "etcd-client", "etcd-password"}


@pytest.mark.parametrize(("name", "policy"), [("quota", "Fail"), ("devices", "Ignore")])
def test_the_chart_webhooks_equal_the_plain_manifests(name: str, policy: str) -> None:
    source = CHART.parents[1] / "webhooks" / f"{name}.yaml"
    [plain] = [each for each in yaml.safe_load_all(source.read_text()) if "webhooks" in each]
    [made] = [
        webhook
        for each in of_kind(objects("everything"), "ValidatingWebhookConfiguration").values()
        for webhook in each["webhooks"]
        if webhook["name"] == f"{name}.muster.dev"
    ]
    for field in ("rules", "matchConditions", "admissionReviewVersions", "sideEffects", "timeoutSeconds"):
        assert made.get(field) == plain["webhooks"][0].get(field)
    assert made["clientConfig"]["service"]["path"] == f"/{name}"
    assert made["failurePolicy"] == policy
    [service] = [
        each["spec"]["ports"]
        for each in of_kind(objects("everything"), "Service").values()
        if component(each["metadata"]["name"]) == "lifecycle"
    ]
    ports = {each["port"]: each["targetPort"] for each in service}
    target = ports[made["clientConfig"]["service"]["port"]]
    listening = {each["name"]: each["containerPort"] for each in container_of("everything", "lifecycle")["ports"]}
    arguments = container_of("everything", "lifecycle")["args"]
    assert f"--{name}-listen=[::]:{listening[target]}" in arguments


def test_the_quota_webhook_spares_system_pods() -> None:
    made = of_kind(objects("everything"), "ValidatingWebhookConfiguration").values()
    [selector] = [each["namespaceSelector"] for one in made for each in one["webhooks"] if "namespaceSelector" in each]
    excluded = selector["matchExpressions"][0]
    assert excluded == {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", NAMESPACE]}


def test_prometheus_scrapes_every_service_by_component() -> None:
    [monitor] = of_kind(objects("everything"), "ServiceMonitor").values()
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["jobLabel"] == "app.kubernetes.io/component"
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    read = {
        service["metadata"]["labels"]["app.kubernetes.io/component"]
        for service in of_kind(objects("everything"), "Service").values()
        if wanted <= service["metadata"]["labels"].items()
        and any(port["name"] == monitor["spec"]["endpoints"][0]["port"] for port in service["spec"]["ports"])
    }
    assert read == {"cluster-state", "coordinator", "placement", "binding", "lifecycle", "forecast", "console", "etcd"}


def test_traces_are_configured_by_opentelemetry_variables() -> None:
    reported = {each["name"]: each.get("value") for each in container_of("everything", "binding")["env"]}
    assert reported["OTEL_EXPORTER_OTLP_ENDPOINT"] == "https://otel-collector.tracing:4318"
    assert reported["OTEL_EXPORTER_OTLP_PROTOCOL"] == "http/protobuf"
    assert (reported["OTEL_TRACES_SAMPLER"], reported["OTEL_TRACES_SAMPLER_ARG"]) == ("parentbased_traceidratio", "0.1")
    assert "k8s.pod.name=$(POD_NAME)" in reported["OTEL_RESOURCE_ATTRIBUTES"]
    names = [each["name"] for each in container_of("everything", "binding")["env"]]
    assert names.index("POD_UID") < names.index("OTEL_RESOURCE_ATTRIBUTES"), "variables know only those before them"


def test_the_trace_collector_is_authenticated_by_certificates() -> None:
    binding = container_of("everything", "binding")
    reported = {each["name"]: each.get("value") for each in binding["env"]}
    [spec] = [spec for name, spec in pod_specs(objects("everything")) if component(name) == "binding"]
    secrets = {each["name"]: each["secret"] for each in spec["volumes"] if "secret" in each}
    files = {
        f"{mount['mountPath']}/{item['path']}": secrets[mount["name"]]["secretName"]
        for mount in binding["volumeMounts"]
        for item in secrets.get(mount["name"], {}).get("items") or ()
    }
    assert files[reported["OTEL_EXPORTER_OTLP_CERTIFICATE"]] == "otlp-ca"
    assert files[reported["OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"]] == "otlp-client"
    assert files[reported["OTEL_EXPORTER_OTLP_CLIENT_KEY"]] == "otlp-client"
    assert not any("otlp" in mount["name"] for mount in container_of("default", "binding")["volumeMounts"])


def test_crds_are_kept_and_optional() -> None:
    definitions = of_kind(objects("default"), "CustomResourceDefinition")
    assert len(definitions) == len(list((CHART.parents[1] / "crds").glob("*.yaml")))
    assert all(each["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep" for each in definitions.values())
    assert not of_kind(objects("least"), "CustomResourceDefinition")


def test_the_page_of_values_is_up_to_date() -> None:
    tool = CHART.parents[2] / "tools" / "chart-readme"
    result = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


WRONG: dict[str, tuple[str, str]] = {
    "misspelt": ("clusterstate: {replicas: 1}", "'clusterstate' not allowed"),
    "misspelt below": ("coordinator: {replica: 1}", "'replica' not allowed"),
    "mode": ("tls: {mode: tls}", "/tls/mode"),
    "members of etcd": ("etcd: {replicas: 2}", "/etcd/replicas"),
    "no endpoints": ("etcd: {enabled: false}", "/etcd/external/endpoints"),
    "endpoint with a scheme": (
        "etcd: {enabled: false, external: {endpoints: ['https://a:1']}}",
        "/etcd/external/endpoints/0",
    ),
    "user without password": (
        "etcd: {enabled: false, external: {endpoints: [a:1], user: x}}",
        "/etcd/external/passwordSecret",
    ),
    "external without address": ("placement: {implementation: external}", "/placement/external/address"),
    "no such placement": ("placement: {implementation: exact}", "/placement/implementation"),
    "digest": ("image: {digest: 'sha256:1'}", "/image/digest"),
    "port": ("networkPolicy: {apiServer: {ports: [70000]}}", "/networkPolicy/apiServer/ports/0"),
    "quantity": ("binding: {resources: {requests: {cpu: lots}}}", "/binding/resources/requests/cpu"),
    "root": ("runAsUser: 0", "/runAsUser"),
    "the default scheduler": ("schedulerNames: [default-scheduler]", "/schedulerNames/0"),
    "label of namespaces": ("schedulerNamePolicy: {namespaceLabel: 'a: b'}", "/schedulerNamePolicy/namespaceLabel"),
    "no label of namespaces": ("schedulerNamePolicy: {namespaceLabel: ''}", "/schedulerNamePolicy/namespaceLabel"),
    "two names in one": ("schedulerNames: ['a,b']", "/schedulerNames/0"),
    "port of dns": ("networkPolicy: {dns: {ports: [dns]}}", "/networkPolicy/dns/ports/0"),
    "certificates without tls": (
        "tracing: {endpoint: 'http://a:4317', tls: {caSecret: a}}",
        "/tracing/endpoint",
    ),
    "password in a url": ("tracing: {endpoint: 'http://me:secret@a:4317'}", "/tracing/endpoint"),
    "share of traces": ("tracing: {samplerArgument: 1.5}", "/tracing/samplerArgument"),
    "sampler": ("tracing: {sampler: some}", "/tracing/sampler"),
    "webhook without an authority": (
        "{tls: {mode: secret}, quota: {enabled: true}}",
        "caBundle are empty",
    ),
}


@pytest.mark.parametrize(("values", "where"), WRONG.values(), ids=WRONG)
def test_invalid_values_are_rejected(values: str, where: str) -> None:
    result = template(values=values)
    assert result.returncode != 0
    assert where in result.stderr


def test_every_value_is_in_the_schema() -> None:
    """Without it a misspelt value would be ignored silently."""
    schema = json.loads((CHART / "values.schema.json").read_text())

    def check(at: dict[str, Any], path: str) -> None:
        if at.get("type") == "object":
            assert "additionalProperties" in at or path.endswith(("affinity", "global")), path
            for name, inner in (at.get("properties") or {}).items():
                check(inner, f"{path}.{name}")

    check(schema, "values")


def test_the_chart_is_packaged_completely(tmp_path: Path) -> None:
    result = helm("package", str(CHART), "--destination", str(tmp_path))
    assert result.returncode == 0, result.stderr
    [archive] = tmp_path.glob("*.tgz")
    packed = helm("template", "muster", str(archive), "--kube-version", "1.33.0", "--namespace", NAMESPACE)
    kinds = [each["kind"] for each in yaml.safe_load_all(packed.stdout) if each]
    assert sorted(kinds) == sorted(each["kind"] for each in objects("default"))

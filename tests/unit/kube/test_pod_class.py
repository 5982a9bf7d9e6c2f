"""Pod classes: pods that are equal for placement share one class, also if written differently."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from builders.kube.objects import container, container_status, pod, pod_json, sidecar
from muster.gangs.facts import (
    ExtendedRequest,
    HostPort,
    NodeOperator,
    NodeRequirement,
    NodeSelectorTerm,
    PodClass,
    PodTerm,
    PreferredNodeTerm,
    PreferredPodTerm,
    SpreadConstraint,
    TaintEffect,
    Toleration,
    TolerationOperator,
)
from muster.kube.objects import decode_pod
from muster.kube.pod_class import identified, pod_class, read_class

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def zone(*values: str, operator: str = "In") -> dict[str, Any]:
    return {"key": "zone", "operator": operator, "values": list(values)}


def required(*terms: Any) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


def preferred(*terms: Any) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": {PREFERRED: list(terms)}}}


def with_token(name: str, suffix: str, **more: Any) -> dict[str, Any]:
    """A pod's spec after admission: with a volume of a generated name, mounted in the container."""
    mount = {"name": f"kube-api-access-{suffix}", "mountPath": "/var/run/secrets"}
    return {
        "containers": [container(requests={"cpu": "2"}, env=[{"name": "POD", "value": name}], volumeMounts=[mount])],
        "volumes": [{"name": f"kube-api-access-{suffix}", "projected": {"sources": []}}],
        "nodeSelector": {"pool": "a"},
        **more,
    }


def test_pods_of_one_template_share_a_class_object() -> None:
    first = pod_class(pod("worker-0", with_token("worker-0", "x7l2p")))
    other = pod(
        "worker-1",
        with_token("worker-1", "9qrst", nodeName="node-3", priority=7),
        metadata={"labels": {"index": "1"}},
        status={"phase": "Running", "containerStatuses": [container_status(allocated={"cpu": "2"})]},
    )
    assert pod_class(other) is first


def test_id_is_a_hash_of_the_content() -> None:
    read = pod_class(pod(spec=with_token("a", "b")))
    assert len(read.id) == 32
    assert int(read.id, 16) > 0
    # Coordinators keep the id over upgrades, so it must stay the same.
    assert (
        pod_class(pod(spec={"containers": [container(requests={"cpu": "1"})]})).id == "9084bc1c10e4c59c1124bc4c3de153e2"
    )


SAME: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "quantities written differently": (
        {"containers": [container(requests={"cpu": "1500m", "memory": "1Gi"})]},
        {"containers": [container(requests={"memory": "1024Mi", "cpu": 1.5})]},
    ),
    "order of containers": (
        {"containers": [container("a", {"cpu": "1"}), container("b", {"cpu": "2"})]},
        {"containers": [container("b", {"cpu": "2"}), container("a", {"cpu": "1"})]},
    ),
    "order of labels": ({"nodeSelector": {"a": "1", "b": "2"}}, {"nodeSelector": {"b": "2", "a": "1"}}),
    "order and repetition of values": (
        required({"matchExpressions": [zone("a", "b")]}),
        required({"matchExpressions": [zone("b", "a", "b")]}),
    ),
    "order of terms": (
        required({"matchExpressions": [zone("a")]}, {"matchExpressions": [zone("b")]}),
        required({"matchExpressions": [zone("b")]}, {"matchExpressions": [zone("a")]}),
    ),
    "order of requirements": (
        required({"matchExpressions": [zone("a"), {"key": "gpu", "operator": "Exists"}]}),
        required({"matchExpressions": [{"key": "gpu", "operator": "Exists"}, zone("a")]}),
    ),
    "how long a taint is tolerated": (
        {"tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 300}]},
        {"tolerations": [{"key": "k", "operator": "Exists"}]},
    ),
    "order and repetition of tolerations": (
        {"tolerations": [{"key": "k", "operator": "Exists"}, {"key": "l", "value": "v", "operator": "Equal"}]},
        {
            "tolerations": [
                {"key": "l", "value": "v"},
                {"key": "k", "operator": "Exists"},
                {"key": "k", "operator": "Exists"},
            ]
        },
    ),
    "absent, empty and null": (
        {},
        {
            "nodeSelector": {},
            "affinity": None,
            "tolerations": [],
            "overhead": None,
            "resources": {},
            "initContainers": None,
        },
    ),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME.keys())
def test_equivalent_specs_have_the_same_class(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert pod_class(pod(spec=one)) is pod_class(pod(spec=other))


DIFFERENT: dict[str, dict[str, Any]] = {
    "nothing more": {},
    "requests": {"containers": [container(requests={"cpu": "2"})]},
    "an extended resource": {"containers": [container(requests={"cpu": "1", "example.com/gpu": "1"})]},
    "overhead": {"overhead": {"cpu": "5"}},
    "pod level": {"resources": {"requests": {"cpu": "3"}}},
    "node selector": {"nodeSelector": {"pool": "a"}},
    "another value": {"nodeSelector": {"pool": "b"}},
    "required affinity": required({"matchExpressions": [zone("a")]}),
    "another operator": required({"matchExpressions": [zone("a", operator="NotIn")]}),
    "fields": required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}),
    "affinity that matches nothing": required(),
    "a term that matches nothing": required({}),
    "preferred affinity": preferred({"weight": 1, "preference": {"matchExpressions": [zone("a")]}}),
    "another weight": preferred({"weight": 2, "preference": {"matchExpressions": [zone("a")]}}),
    "the same wish twice": preferred(*[{"weight": 1, "preference": {"matchExpressions": [zone("a")]}}] * 2),
    "a toleration": {"tolerations": [{"key": "k", "operator": "Exists"}]},
    "a toleration of a value": {"tolerations": [{"key": "k", "value": "v"}]},
    "a toleration of an effect": {"tolerations": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
}


def test_different_specs_have_different_classes() -> None:
    classes = {name: pod_class(pod(spec=spec)).id for name, spec in DIFFERENT.items()}
    assert len(set(classes.values())) == len(DIFFERENT)


def test_node_selection_is_decoded_completely() -> None:
    spec = {
        "nodeSelector": {"b": "2", "a": "1"},
        "affinity": {
            "nodeAffinity": {
                REQUIRED: {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["16"]}],
                            "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["bad"]}],
                        }
                    ]
                },
                PREFERRED: [
                    {"weight": 50, "preference": {"matchExpressions": [{"key": "ssd", "operator": "DoesNotExist"}]}}
                ],
            },
            "podAntiAffinity": {REQUIRED: [{"topologyKey": "zone"}]},
        },
        "tolerations": [{"operator": "Exists"}, {"key": "k", "value": "v", "effect": "NoExecute"}],
    }
    read = read_class(pod(spec=spec))
    assert read.problem == ""
    found = read.pod_class
    assert found.node_selector == (("a", "1"), ("b", "2"))
    assert found.required_node_affinity == (
        NodeSelectorTerm(
            labels=(NodeRequirement("cores", NodeOperator.GT, ("16",)),),
            fields=(NodeRequirement("metadata.name", NodeOperator.NOT_IN, ("bad",)),),
        ),
    )
    assert found.preferred_node_affinity == (
        PreferredNodeTerm(50, NodeSelectorTerm(labels=(NodeRequirement("ssd", NodeOperator.DOES_NOT_EXIST),))),
    )
    assert set(found.tolerations) == {
        Toleration("", TolerationOperator.EXISTS),
        Toleration("k", TolerationOperator.EQUAL, "v", TaintEffect.NO_EXECUTE),
    }


UNREADABLE: dict[str, tuple[dict[str, Any], str]] = {
    "selector of another type": ({"nodeSelector": ["a"]}, 'nodeSelector is "["a"]"'),
    "selector with a number": ({"nodeSelector": {"a": 1}}, "nodeSelector"),
    "affinity of another type": ({"affinity": 7}, 'affinity is "7"'),
    "an unknown operator": (required({"matchExpressions": [zone("a", operator="Like")]}), '"zone" has operator "Like"'),
    "In without values": (required({"matchExpressions": [zone()]}), '"zone": In cannot have no values'),
    "Exists with values": (
        required({"matchExpressions": [zone("a", operator="Exists")]}),
        'Exists cannot have values "a"',
    ),
    "Gt with text": (
        required({"matchExpressions": [zone("many", operator="Gt")]}),
        'Gt cannot have values "many"',
    ),
    "Lt with two": (required({"matchExpressions": [zone("1", "2", operator="Lt")]}), "Lt cannot have"),
    "a weight out of bounds": (preferred({"weight": 0, "preference": {}}), "weight 0"),
    "tolerations of another type": ({"tolerations": {}}, "tolerations"),
    "an unknown operator of a toleration": ({"tolerations": [{"key": "k", "operator": "Near"}]}, '"Near"'),
    "an unknown effect": ({"tolerations": [{"key": "k", "effect": "Sometimes"}]}, '"Sometimes"'),
}


@pytest.mark.parametrize("weight", [-(2**63), 0, 101, 2**31, 2**64])
def test_wishes_of_a_weight_out_of_bounds_are_not_read(weight: int) -> None:
    wishes = [{"weight": each, "preference": {"matchExpressions": [zone("a")]}} for each in (weight, 5)]
    read = read_class(pod(spec=preferred(*wishes)))
    assert [each.weight for each in read.pod_class.preferred_node_affinity] == [5]
    assert str(weight) in read.problem


@pytest.mark.parametrize(("spec", "words"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_malformed_fields_are_reported(spec: dict[str, Any], words: str) -> None:
    assert words in read_class(pod(spec=spec)).problem


def test_class_of_a_foreign_pod_has_only_its_requests() -> None:
    daemons = [
        read_class(
            pod(
                spec={
                    **required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [f"node-{i}"]}]}),
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [container(requests={"cpu": "100m"})],
                }
            ),
            ours=False,
        ).pod_class
        for i in range(3)
    ]
    assert daemons[0] is daemons[1] is daemons[2]
    assert daemons[0].requests == (("cpu", 100), ("pods", 1))
    assert daemons[0].required_node_affinity is None


def test_pod_with_many_containers_is_decoded() -> None:
    huge = pod(spec={"nodeSelector": {"k": "v" * 100_000}})
    assert pod_class(huge).node_selector == (("k", "v" * 100_000),)
    many = pod(spec={"containers": [container(f"c{i}", {"cpu": "1m"}) for i in range(200)]})
    assert dict(pod_class(many).requests)["cpu"] == 200


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "requests",
                    "cpu",
                    "nodeAffinity",
                    REQUIRED,
                    PREFERRED,
                    "nodeSelectorTerms",
                    "matchExpressions",
                    "key",
                    "operator",
                    "values",
                    "weight",
                    "preference",
                    "effect",
                    "type",
                    "reason",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
JUNK_FIELDS = [
    "containers",
    "initContainers",
    "overhead",
    "resources",
    "nodeSelector",
    "affinity",
    "tolerations",
    "nodeName",
    "schedulingGates",
    "priority",
]


@given(spec=st.dictionaries(st.sampled_from(JUNK_FIELDS), json_values, max_size=5), status=json_values)
def test_arbitrary_json_never_crashes(spec: dict[str, Any], status: Any) -> None:
    content = json.loads(pod_json(spec={"nodeName": "node-0", **spec}))
    content["status"] = status
    read = read_class(decode_pod(json.dumps(content).encode()))
    assert ("pods", 1) in read.pod_class.requests
    assert all(amount > 0 for _, amount in read.pod_class.requests)


def ports(*given_: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"containers": [container(requests={"cpu": "1"}, ports=list(given_), **more)]}


class TestHostPorts:
    def test_only_those_of_the_host_count(self) -> None:
        plain = pod_class(pod(spec={"containers": [container(requests={"cpu": "1"})]}))
        assert pod_class(pod(spec=ports({"containerPort": 80, "name": "http"}))) is plain
        assert pod_class(pod(spec=ports({"containerPort": 80, "hostPort": 0}))) is plain

    def test_defaults_are_those_of_kubernetes(self) -> None:
        read = pod_class(pod(spec=ports({"containerPort": 80, "hostPort": 8080})))
        assert read.host_ports == (HostPort("TCP", "0.0.0.0", 8080),)

    def test_all_containers_that_keep_running_count(self) -> None:
        spec = {
            "containers": [
                container("a", ports=[{"containerPort": 1, "hostPort": 1, "protocol": "UDP", "hostIP": "10.0.0.1"}]),
                container("b", ports=[{"containerPort": 1, "hostPort": 2}, {"containerPort": 2, "hostPort": 2}]),
            ],
            "initContainers": [
                container("c", ports=[{"containerPort": 1, "hostPort": 3}]),
                sidecar("d", None, ports=[{"containerPort": 1, "hostPort": 4}]),
            ],
        }
        assert [(port.protocol, port.ip, port.port) for port in pod_class(pod(spec=spec)).host_ports] == [
            ("UDP", "10.0.0.1", 1),
            ("TCP", "0.0.0.0", 2),
            ("TCP", "0.0.0.0", 4),
        ]

    def test_pods_that_are_not_ours_take_ports_too(self) -> None:
        read = read_class(pod(spec=ports({"containerPort": 80, "hostPort": 8080})), ours=False)
        assert [port.port for port in read.pod_class.host_ports] == [8080]

    @pytest.mark.parametrize(
        ("port", "words"),
        [
            ({"hostPort": 70000}, 'containers "main" has hostPort 70000'),
            ({"hostPort": -1}, "hostPort -1"),
            ({"hostPort": "web"}, 'containers "main" ports is'),
        ],
    )
    def test_what_is_no_port_is_told(self, port: dict[str, Any], words: str) -> None:
        read = read_class(pod(spec=ports(port)))
        assert words in read.problem
        assert read.pod_class.host_ports == ()


TERM = NodeSelectorTerm((NodeRequirement("zone", NodeOperator.IN, ("a",)),))
CHANGES: dict[str, Any] = {
    "requests": (("cpu", 7),),
    "extended": (ExtendedRequest("main", "nvidia.com/gpu", "container-0-request-0", 0, 1),),
    "node_selector": (("a", "b"),),
    "required_node_affinity": (TERM,),
    "preferred_node_affinity": (PreferredNodeTerm(1, TERM),),
    "tolerations": (Toleration("a"),),
    "required_pod_affinity": (PodTerm("s", "zone"),),
    "required_pod_anti_affinity": (PodTerm("s", "zone"),),
    "preferred_pod_affinity": (PreferredPodTerm(1, PodTerm("s", "zone")),),
    "spread": (SpreadConstraint(1, "zone", "s"),),
    "host_ports": (HostPort("TCP", "10.0.0.1", 80),),
    "volumes": ((TERM,),),
    "shared_claims": (PodTerm("s", "zone"),),
}


@pytest.mark.parametrize("field", [each for each in PodClass.__struct_fields__ if each not in ("id", "label_set")])
def test_every_field_is_part_of_the_id(field: str) -> None:
    plain = identified(PodClass(""))
    changed = identified(replace(plain, **{field: CHANGES[field]}))
    assert changed.id != plain.id
    assert getattr(changed, field) == CHANGES[field]
    assert identified(replace(changed, **{field: getattr(plain, field)})) == plain


def test_unreachable_volume_differs_from_no_volume() -> None:
    assert identified(PodClass("", volumes=((),))).id != identified(PodClass("")).id


def test_overhead_is_part_of_the_requests() -> None:
    spec = {
        "runtimeClassName": "sandboxed",
        "overhead": {"cpu": "250m", "memory": "120Mi"},
        "containers": [container(requests={"cpu": "1", "memory": "1Gi"})],
    }
    assert pod_class(pod(spec=spec)).requests == (("cpu", 1250), ("memory", (1024 + 120) * 2**20), ("pods", 1))


def test_extended_requests_are_named_by_container_and_position() -> None:
    """Zeros count for the position, and sidecars last."""
    resources = [{"requests": each} for each in ({"a/x": "2"}, {"a/x": "1"}, {"cpu": "1", "a/x": "3", "a/b": "0"})]
    init = [{"name": "i0", "resources": resources[0]}]
    init.append({"name": "i1", "resources": resources[1], "restartPolicy": "Always"})
    pod = {"spec": {"initContainers": init, "containers": [{"name": "main", "resources": resources[2]}]}}
    found = pod_class(decode_pod(json.dumps(pod).encode()))
    assert found.extended == (
        ExtendedRequest("i0", "a/x", "container-0-request-0", 0, 2, True),
        ExtendedRequest("i1", "a/x", "container-1-request-0", 1, 1),
        ExtendedRequest("main", "a/x", "container-2-request-1", 2, 3),
    )
    assert dict(found.requests)["a/x"] == 4

"""Requirements of volumes on nodes, as kube-scheduler derives them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from builders.kube.storage import claim_object, class_object, in_zones, using, volume_object, zone_term
from muster.gangs.facts import NodeFacts, NodeOperator, NodeRequirement, NodeSelectorTerm
from muster.gangs.node_filters import term_matches
from muster.kube.objects import BadObject
from muster.kube.volume_facts import (
    ClaimFacts,
    ClaimOfPod,
    StorageFacts,
    VolumeFacts,
    VolumeNeeds,
    claim_facts,
    claims_of,
    decode_claim,
    decode_storage_class,
    decode_volume,
    on_node,
    storage_facts,
    volume_facts,
)

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE, BETA_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"


def matches_terms(terms: tuple[NodeSelectorTerm, ...], node: NodeFacts) -> bool:
    return any(term_matches(each, node) for each in terms)


def claim(*args: Any, **more: Any) -> ClaimFacts:
    return claim_facts(decode_claim(json.dumps(claim_object(*args, **more)).encode()))


def volume(*terms: Any, **labels: str) -> VolumeFacts:
    return volume_facts(decode_volume(json.dumps(volume_object("v", *terms, labels=labels)).encode()))


def storage(**more: Any) -> StorageFacts:
    return storage_facts(decode_storage_class(json.dumps(class_object(**more)).encode()))


def reachable(known: VolumeFacts, **labels: str) -> bool:
    node = NodeFacts("n", labels=labels)
    return all(matches_terms(terms, node) for terms in known.demands)


class TestVolumes:
    def test_volume_without_affinity_matches_any_node(self) -> None:
        assert volume().demands == ()
        assert volume_facts(decode_volume(b'{"spec":{"nodeAffinity":{"required":null}}}')).demands == ()

    def test_one_term_of_the_node_affinity_must_match(self) -> None:
        known = volume(zone_term("a", "b"), zone_term("c"))
        assert len(known.demands) == 1
        assert [zone for zone in "abcd" if reachable(known, **{ZONE: zone})] == ["a", "b", "c"]

    def test_affinity_without_terms_matches_no_node(self) -> None:
        known = volume_facts(decode_volume(b'{"spec":{"nodeAffinity":{"required":{"nodeSelectorTerms":[]}}}}'))
        assert known.demands == ((),)

    def test_node_by_name(self) -> None:
        field = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
        assert volume(field).demands == (on_node("n"),)

    @pytest.mark.parametrize(
        ("of_volume", "of_node", "fits"),
        [
            ({ZONE: "a"}, {ZONE: "a"}, True),
            ({ZONE: "a"}, {ZONE: "b"}, False),
            ({ZONE: "a"}, {}, True),
            ({ZONE: "a"}, {"rack": "b"}, True),
            ({ZONE: "a"}, {REGION: "r"}, False),
            ({ZONE: "a__b"}, {ZONE: "b"}, True),
            ({ZONE: "a__b"}, {ZONE: "c"}, False),
            ({ZONE: "a", REGION: "r"}, {ZONE: "a", REGION: "r"}, True),
            ({ZONE: "a", REGION: "r"}, {ZONE: "a", REGION: "s"}, False),
            ({ZONE: "a", REGION: "r"}, {ZONE: "a"}, False),
            ({BETA_ZONE: "a"}, {BETA_ZONE: "a"}, True),
            ({BETA_ZONE: "a"}, {ZONE: "a"}, True),
            ({BETA_ZONE: "a"}, {ZONE: "b"}, False),
            ({BETA_ZONE: "a"}, {BETA_ZONE: "b", ZONE: "a"}, False),
            ({ZONE: "a"}, {BETA_ZONE: "a"}, False),
            ({BETA_REGION: "r"}, {REGION: "r"}, True),
            ({ZONE: "a__"}, {ZONE: "b"}, True),
            ({ZONE: ""}, {ZONE: "b"}, True),
        ],
    )
    def test_zone_and_region_in_labels(self, of_volume: Any, of_node: Any, fits: bool) -> None:
        assert reachable(volume(**of_volume), **of_node) is fits

    def test_malformed_affinity_is_reported(self) -> None:
        known = volume_facts(decode_volume(b'{"spec":{"nodeAffinity":{"required":7}}}'))
        assert "nodeAffinity is" in known.problem
        assert "operator" in volume({"matchExpressions": [{"key": "a", "operator": "Is"}]}).problem


class TestClaims:
    def test_bound(self) -> None:
        needs = VolumeNeeds(2**30, ("ReadWriteOnce",))
        assert claim("c", volume="v") == ClaimFacts(
            "uid-claim-ml-c", "v", bound=True, storage_class="fast", needs=needs
        )

    def test_claim_with_a_planned_volume_is_not_bound(self) -> None:
        known = claim("c", volume="v", bound=False)
        assert (known.volume, known.bound) == ("v", False)

    @pytest.mark.parametrize(
        ("more", "expected"),
        [
            ({"storage_class": None}, {"storage_class": ""}),
            (
                {"annotations": {"volume.beta.kubernetes.io/storage-class": "old"}},
                {"storage_class": "old"},
            ),
            (
                {"annotations": {"volume.kubernetes.io/selected-node": "n"}},
                {"selected_node": "n"},
            ),
            ({"modes": ("ReadWriteOncePod",)}, {"one_pod_only": True}),
            ({"phase": "Lost"}, {"lost": True}),
            ({"deleting": True}, {"deleting": True}),
            ({"owner": "uid-pod"}, {"controller": "uid-pod"}),
        ],
    )
    def test_other_fields(self, more: Any, expected: dict[str, Any]) -> None:
        known = claim("c", **more)
        assert {name: getattr(known, name) for name in expected} == expected


class TestStorageClasses:
    def test_wait_for_first_consumer(self) -> None:
        known = storage(topologies=in_zones("b", "a"))
        term = NodeSelectorTerm((NodeRequirement(ZONE, NodeOperator.IN, ("a", "b")),))
        assert known == StorageFacts(
            "uid-class-fast", waits=True, provisions=True, topologies=(term,), driver="disk.example.com"
        )

    @pytest.mark.parametrize("mode", [None, "Immediate"])
    def test_other_binding_modes_do_not_wait(self, mode: str | None) -> None:
        assert not storage(mode=mode).waits

    @pytest.mark.parametrize("provisioner", ["", "kubernetes.io/no-provisioner"])
    def test_classes_without_a_provisioner(self, provisioner: str) -> None:
        assert not storage(provisioner=provisioner).provisions

    @pytest.mark.parametrize("topologies", [None, []])
    def test_class_without_topologies_matches_any_node(self, topologies: Any) -> None:
        assert storage(topologies=topologies).topologies is None

    def test_empty_term_matches_no_node(self) -> None:
        known = storage(topologies=[{}, *in_zones("a")]).topologies
        assert known is not None and len(known) == 2
        assert not matches_terms(known, NodeFacts("n", labels={ZONE: "b"}))

    def test_malformed_topologies_are_reported(self) -> None:
        assert "allowedTopologies is" in storage(topologies="a").problem


class TestClaimsOfPods:
    def test_named_and_ephemeral_claims(self) -> None:
        problems: list[str] = []
        raw = Raw(json.dumps(using("b", "a", "b", ephemeral=("scratch",))).encode())
        assert claims_of(raw, "pod-0", problems) == (
            ClaimOfPod("a"),
            ClaimOfPod("b"),
            ClaimOfPod("pod-0-scratch", ephemeral=True),
        )
        assert problems == []

    def test_other_volumes_have_no_claims(self) -> None:
        other = [{"name": "ephemeral", "emptyDir": {}}, {"name": "x", "ephemeral": None, "persistentVolumeClaim": None}]
        assert claims_of(Raw(json.dumps(other).encode()), "pod-0", []) == ()

    def test_malformed_volumes_are_reported(self) -> None:
        problems: list[str] = []
        assert claims_of(Raw(b'{"persistentVolumeClaim":3}'), "pod-0", problems) == ()
        assert "volumes is" in problems[0]


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_decoded_as_far_as_possible(content: bytes) -> None:
    for decode in (decode_claim, decode_volume, decode_storage_class):
        for data in (content, b'{"metadata":{},"spec":' + content + b"}"):
            try:
                decode(data)
            except BadObject as error:
                assert str(error)

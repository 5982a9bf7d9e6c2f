"""Volumes demand of nodes what kube-scheduler reads out of them."""

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
FORMER_ZONE, FORMER_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"


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
    def test_one_without_affinity_is_everywhere(self) -> None:
        assert volume().demands == ()
        assert volume_facts(decode_volume(b'{"spec":{"nodeAffinity":{"required":null}}}')).demands == ()

    def test_one_term_of_the_node_affinity_must_match(self) -> None:
        known = volume(zone_term("a", "b"), zone_term("c"))
        assert len(known.demands) == 1
        assert [zone for zone in "abcd" if reachable(known, **{ZONE: zone})] == ["a", "b", "c"]

    def test_an_affinity_without_terms_matches_nowhere(self) -> None:
        known = volume_facts(decode_volume(b'{"spec":{"nodeAffinity":{"required":{"nodeSelectorTerms":[]}}}}'))
        assert known.demands == ((),)

    def test_a_node_by_name(self) -> None:
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
            ({FORMER_ZONE: "a"}, {FORMER_ZONE: "a"}, True),
            ({FORMER_ZONE: "a"}, {ZONE: "a"}, True),
            ({FORMER_ZONE: "a"}, {ZONE: "b"}, False),
            ({FORMER_ZONE: "a"}, {FORMER_ZONE: "b", ZONE: "a"}, False),
            ({ZONE: "a"}, {FORMER_ZONE: "a"}, False),
            ({FORMER_REGION: "r"}, {REGION: "r"}, True),
            ({ZONE: "a__"}, {ZONE: "b"}, True),
            ({ZONE: ""}, {ZONE: "b"}, True),
        ],
    )
    def test_zone_and_region_in_labels(self, of_volume: Any, of_node: Any, fits: bool) -> None:
        assert reachable(volume(**of_volume), **of_node) is fits

    def test_an_affinity_that_cannot_be_read_is_told(self) -> None:
        known = volume_facts(decode_volume(b'{"spec":{"nodeAffinity":{"required":7}}}'))
        assert "nodeAffinity is" in known.problem
        assert "operator" in volume({"matchExpressions": [{"key": "a", "operator": "Is"}]}).problem


class TestClaims:
    def test_bound(self) -> None:
        assert claim("c", volume="v") == ClaimFacts("uid-claim-ml-c", "v", bound=True, storage_class="fast")

    def test_one_that_is_to_be_bound_is_not_bound(self) -> None:
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
    def test_what_else_is_read(self, more: Any, expected: dict[str, Any]) -> None:
        known = claim("c", **more)
        assert {name: getattr(known, name) for name in expected} == expected


class TestStorageClasses:
    def test_one_that_makes_volumes_where_pods_go(self) -> None:
        known = storage(topologies=in_zones("b", "a"))
        term = NodeSelectorTerm((NodeRequirement(ZONE, NodeOperator.IN, ("a", "b")),))
        assert known == StorageFacts("uid-class-fast", waits=True, provisions=True, topologies=(term,))

    @pytest.mark.parametrize("mode", [None, "Immediate"])
    def test_others_do_not_wait(self, mode: str | None) -> None:
        assert not storage(mode=mode).waits

    @pytest.mark.parametrize("provisioner", ["", "kubernetes.io/no-provisioner"])
    def test_volumes_made_by_hand(self, provisioner: str) -> None:
        assert not storage(provisioner=provisioner).provisions

    @pytest.mark.parametrize("topologies", [None, []])
    def test_without_topologies_they_may_be_anywhere(self, topologies: Any) -> None:
        assert storage(topologies=topologies).topologies is None

    def test_a_term_that_says_nothing_matches_nothing(self) -> None:
        known = storage(topologies=[{}, *in_zones("a")]).topologies
        assert known is not None and len(known) == 2
        assert not matches_terms(known, NodeFacts("n", labels={ZONE: "b"}))

    def test_topologies_that_cannot_be_read_are_told(self) -> None:
        assert "allowedTopologies is" in storage(topologies="a").problem


class TestClaimsOfPods:
    def test_claims_by_name_and_those_of_ephemeral_volumes(self) -> None:
        problems: list[str] = []
        raw = Raw(json.dumps(using("b", "a", "b", ephemeral=("scratch",))).encode())
        assert claims_of(raw, "pod-0", problems) == (
            ClaimOfPod("a"),
            ClaimOfPod("b"),
            ClaimOfPod("pod-0-scratch", ephemeral=True),
        )
        assert problems == []

    def test_other_volumes_are_none(self) -> None:
        other = [{"name": "ephemeral", "emptyDir": {}}, {"name": "x", "ephemeral": None, "persistentVolumeClaim": None}]
        assert claims_of(Raw(json.dumps(other).encode()), "pod-0", []) == ()

    def test_what_cannot_be_read_is_told(self) -> None:
        problems: list[str] = []
        assert claims_of(Raw(b'{"persistentVolumeClaim":3}'), "pod-0", problems) == ()
        assert "volumes is" in problems[0]


@given(st.binary(max_size=60))
def test_any_bytes_are_read_as_far_as_that_goes(content: bytes) -> None:
    for decode in (decode_claim, decode_volume, decode_storage_class):
        for data in (content, b'{"metadata":{},"spec":' + content + b"}"):
            try:
                decode(data)
            except BadObject as error:
                assert str(error)

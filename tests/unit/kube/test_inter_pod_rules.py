"""Pod affinity, anti-affinity and topology spread, as Kubernetes defines them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.kube.inter_pod_rules import HOST, ZONE, affinity, labelled, spread, term, wish
from builders.kube.objects import pod
from muster.gangs.facts import SpreadConstraint
from muster.gangs.selectors import PodSelector
from muster.kube.inter_pod_rules import inter_pod_rules
from muster.kube.pod_class import ReadClass, read_class

DB = labelled(app="db")


def read(
    affinity_: Any = None, spreads: Any = None, labels: dict[str, str] | None = None, *, ours: bool = True
) -> ReadClass:
    spec: dict[str, Any] = {"affinity": affinity_, "topologySpreadConstraints": spreads}
    return read_class(pod(spec=spec, metadata={"labels": labels or {}}), ours=ours)


def only_selector(read_: ReadClass) -> PodSelector:
    (selector,) = read_.selectors
    return selector


def selects(read_: ReadClass, namespace: str = "ml", namespace_labels: Any = None, **labels: str) -> bool:
    return only_selector(read_).selects(namespace, namespace_labels or {}, labels)


class TestAffinity:
    def test_every_kind_of_term_is_in_the_class(self) -> None:
        db, web = labelled(app="db"), labelled(app="web")
        known = read(
            affinity(
                near=[term(db, ZONE)],
                away=[term(web)],
                preferred_near=[wish(10, term(web, ZONE))],
                preferred_away=[wish(7, term(db))],
            )
        )
        by_labels = {each.selects("ml", {}, {"app": "db"}): each.id for each in known.selectors}
        (near,), (away,) = known.pod_class.required_pod_affinity, known.pod_class.required_pod_anti_affinity
        assert (near.selector, near.topology_key) == (by_labels[True], ZONE)
        assert (away.selector, away.topology_key) == (by_labels[False], HOST)
        wishes = {
            (each.weight, each.term.selector, each.term.topology_key) for each in known.pod_class.preferred_pod_affinity
        }
        assert wishes == {(10, by_labels[False], ZONE), (-7, by_labels[True], HOST)}
        assert known.problem == ""

    def test_terms_that_differ_in_the_topology_key_share_a_selector(self) -> None:
        known = read(affinity(near=[term(DB, ZONE)], away=[term(DB)]))
        assert only_selector(known).id == known.pod_class.required_pod_affinity[0].selector

    def test_a_wish_that_is_there_twice_counts_twice(self) -> None:
        known = read(affinity(preferred_near=[wish(10, term(DB)), wish(10, term(DB))]))
        assert [each.weight for each in known.pod_class.preferred_pod_affinity] == [10, 10]

    def test_a_pod_without_any_names_none(self) -> None:
        assert read().selectors == ()
        assert read(affinity()).pod_class == read().pod_class
        assert read({"nodeAffinity": {}}).pod_class == read().pod_class

    @pytest.mark.parametrize(
        ("more", "selected"),
        [
            ({}, {"ml"}),
            ({"namespaces": []}, {"ml"}),
            ({"namespaces": ["dev"]}, {"dev"}),
            ({"namespaces": ["dev", "ml"], "namespaceSelector": None}, {"dev", "ml"}),
            ({"namespaceSelector": {}}, {"ml", "dev", "prod"}),
            ({"namespaces": ["dev"], "namespaceSelector": {}}, {"ml", "dev", "prod"}),
            ({"namespaceSelector": labelled(tier="live")}, {"prod"}),
            ({"namespaces": ["dev"], "namespaceSelector": labelled(tier="live")}, {"dev", "prod"}),
        ],
    )
    def test_namespaces(self, more: dict[str, Any], selected: set[str]) -> None:
        known = read(affinity(away=[term(DB, **more)]))
        labels: dict[str, dict[str, str]] = {"ml": {}, "dev": {"tier": "test"}, "prod": {"tier": "live"}}
        assert {each for each in labels if selects(known, each, labels[each], app="db")} == selected
        assert not any(selects(known, each, labels[each], app="web") for each in labels)

    def test_whether_labels_of_namespaces_have_a_say(self) -> None:
        assert not only_selector(read(affinity(away=[term(DB)]))).reads_namespaces
        assert not only_selector(read(affinity(away=[term(DB, namespaceSelector={})]))).reads_namespaces
        assert only_selector(read(affinity(away=[term(DB, namespaceSelector=labelled(a="b"))]))).reads_namespaces

    def test_no_selector_selects_nothing_and_an_empty_one_everything(self) -> None:
        assert not selects(read(affinity(away=[term(None)])), app="db")
        assert not selects(read(affinity(away=[term(None, namespaceSelector={})])), app="db")
        assert selects(read(affinity(away=[term({})])), app="db")


class TestSharedLabels:
    def test_pods_have_to_share_labels_or_must_not(self) -> None:
        labels = {"revision": "7", "tenant": "x"}
        known = read(
            affinity(near=[term(DB, matchLabelKeys=["revision"], mismatchLabelKeys=["tenant"])]), labels=labels
        )
        assert selects(known, app="db", revision="7", tenant="y")
        assert selects(known, app="db", revision="7")
        assert not selects(known, app="db", revision="8", tenant="y")
        assert not selects(known, app="db", revision="7", tenant="x")

    def test_labels_that_the_pod_does_not_have_demand_nothing(self) -> None:
        known = read(affinity(near=[term(DB, matchLabelKeys=["revision"], mismatchLabelKeys=["tenant"])]))
        assert known.selectors == read(affinity(near=[term(DB)])).selectors

    def test_what_the_api_server_merged_is_not_merged_again(self) -> None:
        merged = {**DB, "matchExpressions": [{"key": "revision", "operator": "In", "values": ["7"]}]}
        by_server = read(affinity(near=[term(merged, matchLabelKeys=["revision"])]), labels={"revision": "7"})
        by_us = read(affinity(near=[term(DB, matchLabelKeys=["revision"])]), labels={"revision": "7"})
        assert by_server.selectors == by_us.selectors

    def test_pods_of_one_template_that_differ_in_them_have_different_classes(self) -> None:
        spreads = [spread(DB, matchLabelKeys=["revision"])]
        seven, eight = (read(None, spreads, {"revision": each, "app": "db"}) for each in "78")
        assert seven.pod_class.id != eight.pod_class.id
        assert selects(seven, app="db", revision="7") and not selects(seven, app="db", revision="8")

    def test_other_labels_have_no_say(self) -> None:
        spreads = [spread(DB, matchLabelKeys=["revision"])]
        one, other = (read(None, spreads, {"revision": "7", "index": each}) for each in "12")
        assert one.pod_class is other.pod_class


class TestSpread:
    def test_defaults(self) -> None:
        known = read(None, [spread(DB)])
        assert known.pod_class.spread == (SpreadConstraint(1, ZONE, only_selector(known).id),)

    def test_everything_that_can_be_set(self) -> None:
        given_ = spread(
            DB,
            maxSkew=3,
            whenUnsatisfiable="ScheduleAnyway",
            minDomains=4,
            nodeAffinityPolicy="Ignore",
            nodeTaintsPolicy="Honor",
        )
        known = read(None, [given_])
        assert known.pod_class.spread == (
            SpreadConstraint(
                3, ZONE, only_selector(known).id, False, 4, ignores_node_affinity=True, honors_taints=True
            ),
        )

    def test_policies_may_say_the_default(self) -> None:
        message = spread(DB, minDomains=1, nodeAffinityPolicy="Honor", nodeTaintsPolicy="Ignore")
        assert read(None, [message]).pod_class == read(None, [spread(DB)]).pod_class

    def test_pods_of_other_namespaces_do_not_count(self) -> None:
        known = read(None, [spread(DB)])
        assert selects(known, "ml", app="db") and not selects(known, "dev", app="db")

    def test_it_shares_its_selector_with_affinity(self) -> None:
        known = read(affinity(away=[term(DB)]), [spread(DB)])
        assert known.pod_class.spread[0].selector == only_selector(known).id


class TestOthers:
    def test_of_pods_that_are_not_ours_only_what_keeps_others_away_is_read(self) -> None:
        whole = affinity(near=[term(DB)], away=[term(DB)], preferred_away=[wish(1, term(labelled(app="web")))])
        known = read(whole, [spread(DB, ZONE)], ours=False)
        assert len(known.pod_class.required_pod_anti_affinity) == len(known.selectors) == 1
        assert not known.pod_class.required_pod_affinity and not known.pod_class.preferred_pod_affinity
        assert known.pod_class.spread == ()

    def test_affinity_that_keeps_nobody_away_makes_no_class_of_its_own(self) -> None:
        known = read(affinity(near=[term(DB)], preferred_near=[wish(1, term(DB))]), [spread(DB)], ours=False)
        assert known.pod_class is read(ours=False).pod_class


SAME: dict[str, tuple[Any, Any]] = {
    "order and repetition of terms": (
        affinity(away=[term(DB), term(DB, ZONE), term(DB)]),
        affinity(away=[term(DB, ZONE), term(DB)]),
    ),
    "order and repetition of namespaces": (
        affinity(away=[term(DB, namespaces=["b", "a", "b"])]),
        affinity(away=[term(DB, namespaces=["a", "b"])]),
    ),
    "its own namespace by name": (affinity(away=[term(DB, namespaces=["ml"])]), affinity(away=[term(DB)])),
    "labels as expressions": (
        affinity(away=[term(DB)]),
        affinity(away=[term({"matchExpressions": [{"key": "app", "operator": "In", "values": ["db"]}]})]),
    ),
    "order of values": (
        affinity(away=[term({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a", "b"]}]})]),
        affinity(away=[term({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["b", "a"]}]})]),
    ),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME)
def test_equivalent_rules_are_equal(one: Any, other: Any) -> None:
    assert read(one).pod_class == read(other).pod_class
    assert set(read(one).selectors) == set(read(other).selectors)


def test_selector_ids_are_stable() -> None:
    assert only_selector(read(affinity(away=[term(DB)]))).id == "06b55d2c4e809e08641d48f9d727a58e"


DIFFERENT: dict[str, Any] = {
    "none": None,
    "near": affinity(near=[term(DB)]),
    "away": affinity(away=[term(DB)]),
    "another key": affinity(away=[term(DB, ZONE)]),
    "other pods": affinity(away=[term(labelled(app="web"))]),
    "no pods": affinity(away=[term(None)]),
    "all pods": affinity(away=[term({})]),
    "another namespace": affinity(away=[term(DB, namespaces=["dev"])]),
    "all namespaces": affinity(away=[term(DB, namespaceSelector={})]),
    "some namespaces": affinity(away=[term(DB, namespaceSelector=labelled(a="b"))]),
    "preferred": affinity(preferred_near=[wish(1, term(DB))]),
    "preferred more": affinity(preferred_near=[wish(2, term(DB))]),
    "disliked": affinity(preferred_away=[wish(1, term(DB))]),
}


def test_different_selectors_have_different_ids() -> None:
    ids = {read(each).pod_class.id for each in DIFFERENT.values()}
    assert len(ids) == len(DIFFERENT)


WRONG: dict[str, tuple[Any, Any, str]] = {
    "operator": (
        affinity(away=[term({"matchExpressions": [{"key": "a", "operator": "Is"}]})]),
        None,
        'podAntiAffinity: a requirement on "a" has operator "Is"',
    ),
    "namespaces": (affinity(near=[term(DB, namespaceSelector="x")]), None, 'podAffinity: ""x""'),
    "no key": (affinity(near=[term(DB, "")]), None, "podAffinity has no topologyKey"),
    "weight": (affinity(preferred_near=[wish(101, term(DB))]), None, "weight 101"),
    "terms": ({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": 3}}, None, "affinity is"),
    "spread": (None, "all", 'topologySpreadConstraints is ""all""'),
    "skew": (None, [spread(DB, maxSkew=0)], "maxSkew 0"),
    "key of spread": (None, [spread(DB, "")], "topologySpreadConstraint has no topologyKey"),
    "domains": (None, [spread(DB, minDomains=0)], "minDomains 0"),
    "when": (None, [spread(DB, whenUnsatisfiable="Never")], 'whenUnsatisfiable "Never"'),
    "policy": (None, [spread(DB, nodeTaintsPolicy="Maybe")], 'nodeTaintsPolicy "Maybe"'),
    "selector of spread": (None, [spread("x")], 'topologySpreadConstraints: ""x""'),
}


@pytest.mark.parametrize(("affinity_", "spreads", "words"), WRONG.values(), ids=WRONG)
def test_malformed_rules_are_reported(affinity_: Any, spreads: Any, words: str) -> None:
    known = read(affinity_, spreads)
    assert words in known.problem
    assert known.pod_class == read().pod_class


@given(st.binary(max_size=80), st.binary(max_size=80))
def test_arbitrary_bytes_are_rules_or_a_problem(one: bytes, other: bytes) -> None:
    problems: list[str] = []
    terms = inter_pod_rules(b'{"podAffinity":' + one, other, "ml", {}, problems, ours=True)
    assert problems or not terms.selectors

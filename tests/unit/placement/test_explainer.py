"""Explanations: kube-scheduler's words, exact counts, and readable amounts."""

import pytest

from builders.placement.clusters import GPU, alone, answers, cluster, gang, group, node, pod_class, refusal
from builders.placement.inter_pod_rules import RACK, anti_affinity, member, rack
from muster.gangs.facts import NodeFacts, PodClass, Taint, TaintEffect
from muster.gangs.solve import Explanation, SolveGroup
from muster.placement.explain.explainer import in_words


def explanation_of(nodes: list[NodeFacts], classes: list[PodClass], request: SolveGroup) -> Explanation:
    [answer] = answers(cluster(nodes, classes), request)
    return refusal(answer).explanation


def test_g01_one_cpu_short() -> None:
    explanation = explanation_of([node("n", 4)], [pod_class("x")], alone("g", ("x", 5)))
    assert explanation.summary == (
        "4 of 5 members fit; short of 1 cpu for the next; 0/1 nodes are available: 1 Insufficient cpu"
    )
    assert (explanation.gang, explanation.class_id, explanation.fit, explanation.needed) == ("g", "x", 4, 5)
    assert explanation.short_by == (("cpu", 1000),)


def test_explanation_of_a_plain_pod_in_kube_schedulers_words() -> None:
    taint = Taint("gpu", "true", TaintEffect.NO_SCHEDULE)
    nodes = [node("a", 1), node("b", 1.5), node("c", taints=[taint]), node("d", unschedulable=True)]
    explanation = explanation_of(nodes, [pod_class("x", 2)], alone("p", ("x", 1)))
    assert explanation.summary == (
        "0/4 nodes are available: 2 Insufficient cpu, 1 node(s) had untolerated taint {gpu: true}, "
        "1 node(s) were unschedulable; short of 0.5 cpu"
    )


def test_the_first_of_the_resources_that_no_node_has_are_named() -> None:
    names = {f"example.com/r{number:02}": 2 for number in range(10)}
    asked = PodClass("x", tuple(sorted({"cpu": 1000, "pods": 1, **names}.items())))
    explanation = explanation_of([node("a", 4), node("b", 4)], [asked], alone("g", ("x", 3)))
    first = "example.com/r00, example.com/r01, example.com/r02"
    assert explanation.filtered_nodes == ((f"Insufficient {first} and 7 more", 2),)
    assert explanation.short_by == tuple((name, 6) for name in first.split(", "))


def test_a_node_counts_once_under_the_first_filter() -> None:
    nodes = [node("full", 64, pods=1), node("small", 1, memory=1), node("thin", 64, memory=1), node("plain", 64)]
    classes = [pod_class("x", 2, memory=2, gpu=1)]
    built = cluster(nodes, classes, bound=[("p", "x", "full")])
    [answer] = answers(built, alone("g", ("x", 1)))
    assert dict(refusal(answer).explanation.filtered_nodes) == {
        "Too many pods": 1,
        "Insufficient cpu": 1,
        "Insufficient memory": 1,
        f"Insufficient {GPU}": 1,
    }


def test_shortage_includes_remainders_on_each_node() -> None:
    explanation = explanation_of(
        [node("a", 1.5), node("b", 1.25), node("c", 0.75)], [pod_class("x")], alone("g", ("x", 4))
    )
    assert (explanation.fit, explanation.short_by) == (2, (("cpu", 250 + 500),))


def test_shortage_of_one_resource_omits_others() -> None:
    explanation = explanation_of([node("a", 4, memory=64)], [pod_class("x", 1, memory=8)], alone("g", ("x", 6)))
    assert explanation.short_by == (("cpu", 2000),)
    assert "for the others" in explanation.summary


def test_fragmented_capacity_is_explained_by_the_closest_node() -> None:
    explanation = explanation_of(
        [node("a", 4, memory=1), node("b", 1, memory=4)], [pod_class("x", 2, memory=4)], alone("g", ("x", 1))
    )
    assert explanation.short_by == (("cpu", 1000),)


def test_filtered_nodes_do_not_count_as_shortage() -> None:
    explanation = explanation_of([node("a", 4, ready=False)], [pod_class("x")], alone("g", ("x", 1)))
    assert explanation.short_by == ()
    assert explanation.summary == "0/1 nodes are available: 1 node(s) were not ready"


def test_many_reasons_are_counted_but_not_all_named() -> None:
    nodes = [node(f"n{i:02}", taints=[Taint("owner", str(i), TaintEffect.NO_EXECUTE)]) for i in range(20)]
    explanation = explanation_of(nodes, [pod_class("x")], alone("g", ("x", 1)))
    assert len(explanation.filtered_nodes) == 20
    assert explanation.summary.endswith("12 for other reasons")


def test_the_explanation_names_the_gang_that_lacks_members() -> None:
    classes = [pod_class("x"), pod_class("y", 2)]
    explanation = explanation_of([node("a", 4)], classes, group(gang("a", ("x", 2)), gang("b", ("y", 2))))
    assert explanation.gang in ("a", "b")
    assert explanation.fit < explanation.needed


def test_equal_failed_groups_have_equal_explanations() -> None:
    classes = [pod_class("x"), pod_class("y", 2)]
    request = [alone(f"g{i}", ("x", 3), ("y", 3)) for i in range(3)]
    explanation = [refusal(answer).explanation for answer in answers(cluster([node("a", 4)], classes), *request)]
    assert [each.gang for each in explanation] == ["g0", "g1", "g2"]
    assert len({each.summary for each in explanation}) == 1


def test_absurdly_large_requests_are_explained() -> None:
    monster = PodClass("m", (("cpu", 2**63 - 1), ("memory", 2**63 - 1), ("pods", 1)))
    explanation = explanation_of([node("a", 4)], [monster, pod_class("x")], alone("g", ("m", 2**32 - 1)))
    assert explanation.fit == 0
    assert dict(explanation.short_by)["memory"] == 2**63 - 1
    assert explanation_of([node("a", 4)], [monster, pod_class("x")], alone("g", ("m", 2**31), ("x", 2**31))).fit == 4


@pytest.mark.parametrize(
    ("resource", "amount", "words"),
    [
        ("cpu", 1000, "1 cpu"),
        ("cpu", 250, "0.25 cpu"),
        ("memory", 2**30, "1Gi memory"),
        ("memory", 3 * 2**29, "1.5Gi memory"),
        ("memory", 512 * 2**20, "512Mi memory"),
        ("memory", 3, "3 bytes of memory"),
        ("ephemeral-storage", 5 * 2**40, "5Ti ephemeral-storage"),
        ("hugepages-2Mi", 2**21, "2Mi hugepages-2Mi"),
        ("pods", 1, "1 pod slot"),
        ("pods", 2, "2 pod slots"),
        (GPU, 4, "4 nvidia.com/gpu"),
    ],
)
def test_amounts_in_words(resource: str, amount: int, words: str) -> None:
    assert in_words(resource, amount) == words


def test_nodes_that_only_suffice_together_are_named_together() -> None:
    taint = Taint("gpu", "true", TaintEffect.NO_SCHEDULE)
    nodes = [node("a", 3, unschedulable=True), node("b", 2, taints=[taint])]
    explanation = explanation_of(nodes, [pod_class("x")], alone("g", ("x", 5)))
    assert explanation.remedy == (
        'it would fit if its pods could use the node lost to "node(s) were unschedulable", and '
        'the node lost to "node(s) had untolerated taint {gpu: true}"'
    )


def test_all_obstacles_of_a_node_are_named() -> None:
    taint = Taint("gpu", "true", TaintEffect.NO_SCHEDULE)
    nodes = [node("a", 3, unschedulable=True, taints=[taint])]
    explanation = explanation_of(nodes, [pod_class("x")], alone("g", ("x", 3)))
    assert explanation.remedy == (
        'it would fit if its pods could use the node lost to "node(s) were unschedulable" and '
        '"node(s) had untolerated taint {gpu: true}"'
    )


def test_a_node_that_one_change_frees_is_proposed_before_one_that_needs_two() -> None:
    taint = Taint("gpu", "true", TaintEffect.NO_SCHEDULE)
    nodes = [
        node("a", 4, unschedulable=True, taints=[taint]),
        node("b", 2, taints=[taint]),
        node("c", 2, taints=[taint]),
    ]
    explanation = explanation_of(nodes, [pod_class("x")], alone("g", ("x", 4)))
    assert explanation.remedy == (
        'it would fit if its pods could use the 2 nodes lost to "node(s) had untolerated taint {gpu: true}"'
    )


def test_figures_of_one_role_are_not_said_of_all_missing_members() -> None:
    classes = [pod_class("small", 1), pod_class("large", 7)]
    explanation = explanation_of([node("a", 4)], classes, alone("g", ("small", 6), ("large", 2)))
    assert explanation.fit < explanation.needed - 2
    assert "short of" in explanation.summary and " of the others; " in explanation.summary


def test_pods_whose_anti_affinity_keeps_a_gang_away_are_named_by_their_nodes() -> None:
    lonely = member("lonely", labelled=[], **anti_affinity(RACK, "job"))
    built = cluster(rack("r0", {"a": 4, "b": 4}), [lonely, member()], [("p", "lonely", "a")])
    [answer] = answers(built, alone("g", ("x", 2)))
    assert refusal(answer).explanation.remedy == (
        f"it would fit if the required pod anti-affinity of other pods (by {RACK}, on a) did not keep it away"
    )

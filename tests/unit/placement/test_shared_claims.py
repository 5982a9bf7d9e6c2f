"""Pods that share a ResourceClaim which is not allocated are placed in one domain, whatever their roles are."""

import pytest
from msgspec.structs import replace

from builders.placement.clusters import alone, answers, cluster, gang, group, node, pod_class, refusal, seats, seats_of
from builders.placement.inter_pod_rules import HOST, RACK
from muster.gangs.facts import NodeFacts, PodClass, PodTerm
from muster.placement.inter_pod.rules import SHARED_CLAIM


def sharing(
    name: str, *claims: str, cpu: float = 1, gpu: int = 0, key: str = HOST, labels: tuple[str, ...] = ()
) -> PodClass:
    """A class of pods that share these claims; GPUs stand for the devices of a claim."""
    terms = tuple(PodTerm(each, key) for each in claims)
    return replace(pod_class(name, cpu, gpu=gpu), shared_claims=terms, label_set="+".join(sorted((*claims, *labels))))


def machine(name: str, cpu: int, gpu: int = 0, rack: str = "") -> NodeFacts:
    return node(name, cpu, gpu=gpu, labels={HOST: name, RACK: rack or name})


def test_two_roles_go_to_the_node_that_has_the_devices_and_holds_all() -> None:
    nodes = [machine("a", 16), machine("b", 3, 8), machine("c", 8, 8), machine("d", 5, 1)]
    built = cluster(nodes, [sharing("first", "c", gpu=2), sharing("others", "c")])
    [answer] = answers(built, alone("g", ("first", 1), ("others", 5)))
    assert seats(answer) == {"c": 6}


def test_roles_that_fit_a_node_one_by_one_but_not_together_are_placed_elsewhere() -> None:
    """The first nodes hold either role."""
    nodes = [machine(f"a{number:02}", 7, 2) for number in range(20)] + [machine("b", 8, 2)]
    built = cluster(nodes, [sharing("first", "c", cpu=4, gpu=2), sharing("others", "c", cpu=2)])
    [answer] = answers(built, alone("g", ("first", 1), ("others", 2)))
    assert seats(answer) == {"b": 3}


@pytest.mark.parametrize("pairs", [2, 12], ids=["few", "many"])
def test_pods_of_each_claim_go_to_a_node_of_their_own(pairs: int) -> None:
    """All nodes together hold all claims, each node one."""
    names = [f"n{number:02}" for number in range(pairs)]
    classes, roles = [], []
    for name in names:
        classes += [sharing(f"first-{name}", name, gpu=8), sharing(f"others-{name}", name)]
        roles += [(f"first-{name}", 1), (f"others-{name}", 3)]
    built = cluster([machine(name, 4, 8) for name in names], classes)
    [answer] = answers(built, alone("g", *roles))
    assert seats(answer) == dict.fromkeys(names, 4)
    for number in range(pairs):
        assert seats_of(answer, 2 * number).keys() == seats_of(answer, 2 * number + 1).keys()


def test_a_claim_is_shared_by_gangs_of_a_group() -> None:
    nodes = [machine("a", 4, 2), machine("b", 8, 2)]
    built = cluster(nodes, [sharing("first", "c", gpu=2), sharing("others", "c")])
    [answer] = answers(built, group(gang("g", ("first", 1), ("others", 2)), gang("h", ("others", 3))))
    assert seats(answer) == {"b": 6}


def test_a_pod_with_two_claims_joins_the_pods_of_both() -> None:
    nodes = [machine("a", 4, 2), machine("b", 8, 4)]
    classes = [sharing("c", "c", gpu=2), sharing("d", "d", gpu=2), sharing("both", "c", "d")]
    [answer] = answers(cluster(nodes, classes), alone("g", ("c", 1), ("d", 1), ("both", 3)))
    assert seats(answer) == {"b": 5}


def test_affinity_of_pods_is_a_rule_beside_that_of_their_claims() -> None:
    """The pods need a database in their rack, which does not share the claim."""
    nodes = [machine("a", 4, 2, rack="r0"), machine("b", 4, 2, rack="r1"), machine("c", 1, rack="r1")]
    near_db = (PodTerm("db", RACK),)
    classes = [
        replace(sharing("first", "c", gpu=2), required_pod_affinity=near_db),
        replace(sharing("others", "c"), required_pod_affinity=near_db),
        replace(pod_class("db"), label_set="db"),
    ]
    built = cluster(nodes, classes, bound=[("db", "db", "c")])
    [answer] = answers(built, alone("g", ("first", 1), ("others", 3)))
    assert seats(answer) == {"b": 4}


def test_later_pods_go_where_the_others_are() -> None:
    built = cluster([machine("a", 16, 8), machine("b", 4, 8)], [sharing("first", "c", gpu=2), sharing("others", "c")])
    reserved = [("b", "first", ("u0",)), ("b", "others", ("u1",))]
    [fits, too_many] = answers(built, alone("g", ("others", 2)), alone("h", ("others", 3)), reserved=reserved)
    assert seats(fits) == {"b": 2}
    explanation = refusal(too_many).explanation
    assert dict(explanation.filtered_nodes)[SHARED_CLAIM] == 1


def test_devices_of_a_rack_are_shared_by_its_nodes() -> None:
    nodes = [machine(name, 2, 4, rack=f"r{number // 2}") for number, name in enumerate(("a", "b", "c", "d"))]
    built = cluster(nodes, [sharing("first", "c", gpu=4, key=RACK), sharing("others", "c", key=RACK)])
    [answer] = answers(built, alone("g", ("first", 1), ("others", 3)))
    [too_large] = answers(built, alone("g", ("first", 1), ("others", 4)))
    assert seats(answer) in ({"a": 2, "b": 2}, {"c": 2, "d": 2})
    assert refusal(too_large).proved

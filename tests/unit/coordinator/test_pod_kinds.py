"""Pods of one class are one role unless selectors tell their labels apart; classes without pods are forgotten."""

from collections import Counter

from msgspec.structs import replace

from builders.core.actions import until
from builders.core.objects import node, pod_class, ruled_class
from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from builders.gangs.labels import label_set_of, selector_of
from muster.coordinator.core.cache.ledger import Ledger
from muster.coordinator.core.effects import Bind, Solve
from muster.coordinator.core.events import Delta, Seat
from muster.gangs.facts import Batch, kind_id, split_kind

CLASS = pod_class(1).id


def labelled_gang(scenario: Scenario, name: str, *label_sets: str) -> None:
    """A gang with a member for each label set."""
    built = gang(name).of(len(label_sets))
    pods = [replace(pod, label_set=labels) for pod, labels in zip(built.pods(), label_sets, strict=True)]
    scenario.tell(Delta(Batch(label_sets=tuple(map(label_set_of, dict.fromkeys(label_sets))))))
    scenario.change(gangs=[built.gang_facts()], pods=pods)


def with_selectors(*names: str) -> Scenario:
    scenario = Scenario({"n1": 8})
    scenario.tell(Delta(Batch(selectors=tuple(map(selector_of, names)))))
    return scenario


def roles(scenario: Scenario) -> Counter[str]:
    """Members wanted by kind."""
    (group,) = scenario.only(Solve).groups
    (asked,) = group.gangs
    return Counter({role.class_id: role.wanted for role in asked.roles})


def test_labels_that_no_selector_names_make_no_roles() -> None:
    scenario = with_selectors("other")
    labelled_gang(scenario, "a", "app+i0", "app+i1", "app+i2")
    assert roles(scenario) == {CLASS: 3}


def test_members_that_the_same_selectors_select_are_one_role() -> None:
    scenario = with_selectors("app")
    labelled_gang(scenario, "a", "app+i0", "app+i1", "app+i2")
    ((kind, wanted),) = roles(scenario).items()
    assert wanted == 3
    assert split_kind(kind)[1] in ("app+i0", "app+i1", "app+i2")


def test_members_that_a_selector_tells_apart_are_roles_of_their_own() -> None:
    scenario = with_selectors("app", "i0")
    labelled_gang(scenario, "a", "app+i0", "app+i1", "app+i2")
    assert sorted(roles(scenario).values()) == [1, 2]
    assert roles(scenario)[kind_id(CLASS, "app+i0")] == 1


def test_all_roles_get_their_own_members() -> None:
    scenario = with_selectors("i0")
    labelled_gang(scenario, "a", "app+i0", "app+i1", "app+i2")
    seats = until(scenario, Bind).seats
    assert sorted((seat.name, seat.label_set) for seat in seats) == [
        (f"a-{index}", f"app+i{index}") for index in range(3)
    ]
    held = scenario.leader.cache.ledger.reservations()
    assert {split_kind(each.class_id)[1]: len(each.pod_uids) for each in held} == {"app+i0": 1, "": 2}


def test_a_selector_that_comes_while_a_solve_is_under_way_does_not_spoil_its_answer() -> None:
    scenario = with_selectors("other")
    labelled_gang(scenario, "a", "app+i0", "app+i1")
    scenario.only(Solve)
    scenario.tell(Delta(Batch(selectors=(selector_of("i0"),))))
    assert len(until(scenario, Bind).seats) == 2


def test_a_member_of_another_kind_that_comes_during_a_solve_gets_no_seat() -> None:
    scenario = with_selectors("red")
    labelled_gang(scenario, "a", "app")
    first = scenario.only(Solve)
    (before,) = gang("a").of(1).pods()
    red = replace(before, uid="red", name="a-red", label_set="red")
    scenario.tell(Delta(Batch(label_sets=(label_set_of("red"),))))
    scenario.change(pods=[red], remove_pods=[before.uid])
    scenario.do(0)
    (second,) = [effect for effect in scenario.under_way if isinstance(effect, Solve)]
    assert second.solve_id != first.solve_id
    assert [role.class_id for role in second.groups[0].gangs[0].roles] == [kind_id(CLASS, "red")]


def test_a_new_rule_about_pods_of_a_solve_under_way_is_not_solved_beside_it() -> None:
    scenario = Scenario({"n1": 8})
    scenario.scale(2)
    labelled_gang(scenario, "a", "red")
    scenario.only(Solve)
    apart = ruled_class(1, apart_from="red")
    scenario.tell(Delta(Batch(selectors=(selector_of("red"),), pod_classes=(apart,))))
    other = gang("b").of(1)
    scenario.change(gangs=[other.gang_facts()], pods=[replace(pod, class_id=apart.id) for pod in other.pods()])
    assert [group.id for group in scenario.only(Solve).groups] == [gang("a").gang_facts().id]


def test_i11_classes_are_forgotten_after_their_pods() -> None:
    ledger = Ledger()
    ledger.put_node(node("n", 8))
    old, held = (replace(pod_class(1), id=name) for name in ("old", "held"))
    for each in (old, held):
        ledger.put_class(each)
    ledger.reserve([Seat("uid", "ns", "pod", "held", "n")])
    ledger.retire_classes(["old", "held"], ())
    assert ledger.classes.keys() == {"old", "held"}, "an answer under way may name them"
    ledger.retire_classes([], ["old"])
    assert ledger.classes.keys() == {"old", "held"}, "a nomination names it, and a pod has a reservation"
    ledger.retire_classes([], ())
    assert ledger.classes.keys() == {"held"}
    ledger.release(["uid"])
    ledger.retire_classes([], ())
    assert not ledger.classes and not ledger.capacity.classes
    ledger.put_class(old)
    assert ledger.could_take("n", "old")


def test_a_class_that_comes_back_is_kept() -> None:
    ledger = Ledger()
    ledger.put_class(pod_class(1))
    ledger.retire_classes([CLASS], ())
    ledger.put_class(pod_class(1))
    ledger.retire_classes([], ())
    assert CLASS in ledger.classes

"""Demands of claims are part of a pod's class; reasons to wait are problems of the pod."""

from typing import Any

import pytest

from builders.clusterstate.history import History, pod_object, settle
from builders.kube.storage import claim_object, class_object, in_zones, using, volume_object, zone_term
from muster.gangs.facts import Batch, NodeOperator, NodeRequirement, NodeSelectorTerm, PodClass, PodFacts
from muster.kube.api_resources import CLAIMS, PODS, STORAGE_CLASSES, VOLUMES

ZONE = "topology.kubernetes.io/zone"
TERMS = {zone: (NodeSelectorTerm((NodeRequirement(ZONE, NodeOperator.IN, (zone,)),)),) for zone in "ab"}
ONE_POD = ("ReadWriteOncePod",)


def pod(name: str = "a", *claims: str, **more: Any) -> dict[str, Any]:
    return pod_object(name, volumes=using(*(claims or ("c",))), **more)


def facts(history: History, name: str = "a") -> PodFacts:
    return history.state.pods.facts[f"uid-{name}"]


def class_of(history: History, name: str = "a") -> PodClass:
    return history.state.pods.classes[facts(history, name).class_id]


def streamed(batch: Batch) -> set[str]:
    return {each.name for each in batch.pods}


def with_bound_claim() -> History:
    history = History()
    history.put(VOLUMES, volume_object("v", zone_term("a")))
    history.put(CLAIMS, claim_object("c", volume="v"))
    return history


class TestBound:
    def test_the_nodes_of_the_volume_are_in_the_class(self) -> None:
        history = with_bound_claim()
        history.pods(pod())
        assert class_of(history).volumes == (TERMS["a"],)
        assert (facts(history).claims, facts(history).problem) == ((), "")

    def test_a_volume_that_is_everywhere_makes_no_class_of_its_own(self) -> None:
        history = History()
        history.put(VOLUMES, volume_object("v"))
        history.put(CLAIMS, claim_object("c", volume="v"))
        history.pods(pod(), pod_object("b"))
        assert facts(history).class_id == facts(history, "b").class_id

    def test_every_claim_has_a_say_and_equal_demands_are_one(self) -> None:
        history = with_bound_claim()
        history.put(VOLUMES, volume_object("w", zone_term("b")), volume_object("x", zone_term("a")))
        history.put(CLAIMS, claim_object("d", volume="w"), claim_object("e", volume="x"))
        history.pods(pod("a", "c", "d", "e"))
        assert set(class_of(history).volumes) == {TERMS["a"], TERMS["b"]}

    def test_a_volume_that_is_not_there_is_named(self) -> None:
        history = with_bound_claim()
        history.pods(pod())
        assert streamed(history.remove(VOLUMES, "uid-volume-v")) == {"a"}
        assert facts(history).problem == (
            'PersistentVolume "v" of PersistentVolumeClaim "c" is not known: it does not exist'
        )
        batch = history.put(VOLUMES, volume_object("v", zone_term("b")))
        assert (streamed(batch), batch.changed) == ({"a"}, {"persistentvolumes": 5})
        assert (class_of(history).volumes, facts(history).problem) == ((TERMS["b"],), "")

    def test_one_that_is_to_be_bound_by_hand_is_waited_for(self) -> None:
        history = with_bound_claim()
        history.put(CLAIMS, claim_object("c", volume="v", bound=False))
        history.put(STORAGE_CLASSES, class_object())
        history.pods(pod())
        assert facts(history).problem == 'waits for PersistentVolumeClaim "c" to be bound'

    def test_a_pod_on_a_node_waits_for_nothing(self) -> None:
        history = with_bound_claim()
        history.put(CLAIMS, claim_object("c", volume="v", deleting=True))
        history.pods(pod(node="n"))
        assert facts(history).problem == ""

    def test_pods_of_others_keep_to_few_classes(self) -> None:
        history = with_bound_claim()
        history.pods(pod(scheduler="other", node="n"), pod("b", "none", scheduler="other", node="n"))
        assert facts(history).class_id == facts(history, "b").class_id
        assert class_of(history).volumes == ()
        assert facts(history, "b").problem == ""


class TestWaitingForFirstConsumer:
    def test_it_may_be_where_the_class_allows_and_is_named(self) -> None:
        history = History()
        history.put(STORAGE_CLASSES, class_object(topologies=in_zones("a")))
        history.put(CLAIMS, claim_object("c"))
        history.pods(pod())
        assert class_of(history).volumes == (TERMS["a"],)
        assert (facts(history).claims, facts(history).problem) == (("c",), "")

    def test_anywhere(self) -> None:
        history = History()
        history.put(STORAGE_CLASSES, class_object())
        history.put(CLAIMS, claim_object("d"), claim_object("c"))
        history.pods(pod("a", "d", "c"))
        assert (class_of(history).volumes, facts(history).claims) == ((), ("c", "d"))

    def test_one_for_which_a_node_was_chosen_stays_there(self) -> None:
        history = History()
        history.put(STORAGE_CLASSES, class_object())
        history.put(CLAIMS, claim_object("c", annotations={"volume.kubernetes.io/selected-node": "n"}))
        history.pods(pod())
        on_n = NodeSelectorTerm((), (NodeRequirement("metadata.name", NodeOperator.IN, ("n",)),))
        assert (class_of(history).volumes, facts(history).claims) == (((on_n,),), ("c",))

    def test_once_it_is_bound_the_volume_has_the_say(self) -> None:
        history = History()
        history.put(STORAGE_CLASSES, class_object(topologies=in_zones("a", "b")))
        history.put(CLAIMS, claim_object("c"))
        history.pods(pod())
        history.put(VOLUMES, volume_object("v", zone_term("b")))
        batch = history.put(CLAIMS, claim_object("c", volume="v"))
        assert (streamed(batch), batch.changed) == ({"a"}, {"persistentvolumeclaims": 5})
        assert (class_of(history).volumes, facts(history).claims) == ((TERMS["b"],), ())

    def test_a_class_that_cannot_be_read_is_quoted(self) -> None:
        history = History()
        history.put(STORAGE_CLASSES, class_object(topologies="a"))
        history.put(CLAIMS, claim_object("c"))
        history.pods(pod())
        assert 'StorageClass "fast" of PersistentVolumeClaim "c": allowedTopologies is' in facts(history).problem


class TestWaiting:
    @pytest.mark.parametrize("mode", ["Immediate", None])
    def test_for_a_volume_that_comes_at_once(self, mode: str | None) -> None:
        history = History()
        history.put(STORAGE_CLASSES, class_object(mode=mode))
        history.put(CLAIMS, claim_object("c"))
        history.pods(pod())
        assert facts(history).problem == 'waits for PersistentVolumeClaim "c" to be bound'
        history.put(VOLUMES, volume_object("v"))
        batch = history.put(CLAIMS, claim_object("c", volume="v"))
        assert (streamed(batch), facts(history).problem) == ({"a"}, "")

    def test_without_class(self) -> None:
        history = History()
        history.put(CLAIMS, claim_object("c", storage_class=None))
        history.pods(pod())
        assert facts(history).problem == 'waits for PersistentVolumeClaim "c" to be bound'

    def test_for_a_class_that_is_not_there(self) -> None:
        history = History()
        history.put(CLAIMS, claim_object("c"))
        history.pods(pod())
        assert facts(history).problem.endswith('its StorageClass "fast" is not known: it does not exist')
        assert streamed(history.put(STORAGE_CLASSES, class_object())) == {"a"}
        assert (facts(history).problem, facts(history).claims) == ("", ("c",))
        assert streamed(history.remove(STORAGE_CLASSES, "uid-class-fast")) == {"a"}

    def test_for_a_claim_that_is_not_there(self) -> None:
        history = with_bound_claim()
        history.pods(pod("a", "c", "d"))
        assert facts(history).problem == 'PersistentVolumeClaim "d" does not exist'
        assert streamed(history.put(CLAIMS, claim_object("d", volume="v"))) == {"a"}
        assert facts(history).problem == ""
        assert streamed(history.remove(CLAIMS, "uid-claim-ml-c")) == {"a"}
        assert facts(history).problem == 'PersistentVolumeClaim "c" does not exist'

    def test_a_claim_of_another_namespace_is_another(self) -> None:
        history = with_bound_claim()
        history.pods(pod(namespace="dev"))
        assert facts(history).problem == 'PersistentVolumeClaim "c" does not exist'

    def test_one_that_was_made_anew_is_not_taken_for_gone(self) -> None:
        history = with_bound_claim()
        history.put(CLAIMS, claim_object("c", volume="v", uid="two"))
        history.pods(pod())
        assert history.remove(CLAIMS, "uid-claim-ml-c").pods == ()
        assert facts(history).problem == ""

    @pytest.mark.parametrize(
        ("more", "words"), [({"deleting": True}, "is being deleted"), ({"phase": "Lost"}, 'has lost its volume "v"')]
    )
    def test_for_a_claim_that_is_on_its_way_out(self, more: Any, words: str) -> None:
        history = History()
        history.put(CLAIMS, claim_object("c", volume="v", **more))
        history.pods(pod())
        assert words in facts(history).problem

    def test_what_else_is_wrong_with_the_pod_is_told_too(self) -> None:
        history = History()
        history.pods(pod(cpu="junk"))
        assert '"junk"' in facts(history).problem and "does not exist" in facts(history).problem
        history.put(VOLUMES, volume_object("v"))
        history.put(CLAIMS, claim_object("c", volume="v"))
        assert '"junk"' in facts(history).problem and "does not exist" not in facts(history).problem

    @pytest.mark.parametrize(
        ("kind", "words"),
        [
            (CLAIMS, 'PersistentVolumeClaim "c" is not known: cluster-state has no right to list and watch'),
            (VOLUMES, 'PersistentVolume "v" of PersistentVolumeClaim "c" is not known: cluster-state has no right'),
            (STORAGE_CLASSES, 'StorageClass "fast" is not known: cluster-state has no right'),
        ],
    )
    def test_for_the_right_to_read(self, kind: Any, words: str) -> None:
        history = History(settled=False)
        if kind is not CLAIMS:
            history.put(CLAIMS, claim_object("c", volume="v" if kind is VOLUMES else ""))
        history.pods(pod())
        settle(history.state, [kind.kind])
        assert words in facts(history).problem


class TestEphemeral:
    def pod(self, **more: Any) -> dict[str, Any]:
        return pod_object("a", volumes=using(ephemeral=("scratch",)), **more)

    def test_its_claim_is_waited_for(self) -> None:
        history = History()
        history.put(STORAGE_CLASSES, class_object())
        history.pods(self.pod())
        words = 'waits for PersistentVolumeClaim "a-scratch" to be created for its ephemeral volume'
        assert facts(history).problem == words
        assert streamed(history.put(CLAIMS, claim_object("a-scratch", owner="uid-a"))) == {"a"}
        assert (facts(history).problem, facts(history).claims) == ("", ("a-scratch",))

    def test_a_claim_of_another_owner_is_a_problem(self) -> None:
        history = History()
        history.put(CLAIMS, claim_object("a-scratch"))
        history.pods(self.pod())
        assert "was not created for the pod" in facts(history).problem


class TestOnePodAtATime:
    def history(self) -> History:
        history = History()
        history.put(VOLUMES, volume_object("v"))
        history.put(CLAIMS, claim_object("c", volume="v", modes=ONE_POD))
        return history

    def test_a_pod_on_a_node_has_it(self) -> None:
        history = self.history()
        history.pods(pod("a"))
        batch = history.pods(pod("b", scheduler="other", node="n", second=9))
        assert streamed(batch) == {"a", "b"}
        assert facts(history).problem.endswith('(ReadWriteOncePod), and pod "b" has it')
        assert streamed(history.remove(PODS, "uid-b")) == {"a"}
        assert facts(history).problem == ""

    def test_of_pods_that_wait_the_first_has_it(self) -> None:
        history = self.history()
        history.pods(pod("b", second=2), pod("a", second=1))
        assert facts(history).problem == ""
        assert facts(history, "b").problem.endswith('and pod "a" has it')
        assert streamed(history.pods(pod("a", second=1, node="n", phase="Succeeded"))) == {"a", "b"}
        assert facts(history, "b").problem == ""

    def test_others_may_be_shared(self) -> None:
        history = with_bound_claim()
        history.pods(pod("a"), pod("b", node="n"))
        assert facts(history).problem == facts(history, "b").problem == ""


def test_a_pod_raises_the_revision_of_its_claim() -> None:
    history = with_bound_claim()
    assert history.pods(pod_object("b")).changed == {"pods": 3}
    assert history.pods(pod()).changed == {"persistentvolumes": 1, "persistentvolumeclaims": 2, "pods": 4}


def test_an_unused_claim_is_not_sent() -> None:
    history = with_bound_claim()
    history.pods(pod_object("b"))
    assert history.put(CLAIMS, claim_object("d", volume="v")) == Batch(
        through={"pods": 3, "persistentvolumes": 1, "persistentvolumeclaims": 4}
    )


def test_a_claim_change_without_new_facts_is_not_sent() -> None:
    history = with_bound_claim()
    history.pods(pod())
    assert history.put(CLAIMS, claim_object("c", volume="v", annotations={"note": "x"})).pods == ()
    assert history.put(VOLUMES, volume_object("v", zone_term("a"))).pods == ()


def test_a_pod_that_uses_it_no_more() -> None:
    history = with_bound_claim()
    history.pods(pod("a", "c", "d"), pod_object("b"))
    history.pods(pod_object("a"))
    assert facts(history).problem == ""
    assert facts(history).class_id == facts(history, "b").class_id
    assert history.remove(CLAIMS, "uid-claim-ml-c").pods == ()


def test_volumes_are_let_go_with_their_pods() -> None:
    history = with_bound_claim()
    history.pods(pod())
    history.remove(PODS, "uid-a")
    assert history.put(CLAIMS, claim_object("c")).pods == ()

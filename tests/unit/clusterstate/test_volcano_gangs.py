"""PodGroups of Volcano and kube-batch, which pods name by the same annotation: the one that exists decides."""

from builders.clusterstate.history import History, Object, pod_object
from muster.dialects import kube_batch, volcano
from muster.gangs.facts import Batch, GangFacts, Severity
from muster.kube.api_resources import definitions

VOLCANO = definitions(volcano.DEFINITION)
KUBE_BATCH = definitions(kube_batch.DEFINITION)
NAME = "scheduling.k8s.io/group-name"
TASK = "volcano.sh/task-spec"


def member(name: str, task: str = "", *, deleting: bool = False) -> Object:
    marks = {TASK: task} if task else {}
    return pod_object(name, annotations={NAME: "g", **marks}, labels=marks, deleting=deleting)


def group(kind: str, minimum: int, *, second: int = 0, **spec: object) -> Object:
    api_version = {"volcano": "scheduling.volcano.sh/v1beta1", "kube-batch": "scheduling.incubator.k8s.io/v1alpha1"}
    return {
        "apiVersion": api_version[kind],
        "kind": "PodGroup",
        "metadata": {
            "name": "g",
            "namespace": "ml",
            "uid": f"uid-{kind}",
            "creationTimestamp": f"2026-01-01T00:00:{second:02d}Z",
        },
        "spec": {"minMember": minimum, **spec},
    }


def only_gang(batch: Batch) -> GangFacts:
    (gang,) = batch.gangs
    return gang


def test_pods_wait_for_either_kind_and_the_one_that_comes_is_read() -> None:
    for kind, resource in (("volcano", VOLCANO), ("kube-batch", KUBE_BATCH)):
        history = History()
        waiting = only_gang(history.pods(member("a")))
        assert waiting.blocked
        gang = only_gang(history.put(resource, group(kind, 2)))
        assert (gang.id, gang.dialect, gang.minimum, gang.blocked) == (waiting.id, kind, 2, False)


def test_of_both_kinds_the_older_is_used_until_it_is_deleted() -> None:
    history = History()
    history.pods(member("a"))
    history.put(KUBE_BATCH, group("kube-batch", 3, second=5))
    both = only_gang(history.put(VOLCANO, group("volcano", 2, second=4)))
    assert (both.dialect, both.minimum, both.incarnation) == ("volcano", 2, "uid-volcano")
    assert [problem.severity for problem in both.problems] == [Severity.WARNING]
    left = only_gang(history.remove(VOLCANO, "uid-volcano"))
    assert (left.id, left.dialect, left.minimum, left.problems) == (both.id, "kube-batch", 3, ())


def test_a_pod_group_without_pods_is_a_gang() -> None:
    assert only_gang(History().put(VOLCANO, group("volcano", 2))).minimum == 2


def test_pods_of_each_task_are_counted_as_they_come_and_go() -> None:
    history = History()
    history.put(VOLCANO, group("volcano", 2, minTaskMember={"ps": 1, "worker": 1}))
    assert not history.pods(member("w-0", "worker")).gangs
    short = only_gang(history.pods(member("w-1", "worker")))
    assert "of which 0 pods exist" in short.problems[0].message
    surplus = only_gang(history.pods(member("ps-0", "ps")))
    assert [each.name for each in surplus.subgroups] == ["task ps", "task worker"]
    assert only_gang(history.pods(member("w-1", "worker", deleting=True))).subgroups == ()


def test_without_minima_per_task_another_pod_does_not_change_the_gang() -> None:
    history = History()
    history.put(VOLCANO, group("volcano", 2))
    history.pods(member("w-0", "worker"))
    assert history.pods(member("w-1", "worker")).gangs == ()

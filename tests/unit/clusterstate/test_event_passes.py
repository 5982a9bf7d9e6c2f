"""Events are listed for namespaces with incomplete gangs only, in turn, at a bounded rate."""

from collections import Counter
from collections.abc import Callable

from builders.clusterstate.history import History, Object, pod_group_object, pod_object
from muster.clusterstate.event_passes import EventPasses, Pace
from muster.kube.api_resources import PODS
from muster.kube.creation_failures import CreationFailure, EventPage

PACE = Pace()
EMPTY = EventPage(())
Respond = Callable[[str, str], EventPage]


def pod(namespace: str, gang: str = "g", owner: str | None = None, minimum: int = 2, number: int = 0) -> Object:
    marks = {
        "gang.scheduling.koordinator.sh/name": gang,
        "gang.scheduling.koordinator.sh/min-available": str(minimum),
    }
    name = f"{gang}-{number}"
    owner = f"job-{namespace}-{gang}" if owner is None else owner
    return pod_object(name, uid=f"{namespace}-{name}", namespace=namespace, owner=owner, annotations=marks)


class Lists:
    """Requests pages as the task does, with a clock of its own."""

    def __init__(self, *pods: Object) -> None:
        self.history = History()
        self.history.pods(*pods)
        self.passes = EventPasses(self.history.state.gangs, PACE)
        self.now = 0.0
        self.requests: list[tuple[float, str]] = []

    def run(self, seconds: float, respond: Respond = lambda namespace, token: EMPTY, took: float = 0.0) -> Counter[str]:
        """Let time pass; returns the number of requests by namespace."""
        first, end = len(self.requests), self.now + seconds
        while self.now < end:
            if (request := self.passes.next(self.now)) is not None:
                self.requests.append((self.now, request.namespace))
                page = respond(request.namespace, request.continue_token)
                found = self.passes.take(request.namespace, page, took, self.now)
                self.history.state.note_creation_failures(found)
            self.now += PACE.request
        return Counter(namespace for _, namespace in self.requests[first:])

    def times(self, namespace: str) -> list[float]:
        return [now for now, each in self.requests if each == namespace]

    def reported(self, gang_id: str) -> str:
        return self.history.state.gangs.facts[gang_id].creation_failure


def test_nothing_is_listed_while_gangs_are_complete_or_still_being_created() -> None:
    lists = Lists(pod("a"), pod("b"), pod("b", number=1), pod_object("plain"))
    assert lists.run(PACE.creation) == {}
    lists.history.pods(pod("a", number=1))
    assert lists.run(600) == {}
    assert len(lists.passes) == 0


def test_an_incomplete_gang_is_looked_at_again_after_a_pause() -> None:
    lists = Lists(pod("a"))
    lists.run(PACE.creation + 2 * PACE.pause + 1)
    assert lists.times("a") == [PACE.creation + number * PACE.pause for number in range(3)]


def test_one_list_serves_all_gangs_of_a_namespace() -> None:
    lists = Lists(*(pod("a", f"g{number}") for number in range(200)))

    def respond(namespace: str, token: str) -> EventPage:
        return EventPage(tuple(CreationFailure(f"job-a-g{number}", 2**31, f"no {number}") for number in range(200)))

    assert lists.run(PACE.pause, respond) == {"a": 1}
    assert lists.reported("koordinator/a/g0") == "no 0"
    assert lists.reported("koordinator/a/g199") == "no 199"


def test_another_incomplete_gang_is_looked_at_sooner() -> None:
    lists = Lists(pod("a"))
    lists.run(PACE.creation + 1)
    lists.history.pods(pod("a", "late"))
    lists.run(PACE.pause)
    assert lists.times("a")[:2] == [PACE.creation, PACE.creation + PACE.news]


def test_gangs_without_controllers_cost_no_request() -> None:
    lists = Lists(pod("a", owner=""))
    assert lists.run(300) == {}


def test_i13_a_namespace_with_many_events_does_not_delay_others() -> None:
    lists = Lists(pod("flood"), pod("a"), pod("b"))

    def respond(namespace: str, token: str) -> EventPage:
        return EventPage((), "more") if namespace == "flood" else EMPTY

    counts = lists.run(300, respond)
    assert counts["a"] == counts["b"] == 10
    assert len(lists.requests) <= 300 / PACE.request
    assert all(time <= PACE.creation + 2 for time in (lists.times("a")[0], lists.times("b")[0]))


def test_i13_namespaces_take_turns_when_there_are_more_than_the_rate_allows() -> None:
    names = [f"n{number}" for number in range(300)]
    lists = Lists(*(pod(name) for name in names))
    counts = lists.run(600)
    assert set(counts) == set(names)
    assert max(counts.values()) - min(counts.values()) <= 1
    assert len(lists.requests) <= 600 / PACE.request


def test_a_list_that_takes_long_is_repeated_later() -> None:
    lists = Lists(pod("slow"))
    assert lists.run(600, took=3.0) == {"slow": 2}


def test_the_newest_failure_of_all_pages_counts() -> None:
    lists = Lists(pod("a"))
    pages = {
        "": EventPage((CreationFailure("job-a-g", 2**31, "old"), CreationFailure("other", 2**32, "other")), "2"),
        "2": EventPage((CreationFailure("job-a-g", 2**31 + 5, "new"),), "3"),
        "3": EventPage((CreationFailure("job-a-g", 2**31 + 2, "older"),)),
    }
    assert lists.run(PACE.creation + 3 * PACE.request, lambda namespace, token: pages[token]) == {"a": 3}
    assert lists.reported("koordinator/a/g") == "new"


def refused(name: str, uid: str, seconds: int = 0) -> CreationFailure:
    return CreationFailure(uid, 2**31 + seconds, f"Job {name}: exceeded quota: team", name)


def test_a_controller_of_which_no_pod_exists_is_known_by_its_name() -> None:
    lists = Lists()
    lists.history.pod_groups(*(pod_group_object(name, namespace="a") for name in ("train", "other", "ra")))
    found = EventPage((refused("train-worker", "1", 5), refused("train", "2"), refused("rain-1", "3")))
    lists.run(PACE.creation + 1, lambda namespace, token: found)
    assert lists.reported("coscheduling/a/train") == "Job train-worker, by its name: exceeded quota: team"
    assert lists.reported("coscheduling/a/other") == lists.reported("coscheduling/a/ra") == ""


def test_a_known_controller_counts_and_no_other_of_the_name() -> None:
    lists = Lists(pod("a", "train", owner="uid-job"))
    found = EventPage((refused("train", "of-others", 5), refused("job", "uid-job")))
    lists.run(PACE.creation + 1, lambda namespace, token: found)
    assert lists.reported("koordinator/a/train") == "Job job: exceeded quota: team"


def test_what_is_known_stays_when_a_list_fails() -> None:
    lists = Lists(pod("a"))
    found = EventPage((CreationFailure("job-a-g", 2**31, "no"),))
    lists.run(PACE.creation + 1, lambda namespace, token: found)
    lists.now += PACE.pause
    assert lists.passes.next(lists.now) is not None
    lists.passes.fail("a", lists.now)
    assert lists.passes.next(lists.now) is None
    assert lists.reported("koordinator/a/g") == "no"


def test_a_namespace_that_is_gone_during_its_pass_is_forgotten() -> None:
    lists = Lists(pod("a"))
    lists.now = PACE.creation
    assert lists.passes.next(0) is None
    request = lists.passes.next(lists.now)
    assert request is not None
    lists.history.remove(PODS, "a-g-0")
    assert lists.passes.take(request.namespace, EMPTY, 0.0, lists.now) == {}
    assert lists.passes.next(lists.now) is None
    assert len(lists.passes) == 0
    lists.passes.fail(request.namespace, lists.now)

"""A gang at the head that cannot be placed for too long gets room kept for it, and starts (I8)."""

from builders.core.actions import ends
from builders.core.objects import gang, node, plain_pod
from builders.core.world import Story
from muster.gangs.facts import PodPhase


def test_g47_a_gang_that_needs_the_whole_cluster_starts_under_an_endless_stream() -> None:
    story = Story({f"n{index}": 8 for index in range(4)})
    running: list[tuple[float, str]] = []
    count = 0

    def stream(seconds: float) -> None:
        """Gangs of 4 come for ever, each pod runs 6 to 14 s, and there is always one that waits."""
        nonlocal count
        until = story.now + seconds
        while story.now < until:
            waiting = [pod for pod in story.cluster.pods.values() if not pod.node and pod.name.startswith("s")]
            if len(waiting) < 8:
                count += 1
                story.add(gang(f"s{count}").of(4).created(int(story.now)))
            known = {uid for _, uid in running}
            for uid, pod in story.cluster.pods.items():
                if pod.node and pod.name.startswith("s") and uid not in known:
                    running.append((story.now + 6 + len(running) % 9, uid))
            for at, uid in running:
                if at <= story.now and story.cluster.pods[uid].phase is PodPhase.RUNNING:
                    ends(story, uid)
            story.pass_time(0.5)

    stream(20)
    story.add(gang("whole").of(32).created(int(story.now)))
    began = story.now
    while not story.bound("whole"):
        stream(1)
        assert story.now - began < 30 + 14 + 2, "starvationAfter, and the longest that runs"
    assert story.bound("whole") == 32


def test_smaller_work_that_ends_in_time_may_use_the_room() -> None:
    story = Story({"n": 4, "m": 4})
    runs = gang("runs").of(4).expected(100)
    story.add(runs)
    story.run()
    story.add(gang("head").of(8).created(5))
    story.pass_time(31)
    assert story.leader.cache.kept
    story.add(gang("short").of(2).expected(30).created(40), gang("long").of(2).expected(3000).created(39))
    story.run_effects()
    assert (story.bound("short"), story.bound("long")) == (2, 0)
    for pod in runs.pods():
        ends(story, pod.uid)
    story.run_effects()
    assert story.bound("head") == 0, "the short one still runs"
    for pod in [pod for pod in story.cluster.pods.values() if pod.gang.endswith("/short")]:
        ends(story, pod.uid)
    story.run_effects()
    assert story.bound("head") == 8
    assert story.bound("long") == 0


def test_what_fits_beside_may_start() -> None:
    story = Story({"n": 4, "m": 4})
    story.add(gang("runs").of(6))
    story.run()
    story.add(gang("head").of(4, cpu=1).created(5))
    story.pass_time(31)
    (kept,) = story.leader.cache.kept.values()
    assert sum(kept.room.values()) == 4
    story.change(nodes=[node("k", 1)])
    story.add_pods(plain_pod("p", age=50))
    story.run_effects()
    assert story.cluster.pods["default/p"].node == "k"


def test_where_it_can_start_soonest() -> None:
    story = Story({"n": 4, "m": 4})
    story.add(gang("long").of(4).expected(1000), gang("soon").of(4).expected(60))
    story.run()
    soon = {pod.node for pod in story.cluster.pods.values() if pod.gang.endswith("/soon")}
    story.add(gang("head").of(4).created(5))
    story.pass_time(31)
    (kept,) = story.leader.cache.kept.values()
    assert {name for name, _ in kept.room} == soon


def test_a_gang_that_no_cluster_could_take_keeps_nobody_waiting() -> None:
    story = Story({"n": 4})
    story.add(gang("runs").of(2))
    story.run()
    story.add(gang("head").of(5).created(5))
    story.pass_time(100)
    assert not story.leader.cache.kept
    solves = len(story.solves)
    story.pass_time(1000)
    assert len(story.solves) == solves
    story.add_pods(plain_pod("p", age=50))
    story.run_effects()
    assert story.cluster.pods["default/p"].node


def test_the_room_is_everybodys_again_when_the_head_goes() -> None:
    story = Story({"n": 4})
    story.add(gang("runs").of(2))
    story.run()
    head = gang("head").of(4).created(5)
    story.add(head)
    story.pass_time(31)
    story.add_pods(plain_pod("p", age=50))
    story.run_effects()
    assert not story.cluster.pods["default/p"].node
    story.delete(head)
    story.run_effects()
    assert story.cluster.pods["default/p"].node
    assert not story.leader.cache.kept


def test_room_is_kept_elsewhere_when_its_node_goes() -> None:
    story = Story({"n": 4, "m": 4})
    story.add(gang("a").of(4).expected(1000), gang("b").of(4).expected(50))
    story.run()
    story.add(gang("head").of(4).created(5))
    story.pass_time(31)
    (kept,) = story.leader.cache.kept.values()
    ((lost, _),) = kept.room
    story.change(remove_nodes=[lost])
    story.run_effects()
    story.pass_time(62)
    (kept,) = story.leader.cache.kept.values()
    assert lost not in {name for name, _ in kept.room}


def test_g50_alike_gangs_that_wait_for_strangers_ask_nothing_without_a_cause() -> None:
    story = Story({"n": 8})
    for index in range(8):
        story.intrude(plain_pod(f"x{index}"), "n")
    story.add(*[gang(f"g{index:02}").of(4).created(index) for index in range(100)])
    story.run_effects()
    story.pass_time(5)
    solves = len(story.solves)
    story.pass_time(3600)
    assert len(story.solves) == solves


def test_i8_those_behind_the_one_that_room_is_kept_for_come_after_it() -> None:
    story = Story({"n": 4, "m": 4})
    story.add(gang("a").of(4).expected(100), gang("b").of(4).expected(200))
    story.run()
    story.add(gang("first").of(8).created(5), gang("second").of(8).created(6))
    story.pass_time(100)
    asked = len(story.solves)
    story.pass_time(60)
    assert len(story.solves) == asked, "nothing has changed"
    for pod in [pod for pod in story.cluster.pods.values() if pod.node]:
        ends(story, pod.uid)
    story.run_effects()
    assert story.bound("first") == 8
    story.pass_time(2)
    (kept,) = story.leader.cache.kept.values()
    assert kept.owner == "test/default/second"

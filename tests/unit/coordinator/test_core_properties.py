"""The invariants hold whatever happens in whatever order: users, nodes, late news, failures and crashes."""

from dataclasses import dataclass

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from builders.story import Story
from builders.story_cast import GangBuilder, gang, node, plain_pod, pod_class
from builders.story_invariants import check_quiet
from muster.coordinator.core.events import Bind, BindResults, NotPersisted, Persist, Solve, SolveFailed
from muster.coordinator.core.reasons import reason
from muster.coordinator.core.solving import to_place
from muster.gangs.facts import MatchPolicy, PodFacts, PodPhase

SLOTS = 4
"""Gangs by number: a and b on their own, c and d one gang group."""


@dataclass(frozen=True)
class Act:
    """Something that happens; `which` and `how` choose among what there is."""

    what: str
    which: int
    how: int


KINDS = [
    *["nothing", "create", "members", "effect", "effect", "effect", "effect", "deliver", "deliver"],
    *["delete gang", "delete pod", "end pod", "minimum", "node", "lose node", "cordon", "intrude"],
    *["break bind", "fail solve", "some binds", "repeat results", "crash", "time", "plain"],
    *["blink", "refuse permit", "fail bind", "bind elsewhere", "resize", "shrink", "spoil", "gate", "regroup"],
    *["move pod", "declare anew"],
]
ACTS = st.builds(Act, st.sampled_from(KINDS), st.integers(0, 1000), st.integers(0, 1000))


class Play:
    """Acts on a story."""

    def __init__(self) -> None:
        self.story = Story({"n0": 4, "n1": 3})
        self.story.lagging = True
        self.gangs: dict[int, GangBuilder] = {}
        self.count = 0

    def act(self, act: Act) -> None:
        getattr(self, "do_" + act.what.replace(" ", "_"))(act.which, act.how)

    def do_nothing(self, which: int, how: int) -> None:
        """What a story that is longer than it need be is filled with."""

    # -- users

    def do_create(self, which: int, how: int) -> None:
        slot = which % SLOTS
        if slot in self.gangs:
            return
        self.count += 1
        size = 1 + how % 4
        built = gang("abcd"[slot]).of(size, cpu=1 + how % 2).priority(how % 3).anew(str(self.count))
        built = built.minimum(max(1, size - how % 2))
        built = built.policy(list(MatchPolicy)[which // SLOTS % len(MatchPolicy)])
        if slot >= 2:
            built = built.with_group("default/c", "default/d")
        self.gangs[slot] = built
        self.story.change(gangs=[built.gang_facts()], pods=built.pods()[: how % (size + 1)])

    def do_members(self, which: int, how: int) -> None:
        if built := self.gangs.get(which % SLOTS):
            there = {(pod.gang, pod.name) for pod in self.story.cluster.pods.values()}
            missing = [pod for pod in built.pods() if (pod.gang, pod.name) not in there]
            self.story.change(pods=[self._anew(pod) for pod in missing[: 1 + how % 4]])

    def do_minimum(self, which: int, how: int) -> None:
        if built := self.gangs.get(which % SLOTS):
            self.gangs[which % SLOTS] = built.minimum(1 + how % 5)
            self.story.change(gangs=[self.gangs[which % SLOTS].gang_facts()])

    def do_delete_gang(self, which: int, how: int) -> None:
        if built := self.gangs.pop(which % SLOTS, None):
            pods = [pod.uid for pod in self.story.cluster.pods.values() if pod.gang == built.id]
            self.story.change(remove_pods=pods, remove_gangs=[built.id])

    def do_plain(self, which: int, how: int) -> None:
        self.count += 1
        name = f"p{which % 3}"
        namesakes = [pod.uid for pod in self.story.cluster.pods.values() if pod.name == name]
        self.story.change(remove_pods=namesakes)
        self.story.add_pods(plain_pod(name, cpu=1 + how % 2, uid=f"p{self.count}"))

    def do_delete_pod(self, which: int, how: int) -> None:
        if pod := self._pod(which):
            self.story.change(remove_pods=[pod.uid])

    def do_end_pod(self, which: int, how: int) -> None:
        if (pod := self._pod(which)) and pod.node:
            self.story.change(pods=[replace(pod, phase=PodPhase.SUCCEEDED)])

    def do_resize(self, which: int, how: int) -> None:
        if pod := self._pod(which):
            size = self.story.cluster.cpu(pod) // 1000
            if not pod.seated or size > 1:  # running pods only shrink: growing is the kubelet's to allow
                self._resize(pod, 1 + how % (size if pod.node else 3))

    def _resize(self, pod: PodFacts, cpu: int) -> None:
        self.story.shared_nodes |= set(self.story.cluster.nodes)  # the seat that it may have was for another size
        self.story.change(pods=[replace(pod, class_id=pod_class(cpu).id)])

    def do_spoil(self, which: int, how: int) -> None:
        """Something is wrong with a waiting pod, or no longer."""
        if (pod := self._pod(which)) and not pod.node:
            self.story.change(pods=[replace(pod, problem="" if pod.problem else "bad request")])

    def do_gate(self, which: int, how: int) -> None:
        """Gates are given at birth and only taken away."""
        if (pod := self._pod(which)) and pod.gated:
            self.story.change(pods=[replace(pod, gated=False)])
        elif built := self.gangs.get(which % SLOTS):
            self.story.change(pods=[replace(self._anew(built.pods()[0]), name=f"gated{self.count}", gated=True)])

    def do_regroup(self, which: int, how: int) -> None:
        slot = which % SLOTS
        if built := self.gangs.get(slot):
            groups = [(), ("default/c", "default/d"), ("default/b", "default/c"), ("default/a", "default/b")]
            names = next((names for names in groups[how % 4 :] if not names or f"default/{'abcd'[slot]}" in names), ())
            self.gangs[slot] = built.with_group(*names)
            self.story.change(gangs=[self.gangs[slot].gang_facts()])

    def do_declare_anew(self, which: int, how: int) -> None:
        if built := self.gangs.get(which % SLOTS):
            self.count += 1
            self.gangs[which % SLOTS] = built.anew(str(self.count))
            self.story.change(gangs=[self.gangs[which % SLOTS].gang_facts()])

    def do_move_pod(self, which: int, how: int) -> None:
        """A user gives a pod to another gang."""
        if (pod := self._pod(which)) and pod.gang and (built := self.gangs.get(how % SLOTS)):
            self.story.shared_nodes |= set(self.story.cluster.nodes)  # it may be bound by what was sent before
            self.story.change(pods=[replace(pod, gang=built.id)])

    # -- the cluster

    def do_blink(self, which: int, how: int) -> None:
        """Nothing is seen for a while; what happened meanwhile is seen at once."""
        self.story.blink()

    def do_shrink(self, which: int, how: int) -> None:
        if self._nodes():
            name = self._nodes()[which % len(self._nodes())]
            self.story.shared_nodes.add(name)  # binds to it may be on their way
            facts = self.story.cluster.nodes[name]
            self.story.change(nodes=[replace(facts, allocatable=node(name, how % 4).allocatable)])

    def do_bind_elsewhere(self, which: int, how: int) -> None:
        """Another scheduler binds one of our pods, to a node that is closed to us."""
        if (pod := self._pod(which)) and not (pod.node or pod.gated):
            if "theirs" not in self.story.cluster.nodes:
                self.story.change(nodes=[node("theirs", 1000, unschedulable=True)])
            self.story.bind_elsewhere(pod.uid, "theirs")

    def do_node(self, which: int, how: int) -> None:
        self.story.change(nodes=[node(f"n{which % 4}", 1 + how % 8)]) if f"n{which % 4}" not in self._nodes() else None

    def do_lose_node(self, which: int, how: int) -> None:
        if self._nodes():
            name = self._nodes()[which % len(self._nodes())]
            self.story.shared_nodes.add(name)  # it may come back smaller while binds to it are on their way
            self.story.change(remove_nodes=[name])

    def do_cordon(self, which: int, how: int) -> None:
        if self._nodes():
            facts = self.story.cluster.nodes[self._nodes()[which % len(self._nodes())]]
            self.story.change(nodes=[replace(facts, unschedulable=not facts.unschedulable)])

    def do_intrude(self, which: int, how: int) -> None:
        free = {name: room for name, room in self.story.cluster.free().items() if 1000 <= room < 100_000}
        if free:
            self.count += 1
            self.story.intrude(plain_pod(f"x{self.count}"), sorted(free)[which % len(free)])

    # -- services

    def do_effect(self, which: int, how: int) -> None:
        """One of the things under way is done; writes to etcd stay in order."""
        choices = self._choices()
        if choices:
            self.story.do(choices[which % len(choices)])

    def do_deliver(self, which: int, how: int) -> None:
        self.story.deliver(1 + how % 3)

    def do_break_bind(self, which: int, how: int) -> None:
        binds = [i for i, effect in enumerate(self.story.under_way) if isinstance(effect, Bind)]
        if binds:
            self.story.break_call(binds[which % len(binds)])

    def do_some_binds(self, which: int, how: int) -> None:
        """Some pods are bound, but nobody hears of it; the effect stays and is done again later."""
        binds = [effect for effect in self.story.under_way if isinstance(effect, Bind)]
        if binds:
            bind = binds[which % len(binds)]
            for seat in bind.seats[: how % (len(bind.seats) + 1)]:
                self.story.bind(seat)

    def do_repeat_results(self, which: int, how: int) -> None:
        """Results come twice."""
        binds = [effect for effect in self.story.under_way if isinstance(effect, Bind)]
        if binds:
            bind = binds[which % len(binds)]
            self.story.under_way.remove(bind)
            results = tuple(self.story.bind(seat) for seat in bind.seats)
            self.story.tell(BindResults(results))
            self.story.tell(BindResults(results))

    def do_fail_solve(self, which: int, how: int) -> None:
        solves = [effect for effect in self.story.under_way if isinstance(effect, Solve)]
        if solves:
            self.story.under_way.remove(solves[0])
            self.story.tell(SolveFailed(solves[0].solve_id, "placement is away"))

    def do_refuse_permit(self, which: int, how: int) -> None:
        """A permit is too large to be written."""
        writes = [effect for effect in self.story.under_way if isinstance(effect, Persist)]
        if writes and any(record.seats for record in writes[0].puts):
            self.story.under_way.remove(writes[0])
            self.story.tell(NotPersisted(writes[0].persist_id, "too large"))

    def do_fail_bind(self, which: int, how: int) -> None:
        if pod := self._pod(which):
            self.story.bind_failures[pod.uid] = 1 + how % 3

    def do_crash(self, which: int, how: int) -> None:
        self.story.crash()
        self.story.start()

    def do_time(self, which: int, how: int) -> None:
        self.story.now += how / 100
        self.story.wake()

    # -- the end: all is heard, all is done

    def finish(self) -> None:
        story = self.story
        story.lagging = False
        story.deliver()
        for _ in range(30):
            story.pass_time(15)
            story.deliver()
        assert not story.under_way
        check_quiet(story.leader.knowledge)

    def _choices(self) -> list[int]:
        under_way = self.story.under_way
        first_write = next((i for i, effect in enumerate(under_way) if isinstance(effect, Persist)), None)
        return [i for i, effect in enumerate(under_way) if not isinstance(effect, Persist) or i == first_write]

    def _anew(self, pod: PodFacts) -> PodFacts:
        """No two pods ever have the same uid."""
        self.count += 1
        return replace(pod, uid=f"{pod.uid}#{self.count}")

    def _nodes(self) -> list[str]:
        return sorted(self.story.cluster.nodes.keys() - {"theirs"})

    def _pod(self, which: int) -> PodFacts | None:
        pods = sorted(self.story.cluster.pods)
        return self.story.cluster.pods[pods[which % len(pods)]] if pods else None


@settings(max_examples=max(1500, settings().max_examples), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ACTS, min_size=30, max_size=120))
def test_i1_to_i7_in_any_order_of_events(acts: list[Act]) -> None:
    play = Play()
    for act in acts:
        play.act(act)
    play.finish()
    nothing_waits_that_fits(play.story)
    every_waiting_gang_has_a_reason(play.story)


def nothing_waits_that_fits(story: Story) -> None:
    """I7: with all quiet, no gang that may be tried fits in what is free."""
    for waiting in story.leader.queue.ordered():
        solve = Solve(0, {}, (), (to_place(waiting),))
        (answer,) = story.first_fit(solve)
        assert not answer.runs, f"{waiting.id} fits and is not placed"


def every_waiting_gang_has_a_reason(story: Story) -> None:
    """I10."""
    for found in story.leader.knowledge.gangs.values():
        if found.waiting:
            assert reason(found), f"{found.id} waits in silence"

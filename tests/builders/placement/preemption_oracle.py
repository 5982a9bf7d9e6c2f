"""Small clusters full of potential victims, and the minimal victims for a gang by exhaustive search."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from hypothesis import strategies as st

from builders.placement.clusters import alone, answers, cluster, node, pod_class, potential_victim, refusal
from builders.placement.optimum import FLAT, Case, optimum
from muster.gangs.facts import (
    Batch,
    LevelConstraint,
    LevelPolicy,
    NodeFacts,
    PodClass,
    TopologyTree,
    TreeDomain,
    TreeLevel,
)
from muster.gangs.solve import PotentialVictim, SolveGang, SolveGroup
from muster.placement.preemption.dry_run import DryRun, victim_table
from muster.placement.solve.instance import NotPlaced, Placed, parts_of
from muster.placement.state.capacity import NO_NOMINATIONS
from muster.placement.state.cluster import Cluster

Victims = Mapping[tuple[str, str], int]
"""Number of victims by node and class."""


@dataclass
class Instance:
    """A cluster that is nearly full; all its pods are potential victims."""

    nodes: list[NodeFacts]
    classes: list[PodClass]
    gangs: list[PotentialVictim]
    group: SolveGroup
    tree: TopologyTree = FLAT

    def cluster(self) -> Cluster:
        bound = [
            (f"{gang.id}/{index}/{number}", pods.class_id, pods.node)
            for gang in self.gangs
            for index, pods in enumerate(gang.pods)
            for number in range(pods.count)
        ]
        built = cluster(self.nodes, self.classes, bound)
        built.apply(Batch(trees=(self.tree,)))
        return built

    def answer(self) -> Placed | NotPlaced:
        [answer] = answers(self.cluster(), self.group, removing=self.gangs)
        assert isinstance(answer, Placed | NotPlaced)
        return answer

    def dry_run(self) -> DryRun:
        """The dry run of victim selection, with all the effort that it may need."""
        state = self.cluster().state
        state.refresh()
        table = victim_table(state, self.gangs, NO_NOMINATIONS)
        dry_run = DryRun(state, self.group, parts_of(self.group), table)
        dry_run.limit_effort(10**6)
        return dry_run

    def fits(self, victims: Victims) -> bool:
        """The group fits without these pods (exhaustive)."""
        free = {each.name: dict(each.allocatable) for each in self.nodes}
        for gang in self.gangs:
            for pods in gang.pods:
                self._seat(free, pods.node, pods.class_id, pods.count)
        for (name, class_id), count in victims.items():
            self._seat(free, name, class_id, -count)
        [asked] = self.group.gangs
        if asked.constraints:
            return self._topology_feasible(free)
        members = [role.class_id for role in asked.roles for _ in range(role.wanted)]
        return self._place(free, members, asked.minimum)

    def _topology_feasible(self, free: dict[str, dict[str, int]]) -> bool:
        left = [
            NodeFacts(each.name, allocatable=tuple(free[each.name].items()), labels=each.labels) for each in self.nodes
        ]
        return optimum(Case(left, self.classes, self.group, (self.tree,))) is not None

    def _place(self, free: dict[str, dict[str, int]], members: list[str], needed: int) -> bool:
        if not needed:
            return True
        if len(members) < needed:
            return False
        first, *others = members
        for each in self.nodes:
            if self._may(first, each) and self._fits_on(free[each.name], first):
                self._seat(free, each.name, first, 1)
                found = self._place(free, others, needed - 1)
                self._seat(free, each.name, first, -1)
                if found:
                    return True
        return self._place(free, others, needed)

    def _of(self, class_id: str) -> PodClass:
        return next(each for each in self.classes if each.id == class_id)

    def _may(self, class_id: str, on: NodeFacts) -> bool:
        return all(on.labels.get(key) == value for key, value in self._of(class_id).node_selector)

    def _fits_on(self, free: dict[str, int], class_id: str) -> bool:
        return all(free.get(name, 0) >= amount for name, amount in self._of(class_id).requests)

    def _seat(self, free: dict[str, dict[str, int]], on: str, class_id: str, count: int) -> None:
        for name, amount in self._of(class_id).requests:
            free[on][name] = free[on].get(name, 0) - amount * count

    def best(self) -> tuple[int, tuple[int, ...]] | None:
        """The lowest level and the first of the smallest sets of gangs evicted whole (exhaustive)."""
        if self.fits({}):
            return -1, ()
        for level in sorted({gang.level for gang in self.gangs}):
            allowed = [index for index, gang in enumerate(self.gangs) if gang.level <= level]
            for size in range(len(allowed) + 1):
                for whole in combinations(allowed, size):
                    if any(map(self.fits, self._ways(whole, allowed))):
                        return level, whole
        return None

    def _ways(self, whole: Sequence[int], allowed: Sequence[int]) -> Iterator[Victims]:
        choices = [list(_choices(self.gangs[i], None if i in whole else self.gangs[i].spare)) for i in allowed]
        for way in product(*choices):
            victims: dict[tuple[str, str], int] = {}
            for index, counts in zip(allowed, way, strict=True):
                for pods, count in zip(self.gangs[index].pods, counts, strict=True):
                    victims[pods.node, pods.class_id] = victims.get((pods.node, pods.class_id), 0) + count
            yield victims


def _choices(gang: PotentialVictim, spare: int | None) -> Iterator[tuple[int, ...]]:
    if spare is None:
        yield tuple(pods.count for pods in gang.pods)
        return
    at_most = min(spare, sum(pods.count for pods in gang.pods))
    for counts in product(*(range(pods.count + 1) for pods in gang.pods)):
        if sum(counts) == at_most:
            yield counts


@st.composite
def instances(draw: st.DrawFn, max_roles: int = 1) -> Instance:
    names = [f"n{i}" for i in range(draw(st.integers(1, 3)))]
    classes = [
        pod_class("x"),
        pod_class("y", 2),
        pod_class("z", 3, memory=1),
        pod_class("w", 1, selector={"zone": "a"}),
    ]
    gangs = []
    used = dict.fromkeys(names, 0)
    cpu = {"x": 1, "y": 2, "z": 3, "w": 1}
    for index in range(draw(st.integers(1, 4))):
        pods = draw(
            st.lists(
                st.tuples(st.sampled_from(names), st.sampled_from(["x", "x", "y", "z"]), st.integers(1, 2)),
                min_size=1,
                max_size=3,
            )
        )
        for name, class_id, count in pods:
            used[name] += cpu[class_id] * count
        gangs.append(potential_victim(f"v{index}", *pods, level=draw(st.integers(0, 1)), spare=draw(st.integers(0, 2))))
    nodes = [
        node(name, used[name] + draw(st.integers(0, 1)), labels={"zone": draw(st.sampled_from("ab"))}) for name in names
    ]
    roles = draw(
        st.lists(
            st.tuples(st.sampled_from(["x", "y", "z", "w"]), st.integers(1, 3)),
            min_size=1,
            max_size=max_roles,
            unique_by=lambda role: role[0],
        )
    )
    wanted = sum(count for _, count in roles)
    return Instance(nodes, classes, gangs, alone("g", *roles, minimum=draw(st.integers(max(1, wanted - 1), wanted))))


def check(instance: Instance) -> None:
    best, answer = instance.best(), instance.answer()
    if best is None:
        assert refusal(answer).proved
        assert not refusal(answer).explanation.summary.startswith("0/")
        return
    assert isinstance(answer, Placed), (answer, best)
    by_id = {gang.id: (index, gang) for index, gang in enumerate(instance.gangs)}
    victims: dict[tuple[str, str], int] = {}
    whole = []
    for removed in answer.victims:
        index, gang = by_id[removed.id]
        pods = sum(each.count for each in removed.pods)
        total = sum(each.count for each in gang.pods)
        assert removed.whole == (pods == total)
        assert removed.whole or pods <= gang.spare
        if pods > gang.spare:
            whole.append(index)
        for each in removed.pods:
            victims[each.node, each.class_id] = victims.get((each.node, each.class_id), 0) + each.count
            assert each.count <= sum(p.count for p in gang.pods if (p.node, p.class_id) == (each.node, each.class_id))
    assert instance.fits(victims)
    level = max((by_id[removed.id][1].level for removed in answer.victims), default=-1)
    assert level == best[0]
    assert tuple(whole) == best[1]
    for removed in answer.victims:  # every victim is needed
        units = [[(each.node, each.class_id, each.count) for each in removed.pods]]
        if by_id[removed.id][0] not in whole:
            units = [[(each.node, each.class_id, 1)] for each in removed.pods]
        for unit in units:
            fewer = dict(victims)
            for name, class_id, count in unit:
                fewer[name, class_id] -= count
            assert not instance.fits(fewer), (unit, victims)


_HARD = (
    (LevelConstraint("rack", LevelPolicy.PACK, True),),
    (LevelConstraint("rack", LevelPolicy.PACK, True), LevelConstraint("node", LevelPolicy.SPREAD, True)),
    (LevelConstraint("rack", LevelPolicy.PARTITION, True, count=2),),
    (LevelConstraint("node", LevelPolicy.RANGE, True, minimum=1, maximum=2),),
    (LevelConstraint("node", LevelPolicy.PACK, True),),
)


@st.composite
def confined_instances(draw: st.DrawFn, max_roles: int = 1) -> Instance:
    """Instances with two racks and a gang with hard constraints."""
    plain = draw(instances(max_roles))
    [gang] = plain.group.gangs
    racks = (TreeDomain("r0", 0), TreeDomain("r1", 0))
    leaves = tuple((each.name, draw(st.integers(0, 1))) for each in plain.nodes)
    tree = TopologyTree("racks", (TreeLevel("rack"), TreeLevel("node")), racks, leaves, default=True)
    constraints = draw(st.sampled_from(_HARD))
    wanted = sum(role.wanted for role in gang.roles)
    if any(each.policy == LevelPolicy.PARTITION for each in constraints) and wanted < 2:
        constraints = _HARD[0]
    asked = SolveGang(gang.id, gang.minimum, gang.roles, "", constraints)
    return Instance(plain.nodes, plain.classes, plain.gangs, SolveGroup("g", (asked,)), tree)

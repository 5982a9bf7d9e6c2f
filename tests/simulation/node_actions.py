"""Acts of nodes, and of other schedulers that use them."""

from msgspec.structs import replace

from builders.core.objects import node as node_of
from builders.core.objects import plain_pod, racks
from simulation.actions import act
from simulation.world import THEIRS, World


@act(2, which=4, cpu=8)
def node(world: World, which: int, cpu: int) -> None:
    """A node comes, or one that was small grows."""
    name = f"n{which}"
    facts = world.scenario.cluster.nodes.get(name)
    if facts is None or dict(facts.allocatable)["cpu"] < (cpu + 1) * 1000:
        world.scenario.change(nodes=[node_of(name, cpu + 1)])


@act(0.7, which=4)
def lose_node(world: World, which: int) -> None:
    """A node is gone; pods on it are not, yet."""
    if name := world.node(which):
        world.share(name)  # it may come back smaller while binds to it are on their way
        world.scenario.change(remove_nodes=[name])


@act(0.7, which=4, cpu=4)
def shrink(world: World, which: int, cpu: int) -> None:
    """A node offers less, perhaps less than is used."""
    if name := world.node(which):
        world.share(name)
        facts = world.scenario.cluster.nodes[name]
        world.scenario.change(nodes=[replace(facts, allocatable=node_of(name, cpu).allocatable)])


@act(1, which=4)
def cordon(world: World, which: int) -> None:
    """A node is cordoned, or opened again."""
    if name := world.node(which):
        facts = world.scenario.cluster.nodes[name]
        world.scenario.change(nodes=[replace(facts, unschedulable=not facts.unschedulable)])


@act(0.7, which=4)
def sleep(world: World, which: int) -> None:
    """A node is not ready, or ready again."""
    if name := world.node(which):
        facts = world.scenario.cluster.nodes[name]
        world.scenario.change(nodes=[replace(facts, ready=not facts.ready)])


@act(1.5, split=17)
def tree(world: World, split: int) -> None:
    """Somebody says anew which nodes are in which of two racks, or takes the tree away."""
    scenario = world.scenario
    if split == 16:
        if scenario.cluster.trees:
            scenario.change(remove_trees=list(scenario.cluster.trees))
        return
    in_first = [f"n{which}" for which in range(4) if split >> which & 1]
    in_second = [f"n{which}" for which in range(4) if f"n{which}" not in in_first]
    scenario.change(trees=[racks(r0=" ".join(in_first), r1=" ".join(in_second))])


@act(1, which=4)
def intrude(world: World, which: int) -> None:
    """Another scheduler puts a pod of its own where there is room."""
    free = sorted(name for name, room in world.scenario.cluster.free().items() if name != THEIRS and room >= 1000)
    if free:
        world.scenario.intrude(plain_pod(f"x{world.number()}"), free[which % len(free)])


@act(1, which=4)
def leave(world: World, which: int) -> None:
    """A pod of another scheduler goes."""
    others = [pod for pod in world.scenario.cluster.pods.values() if not pod.ours]
    if others:
        world.remove_pods(others[which % len(others)])


@act(1, which=40)
def bind_elsewhere(world: World, which: int) -> None:
    """Another scheduler binds one of our pods, to a node that is closed to us."""
    pod = world.pod(which, bound=False)
    if pod is not None and not pod.gated:
        if THEIRS not in world.scenario.cluster.nodes:
            world.scenario.change(nodes=[node_of(THEIRS, 1000, unschedulable=True)])
        world.scenario.bind_elsewhere(pod.uid, THEIRS)

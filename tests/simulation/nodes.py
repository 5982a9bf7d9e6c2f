"""Acts of nodes, and of other schedulers that use them."""

from msgspec.structs import replace

from builders.core.objects import node as node_of
from builders.core.objects import plain_pod, racks
from simulation.acts import act
from simulation.world import THEIRS, World


@act(2, which=4, cpu=8)
def node(world: World, which: int, cpu: int) -> None:
    """A node comes, or one that was small grows."""
    name = f"n{which}"
    facts = world.story.cluster.nodes.get(name)
    if facts is None or dict(facts.allocatable)["cpu"] < (cpu + 1) * 1000:
        world.story.change(nodes=[node_of(name, cpu + 1)])


@act(0.7, which=4)
def lose_node(world: World, which: int) -> None:
    """A node is gone; pods on it are not, yet."""
    if name := world.node(which):
        world.share(name)  # it may come back smaller while binds to it are on their way
        world.story.change(remove_nodes=[name])


@act(0.7, which=4, cpu=4)
def shrink(world: World, which: int, cpu: int) -> None:
    """A node offers less, perhaps less than is used."""
    if name := world.node(which):
        world.share(name)
        facts = world.story.cluster.nodes[name]
        world.story.change(nodes=[replace(facts, allocatable=node_of(name, cpu).allocatable)])


@act(1, which=4)
def cordon(world: World, which: int) -> None:
    """A node is cordoned, or opened again."""
    if name := world.node(which):
        facts = world.story.cluster.nodes[name]
        world.story.change(nodes=[replace(facts, unschedulable=not facts.unschedulable)])


@act(0.7, which=4)
def sleep(world: World, which: int) -> None:
    """A node is not ready, or ready again."""
    if name := world.node(which):
        facts = world.story.cluster.nodes[name]
        world.story.change(nodes=[replace(facts, ready=not facts.ready)])


@act(1.5, split=17)
def tree(world: World, split: int) -> None:
    """Somebody says anew which nodes are in which of two racks, or takes the tree away."""
    story = world.story
    if split == 16:
        if story.cluster.trees:
            story.change(remove_trees=list(story.cluster.trees))
        return
    in_first = [f"n{which}" for which in range(4) if split >> which & 1]
    in_second = [f"n{which}" for which in range(4) if f"n{which}" not in in_first]
    story.change(trees=[racks(r0=" ".join(in_first), r1=" ".join(in_second))])


@act(1, which=4)
def intrude(world: World, which: int) -> None:
    """Another scheduler puts a pod of its own where there is room."""
    free = sorted(name for name, room in world.story.cluster.free().items() if name != THEIRS and room >= 1000)
    if free:
        world.story.intrude(plain_pod(f"x{world.number()}"), free[which % len(free)])


@act(1, which=4)
def leave(world: World, which: int) -> None:
    """A pod of another scheduler goes."""
    others = [pod for pod in world.story.cluster.pods.values() if not pod.ours]
    if others:
        world.remove_pods(others[which % len(others)])


@act(1, which=40)
def bind_elsewhere(world: World, which: int) -> None:
    """Another scheduler binds one of our pods, to a node that is closed to us."""
    pod = world.pod(which, bound=False)
    if pod is not None and not pod.gated:
        if THEIRS not in world.story.cluster.nodes:
            world.story.change(nodes=[node_of(THEIRS, 1000, unschedulable=True)])
        world.story.bind_elsewhere(pod.uid, THEIRS)

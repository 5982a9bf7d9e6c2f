"""Actions on nodes, and actions of other schedulers that use them."""

from msgspec.structs import replace

from builders.core.objects import node as node_of
from builders.core.objects import plain_pod, racks
from simulation.actions import action
from simulation.world import FOREIGN_NODE, World


@action(2, which=4, cpu=8)
def add_node(world: World, which: int, cpu: int) -> None:
    """Adds a node, or enlarges a smaller one."""
    name = f"n{which}"
    facts = world.scenario.cluster.nodes.get(name)
    if facts is None or dict(facts.allocatable)["cpu"] < (cpu + 1) * 1000:
        world.nodes_seen.add(name)
        world.scenario.change(nodes=[node_of(name, cpu + 1)])


@action(0.7, which=4)
def remove_node(world: World, which: int) -> None:
    """Removes a node; its pods remain for now."""
    if name := world.node(which):
        world.share(name)  # it may come back smaller while binds to it are on their way
        world.scenario.change(remove_nodes=[name])


@action(0.7, which=4, cpu=4)
def shrink_node(world: World, which: int, cpu: int) -> None:
    """Reduces the allocatable of a node, perhaps below what is used."""
    if name := world.node(which):
        world.share(name)
        facts = world.scenario.cluster.nodes[name]
        world.scenario.change(nodes=[replace(facts, allocatable=node_of(name, cpu).allocatable)])


@action(1, which=4)
def cordon(world: World, which: int) -> None:
    """Cordons or uncordons a node."""
    if name := world.node(which):
        facts = world.scenario.cluster.nodes[name]
        world.scenario.change(nodes=[replace(facts, unschedulable=not facts.unschedulable)])


@action(0.7, which=4)
def toggle_ready(world: World, which: int) -> None:
    """Makes a node not ready, or ready again."""
    if name := world.node(which):
        facts = world.scenario.cluster.nodes[name]
        world.scenario.change(nodes=[replace(facts, ready=not facts.ready)])


@action(1.5, split=17)
def edit_tree(world: World, split: int) -> None:
    """Assigns nodes to two racks anew, or removes the tree."""
    scenario = world.scenario
    if split == 16:
        if scenario.cluster.trees:
            scenario.change(remove_trees=list(scenario.cluster.trees))
        return
    in_first = [f"n{which}" for which in range(4) if split >> which & 1]
    in_second = [f"n{which}" for which in range(4) if f"n{which}" not in in_first]
    scenario.change(trees=[racks(r0=" ".join(in_first), r1=" ".join(in_second))])


@action(1, which=4)
def add_foreign_pod(world: World, which: int) -> None:
    """Another scheduler runs a pod of its own on a node with free capacity."""
    free = sorted(name for name, room in world.scenario.cluster.free().items() if name != FOREIGN_NODE and room >= 1000)
    if free:
        world.scenario.intrude(plain_pod(f"x{world.number()}"), free[which % len(free)])


@action(0.7)
def toggle_thief(world: World) -> None:
    """Another scheduler takes what evicted pods free from now on, or stops that."""
    world.scenario.thief = not world.scenario.thief


@action(1, which=4)
def remove_foreign_pod(world: World, which: int) -> None:
    """Removes a pod of another scheduler."""
    others = [pod for pod in world.scenario.cluster.pods.values() if not pod.ours]
    if others:
        world.remove_pods(others[which % len(others)])


@action(1, which=40)
def bind_elsewhere(world: World, which: int) -> None:
    """Another scheduler binds one of our pods to a node that is closed to us."""
    pod = world.pod(which, bound=False)
    if pod is not None and not (pod.gated or world.uses_devices(pod)):
        if FOREIGN_NODE not in world.scenario.cluster.nodes:
            world.scenario.change(nodes=[node_of(FOREIGN_NODE, 1000, unschedulable=True)])
        world.scenario.bind_elsewhere(pod.uid, FOREIGN_NODE)

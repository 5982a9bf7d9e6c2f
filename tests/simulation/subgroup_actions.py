"""Actions of users whose gangs have subgroups."""

from dataclasses import replace as changed

from builders.gangs.facts import gang
from muster.gangs.facts import MatchPolicy, RepairPolicy
from simulation.actions import action
from simulation.world import SLOTS, World


# fmt: off
@action(5, slot=6, parts=3, size=3, more=4, minimum=4, slack=4, rack=3, cpu=2, priority=3, missing=6, alone=3,
        policy=3, repair=3, elastic=4)
def create_divided(world: World, slot: int, parts: int, size: int, more: int, minimum: int, slack: int, rack: int,
                   cpu: int, priority: int, missing: int, alone: int, policy: int, repair: int, elastic: int) -> None:
    # fmt: on
    """Creates a gang with subgroups, usually with all of its pods, some of which may be in none; if the slot has one,
    its missing pods. `more`: further members of the first subgroups, one each; `slack` decides the gang's minimum.
    """
    size, parts = size + 1, parts + 1
    if slot in world.gangs:
        world.create_pods(slot, size)
        return
    sizes = [size + (part < more - 1) for part in range(parts)]
    members = sum(sizes) + (alone == 1)
    built = gang(SLOTS[slot], "default" if slot < 3 else "other").recreated(str(world.number()))
    built = built.of(members, cpu=cpu + 1).with_priority(priority)
    built = built.in_subgroups(*sizes, size=size, minimum=min(minimum, parts), rack=rack > 0)
    at_least = (members, max(1, min(minimum, parts)) * size, max(1, members - 2), 1)
    built = built.needing(at_least[slack])
    built = built.with_match_policy(list(MatchPolicy)[policy]).with_repair_policy(list(RepairPolicy)[repair])
    world.declare(slot, changed(built, evicted_whole=elastic == 1))
    world.create_pods(slot, members - max(0, missing - 3))


@action(1, slot=6, size=3, minimum=4, rack=2)
def edit_subgroups(world: World, slot: int, size: int, minimum: int, rack: int) -> None:
    """Edits the size, the number and the domain of the subgroups."""
    built = world.gangs.get(slot)
    if built is not None and built.subgroups:
        divided = built.in_subgroups(*built.parts, size=size + 1, minimum=minimum, rack=rack > 0)
        world.declare(slot, divided)


@action(0.5, slot=6)
def toggle_subgroups(world: World, slot: int) -> None:
    """Removes the subgroups from the declaration, and not from the pods; or the reverse."""
    built = world.gangs.get(slot)
    if built is None or not built.parts:
        return
    policies = () if built.subgroups else changed(built).in_subgroups(*built.parts).subgroups
    world.declare(slot, changed(built, subgroups=policies))

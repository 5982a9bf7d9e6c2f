"""Actions of users, and of the controllers that create pods for them."""

from dataclasses import replace as changed

from msgspec.structs import replace

from builders.core.objects import class_with_volume, plain_pod, pod_class
from builders.gangs.facts import gang
from builders.gangs.labels import labelled, selectors_named
from muster.gangs.facts import (
    CompositeFacts,
    GangMode,
    MatchPolicy,
    PodClass,
    PodFacts,
    PodPhase,
    RepairPolicy,
    StaticClaim,
    StaticVolume,
)
from simulation.actions import action
from simulation.world import FLOOD_SLOTS, GROUPINGS, SLOTS, Dress, World

WAITING_SECONDS = (5.0, 60.0, 600.0, 1200.0)
EXPECTED_SECONDS = (0.0, 10.0, 300.0)
LABELS = ("red", "blue", "red+blue", "red+i", "blue+i", "")
RULES = (("red", ""), ("blue", ""), ("", "red"), ("", "blue"), ("", ""), ("", ""))
"""Labels of pods that a pod must not have on its node, and that it must have there."""
CONSTRAINTS = {
    1: "rack: hard pack",
    2: "rack: hard pack; node: spread",
    3: "rack: pack, spread",
}
REST_PACKED = "node: spread; *: hard pack"
"""Topology constraints of some gangs; the last one is contradictory."""


# fmt: off
@action(10, slot=6, size=6, missing=6, slack=5, cpu=4, priority=3, mode=2, waiting=4, policy=3, repair=3, expected=3,
     group=8, never=4, budget=3, divided=8)
def create(world: World, slot: int, size: int, missing: int, slack: int, cpu: int, priority: int, mode: int,
           waiting: int, policy: int, repair: int, expected: int, group: int, never: int, budget: int,
           divided: int) -> None:
    # fmt: on
    """Creates a gang, usually with all of its pods; if the slot has one, its missing pods."""
    size += 1
    if slot in world.gangs:
        world.create_pods(slot, size)
        return
    built = gang(SLOTS[slot], "default" if slot < 3 else "other").recreated(str(world.number())).with_priority(priority)
    sizes = {1: ((size, 2),), 2: ((size - size // 2, 1), (size // 2, 2))}.get(cpu, ((size, 1),))
    for count, each in sizes:
        built = built.and_of(count, each)
    built = built.needing(max(1, size - max(0, slack - 2)))
    built = built.with_match_policy(list(MatchPolicy)[policy]).with_repair_policy(list(RepairPolicy)[repair])
    built = built.running_for(EXPECTED_SECONDS[expected]).with_group(*_grouping(slot, max(0, group - 4)))
    if mode:
        built = built.non_strict(WAITING_SECONDS[waiting])
    built = built.with_topology(CONSTRAINTS.get(divided, ""))
    if never == 1:
        built = built.never_preempting()
    if budget == 1:
        built = built.with_budget("default/budget")
    world.declare(slot, world.in_composites(slot, built))
    world.create_pods(slot, size - max(0, missing - 3))


@action(0, fit=4, priority=4)
def flood(world: World, fit: int, priority: int) -> None:
    """A tenant creates many gangs at once, of which some fit, or deletes them all."""
    present = [slot for slot in FLOOD_SLOTS if slot in world.gangs]
    if present:
        ids = {world.gangs.pop(slot).id for slot in present}
        uids = [pod.uid for pod in world.scenario.cluster.pods.values() if pod.gang in ids]
        world.scenario.change(remove_pods=uids, remove_gangs=sorted(ids))
        return
    for number, slot in enumerate(FLOOD_SLOTS):
        built = gang(f"x{number}", "flood").recreated(str(world.number())).with_priority(priority)
        world.gangs[slot] = built.of(1, cpu=1 if number % 4 < fit - 1 else 9 + number % 8)
    gangs = [world.gangs[slot] for slot in FLOOD_SLOTS]
    pods = [world.anew(pod) for each in gangs for pod in each.pods()]
    world.scenario.change(gangs=[each.gang_facts() for each in gangs], pods=pods)


def _grouping(slot: int, group: int) -> list[str]:
    """Returns the names of the gangs in the slot's n-th grouping; none for 0."""
    groupings = [names for names in GROUPINGS if SLOTS[slot] in names]
    if not group or group > len(groupings):
        return []
    return [f"{'default' if name in 'abc' else 'other'}/{name}" for name in groupings[group - 1]]


@action(4, slot=6, labels=6, rule=6)
def dress(world: World, slot: int, labels: int, rule: int) -> None:
    """From now on pods of the gang have other labels, and another rule about pods on their node."""
    apart_from, beside = RULES[rule]
    world.dresses[slot] = Dress(LABELS[labels], apart_from, beside)
    world.number()


@action(1, which=40, labels=6)
def relabel(world: World, which: int, labels: int) -> None:
    """Somebody edits the labels of a pod."""
    if pod := world.pod(which):
        world.change_pods(replace(pod, label_set=labelled(*LABELS[labels].split("+")) if LABELS[labels] else ""))


@action(0, size=4)
def crowd(world: World, size: int) -> None:
    """Creates many pods, each with requests of its own, or deletes them; steps make a bounded number of calls."""
    scenario = world.scenario
    scenario.counts_calls = True
    there = [pod.uid for pod in scenario.cluster.pods.values() if pod.name.startswith("crowd")]
    if there:
        world.number()
        scenario.change(remove_pods=there)
        return
    classes = [PodClass(f"crowd{n}", (("cpu", 1000 + n), ("pods", 1))) for n in range(250 * (size + 1))]
    pods = [replace(plain_pod(each.id, uid=f"{each.id}#{world.number()}"), class_id=each.id) for each in classes]
    known = scenario.cluster.classes
    scenario.change(classes=[each for each in classes if each.id not in known], pods=pods)


@action(1)
def sweep(world: World) -> None:
    """cluster-state forgets classes, selectors and label sets that no pod has."""
    cluster = world.scenario.cluster
    used = {pod.class_id for pod in cluster.pods.values()}
    ruled = [
        each
        for each in cluster.classes.values()
        if each.required_pod_affinity or each.required_pod_anti_affinity or each.shared_claims
    ]
    unused = [each.id for each in ruled if each.id not in used]
    named = {each.id for each in selectors_named(each for each in ruled if each.id in used)}
    labels = {pod.label_set for pod in cluster.pods.values()}
    world.scenario.change(
        remove_classes=unused,
        remove_selectors=[id_ for id_ in cluster.selectors if id_ not in named],
        remove_label_sets=[id_ for id_ in cluster.label_sets if id_ not in labels],
    )


@action(5, slot=6, count=4)
def create_members(world: World, slot: int, count: int) -> None:
    """The gang's controller creates missing pods."""
    if slot in world.gangs:
        world.create_pods(slot, count + 1)


@action(1, slot=6, count=5)
def edit_minimum(world: World, slot: int, count: int) -> None:
    """Edits the minimum."""
    if slot in world.gangs:
        world.declare(slot, world.gangs[slot].needing(count + 1))


@action(1, slot=6, waiting=4)
def toggle_mode(world: World, slot: int, waiting: int) -> None:
    """Makes a Strict gang NonStrict, or the reverse."""
    if built := world.gangs.get(slot):
        strict = built.mode is GangMode.STRICT
        seconds = WAITING_SECONDS[waiting]
        world.declare(slot, built.non_strict(seconds) if strict else changed(built, mode=GangMode.STRICT))


@action(0.7, slot=6, policy=3, repair=3)
def edit_policies(world: World, slot: int, policy: int, repair: int) -> None:
    """Edits the match policy and the repair policy."""
    if built := world.gangs.get(slot):
        built = built.with_match_policy(list(MatchPolicy)[policy]).with_repair_policy(list(RepairPolicy)[repair])
        world.declare(slot, built)


@action(1, slot=6, group=4)
def edit_group(world: World, slot: int, group: int) -> None:
    """Edits the gang group."""
    if built := world.gangs.get(slot):
        world.composed.pop(slot, None)
        world.declare(slot, changed(built, composites=()).with_group(*_grouping(slot, group)))


@action(1.5, group=6, needed=4, nested=2, divided=3)
def compose(world: World, group: int, needed: int, nested: int, divided: int) -> None:
    """Puts the gangs of a grouping, also those to come, into a composite of which so many must start together, or into
    none; `nested`: all but the last one into another one inside.
    """
    slots = [SLOTS.index(name) for name in GROUPINGS[group]]
    if any(slot in world.gangs and world.gangs[slot].parts for slot in slots):
        return  # no dialect has subgroups and composites
    names = tuple(f"{'default' if slot < 3 else 'other'}/{SLOTS[slot]}" for slot in slots)
    level = "rack" if divided == 1 else ""
    inside = CompositeFacts(f"inside{group}", "", level, 1 + divided % 2)
    for slot in slots:
        inner = (inside,) if nested and slot != slots[-1] else ()
        root = CompositeFacts(f"root{group}", "", level if not nested else "", min(needed, 2 if nested else len(slots)))
        world.composed[slot] = (names, (root, *inner)) if needed else ((), ())
    there = [slot for slot in slots if slot in world.gangs]
    for slot in there:
        bare = changed(world.gangs[slot], group_names=(), composites=())
        world.gangs[slot] = world.in_composites(slot, bare)
    world.number()
    world.scenario.change(gangs=[world.gangs[slot].gang_facts() for slot in there])


@action(0.7, slot=6, divided=4)
def edit_constraints(world: World, slot: int, divided: int) -> None:
    """Edits the topology constraints."""
    if built := world.gangs.get(slot):
        world.declare(slot, built.with_topology(CONSTRAINTS.get(divided, "")))


@action(1.5, slot=6, succeeded=2, uniform=3, free=6, never_preempts=3, rest=4)
def edit_demands(
    world: World, slot: int, succeeded: int, uniform: int, free: int, never_preempts: int, rest: int
) -> None:
    """Edits requirements of the gang as a whole."""
    if built := world.gangs.get(slot):
        edited = changed(built, counts_succeeded=bool(succeeded), homogeneous=uniform == 1)
        edited = changed(edited, declared_preempts=never_preempts != 1)
        edited = changed(edited, minimum_free_cpu=2 * max(0, free - 2))
        world.declare(slot, changed(edited, constraints=REST_PACKED if rest == 1 else built.constraints))


@action(0.7, slot=6, priority=4)
def declare_priority(world: World, slot: int, priority: int) -> None:
    """Declares a priority of the gang, or none; that of its pods remains."""
    if built := world.gangs.get(slot):
        world.declare(slot, changed(built, declared_priority=(None, 0, 2, 2_147_483_647)[priority]))


@action(1, slot=6, priority=3)
def create_odd_member(world: World, slot: int, priority: int) -> None:
    """Creates one more pod of the gang, with a priority of its own."""
    if built := world.gangs.get(slot):
        odd = replace(world.dressed(slot, world.anew(built.pods()[0])), name=f"odd{world.number()}")
        world.change_pods(replace(odd, priority=(0, 2, 2_000_000_000)[priority]))


@action(1, which=40, cost=4, position=5, bare=4)
def mark_pod(world: World, which: int, cost: int, position: int, bare: int) -> None:
    """Edits the deletion cost of a pod; its controller says its position, or it has none."""
    if (pod := world.pod(which)) and pod.gang:
        world.change_pods(replace(pod, deletion_cost=cost - 1, ordinal=position, uncontrolled=bare == 1))


@action(0.7, slot=6)
def toggle_elastic(world: World, slot: int) -> None:
    """Forbids that the gang is shrunk, or permits it again."""
    if built := world.gangs.get(slot):
        world.declare(slot, changed(built, evicted_whole=not built.evicted_whole))


@action(0.7, slot=6)
def recreate_definition(world: World, slot: int) -> None:
    """Deletes and recreates the definition; the pods remain."""
    if built := world.gangs.get(slot):
        world.declare(slot, built.recreated(str(world.number())))


@action(1, slot=6)
def break_definition(world: World, slot: int) -> None:
    """Deletes or breaks the definition, or corrects it; the pods remain."""
    if built := world.gangs.get(slot):
        world.declare(slot, built.broken("" if built.problem else "its definition does not exist"))


@action(1.5, slot=6)
def delete_gang(world: World, slot: int) -> None:
    """Deletes the gang with all of its pods."""
    if built := world.gangs.get(slot):
        pods = [pod.uid for pod in world.pods_of(slot)]
        del world.gangs[slot]
        world.scenario.change(remove_pods=pods, remove_gangs=[built.id])


@action(0.7, slot=6)
def remove_timeout_marks(world: World, slot: int) -> None:
    """Removes the timeout marks from the pods."""
    if marked := [pod for pod in world.pods_of(slot) if pod.timed_out]:
        world.oracle.unmarked(world.gangs[slot].id)
        world.change_pods(*(replace(pod, timed_out=False) for pod in marked))


@action(1.2, which=3, cpu=2, priority=3, expected=3)
def create_plain_pod(world: World, which: int, cpu: int, priority: int, expected: int) -> None:
    """Creates a plain pod, replacing one of the same name."""
    name = f"p{which}"
    world.remove_pods(*(pod for pod in list(world.scenario.cluster.pods.values()) if pod.name == name))
    pod = plain_pod(name, cpu=cpu + 1, priority=priority, uid=f"{name}#{world.number()}")
    world.scenario.add_pods(replace(pod, expected_seconds=EXPECTED_SECONDS[expected]))


@action(1.5, which=40, slow=2)
def delete_pod(world: World, which: int, slow: int) -> None:
    """Deletes a pod, at once or gracefully."""
    if pod := world.pod(which):
        if slow and pod.node:
            world.change_pods(replace(pod, deleting=True))
        else:
            world.remove_pods(pod)


@action(1)
def finish_deletions(world: World) -> None:
    """Removes all terminating pods that end."""
    stuck = world.scenario.stuck
    pods = list(world.scenario.cluster.pods.values())
    world.remove_pods(*(pod for pod in pods if pod.deleting and pod.uid not in stuck))


@action(1, which=40)
def stick_pod(world: World, which: int) -> None:
    """A running pod gets a finalizer, so that it does not end when it is deleted; or loses it."""
    if pod := world.pod(which, bound=True):
        world.scenario.stuck ^= {pod.uid}


@action(2, which=40)
def end_pod(world: World, which: int) -> None:
    """A pod succeeds."""
    if (pod := world.pod(which)) and pod.node:
        world.change_pods(replace(pod, phase=PodPhase.SUCCEEDED))


@action(0.7, slot=6, count=4)
def replace_rest(world: World, slot: int, count: int) -> None:
    """One pod of the gang succeeds, its other running pods fail, and its controller creates some of them anew."""
    if running := [pod for pod in world.pods_of(slot) if pod.seated and not pod.deleting]:
        first, *others = running
        world.change_pods(replace(first, phase=PodPhase.SUCCEEDED))
        world.remove_pods(*others)
        create_members(world, slot, count)


@action(2)
def end_expected(world: World) -> None:
    """Ends pods whose expected duration is over."""
    scenario = world.scenario
    over = [
        replace(pod, phase=PodPhase.SUCCEEDED)
        for pod in scenario.cluster.pods.values()
        if pod.seated and pod.expected_seconds and pod.started_seconds + pod.expected_seconds <= scenario.unix
    ]
    if over:
        world.change_pods(*over)


@action(0.7, which=40, cpu=3)
def resize(world: World, which: int, cpu: int) -> None:
    """Changes the requests of a pod; running pods only shrink, since growing needs the kubelet."""
    pod = world.pod(which)
    if pod is None or world.uses_devices(pod):
        return
    size = world.scenario.cluster.cpu(pod) // 1000
    if not pod.seated or size > 1:
        world.share()  # the seat that it may have was for another size
        world.change_pods(replace(pod, class_id=pod_class(1 + cpu % (size if pod.node else 3)).id))


@action(1, which=40, count=4)
def volumes(world: World, which: int, count: int) -> None:
    """Binds unbound claims of pods to volumes, or gives pods such claims; the class of the pods changes."""
    unbound = _without_devices(world)
    start = which % len(unbound) if unbound else 0
    pods = [_with_other_volumes(world, pod) for pod in unbound[start : start + count + 1]]
    if pods:
        world.change_pods(*pods)


def _without_devices(world: World) -> list[PodFacts]:
    """Pods that are not bound and request no devices."""
    pods = (pod for pod in world.scenario.cluster.pods.values() if not (pod.node or world.uses_devices(pod)))
    return sorted(pods, key=lambda pod: pod.uid)


def _with_other_volumes(world: World, pod: PodFacts) -> PodFacts:
    cpu = world.scenario.cluster.cpu(pod) // 1000
    if pod.class_id == class_with_volume(cpu).id:
        if any(pod.gang in bind.gangs for bind in world.scenario.binds):
            world.scenario.made_volumes.add(pod.uid)  # a bind of its gang was sent before it had a claim
        return replace(pod, class_id=pod_class(cpu).id, claims=("data",))
    return replace(pod, class_id=class_with_volume(cpu).id, claims=())


@action(1, which=40, count=4)
def static_volumes(world: World, which: int, count: int) -> None:
    """Replaces pods by pods with claims of a class without provisioner, and creates a volume for each."""
    unbound = _without_devices(world)
    start = which % len(unbound) if unbound else 0
    for pod in unbound[start : start + count + 1]:
        number = world.number()
        world.remove_pods(pod)
        world.scenario.change(
            pods=[replace(world.anew(pod), claims=(f"disk-{number}",))],
            static_claims=[StaticClaim(f"{pod.namespace}/disk-{number}", "local")],
            static_volumes=[StaticVolume(f"volume-{number}", "local")],
        )


@action(0, slot=6, failing=20)
def claim_volumes(world: World, slot: int, failing: int) -> None:
    """From now on each pod of the gang claims a volume; that of the first one created together is refused so often."""
    world.storing[slot] = failing
    world.number()


@action(0.7, which=8)
def take_volume(world: World, which: int) -> None:
    """Another claim takes a volume, and an administrator creates a new one."""
    if names := sorted(world.scenario.cluster.static_volumes):
        new = StaticVolume(f"volume-{world.number()}", "local")
        world.scenario.change(remove_static_volumes=[names[which % len(names)]], static_volumes=[new])


@action(0.7, which=40)
def break_pod(world: World, which: int) -> None:
    """Makes a pending pod invalid, or valid again."""
    pod = world.pod(which)
    if pod is not None and not pod.node and not pod.problem.startswith("ResourceClaim"):
        world.change_pods(replace(pod, problem="" if pod.problem else "bad request"))


@action(0.7, which=40, slot=6)
def gate(world: World, which: int, slot: int) -> None:
    """Removes the scheduling gate of a pod, or recreates the pod with one."""
    pod = world.pod(which)
    if pod is not None and pod.gated:
        world.change_pods(replace(pod, gated=False))
    elif built := world.gangs.get(slot):
        gated = replace(world.dressed(slot, world.anew(built.pods()[0])), name=f"gated{world.number()}", gated=True)
        world.change_pods(gated)


@action(0.7, which=40, slot=6)
def move_pod(world: World, which: int, slot: int) -> None:
    """Moves a pod to another gang."""
    pod, built = world.pod(which), world.gangs.get(slot)
    if pod is not None and pod.gang and built is not None:
        world.share()  # it may be bound by what was sent before
        world.scenario.moved_from[pod.uid] = pod.gang
        world.change_pods(replace(pod, gang=built.id))


@action(0.7, allowed=3)
def edit_budget(world: World, allowed: int) -> None:
    """Creates a disruption budget, or updates how many evictions it allows."""
    world.scenario.set_budget("default/budget", allowed)

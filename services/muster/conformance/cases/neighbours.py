"""Safety, continued: rules between pods, and hard constraints. Who cannot keep them does not place the group."""

from typing import Final

from muster.conformance.building import (
    HOSTNAME,
    ZONE,
    Domains,
    alone,
    bound,
    factor,
    gang,
    node,
    nodes,
    nodes_of,
    pack,
    partition,
    pod_class,
    sizes,
    spread,
    together,
    tree,
    world,
)
from muster.conformance.case import Cases
from muster.conformance.trial import Trial
from muster.conformance.world import World
from muster.gangs.facts import (
    HostPort,
    LevelConstraint,
    NodeFacts,
    NodeOperator,
    NodeRequirement,
    NodeSelectorTerm,
    PodClass,
    PodTerm,
    SpreadConstraint,
    Taint,
    TaintEffect,
    TopologyTree,
)

CASES: Final = Cases()
_case = CASES.case

_RACKS: Final[Domains] = {
    "z0": {"r0": {"a": 4, "b": 3}, "r1": {"c": 2, "d": 5}},
    "z1": {"r2": {"e": 1, "f": 6}, "r3": {"g": 3, "h": 3}},
}


def _zoned(cpu: float = 3) -> list[NodeFacts]:
    return [node(f"{zone}{index}", cpu, labels={ZONE: zone}) for zone in "xyz" for index in range(2)]


async def _ask_up_to(trial: Trial, made: World, *classes: PodClass, most: int = 8) -> None:
    await trial.given(made)
    for each in classes:
        for count in (1, 2, 3, 5, most):
            await trial.ask_one(alone((each, count), minimum=1))
            await trial.ask_one(alone((each, count)))


@_case("S30", "A host port is given once on a node, and not if a pod there has it")
async def host_ports(trial: Trial) -> None:
    web = pod_class(1, host_ports=(HostPort("TCP", "0.0.0.0", 80),))  # noqa: S104
    local = pod_class(1, host_ports=(HostPort("TCP", "127.0.0.1", 80),))
    other = pod_class(1, host_ports=(HostPort("TCP", "10.0.0.1", 80), HostPort("UDP", "0.0.0.0", 80)))  # noqa: S104
    plain = pod_class(1)
    classes = [web, local, other, plain]
    pods = [bound(local, "n-0"), bound(other, "n-1")]
    made = world(nodes("n", 4, 4), classes, pods, [TopologyTree("flat", default=True)])
    await _ask_up_to(trial, made, *classes)
    await trial.ask_one(alone((local, 3), (other, 3), (web, 1), minimum=3))
    await trial.ask(alone((web, 1), id="first"), alone((local, 2), id="second"), alone((other, 2), id="third"))
    racks: Domains = {"r0": {"a": 8}, "r1": {"b": 8}}
    await trial.given(world(nodes_of(racks), [web, plain], trees=[tree("rack", racks)]))
    for constraint in (spread("rack"), pack("rack"), pack("node", hard=True)):
        for count in (1, 2):
            for roles in ([(web, count)], [(web, count), (plain, 1)]):
                gangs = [gang(*roles, id=name, constraints=[constraint]) for name in "12"]
                await trial.ask_one(together(*gangs))
                await trial.ask_one(together(*gangs, partial=True))


@_case("S31", "Members with anti-affinity to one another are kept apart, also from those of groups before them")
async def apart(trial: Trial) -> None:
    lonely = pod_class(1, selected_by=("s",), required_pod_anti_affinity=(PodTerm("s", HOSTNAME),))
    scattered = pod_class(1, selected_by=("z",), required_pod_anti_affinity=(PodTerm("z", ZONE),))
    await _ask_up_to(trial, world(_zoned(), [lonely, scattered]), lonely, scattered)
    await trial.ask(alone((scattered, 2), id="first"), alone((scattered, 2), id="second", minimum=1))
    await trial.ask(together(gang((lonely, 3), id="first"), gang((lonely, 3), id="second")))


@_case(
    "S32", "Anti-affinity is kept from both sides: of members against pods that are there, and of those against members"
)
async def unwelcome(trial: Trial) -> None:
    hermit = pod_class(1, required_pod_anti_affinity=(PodTerm("noisy", ZONE),))
    noisy = pod_class(1, selected_by=("noisy",))
    quiet = pod_class(1)
    pods = [bound(hermit, "x0"), bound(noisy, "y1")]
    await _ask_up_to(trial, world(_zoned(), [hermit, noisy, quiet], pods), hermit, noisy, quiet)
    await trial.ask_one(alone((hermit, 2), (noisy, 2), (quiet, 2), minimum=1))
    await trial.ask(alone((noisy, 1), id="first"), alone((hermit, 3), id="second", minimum=1))


@_case("S33", "Required pod affinity is kept, or the group is not placed")
async def company(trial: Trial) -> None:
    guest = pod_class(1, required_pod_affinity=(PodTerm("host", ZONE),))
    host = pod_class(1, selected_by=("host",))
    flock = pod_class(1, selected_by=("flock",), required_pod_affinity=(PodTerm("flock", ZONE),))
    fussy = pod_class(1, selected_by=("host",), required_pod_affinity=(PodTerm("host", ZONE), PodTerm("flock", ZONE)))
    classes = [guest, host, flock, fussy]
    await _ask_up_to(trial, world(_zoned(), classes), *classes)
    await _ask_up_to(trial, world([*_zoned(), node("nowhere", 9)], classes, [bound(host, "y0")]), *classes)
    await trial.ask_one(alone((guest, 2), (host, 2), (flock, 2), minimum=2))
    await trial.ask_one(together(gang((flock, 3), id="first"), gang((flock, 4), id="second")))


@_case("S34", "topologySpreadConstraints with DoNotSchedule are kept, or the group is not placed")
async def spread_out(trial: Trial) -> None:
    def even(**more: object) -> PodClass:
        rule = SpreadConstraint(1, ZONE, "s", **more)  # type: ignore[arg-type]
        return pod_class(1, selected_by=("s",), spread=(rule,))

    in_x_or_y = (NodeSelectorTerm((NodeRequirement(ZONE, NodeOperator.IN, ("x", "y")),)),)
    rules = (SpreadConstraint(1, ZONE, "s"), SpreadConstraint(2, HOSTNAME, "s"))
    classes = [
        even(),
        even(min_domains=4),
        even(honors_taints=True),
        pod_class(1, spread=(SpreadConstraint(2, ZONE, "s"),)),
        pod_class(1, selected_by=("s",), spread=rules),
        pod_class(1, selected_by=("s",), spread=(SpreadConstraint(1, ZONE, "s"),), required_node_affinity=in_x_or_y),
    ]
    machines = [*_zoned()[:-1], node("z1", 3, labels={ZONE: "z"}, taints=(Taint("t", "", TaintEffect.NO_SCHEDULE),))]
    pods = [bound(classes[0], "x0", 2), bound(classes[0], "y0", 1)]
    await _ask_up_to(trial, world([*machines, node("nowhere", 9)], classes, pods), *classes)


async def _constrained(trial: Trial, *constraints: LevelConstraint) -> None:
    """Gangs of all sizes, with and without members placed already, on a tree of two levels and nodes outside of it."""
    x = pod_class(1)
    machines = [*nodes_of(_RACKS), node("outside", 8)]
    pods = [bound(x, "a"), bound(x, "f", 2)]
    await trial.given(world(machines, [x], pods, [tree("zone rack", _RACKS)]))
    for count in (1, 2, 3, 4, 5, 6, 8, 10, 12, 24):
        await trial.ask_one(alone((x, count), constraints=constraints))
    await trial.ask_one(alone((x, 2), constraints=constraints, placed=[("a", x, 1)]))
    await trial.ask_one(alone((x, 4), constraints=constraints, placed=[("f", x, 2)]))
    await trial.ask_one(alone((x, 8), minimum=2, constraints=constraints))


@_case("S35", "A hard pack is kept, or the gang is not placed; with the soft ones above it")
async def hard_pack(trial: Trial) -> None:
    await _constrained(trial, pack("rack", hard=True))
    await _constrained(trial, pack("zone", hard=True))
    await _constrained(trial, pack("zone"), pack("rack", hard=True))
    await _constrained(trial, pack("node", hard=True))


@_case("S36", "A hard spread is kept, or the gang is not placed")
async def hard_spread(trial: Trial) -> None:
    await _constrained(trial, spread("rack", hard=True))
    await _constrained(trial, pack("zone", hard=True), spread("rack", hard=True))
    await _constrained(trial, spread("node", hard=True))


async def _with_sizes(trial: Trial, *constraints: LevelConstraint, counts: tuple[int, ...]) -> None:
    x = pod_class(1)
    await trial.given(world([*nodes_of(_RACKS), node("outside", 8)], [x], trees=[tree("zone rack", _RACKS)]))
    for count in counts:
        await trial.ask_one(alone((x, count), constraints=constraints))


@_case("S37", "A hard partition is kept, or the gang is not placed")
async def hard_partition(trial: Trial) -> None:
    await _with_sizes(trial, partition("rack", 2, hard=True), counts=(2, 4, 7, 9, 12, 20))
    await _with_sizes(trial, partition("rack", 4, hard=True), counts=(4, 7, 9, 12, 20))
    await _with_sizes(trial, partition("zone", 2, hard=True), pack("rack", hard=True), counts=(4, 8, 10, 12))


@_case("S38", "Hard ranges and factors are kept, or the gang is not placed")
async def hard_sizes(trial: Trial) -> None:
    await _with_sizes(trial, sizes("node", 2, 3, hard=True), counts=(2, 3, 4, 7, 10, 12, 15))
    await _with_sizes(trial, sizes("rack", 3, 5, hard=True), spread("node"), counts=(3, 5, 8, 11, 16))
    await _with_sizes(trial, factor("node", 2, hard=True), counts=(2, 4, 8, 12, 16, 18))
    await _with_sizes(trial, factor("rack", 3, hard=True), sizes("node", 1, 3, hard=True), counts=(3, 6, 9, 12))


@_case("S39", "Soft constraints never lead to a place that is none")
async def soft(trial: Trial) -> None:
    for constraints in (
        (pack("zone"), pack("rack"), spread("node")),
        (spread("zone"), partition("rack", 2), pack("node")),
        (partition("zone", 3), sizes("node", 2, 3)),
        (factor("rack", 4), factor("node", 3)),
    ):
        await _constrained(trial, *constraints)

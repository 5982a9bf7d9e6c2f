"""Safety: inter-pod rules and hard constraints. An implementation that cannot satisfy them does not place the group."""

from typing import Final

from muster.conformance.builders import (
    HOSTNAME,
    ZONE,
    Domains,
    bound,
    cluster,
    factor,
    gang,
    gang_group,
    node,
    nodes,
    nodes_of,
    pack,
    partition,
    pod_class,
    single_gang,
    sizes,
    spread,
    tree,
)
from muster.conformance.case import Cases
from muster.conformance.case_run import CaseRun
from muster.conformance.cluster import Cluster
from muster.gangs.facts import (
    Batch,
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


async def _solve_up_to(run: CaseRun, made: Cluster, *classes: PodClass, most: int = 8) -> None:
    await run.start(made)
    for each in classes:
        for count in (1, 2, 3, 5, most):
            await run.solve_one(single_gang((each, count), minimum=1))
            await run.solve_one(single_gang((each, count)))


@_case("S30", "A host port is used once per node, and not at all if a bound pod holds it")
async def host_ports(run: CaseRun) -> None:
    web = pod_class(1, host_ports=(HostPort("TCP", "0.0.0.0", 80),))  # noqa: S104
    local = pod_class(1, host_ports=(HostPort("TCP", "127.0.0.1", 80),))
    other = pod_class(1, host_ports=(HostPort("TCP", "10.0.0.1", 80), HostPort("UDP", "0.0.0.0", 80)))  # noqa: S104
    plain = pod_class(1)
    classes = [web, local, other, plain]
    pods = [bound(local, "n-0"), bound(other, "n-1")]
    made = cluster(nodes("n", 4, 4), classes, pods, [TopologyTree("flat", default=True)])
    await _solve_up_to(run, made, *classes)
    await run.solve_one(single_gang((local, 3), (other, 3), (web, 1), minimum=3))
    await run.solve(
        single_gang((web, 1), id="first"), single_gang((local, 2), id="second"), single_gang((other, 2), id="third")
    )
    racks: Domains = {"r0": {"a": 8}, "r1": {"b": 8}}
    await run.start(cluster(nodes_of(racks), [web, plain], trees=[tree("rack", racks)]))
    for constraint in (spread("rack"), pack("rack"), pack("node", hard=True)):
        for count in (1, 2):
            for roles in ([(web, count)], [(web, count), (plain, 1)]):
                gangs = [gang(*roles, id=name, constraints=[constraint]) for name in "12"]
                await run.solve_one(gang_group(*gangs))
                await run.solve_one(gang_group(*gangs, partial=True))


@_case("S31", "Members with mutual anti-affinity are kept apart, also across groups of a batch")
async def anti_affinity(run: CaseRun) -> None:
    lonely = pod_class(1, label_set="s", required_pod_anti_affinity=(PodTerm("s", HOSTNAME),))
    scattered = pod_class(1, label_set="z", required_pod_anti_affinity=(PodTerm("z", ZONE),))
    await _solve_up_to(run, cluster(_zoned(), [lonely, scattered]), lonely, scattered)
    await run.solve(single_gang((scattered, 2), id="first"), single_gang((scattered, 2), id="second", minimum=1))
    await run.solve(gang_group(gang((lonely, 3), id="first"), gang((lonely, 3), id="second")))


@_case(
    "S32",
    "Anti-affinity is respected in both directions: of members against bound pods, and of bound pods against members",
)
async def anti_affinity_in_both_directions(run: CaseRun) -> None:
    hermit = pod_class(1, required_pod_anti_affinity=(PodTerm("noisy", ZONE),))
    noisy = pod_class(1, label_set="noisy")
    quiet = pod_class(1)
    pods = [bound(hermit, "x0"), bound(noisy, "y1")]
    await _solve_up_to(run, cluster(_zoned(), [hermit, noisy, quiet], pods), hermit, noisy, quiet)
    await run.solve_one(single_gang((hermit, 2), (noisy, 2), (quiet, 2), minimum=1))
    await run.solve(single_gang((noisy, 1), id="first"), single_gang((hermit, 3), id="second", minimum=1))


@_case("S33", "Required pod affinity is satisfied, or the group is not placed")
async def pod_affinity(run: CaseRun) -> None:
    guest = pod_class(1, required_pod_affinity=(PodTerm("host", ZONE),))
    host = pod_class(1, label_set="host")
    flock = pod_class(1, label_set="flock", required_pod_affinity=(PodTerm("flock", ZONE),))
    fussy = pod_class(1, label_set="host", required_pod_affinity=(PodTerm("host", ZONE), PodTerm("flock", ZONE)))
    classes = [guest, host, flock, fussy]
    await _solve_up_to(run, cluster(_zoned(), classes), *classes)
    await _solve_up_to(run, cluster([*_zoned(), node("nowhere", 9)], classes, [bound(host, "y0")]), *classes)
    await run.solve_one(single_gang((guest, 2), (host, 2), (flock, 2), minimum=2))
    await run.solve_one(gang_group(gang((flock, 3), id="first"), gang((flock, 4), id="second")))


@_case("S34", "topologySpreadConstraints with DoNotSchedule are satisfied, or the group is not placed")
async def topology_spread(run: CaseRun) -> None:
    def even(**more: object) -> PodClass:
        rule = SpreadConstraint(1, ZONE, "s", **more)  # type: ignore[arg-type]
        return pod_class(1, label_set="s", spread=(rule,))

    in_x_or_y = (NodeSelectorTerm((NodeRequirement(ZONE, NodeOperator.IN, ("x", "y")),)),)
    rules = (SpreadConstraint(1, ZONE, "s"), SpreadConstraint(2, HOSTNAME, "s"))
    classes = [
        even(),
        even(min_domains=4),
        even(honors_taints=True),
        pod_class(1, spread=(SpreadConstraint(2, ZONE, "s"),)),
        pod_class(1, label_set="s", spread=rules),
        pod_class(1, label_set="s", spread=(SpreadConstraint(1, ZONE, "s"),), required_node_affinity=in_x_or_y),
    ]
    machines = [*_zoned()[:-1], node("z1", 3, labels={ZONE: "z"}, taints=(Taint("t", "", TaintEffect.NO_SCHEDULE),))]
    pods = [bound(classes[0], "x0", 2), bound(classes[0], "y0", 1)]
    await _solve_up_to(run, cluster([*machines, node("nowhere", 9)], classes, pods), *classes)


async def _constrained(run: CaseRun, *constraints: LevelConstraint) -> None:
    """Gangs of all sizes, with and without placed members, on a tree of two levels and a node outside it."""
    x = pod_class(1)
    machines = [*nodes_of(_RACKS), node("outside", 8)]
    pods = [bound(x, "a"), bound(x, "f", 2)]
    await run.start(cluster(machines, [x], pods, [tree("zone rack", _RACKS)]))
    for count in (1, 2, 3, 4, 5, 6, 8, 10, 12, 24):
        await run.solve_one(single_gang((x, count), constraints=constraints))
    await run.solve_one(single_gang((x, 2), constraints=constraints, placed=[("a", x, 1)]))
    await run.solve_one(single_gang((x, 4), constraints=constraints, placed=[("f", x, 2)]))
    await run.solve_one(single_gang((x, 8), minimum=2, constraints=constraints))


@_case("S35", "A hard pack, soft packs above it included, is satisfied, or the gang is not placed")
async def hard_pack(run: CaseRun) -> None:
    await _constrained(run, pack("rack", hard=True))
    await _constrained(run, pack("zone", hard=True))
    await _constrained(run, pack("zone"), pack("rack", hard=True))
    await _constrained(run, pack("node", hard=True))


@_case("S36", "A hard spread is satisfied, or the gang is not placed")
async def hard_spread(run: CaseRun) -> None:
    await _constrained(run, spread("rack", hard=True))
    await _constrained(run, pack("zone", hard=True), spread("rack", hard=True))
    await _constrained(run, spread("node", hard=True))


async def _with_sizes(run: CaseRun, *constraints: LevelConstraint, counts: tuple[int, ...]) -> None:
    x = pod_class(1)
    await run.start(cluster([*nodes_of(_RACKS), node("outside", 8)], [x], trees=[tree("zone rack", _RACKS)]))
    for count in counts:
        await run.solve_one(single_gang((x, count), constraints=constraints))


@_case("S37", "A hard partition is satisfied, or the gang is not placed")
async def hard_partition(run: CaseRun) -> None:
    await _with_sizes(run, partition("rack", 2, hard=True), counts=(2, 4, 7, 9, 12, 20))
    await _with_sizes(run, partition("rack", 4, hard=True), counts=(4, 7, 9, 12, 20))
    await _with_sizes(run, partition("zone", 2, hard=True), pack("rack", hard=True), counts=(4, 8, 10, 12))


@_case("S38", "Hard ranges and factors are satisfied, or the gang is not placed")
async def hard_sizes(run: CaseRun) -> None:
    await _with_sizes(run, sizes("node", 2, 3, hard=True), counts=(2, 3, 4, 7, 10, 12, 15))
    await _with_sizes(run, sizes("rack", 3, 5, hard=True), spread("node"), counts=(3, 5, 8, 11, 16))
    await _with_sizes(run, factor("node", 2, hard=True), counts=(2, 4, 8, 12, 16, 18))
    await _with_sizes(run, factor("rack", 3, hard=True), sizes("node", 1, 3, hard=True), counts=(3, 6, 9, 12))


@_case("S39", "Soft constraints never cause an unsafe answer")
async def soft_constraints(run: CaseRun) -> None:
    for constraints in (
        (pack("zone"), pack("rack"), spread("node")),
        (spread("zone"), partition("rack", 2), pack("node")),
        (partition("zone", 3), sizes("node", 2, 3)),
        (factor("rack", 4), factor("node", 3)),
    ):
        await _constrained(run, *constraints)


_SELECTORS: Final = ("app", "!app", "app=web", "app!=web", "app&!old", "app@dev", "app@~live")
_LABEL_SETS: Final = ("app", "other", "app=web", "app+old", "dev/app", "prod/app", "prod/app=web")


@_case("S43", "Selectors match labels and namespaces as in Kubernetes, whichever of selector and pods comes first")
async def selectors(run: CaseRun) -> None:
    plain = [pod_class(1, label_set=each) for each in _LABEL_SETS]
    for selector in _SELECTORS:
        guest = pod_class(1, required_pod_affinity=(PodTerm(selector, HOSTNAME),))
        hermit = pod_class(1, required_pod_anti_affinity=(PodTerm(selector, HOSTNAME),))
        machines = [node(f"n{index}", 3) for index in range(len(plain))]
        pods = [bound(each, f"n{index}") for index, each in enumerate(plain)]
        await run.start(cluster(machines, [*plain, guest, hermit], pods))
        await run.solve_one(single_gang((guest, 14), minimum=1))
        await run.solve_one(single_gang((hermit, 14), minimum=1))
        await run.start(cluster(machines, plain, pods))
        run.change(Batch(pod_classes=(guest, hermit)))
        run.change(Batch(pods=tuple(bound(hermit, "n0"))))
        await run.solve_one(single_gang((guest, 14), minimum=1))
        await run.solve_one(single_gang((hermit, 14), minimum=1))
        for each in plain:
            await run.solve_one(single_gang((each, 14), minimum=1))

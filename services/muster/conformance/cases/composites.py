"""Composites: gangs that share a domain, and gangs of which only some are needed."""

from collections.abc import Callable, Sequence
from typing import Final

from muster.conformance.builders import Domains, cluster, gang, nodes_of, pod_class, tree
from muster.conformance.case import CaseFunction, Cases, Feature
from muster.conformance.case_run import CaseRun, expect, not_placed
from muster.conformance.checker.responses import PLACED
from muster.placement.v1 import placement_pb2 as pb

CASES: Final = Cases()
_X: Final = pod_class(1)


def _case(id: str, title: str) -> Callable[[CaseFunction], CaseFunction]:  # noqa: A002
    return CASES.case(id, title, Feature.COMPOSITES)


async def _solve(
    run: CaseRun, domains: Domains, sizes: Sequence[tuple[int, int]], *composites: pb.Composite
) -> pb.GroupResult:
    """Solve gangs of (members, composite) on racks of nodes, in zones if `domains` has three levels."""
    deep = any(isinstance(inner, dict) for domain in domains.values() for inner in domain.values())
    await run.start(cluster(nodes_of(domains), [_X], trees=[tree("zone rack" if deep else "rack", domains)]))
    gangs = [gang((_X, count), id=f"gang-{number}") for number, (count, _) in enumerate(sizes)]
    for each, (_, composite) in zip(gangs, sizes, strict=True):
        each.composite = composite
    return await run.solve_one(pb.GangGroup(id="group", gangs=gangs, composites=composites))


def _placed_gangs(result: pb.GroupResult) -> set[str]:
    expect(result.outcome == PLACED, f"the group fits, but it is not placed: {result.explanation.summary}")
    return {each.gang for each in result.assignments}


@_case("T42", "Gangs of a composite share one of its domains")
async def shared_domain(run: CaseRun) -> None:
    domains = {"r0": {"a": 3}, "r1": {"b": 2, "c": 2}}
    result = await _solve(run, domains, [(2, 1), (2, 1)], pb.Composite(minimum=2, level="rack"))
    expect(_placed_gangs(result) == {"gang-0", "gang-1"}, "both gangs are needed")


@_case("T43", "Gangs of a composite that fit no domain together are not placed")
async def no_shared_domain(run: CaseRun) -> None:
    domains = {"r0": {"a": 3}, "r1": {"b": 3}}
    not_placed(await _solve(run, domains, [(2, 1), (2, 1)], pb.Composite(minimum=2, level="rack")))


@_case("T44", "Composites have domains of their own in that of their parent")
async def nested_domains(run: CaseRun) -> None:
    domains = {"z0": {"r0": {"a": 2}, "r1": {"b": 1}}, "z1": {"r2": {"c": 2}, "r3": {"d": 2}}}
    zone = pb.Composite(minimum=2, level="zone")
    racks = [pb.Composite(parent=1, minimum=1, level="rack") for _ in range(2)]
    result = await _solve(run, domains, [(2, 2), (2, 3)], zone, *racks)
    expect(_placed_gangs(result) == {"gang-0", "gang-1"}, "both gangs are needed")


@_case("T45", "Of the gangs of a composite as many as needed are placed, whichever come first")
async def some_of_several(run: CaseRun) -> None:
    result = await _solve(run, {"r0": {"a": 5}}, [(4, 1), (2, 1), (2, 1)], pb.Composite(minimum=2))
    expect(_placed_gangs(result) == {"gang-1", "gang-2"}, "only these two fit")


@_case("T46", "Gangs above the number needed are placed if they fit")
async def more_than_needed(run: CaseRun) -> None:
    result = await _solve(run, {"r0": {"a": 6}}, [(2, 1), (2, 1), (2, 1)], pb.Composite(minimum=1))
    expect(len(_placed_gangs(result)) == 3, "all three fit")

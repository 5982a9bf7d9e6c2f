"""`muster topology`: the topology trees with the capacity of their domains, and their problems."""

import difflib
import json
from typing import Any

import typer
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from muster.cli.cluster_state import Cluster, read_cluster
from muster.cli.domain_capacity import Domain, DomainCapacity, TreeCapacity, tree_capacity
from muster.cli.errors import CliError
from muster.cli.format import amount
from muster.cli.output import show
from muster.gangs.facts import Severity, TopologyTree

_FIRST_COLUMNS = ("cpu", "memory", "pods")
_ONLY_IN_JSON = "ephemeral-storage"


def show_topology(address: str, tree: str, *, with_nodes: bool, as_json: bool) -> None:
    """Print all trees, the default one first, or one by name. Raises CliError."""
    cluster = read_cluster(address)
    trees = [tree_capacity(each, cluster, with_nodes=with_nodes) for each in _chosen(cluster, tree)]
    if as_json:
        typer.echo(json.dumps({"trees": list(map(_as_json, trees))}, indent=2))
        return
    parts: list[RenderableType] = []
    for each in trees:
        parts += [*([""] if parts else []), *_tree_parts(each)]
    show(*parts)


def _chosen(cluster: Cluster, name: str) -> list[TopologyTree]:
    trees = sorted(cluster.trees.values(), key=lambda tree: (not tree.default, tree.name))
    if not name:
        return trees
    if name in cluster.trees:
        return [cluster.trees[name]]
    close = difflib.get_close_matches(name, cluster.trees, n=1)
    known = ", ".join(tree.name for tree in trees)
    hint = f"did you mean {close[0]}?" if close else f"trees: {known}" if known else "there are no trees"
    raise CliError(f"no topology tree is named {name!r}", hint=hint, usage=True)


def _tree_parts(capacity: TreeCapacity) -> list[RenderableType]:
    parts: list[RenderableType] = [Text.from_markup(_heading(capacity))]
    for problem in capacity.tree.problems:
        colour = "red" if problem.severity is Severity.BLOCKING else "yellow"
        word = "error" if problem.severity is Severity.BLOCKING else "warning"
        parts.append(Text.from_markup(f"[{colour}]{word}:[/] {escape(problem.message)}"))
    return [*parts, _table(capacity)]


def _heading(capacity: TreeCapacity) -> str:
    tree = capacity.tree
    if tree.definition is not None:
        source = f"of {tree.definition.kind} {tree.definition.namespace}/{tree.definition.name}"
    elif any(level.label_key for level in tree.levels):
        source = "by node labels"
    else:
        source = "without domains"
    levels = " > ".join(f"{level.name} ({level.label_key})" if level.label_key else level.name for level in tree.levels)
    default = ", the default" if tree.default else ""
    return f"[bold]{escape(tree.name)}[/] {escape(source)}{default}: {escape(levels)}"


def _table(capacity: TreeCapacity) -> Table:
    shown = _resources(capacity)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("DOMAIN", no_wrap=True)
    table.add_column("LEVEL", style="dim", no_wrap=True)
    table.add_column("NODES", justify="right", no_wrap=True)
    for resource in shown:
        table.add_column(f"FREE {resource.upper()}", justify="right", no_wrap=True)
    for domain in capacity.domains:
        indent = "  " * (len(domain.path) - 1)
        table.add_row(indent + escape(domain.path[-1]), escape(domain.level), *_capacity_cells(domain.capacity, shown))
    table.add_row("(all)", "", *_capacity_cells(capacity.whole, shown))
    if capacity.outside.nodes:
        table.add_row("(outside)", "", *_capacity_cells(capacity.outside, shown))
    return table


def _capacity_cells(capacity: DomainCapacity, resources: list[str]) -> list[str]:
    """Schedulable of all nodes, and free of allocatable amounts."""
    nodes = str(capacity.nodes) if capacity.usable == capacity.nodes else f"{capacity.usable}/{capacity.nodes}"
    free = [
        f"{amount(resource, capacity.free.get(resource, 0))}/{amount(resource, capacity.allocatable.get(resource, 0))}"
        for resource in resources
    ]
    return [nodes, *free]


def _resources(capacity: TreeCapacity) -> list[str]:
    allocatable = {*capacity.whole.allocatable, *capacity.outside.allocatable} - {_ONLY_IN_JSON}
    first = [resource for resource in _FIRST_COLUMNS if resource in allocatable]
    return first + sorted(allocatable.difference(first))


def _as_json(capacity: TreeCapacity) -> dict[str, Any]:
    tree = capacity.tree
    definition = tree.definition
    return {
        "name": tree.name,
        "default": tree.default,
        "definition": None
        if definition is None
        else {"kind": definition.kind, "namespace": definition.namespace, "name": definition.name},
        "levels": [{"name": level.name, "label": level.label_key or None} for level in tree.levels],
        "problems": [
            {"severity": problem.severity.name.lower(), "message": problem.message} for problem in tree.problems
        ],
        "domains": list(map(_domain_as_json, capacity.domains)),
        "whole": _capacity_as_json(capacity.whole),
        "outside": _capacity_as_json(capacity.outside),
        "absent_nodes": list(capacity.absent),
    }


def _domain_as_json(domain: Domain) -> dict[str, Any]:
    return {"path": list(domain.path), "level": domain.level, **_capacity_as_json(domain.capacity)}


def _capacity_as_json(capacity: DomainCapacity) -> dict[str, Any]:
    """Cpu in millicores, memory and storage in bytes."""
    return {
        "nodes": capacity.nodes,
        "usable_nodes": capacity.usable,
        "free": capacity.free,
        "allocatable": capacity.allocatable,
    }

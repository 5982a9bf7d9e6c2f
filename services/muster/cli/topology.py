"""`muster topology`: the topology trees with what is in their domains, and what is wrong with them."""

import difflib
import json
from typing import Any

import typer
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from muster.cli.cluster import Cluster, read_cluster
from muster.cli.errors import CliError
from muster.cli.format import amount
from muster.cli.screen import show
from muster.cli.tree_figures import Domain, Room, TreeFigures, tree_figures
from muster.gangs.facts import Severity, TopologyTree

_SHOWN_FIRST = ("cpu", "memory", "pods")
_NOT_SHOWN = "ephemeral-storage"  # unless somebody asks for JSON


def show_topology(address: str, tree: str, *, with_nodes: bool, as_json: bool) -> None:
    """Print all trees, the default one first, or the one of that name. Raises CliError."""
    cluster = read_cluster(address)
    figures = [tree_figures(each, cluster, with_nodes=with_nodes) for each in _chosen(cluster, tree)]
    if as_json:
        typer.echo(json.dumps({"trees": list(map(_as_json, figures))}, indent=2))
        return
    parts: list[RenderableType] = []
    for each in figures:
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
    hint = f"did you mean {close[0]}?" if close else f"there are: {known}" if known else "there is none"
    raise CliError(f"no topology tree is named {name!r}", hint=hint, usage=True)


# -- for people


def _tree_parts(figures: TreeFigures) -> list[RenderableType]:
    parts: list[RenderableType] = [Text.from_markup(_heading(figures))]
    for problem in figures.tree.problems:
        colour = "red" if problem.severity is Severity.BLOCKING else "yellow"
        word = "error" if problem.severity is Severity.BLOCKING else "warning"
        parts.append(Text.from_markup(f"[{colour}]{word}:[/] {escape(problem.message)}"))
    return [*parts, _table(figures)]


def _heading(figures: TreeFigures) -> str:
    tree = figures.tree
    if tree.definition is not None:
        source = f"of {tree.definition.kind} {tree.definition.namespace}/{tree.definition.name}"
    elif any(level.label_key for level in tree.levels):
        source = "by node labels"
    else:
        source = "of nodes alone"
    levels = " > ".join(f"{level.name} ({level.label_key})" if level.label_key else level.name for level in tree.levels)
    default = ", the default" if tree.default else ""
    return f"[bold]{escape(tree.name)}[/] {escape(source)}{default}: {escape(levels)}"


def _table(figures: TreeFigures) -> Table:
    shown = _resources(figures)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("DOMAIN", no_wrap=True)
    table.add_column("LEVEL", style="dim", no_wrap=True)
    table.add_column("NODES", justify="right", no_wrap=True)
    for resource in shown:
        table.add_column(f"FREE {resource.upper()}", justify="right", no_wrap=True)
    for domain in figures.domains:
        indent = "  " * (len(domain.path) - 1)
        table.add_row(indent + escape(domain.path[-1]), escape(domain.level), *_room_cells(domain.room, shown))
    table.add_row("(all)", "", *_room_cells(figures.whole, shown))
    if figures.outside.nodes:
        table.add_row("(outside)", "", *_room_cells(figures.outside, shown))
    return table


def _room_cells(room: Room, resources: list[str]) -> list[str]:
    """Nodes that take pods, of how many; what is free, of how much."""
    nodes = str(room.nodes) if room.usable == room.nodes else f"{room.usable}/{room.nodes}"
    free = [
        f"{amount(resource, room.free.get(resource, 0))}/{amount(resource, room.allocatable.get(resource, 0))}"
        for resource in resources
    ]
    return [nodes, *free]


def _resources(figures: TreeFigures) -> list[str]:
    offered = {*figures.whole.allocatable, *figures.outside.allocatable} - {_NOT_SHOWN}
    first = [resource for resource in _SHOWN_FIRST if resource in offered]
    return first + sorted(offered.difference(first))


# -- for scripts


def _as_json(figures: TreeFigures) -> dict[str, Any]:
    tree = figures.tree
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
        "domains": list(map(_domain_as_json, figures.domains)),
        "whole": _room_as_json(figures.whole),
        "outside": _room_as_json(figures.outside),
        "absent_nodes": list(figures.absent),
    }


def _domain_as_json(domain: Domain) -> dict[str, Any]:
    return {"path": list(domain.path), "level": domain.level, **_room_as_json(domain.room)}


def _room_as_json(room: Room) -> dict[str, Any]:
    """Amounts as in messages: cpu in millicores, memory and storage in bytes."""
    return {"nodes": room.nodes, "usable_nodes": room.usable, "free": room.free, "allocatable": room.allocatable}

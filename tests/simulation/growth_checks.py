"""I11 at the end of a scenario: the core keeps no more entries than that of a new leader with the same cluster."""

from typing import Final

from builders.core.entries import entries
from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from muster.coordinator.core.backfill.run_times import DISTRUST_SECONDS
from muster.coordinator.core.preemption.budgets import FORGET_SECONDS, MAX_COUNTED
from simulation.world import World

PROBE_SECONDS = 60.0
REMEMBERED_SECONDS: Final = max(MAX_COUNTED * FORGET_SECONDS, DISTRUST_SECONDS)
"""How long the core remembers what is gone: plans of preemption in vain, and declared run times that were overrun."""
SPARE: Final = 16
PER_NODE: Final = 64
"""Entries of arrays that are kept for each node that the cluster ever had at once; rows are used again."""
ARRAYS_OF_NODES: Final = ("capacity.", "eligible._masks.", "eligible._known[]")
"""Arrays with a row per node, and what is known of nodes: as large as the cluster was, whatever pods came and went."""
ROWS_OF_CLASSES: Final = ("capacity.vectors", "capacity._class_ids", "capacity._class_seats", "capacity._free_classes")
PER_CLASS: Final = 32
"""Rows of classes are used again; arrays double, and there are as many rows as there were classes at once."""
ROWS_OF_LABEL_SETS: Final = "selection."
PER_LABEL_SET: Final = 4
"""Rows of label sets are used again, in lots; there are as many as there were label sets at once."""
TREES_OF_NODES: Final = "trees._whereabouts"
"""Paths of nodes in topology trees, computed when a gang with constraints asks."""
AS_MANY_AS_NAMES: Final = ("rejections.counts", "ledger._free_in_all")
"""Metrics, with as many entries as they have labels; an amount for each resource of the nodes."""


def check_nothing_grows(world: World) -> None:
    """I11: after the same last gang has come and gone, every map and list of the core has no more entries than that of
    a coordinator that has seen nothing else.
    """
    scenario, new = world.scenario, Scenario(rules=world.scenario.rules, start=False)
    new.cluster.nodes.update(scenario.cluster.nodes)
    new.cluster.trees.update(scenario.cluster.trees)
    new.cluster.budgets.update(scenario.cluster.budgets)
    new.now, new.unix_ahead, new.replicas = scenario.now, scenario.unix_ahead, scenario.replicas
    new.start()
    for each in (scenario, new):
        _come_and_go(each)
    before, rows = entries(new.leader), PER_NODE * (len(world.nodes_seen) + len(scenario.cluster.nodes))
    for path, count in entries(scenario.leader).items():
        most = before[path]
        if path.endswith(AS_MANY_AS_NAMES):
            continue
        if any(part in path for part in ARRAYS_OF_NODES) or TREES_OF_NODES in path:
            most += rows
        if any(part in path for part in ROWS_OF_CLASSES):
            most += PER_CLASS * scenario.most_classes
        if ROWS_OF_LABEL_SETS in path:
            most += PER_LABEL_SET * scenario.most_label_sets + SPARE
        assert count <= most, f"I11: {path} has {count} entries after all is gone, {most} would do"


def _come_and_go(scenario: Scenario) -> None:
    scenario.pass_time(REMEMBERED_SECONDS)
    last = gang("last").of(2)
    scenario.add(last)
    scenario.pass_time(PROBE_SECONDS)
    scenario.delete(last)
    cluster = scenario.cluster
    scenario.change(
        remove_classes=list(cluster.classes),
        remove_selectors=list(cluster.selectors),
        remove_label_sets=list(cluster.label_sets),
        remove_static_volumes=list(cluster.static_volumes),
        remove_static_claims=list(cluster.static_claims),
    )
    scenario.pass_time(PROBE_SECONDS)
    scenario.change()  # a second batch: removed classes are forgotten with it
    scenario.pass_time(PROBE_SECONDS)

"""What commands use of forecasts: replays of a trace, and what-if, each with a placement of its own."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from muster.coordinator.core.events import Rules
from muster.forecast.answer_codec import encode_starts
from muster.forecast.answers import Limits, answer_to
from muster.forecast.cluster_stream import ClusterStream
from muster.forecast.placement_process import NoPlacement, external_placement, own_placement
from muster.forecast.present import Incomplete, OtherVersion, Unreachable, read_present
from muster.forecast.questions import Asked, BadQuestion
from muster.forecast.redaction import redact
from muster.forecast.replay import Mode, Replay, Start, at_snapshot, uniform_nodes
from muster.forecast.replay_report import as_json
from muster.forecast.rules import BadChoice, rules_of
from muster.forecast.run_lengths import RunLengths
from muster.forecast.snapshot import BadSnapshot, Snapshot
from muster.forecast.snapshot import read as read_snapshot
from muster.forecast.snapshot import write as write_snapshot
from muster.forecast.starts import StartForecaster
from muster.forecast.submissions import BadTrace, Submission, as_row, parse_requests, read_trace
from muster.forecast.synthetic import Workload, generate
from muster.forecast.v1 import forecast_pb2 as pb
from muster.forecast.virtual_cluster import VirtualCluster
from muster.forecast.whatif import Forecaster
from muster.gangs.facts import PODS, Amounts
from muster.gangs.quoting import quoted

__all__ = [
    "Asked",
    "BadChoice",
    "BadQuestion",
    "BadSnapshot",
    "BadTrace",
    "Choice",
    "Incomplete",
    "Limits",
    "Mode",
    "NoPlacement",
    "Nodes",
    "OtherVersion",
    "Snapshot",
    "Submission",
    "Unreachable",
    "Workload",
    "answered",
    "expected_starts",
    "generate",
    "read_present",
    "read_snapshot",
    "read_trace",
    "redact",
    "run_all",
    "trace_lines",
    "write_snapshot",
]

_PODS_PER_NODE: Final = 110
_OWN_PLACEMENTS: Final = ("placement", "first-fit")


@dataclass(frozen=True)
class Nodes:
    """Equal nodes in racks, free at the begin. `allocatable`: "cpu=96,memory=1Ti,nvidia.com/gpu=8"."""

    count: int
    allocatable: str
    rack_size: int = 0

    def start(self) -> Start:
        """The cluster at the begin. Raises BadChoice."""
        return uniform_nodes(self.count, self._amounts(), self.rack_size)

    def _amounts(self) -> Amounts:
        try:
            amounts = dict(parse_requests(self.allocatable))
        except ValueError as error:
            raise BadChoice(str(error)) from None
        return tuple(sorted({**amounts, PODS: _PODS_PER_NODE}.items()))


@dataclass(frozen=True)
class Choice:
    """One replay of the trace: who schedules, with which settings of the coordinator, and which placement.

    `placement`: "placement", "first-fit", or HOST:PORT of one that watches the cluster-state at `listen`.
    """

    mode: Mode = Mode.MUSTER
    settings: Mapping[str, str] = field(default_factory=dict)
    placement: str = "placement"
    listen: str = "127.0.0.1:7001"

    @property
    def name(self) -> str:
        """For people."""
        parts = [self.mode.value, *(f"{name}={value}" for name, value in self.settings.items())]
        return " ".join([*parts, *([self.placement] if self.placement != "placement" else [])])

    def rules(self, present: Mapping[str, str]) -> Rules:
        """The coordinator's rules with these settings, and those of a snapshot besides. Raises BadChoice."""
        named = {name.replace("_", "-"): value for name, value in present.items()}
        return rules_of({**named, **{name.replace("_", "-"): value for name, value in self.settings.items()}})


async def run_all(
    submissions: Sequence[Submission],
    cluster: Nodes | Snapshot,
    choices: Sequence[Choice],
    *,
    until: float | None = None,
    on_progress: Callable[[str, float, int], None] = lambda _choice, _now, _ended: None,
) -> list[dict[str, Any]]:
    """Replay the trace once for each choice; returns their figures. Raises BadChoice, NoPlacement, CannotListen.

    A snapshot is the cluster at the begin, with its pods, gangs and settings.
    """
    if isinstance(cluster, Snapshot):
        start, settings = at_snapshot(cluster), cluster.settings
        _check_choices(choices)
    else:
        start, settings = cluster.start(), {}
    _check_levels(submissions, start)
    figures = []
    rules = [choice.rules(settings) for choice in choices]
    for choice, each in zip(choices, rules, strict=True):
        name = choice.name
        replay = Replay(
            start,
            submissions,
            rules=each,
            mode=choice.mode,
            on_progress=lambda now, ended, name=name: on_progress(name, now, ended),  # type: ignore[misc]
        )
        if choice.placement in _OWN_PLACEMENTS:
            serving = own_placement(replay.stream, (choice.placement,))
        else:
            serving = external_placement(replay.stream, choice.listen, choice.placement)
        async with serving as solver:
            outcome = await replay.run(solver, until=until)
        figures.append({"name": name, **as_json(outcome)})
    return figures


def _check_choices(choices: Iterable[Choice]) -> None:
    """Raises BadChoice for a mode that cannot go on from a snapshot, whose gangs wait for Muster."""
    for choice in choices:
        if choice.mode is not Mode.MUSTER:
            raise BadChoice(
                f"mode {choice.mode.value} cannot begin with a snapshot, whose gangs wait for Muster: "
                "use mode muster, or --nodes instead of --snapshot"
            )


def _check_levels(submissions: Iterable[Submission], start: Start) -> None:
    """Raises BadChoice for a topology constraint on a level that the cluster does not have."""
    trees = {tree.name: tree for tree in start.batch.trees if tree.default}
    levels = [level for tree in trees.values() for level in tree.level_names]
    for each in submissions:
        for constraint in each.constraints:
            if constraint.level not in levels:
                raise BadChoice(
                    f"gang {quoted(each.id)} of the trace has the topology {quoted(each.topology)}, but the cluster's "
                    f"default tree has no level {quoted(constraint.level)}; levels are {', '.join(levels) or 'none'}"
                )


def trace_lines(submissions: Sequence[Submission]) -> Iterator[str]:
    """The trace as JSON lines."""
    encode = msgspec.json.Encoder().encode
    for each in submissions:
        yield encode(as_row(each)).decode()


async def answered(asked: Asked, present: Snapshot, priorities: Mapping[str, int], limits: Limits) -> pb.WhatIfResponse:
    """What would happen, found by a placement of its own. Raises BadQuestion, NoPlacement."""
    stream = ClusterStream(VirtualCluster())
    async with own_placement(stream) as solver:
        return await answer_to(asked, present, priorities, limits, Forecaster(stream, solver))


async def expected_starts(present: Snapshot, limits: Limits) -> pb.StartsResponse:
    """When gangs that wait start, found by a placement of its own, without a past. Raises NoPlacement."""
    stream = ClusterStream(VirtualCluster())
    async with own_placement(stream) as solver:
        found = await StartForecaster(stream, solver).starts(present, RunLengths(), **limits._asdict())
    return encode_starts(found, present)

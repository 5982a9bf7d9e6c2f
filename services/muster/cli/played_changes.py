"""Single changes with which a gang that waits would start now: each is played on a copy of the cluster."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from muster.cli.discovery import Kubectl
from muster.cli.endpoints import Addresses
from muster.cli.errors import CliError
from muster.coordinator.v1.coordinator_pb2 import Gang, Phase

_UNSTARTED: Final = (Phase.PHASE_QUEUED, Phase.PHASE_SOLVING, Phase.PHASE_WAITING)
"""Phases of complete gangs for which changes are played."""
_SOON_SECONDS: Final = 10.0
"""How far the gang itself is played: only changes with which it starts at once are wanted."""


class Play(NamedTuple):
    """How changes are played: by the service at `forecast`; "": by this command, which reads the cluster itself."""

    limit_seconds: float
    """For the gang as it is, and again for the changes; 0: nothing is played."""
    forecast: str
    cluster_state: Callable[[], AbstractContextManager[str]]
    """Address of cluster-state, valid within the block. Raises CliError."""


class Played(NamedTuple):
    """Changes found for a gang."""

    starts_now: bool
    """The gang would start as it is."""
    changes: list[str]
    """Each completes the sentence "it would start now if"."""


def played_changes(play: Play, coordinator: str, gang: Gang, kubectl: Kubectl | None) -> Played | None:
    """None: the gang does not wait for its start, or nothing is to be played. Raises CliError."""
    if gang.phase not in _UNSTARTED or gang.bound or not gang.members or not play.limit_seconds:
        return None
    # Imported only now, because these take longer than the rest of an explanation.
    from muster.cli.whatif import ask_service, take_snapshot
    from muster.cli.whatif_question import priority_classes
    from muster.clusterstate.suite import proposable
    from muster.forecast.suite import Asked, BadQuestion, Limits, NoPlacement, answered
    from muster.forecast.v1 import forecast_pb2 as pb
    from muster.gangs.facts import Batch
    from muster.telemetry.logs import configure_logs

    classes = proposable(priority_classes(kubectl))
    if play.forecast:
        request = pb.WhatIfRequest(
            existing_gang=gang.id,
            priority_classes=classes,
            horizon_seconds=_SOON_SECONDS,
            limit_seconds=play.limit_seconds,
        )
        answer = ask_service(play.forecast, request)
    else:
        configure_logs("explain", "error", "console")
        with play.cluster_state() as cluster_state:
            present = take_snapshot(Addresses(cluster_state, coordinator))
        limits = Limits(_SOON_SECONDS, play.limit_seconds)
        try:
            answer = asyncio.run(answered(Asked(Batch(), existing=gang.id), present, classes, limits))
        except (BadQuestion, NoPlacement) as error:  # it may have started meanwhile
            raise CliError(str(error)) from error
    return Played(answer.verdict == pb.VERDICT_NOW, list(answer.would_start_now_if))

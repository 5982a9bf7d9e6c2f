"""How long pods run: as earlier pods of the same owner did, or as they declare.

Nobody but the past knows how long pods run that declare nothing, and those that declare something usually end before:
it is a limit. So run lengths are learnt from pods that are seen to end, by owner: the series of a gang, which is its
namespace and its name without a trailing number or random suffix (`etl-28374650`, `train-x7k2p`), and where that has
too few samples and the pod declares nothing, pods of the same namespace and pod class. They are kept in memory only,
bounded in number.
"""

import math
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from muster.gangs.facts import PodFacts, PodPhase
from muster.gangs.series import series

MAX_OWNERS: Final = 20_000
MAX_SAMPLES: Final = 64
"""Samples of an owner: the last ones."""
LEAST_SAMPLES: Final = 3
"""With fewer than this nothing is learnt."""
OVERRUN_SECONDS: Final = 60.0
"""Time that a pod may take to end after the time that it declares."""

Owner = tuple[str, str, str]
"""Level, namespace, and series or pod class."""


class Known(Enum):
    """How the end of a pod is known."""

    DECLARED = auto()
    LEARNT = auto()
    UNKNOWN = auto()


class RunLength(NamedTuple):
    """Seconds from the start of a pod to its end; 0: not known."""

    seconds: float
    known: Known


class RunLengths:
    """Samples by owner; the owner that had none for the longest is forgotten first."""

    def __init__(self) -> None:
        self._samples: OrderedDict[Owner, deque[float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._samples)

    def ended(self, pod: PodFacts, unix_seconds: float) -> None:
        """A pod that ran was seen to end by itself."""
        seconds = unix_seconds - pod.started_seconds
        if not pod.started_seconds or seconds <= 0:
            return
        for owner in _owners(pod):
            samples = self._samples.setdefault(owner, deque(maxlen=MAX_SAMPLES))
            samples.append(seconds)
            self._samples.move_to_end(owner)
        while len(self._samples) > MAX_OWNERS:
            self._samples.popitem(last=False)

    def of(self, pod: PodFacts, quantile: float, unix_seconds: float) -> RunLength:
        """How long the pod runs: the quantile, given how long it has run already. No longer than it declares."""
        ran = max(0.0, unix_seconds - pod.started_seconds) if pod.seated and pod.started_seconds else 0.0
        declared = pod.expected_seconds if pod.expected_seconds > 0 else math.inf
        if ran > declared + OVERRUN_SECONDS:
            declared = math.inf
        of_series, of_class = _owners(pod)
        if (learnt := self._learnt(of_series, ran, quantile)) is not None:
            return RunLength(min(learnt, declared), Known.LEARNT)
        if math.isfinite(declared):
            return RunLength(declared, Known.DECLARED)
        if (learnt := self._learnt(of_class, ran, quantile)) is not None:
            return RunLength(learnt, Known.LEARNT)
        return RunLength(0.0, Known.UNKNOWN)

    def _learnt(self, owner: Owner, ran: float, quantile: float) -> float | None:
        """The quantile of samples that are longer than this."""
        samples = sorted(self._samples.get(owner, ()))
        longer = samples[bisect_right(samples, ran) :]
        return _quantile(longer, quantile) if len(samples) >= LEAST_SAMPLES and longer else None


def has_ended_by_itself(before: PodFacts, after: PodFacts | None) -> bool:
    """The pod ran before, and has ended, but was not evicted or deleted."""
    if not before.seated or before.deleting:
        return False
    return after is not None and after.phase is PodPhase.SUCCEEDED


def _owners(pod: PodFacts) -> tuple[Owner, Owner]:
    name = pod.gang.rpartition("/")[2] if pod.gang else pod.name
    return ("series", pod.namespace, series(name)), ("class", pod.namespace, pod.class_id)


def _quantile(ordered: Sequence[float], quantile: float) -> float:
    return ordered[min(len(ordered) - 1, int(quantile * len(ordered)))]

"""How far expected starts were off: ranges that have the share of actual starts that is stated.

For each gang that waited, the time that it waited is compared with the time that was expected, once for each horizon:
how far ahead the start was expected. The range of another forecast is what the quantiles of these ratios make of its
own expected wait. Gangs that still wait count as far as they have waited (Kaplan-Meier estimate): otherwise only those
that start early would be known at first. Kept in memory only, bounded in number.
"""

from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

LOW, HIGH = 0.1, 0.9
"""Quantiles between which the range is: it has eight of ten actual starts."""
SHARE: Final = HIGH - LOW
LEAST_SAMPLES: Final = 20
"""With fewer, nothing is known of a horizon; with fewer in all, nothing at all."""
MAX_SAMPLES: Final = 200
"""Samples of a horizon: the last ones."""
MAX_WAITING: Final = 5_000
"""Gangs that wait of which forecasts are kept; those of others are not compared."""
_SMOOTHED_SECONDS: Final = 60.0
"""Added to both times, so that a minute more or less says nothing of short waits."""
_HORIZONS: Final = (300.0, 900.0, 3600.0, 4 * 3600.0)
"""Upper ends of all horizons but the last, in seconds."""


class Expectation(NamedTuple):
    """When a start was expected, in Unix seconds, and when that was found."""

    at: float
    found_at: float


class Quantiles(NamedTuple):
    """Of the ratios of actual to expected waits. `high`: None if too many gangs still wait to know."""

    low: float
    high: float | None


class StartErrors:
    """Ratios by horizon, and forecasts for gangs that wait: the first one of each horizon."""

    def __init__(self) -> None:
        self._ratios: tuple[deque[float], ...] = tuple(deque(maxlen=MAX_SAMPLES) for _ in range(len(_HORIZONS) + 1))
        self._waiting: OrderedDict[str, dict[int, Expectation]] = OrderedDict()

    @property
    def known(self) -> int:
        """Comparisons that are kept."""
        return sum(map(len, self._ratios))

    @property
    def are_known(self) -> bool:
        """There are enough of them for ranges."""
        return self.known >= LEAST_SAMPLES

    def expect(self, starts: Iterable[tuple[str, float | None]], now: float) -> None:
        """All gangs that wait, with the Unix seconds of their expected starts; others do not wait any more."""
        expected = dict(starts)
        for gang in [gang for gang in self._waiting if gang not in expected]:
            del self._waiting[gang]
        for gang, at in expected.items():
            if at is None or (gang not in self._waiting and len(self._waiting) >= MAX_WAITING):
                continue
            self._waiting.setdefault(gang, {}).setdefault(_horizon(at - now), Expectation(at, now))

    def started(self, gang: str, now: float) -> None:
        """A gang was seen to start."""
        for horizon, expected in self._waiting.pop(gang, {}).items():
            self._ratios[horizon].append(_ratio(expected, now))

    def quantiles(self, now: float) -> "Ranges":
        """What is known now."""
        censored: list[list[float]] = [[] for _ in self._ratios]
        for expectations in self._waiting.values():
            for horizon, expected in expectations.items():
                censored[horizon].append(_ratio(expected, now))
        of_all = _quantiles(
            [each for some in self._ratios for each in some], [each for some in censored for each in some]
        )
        found = [
            _quantiles(ratios, waiting) if len(ratios) >= LEAST_SAMPLES else of_all
            for ratios, waiting in zip(self._ratios, censored, strict=True)
        ]
        return Ranges(found)


class Ranges:
    """Ranges of expected starts."""

    def __init__(self, quantiles: Sequence[Quantiles | None]) -> None:
        """`quantiles` by horizon."""
        self._quantiles = quantiles

    def of(self, at: float, now: float) -> tuple[float, float | None]:
        """Earliest and latest start of a gang that is expected to start at a time; None: that is not known."""
        found = self._quantiles[_horizon(at - now)]
        if found is None:
            return now, None
        wait = max(0.0, at - now) + _SMOOTHED_SECONDS
        earliest = now + max(0.0, found.low * wait - _SMOOTHED_SECONDS)
        latest = now + found.high * wait - _SMOOTHED_SECONDS if found.high is not None else None
        return min(at, earliest), max(at, latest) if latest is not None else None


def _horizon(seconds: float) -> int:
    return bisect_left(_HORIZONS, seconds)


def _ratio(expected: Expectation, now: float) -> float:
    wait = max(0.0, expected.at - expected.found_at)
    return (now - expected.found_at + _SMOOTHED_SECONDS) / (wait + _SMOOTHED_SECONDS)


def _quantiles(ended: Sequence[float], waiting: Sequence[float]) -> Quantiles | None:
    """Quantiles of the ratios of gangs that have started, and of those that have not and so exceed theirs."""
    if len(ended) < LEAST_SAMPLES:
        return None
    ordered = sorted([(each, True) for each in ended] + [(each, False) for each in waiting])
    low: float | None = None
    surviving, at_risk = 1.0, len(ordered)
    for ratio, has_started in ordered:
        if has_started:
            surviving *= 1 - 1 / at_risk
            if low is None and 1 - surviving >= LOW:
                low = ratio
            if 1 - surviving >= HIGH:
                return Quantiles(low if low is not None else ratio, ratio)
        at_risk -= 1
    return Quantiles(low if low is not None else ordered[0][0], None)

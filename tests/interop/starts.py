"""Checks that gangs start whole, from every change of their pods."""

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from interop.gang import GANG, JSON


@dataclass
class _Observed:
    minimum: int
    bound: set[str] = field(default_factory=set)
    """Uids of pods that have a node, have not ended and are not being deleted."""
    starting_since: float | None = None
    """When the first pod was bound while none was; None: the minimum has been reached since, or no pod is bound."""


class Starts:
    """Observes gangs; `violations` says which started with fewer pods than their minimum for longer than allowed."""

    def __init__(self, *, whole_within_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._clock = whole_within_seconds, clock
        self._gangs: dict[tuple[str, str], _Observed] = {}
        self._late: list[str] = []
        self.bindings: defaultdict[tuple[str, str], dict[str, float]] = defaultdict(dict)
        """Time at which each pod was bound, by namespace and gang, then uid."""
        self.seen: dict[str, float] = {}
        """Time at which each pod of them was first observed, by uid."""
        self.deletions: dict[str, float] = {}
        """Time at which the deletion of each pod of them was observed, by uid."""
        self.ends: dict[str, float] = {}
        """Time at which each pod of them was gone or had ended, by uid."""

    def expect(self, namespace: str, name: str, minimum: int) -> None:
        """Observe a gang that is about to be created."""
        self._gangs[namespace, name] = _Observed(minimum)

    def on_pod(self, change: str, pod: JSON) -> None:
        """Take in a change of a pod."""
        metadata = pod["metadata"]
        key = metadata["namespace"], (metadata.get("labels") or {}).get(GANG, "")
        if (gang := self._gangs.get(key)) is None:
            return
        now, uid = self._clock(), metadata["uid"]
        ended = change == "DELETED" or pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        self.seen.setdefault(uid, now)
        if ended or "deletionTimestamp" in metadata:
            self.deletions.setdefault(uid, now)
        if ended:
            self.ends.setdefault(uid, now)
        if pod["spec"].get("nodeName"):
            self.bindings[key].setdefault(uid, now)
        if pod["spec"].get("nodeName") and not ended and "deletionTimestamp" not in metadata:
            if not gang.bound:
                gang.starting_since = now
            gang.bound.add(uid)
        else:
            gang.bound.discard(uid)
        if len(gang.bound) >= gang.minimum or not gang.bound:
            self._judge(key, gang, now)
            gang.starting_since = None

    def violations(self) -> list[str]:
        """Violations up to now; call it when nothing is under way."""
        for key, gang in self._gangs.items():
            self._judge(key, gang, self._clock())
        return self._late

    def _judge(self, key: tuple[str, str], gang: _Observed, now: float) -> None:
        if gang.starting_since is not None and (seconds := now - gang.starting_since) > self._limit:
            bound = f"{len(gang.bound)} of {gang.minimum}"
            self._late.append(f"gang {'/'.join(key)} did not start whole: {seconds:.1f} s after its first bind {bound}")
            gang.starting_since = None

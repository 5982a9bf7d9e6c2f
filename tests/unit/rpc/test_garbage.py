"""Garbage in cycles is collected in the end, and not by collections that look at all objects again and again."""

import gc
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from muster.rpc.garbage import BUSY_SECONDS, GarbageCollection


class _Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def garbage() -> Iterator[GarbageCollection]:
    """Follows collections that only the test begins, of which each counts as long."""
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    gc.disable()
    collection = GarbageCollection(long_seconds=0.0)
    collection.start()
    yield collection
    gc.callbacks[:] = callbacks
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    gc.enable()


@dataclass
class Case:
    used_seconds: float
    objects: int
    collected: bool


CASES = {
    "idle": Case(used_seconds=0.1, objects=2000, collected=True),
    "busy": Case(used_seconds=10.0, objects=2000, collected=False),
    "nothing new": Case(used_seconds=0.1, objects=0, collected=False),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_i11_an_idle_process_collects_its_garbage(garbage: GarbageCollection, case: Case) -> None:
    cycle = weakref.ref(_Cycle())
    made = [[each] for each in range(case.objects)]
    garbage.collect_if_idle(case.used_seconds, 30.0)
    assert (cycle() is None) == case.collected
    assert len(made) == case.objects


def test_i11_a_process_that_is_never_idle_collects_its_garbage_too(
    garbage: GarbageCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    cycle = weakref.ref(_Cycle())
    garbage.collect_if_idle(30.0, 30.0)
    assert cycle() is not None
    later = time.monotonic() + BUSY_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: later)
    garbage.collect_if_idle(30.0, 30.0)
    assert cycle() is None


@pytest.mark.usefixtures("garbage")
@pytest.mark.parametrize("generation", [1, 2])
def test_i12_what_survived_a_long_collection_is_not_looked_at_again(generation: int) -> None:
    kept = _Cycle()
    gc.collect(generation)
    cycle, kept = weakref.ref(kept), _Cycle()
    gc.collect(generation)
    assert cycle() is not None, "it is frozen"
    assert not any(each is kept for each in gc.get_objects())


def test_i11_garbage_among_frozen_objects_is_collected_when_the_process_is_idle(garbage: GarbageCollection) -> None:
    kept: object = _Cycle()
    gc.collect()
    cycle, kept = weakref.ref(kept), [[each] for each in range(2000)]
    garbage.collect_if_idle(0.0, 30.0)
    assert cycle() is None
    assert kept

"""Counts of gangs by namespace, their starts, and their phases so far."""

import random

from builders.console.services import gang
from muster.console.feed import Feed
from muster.console.gangs import MINUTES, Gangs
from muster.coordinator.v1 import coordinator_pb2 as pb

PHASES = [number for number in pb.Phase.values() if number]


def test_counts_equal_those_of_the_gangs_that_there_are() -> None:
    """Random changes, compared with a new table of the gangs that are left."""
    choose = random.Random(1)
    gangs, current = Gangs(Feed()), dict[str, pb.Gang]()
    for step in range(2000):
        id_ = f"koordinator/ns-{choose.randrange(3)}/g{choose.randrange(8)}"
        if choose.random() < 0.3:
            current.pop(id_, None)
            gangs.remove(id_)
        else:
            fields = {"created_seconds": choose.randrange(5), "bound": choose.randrange(5)}
            current[id_] = gang(id_, choose.choice(PHASES), **fields)
            gangs.put(current[id_], step, live=True)
    fresh = Gangs(Feed())
    for each in current.values():
        fresh.put(each, 0, live=False)
    for namespaces in (None, ["ns-0"], ["ns-1", "ns-2", "none"], []):
        assert gangs.counts(namespaces) == fresh.counts(namespaces)
    assert sorted(gangs.namespaces) == sorted(fresh.namespaces)
    gangs.keep_only([])
    assert (gangs.namespaces, len(gangs.feed), gangs.ids()) == ([], 0, [])


def test_starts_are_counted_by_minute() -> None:
    gangs = Gangs(Feed())
    gangs.put(gang("koordinator/ml/a"), 0, live=False)
    gangs.put(gang("koordinator/ml/old", pb.PHASE_SATISFIED), 0, live=False)
    for phase in (pb.PHASE_PERMITTED, pb.PHASE_BINDING, pb.PHASE_SATISFIED, pb.PHASE_REPAIRING, pb.PHASE_SATISFIED):
        gangs.put(gang("koordinator/ml/a", phase), 60_000, live=True)
    gangs.put(gang("koordinator/ml/quick", pb.PHASE_SATISFIED), 180_000, live=True)
    assert gangs.starts_by_minute(200)[-3:] == [1, 0, 1]
    assert sum(gangs.starts_by_minute(60 * (MINUTES + 2))) == 1
    assert gangs.last_start_seconds == 180


def test_phases_are_remembered_with_their_time_and_bounded() -> None:
    gangs = Gangs(Feed())
    gangs.put(gang("koordinator/ml/a", pb.PHASE_QUEUED), 5, live=False)
    for step in range(200):
        gangs.put(gang("koordinator/ml/a", PHASES[step % 2]), step, live=True)
    phases = gangs.phases_of("koordinator/ml/a")
    assert len(phases) == 50
    assert (phases[-1].phase, phases[-1].unix_millis, phases[-1].known) == ("queued", 199, True)
    gangs.remove("koordinator/ml/a")
    assert gangs.phases_of("koordinator/ml/a") == []

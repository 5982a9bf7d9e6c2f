"""Random histories with lagging replicas: no quota is reserved or used twice."""

from hypothesis import given, settings
from hypothesis import strategies as st

from builders.lifecycle.quota_history import QUOTA, World
from muster.lifecycle.quota.accounting import ADMITTED_SECONDS, IDLE_SECONDS

_INDEX = st.integers(0, 5)
_STEPS = st.one_of(
    st.tuples(st.just("group"), st.integers(1, QUOTA + 1)),
    st.tuples(st.just("ungroup"), _INDEX),
    st.tuples(st.just("arrive"), _INDEX, st.integers(1, 4), _INDEX, st.booleans()),
    st.tuples(st.just("arrive"), _INDEX, st.integers(1, 4), _INDEX, st.just(False)),
    st.tuples(st.just("land"), _INDEX),
    st.tuples(st.just("land"), _INDEX),
    st.tuples(st.just("lose"), _INDEX),
    st.tuples(st.just("end"), _INDEX, st.sampled_from(["Succeeded", "Failed"])),
    st.tuples(st.just("delete"), _INDEX),
    st.tuples(st.just("sync"), _INDEX, st.integers(1, 4)),
    st.tuples(st.just("keep"), _INDEX, st.booleans()),
    st.tuples(st.just("wait"), st.sampled_from([1.0, IDLE_SECONDS, ADMITTED_SECONDS])),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(_STEPS, max_size=60))
def test_reservations_and_usage_stay_within_the_quota(steps: list[tuple[object, ...]]) -> None:
    world = World()
    for step in steps:
        _take(world, *step)
        world.check()


def _take(world: World, name: object, *given: object) -> None:
    match name, *given:
        case "group", int(cpu):
            world.create_group(cpu)
        case "ungroup", int(index):
            world.delete_group(index)
        case "arrive", int(index), int(cpu), int(of), bool(loses):
            world.arrive(index, cpu, of, loses_race=loses)
        case "land", int(index):
            world.land(index)
        case "lose", int(index):
            world.lose(index)
        case "end", int(index), str(phase):
            world.end(index, phase)
        case "delete", int(index):
            world.delete(index)
        case "sync", int(index), int(changes):
            world.sync(index, changes)
        case "keep", int(index), bool(loses):
            world.keep(index, loses_race=loses)
        case "wait", float(seconds):
            world.wait(seconds)
        case _:
            raise AssertionError(f"no such step: {name}")

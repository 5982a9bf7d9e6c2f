"""Changes with which a gang would start now, on its page: each was played by the service forecast."""

import asyncio
from typing import Any

from builders.console.guarded import OURS, Guarded
from builders.console.services import Reader, console, events, gang, services
from muster.coordinator.v1 import coordinator_pb2 as coordinator
from muster.forecast.v1 import forecast_pb2 as pb

TRAIN = "koordinator/ml/train"
CHANGES = ["node n2 were not cordoned", "disruption budget theirs/secret were no obstacle"]


def answer(**fields: Any) -> pb.WhatIfResponse:
    basis = pb.Basis(read_unix_millis=1_700_000_000_000)
    given: dict[str, Any] = {"verdict": pb.VERDICT_NEVER, "would_start_now_if": CHANGES, "basis": basis, **fields}
    return pb.WhatIfResponse(**given)


async def played(page: Reader, key: str = "found") -> dict[str, Any]:
    """What the page has of the gang once this key is set."""
    while True:
        found = (await page.until("gang")).get("played")
        if found is not None and found[key]:
            return dict(found)


async def test_readers_of_a_gang_that_waits_see_changes_that_were_played_once() -> None:
    async with services() as there, console(there.settings(forecast=there.forecast_address)) as url:
        there.forecast.answer = answer()
        there.coordinator.put(gang(TRAIN))
        async with asyncio.TaskGroup() as readers:

            async def read() -> None:
                async with events(url, f"gang={TRAIN}") as page:
                    found = await played(page)
                    assert (found["changes"], found["hidden"], found["starts_now"]) == (CHANGES, 0, False)
                    assert found["read"] == 1_700_000_000

            for _ in range(3):
                readers.create_task(read())
        [asked] = there.forecast.asked
        assert (asked.existing_gang, asked.HasField("gangs")) == (TRAIN, False)


async def test_a_gang_that_runs_or_is_incomplete_is_not_played() -> None:
    phases = coordinator.PHASE_GATHERING, coordinator.PHASE_SATISFIED, coordinator.PHASE_ENDED
    async with services() as there, console(there.settings(forecast=there.forecast_address)) as url:
        for phase in phases:
            there.coordinator.put(gang(TRAIN, phase))
            async with events(url, f"gang={TRAIN}") as page:
                found = await page.until("gang")
                while found.get("phase") != coordinator.Phase.Name(phase).removeprefix("PHASE_").lower():
                    found = await page.until("gang")
                assert found["played"] is None
        assert there.forecast.asked == []


async def test_a_gang_that_would_start_as_it_is_needs_no_change() -> None:
    async with services() as there, console(there.settings(forecast=there.forecast_address)) as url:
        there.forecast.answer = answer(verdict=pb.VERDICT_NOW, would_start_now_if=[])
        there.coordinator.put(gang(TRAIN))
        async with events(url, f"gang={TRAIN}") as page:
            found = await played(page)
    assert (found["starts_now"], found["changes"]) == (True, [])


async def test_the_page_says_why_nothing_was_played() -> None:
    async with services() as there, console(there.settings(forecast="127.0.0.1:1")) as url:
        there.coordinator.put(gang(TRAIN))
        async with events(url, f"gang={TRAIN}") as page:
            assert "the service forecast" in (await played(page, "failure"))["failure"]


async def test_changes_that_name_gangs_of_others_are_counted(guarded: Guarded) -> None:
    there = guarded.services
    there.forecast.answer = answer()
    settings = guarded.settings.model_copy(update={"forecast": there.forecast_address})
    async with console(settings) as url, events(url, f"gang={OURS}", "ann-token") as page:
        found = await played(page)
    assert (found["changes"], found["hidden"]) == (CHANGES[:1], 1)

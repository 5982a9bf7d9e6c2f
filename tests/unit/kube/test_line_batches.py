"""Batching of lines: available lines share a batch, none is lost, and a slow reader stops the sender."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from builders.wait import WAIT_SECONDS, yield_to_loop
from muster.kube.line_batches import LineBatches, Spacing

LONG_SECONDS = 10 * WAIT_SECONDS
LONG = Spacing(LONG_SECONDS, LONG_SECONDS)


class Wire:
    """Lines sent by a test; None ends them, an error breaks the stream."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self.read = 0

    def send(self, *lines: bytes | Exception | None) -> None:
        for line in lines:
            self._lines.put_nowait(line)

    async def __call__(self) -> AsyncIterator[bytes]:
        while (line := await self._lines.get()) is not None:
            if isinstance(line, Exception):
                raise line
            self.read += 1
            yield line


async def test_single_line_is_delivered_at_once() -> None:
    wire = Wire()
    async with asyncio.timeout(WAIT_SECONDS), LineBatches(wire(), 10, 1000) as batches:
        wire.send(b"a")
        assert await anext(batches) == [b"a"]
        wire.send(b"b")
        assert await anext(batches) == [b"b"]


async def test_lines_soon_after_a_batch_share_the_next_one() -> None:
    wire = Wire()
    async with asyncio.timeout(WAIT_SECONDS), LineBatches(wire(), 3, 1000, LONG) as batches:
        wire.send(b"a")
        assert await anext(batches) == [b"a"]
        wire.send(b"b")
        next_one = asyncio.create_task(anext(batches))
        await yield_to_loop()
        assert not next_one.done()
        wire.send(b"c", b"d", b"e")
        assert await next_one == [b"b", b"c", b"d"]


@pytest.mark.parametrize("spacing", [Spacing(0.001, LONG_SECONDS), Spacing(LONG_SECONDS, 0.001)])
async def test_a_batch_comes_after_a_quiet_time_or_the_longest_time(spacing: Spacing) -> None:
    wire = Wire()
    async with asyncio.timeout(WAIT_SECONDS), LineBatches(wire(), 10, 1000, spacing) as batches:
        for line in (b"a", b"b"):
            wire.send(line)
            assert await anext(batches) == [line]


async def test_the_last_batch_waits_for_nothing() -> None:
    last = Wire()
    async with asyncio.timeout(WAIT_SECONDS), LineBatches(last(), 10, 1000, LONG) as batches:
        last.send(b"a")
        assert await anext(batches) == [b"a"]
        last.send(b"b", None)
        assert [batch async for batch in batches] == [[b"b"]]


async def test_a_full_batch_waits_for_nothing() -> None:
    wire = Wire()
    async with asyncio.timeout(WAIT_SECONDS), LineBatches(wire(), 2, 1000, LONG) as batches:
        wire.send(b"a", b"b", b"c", b"d", b"e" * 1000)
        assert await anext(batches) == [b"a", b"b"]
        assert await anext(batches) == [b"c", b"d"]
        assert await anext(batches) == [b"e" * 1000]


async def test_available_lines_share_a_batch_up_to_its_size() -> None:
    wire = Wire()
    wire.send(*[b"%d" % n for n in range(25)], None)
    async with asyncio.timeout(WAIT_SECONDS), LineBatches(wire(), 10, 1000) as batches:
        got = [batch async for batch in batches]
    assert [len(batch) for batch in got] == [10, 10, 5]
    assert [line for batch in got for line in batch] == [b"%d" % n for n in range(25)]


async def test_batches_are_bounded_by_bytes() -> None:
    wire = Wire()
    wire.send(*[b"x" * 40, b"y" * 300, b"z" * 50, b"u" * 50, b"v" * 50], None)
    async with asyncio.timeout(WAIT_SECONDS), LineBatches(wire(), 10, 100) as batches:
        assert [[len(line) for line in batch] async for batch in batches] == [[40], [300], [50, 50], [50]]


async def test_slow_reader_of_long_lines_stops_the_sender() -> None:
    wire = Wire()
    wire.send(*[b"x" * 1000] * 50, None)
    async with asyncio.timeout(WAIT_SECONDS), LineBatches(wire(), 1000, 1000) as batches:
        await anext(batches)
        await yield_to_loop(100)
        assert wire.read < 20
        assert len([batch async for batch in batches]) == 49


async def test_lines_before_the_end_are_delivered() -> None:
    wire = Wire()
    wire.send(b"a", None)
    async with asyncio.timeout(WAIT_SECONDS), LineBatches(wire(), 10, 1000) as batches:
        assert [batch async for batch in batches] == [[b"a"]]


async def test_lines_before_an_error_are_delivered_first() -> None:
    wire = Wire()
    wire.send(b"a", OSError("broken"))
    async with asyncio.timeout(WAIT_SECONDS), LineBatches(wire(), 10, 1000) as batches:
        assert await anext(batches) == [b"a"]
        with pytest.raises(OSError, match="broken"):
            await anext(batches)


async def test_error_while_waiting_is_raised() -> None:
    wire = Wire()
    async with asyncio.timeout(WAIT_SECONDS), LineBatches(wire(), 10, 1000) as batches:
        waiting = asyncio.ensure_future(anext(batches))
        await yield_to_loop()
        wire.send(OSError("broken"))
        with pytest.raises(OSError, match="broken"):
            await waiting


async def test_slow_reader_stops_the_sender() -> None:
    wire = Wire()
    wire.send(*[b"x"] * 1000, None)
    async with asyncio.timeout(WAIT_SECONDS), LineBatches(wire(), 10, 1000) as batches:
        first = await anext(batches)
        await yield_to_loop(100)
        assert wire.read < 200
        rest = [len(batch) async for batch in batches]
    assert len(first) + sum(rest) == 1000


async def test_leaving_the_context_stops_reading() -> None:
    wire = Wire()
    lines = wire()
    async with asyncio.timeout(WAIT_SECONDS), LineBatches(lines, 10, 1000) as batches:
        wire.send(b"a")
        await anext(batches)
    wire.send(b"b")
    with pytest.raises(StopAsyncIteration):
        await anext(lines)

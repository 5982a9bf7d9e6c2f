"""Feeds: a reader that applies the changes since its version has the rows of the feed, however it reads."""

from hypothesis import given
from hypothesis import strategies as st

from muster.console.feed import NOTHING, Feed

KEYS = st.sampled_from("abcde")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.integers(0, 3)),
        st.tuples(st.just("remove"), KEYS, st.just(0)),
        st.tuples(st.just("read"), st.sampled_from("xy"), st.just(0)),
    ),
    max_size=60,
)


class Reader:
    def __init__(self) -> None:
        self.version, self.rows = NOTHING, dict[str, bytes]()

    def read(self, feed: Feed) -> None:
        change = feed.since(self.version)
        if change.reset:
            self.rows.clear()
        self.rows.update((row.content.decode()[0], row.content) for row in change.rows)
        for key, _ in change.removed:
            self.rows.pop(key, None)  # it came and went between two reads
        self.version = change.version


@given(STEPS)
def test_every_reader_ends_with_the_rows_of_the_feed(steps: list[tuple[str, str, int]]) -> None:
    feed, rows = Feed(), dict[str, bytes]()
    readers = {"x": Reader(), "y": Reader()}
    for reader in readers.values():
        reader.read(feed)
    for action, key, value in steps:
        if action == "put":
            rows[key] = f"{key}{value}".encode()
            feed.put(key, "ns", rows[key])
        elif action == "remove":
            rows.pop(key, None)
            feed.remove(key)
        else:
            readers[key].read(feed)
    for reader in readers.values():
        reader.read(feed)
        assert reader.rows == rows


def test_an_equal_row_changes_nothing() -> None:
    changes: list[int] = []
    feed = Feed(lambda: changes.append(1))
    for content in (b"1", b"1", b"2"):
        feed.put("a", "ns", content)
    feed.remove("b")
    assert (feed.version, len(changes)) == (2, 2)


def test_removals_that_are_forgotten_reset_the_reader() -> None:
    feed = Feed()
    for number in range(10_002):
        feed.put(str(number), "ns", b"1")
    behind = feed.version
    for number in range(10_001):
        feed.remove(str(number))
    assert feed.since(behind).reset
    assert [row.content for row in feed.since(behind).rows] == [b"1"]
    assert not feed.since(feed.version).reset


def test_rows_are_for_readers_with_rights_in_their_namespace() -> None:
    feed = Feed()
    feed.put("node", "", b"node")
    feed.put("gang", "ml", b"full", b"redacted")
    rows = feed.since(NOTHING).rows
    assert [row.for_reader(None) for row in rows] == [b"node", b"full"]
    assert [row.for_reader(frozenset({"ml"})) for row in rows] == [b"", b"redacted"]
    assert [row.for_reader(frozenset({"web", ""})) for row in rows] == [b"node", b""]

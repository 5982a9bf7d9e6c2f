"""A cache bounded by the size of its arguments."""

from hypothesis import given
from hypothesis import strategies as st

from muster.gangs.byte_cache import ByteCache, age_caches, cached_by_number, size_of


class Doubling:
    """A function that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, text: str) -> str:
        self.calls += 1
        return text * 2


def test_result_is_computed_once() -> None:
    double = Doubling()
    cache = ByteCache(double, 1_000_000)
    assert [cache(text) for text in ("a", "b", "a", "b")] == ["aa", "bb", "aa", "bb"]
    assert double.calls == 2


@given(st.lists(st.integers(0, 3000), max_size=200))
def test_size_never_exceeds_the_limit(lengths: list[int]) -> None:
    cache = ByteCache(Doubling(), 64_000)
    for length in lengths:
        assert cache("x" * length) == "x" * (2 * length)
        assert cache.used_bytes <= 64_000


def test_argument_that_would_replace_many_others_is_not_cached() -> None:
    double = Doubling()
    cache = ByteCache(double, 64_000)
    for _ in range(3):
        assert len(cache("x" * 2_000)) == 4_000
    assert (double.calls, len(cache), cache.used_bytes) == (3, 0, 0)


def test_results_that_are_used_stay_while_others_come() -> None:
    double = Doubling()
    cache = ByteCache(double, 10_000)
    for number in range(1_000):
        cache(f"other-{number}")
        cache("used")
    assert double.calls == 1_001


def test_results_that_are_not_used_go() -> None:
    double = Doubling()
    cache = ByteCache(double, 10_000)
    cache("once")
    for number in range(1_000):
        cache(f"other-{number}")
    cache("once")
    assert double.calls == 1_002


def test_size_counts_what_is_nested() -> None:
    flat = size_of("x" * 1000)
    assert size_of((("x" * 1000, b"y" * 500), None, ())) > flat + 500


def test_results_that_only_the_past_needed_go_with_time() -> None:
    double = Doubling()
    cache = ByteCache(double, 64_000)
    for number in range(100):
        cache(f"past-{number}")
    for _ in range(2):
        age_caches()
        cache("used")
    assert (len(cache), double.calls) == (2, 101), "one entry may count twice"


def test_cache_by_number_of_results_is_emptied_with_the_others() -> None:
    double = Doubling()
    cached = cached_by_number(10)(double)
    assert [cached("a"), cached("a")] == ["aa", "aa"]
    age_caches()
    assert cached("a") == "aa"
    assert (double.calls, cached.cache_info().currsize) == (2, 1)

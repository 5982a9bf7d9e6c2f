"""Bounds of compilation and evaluation: expressions of tenants that try to take time or memory."""

import sys
import tracemalloc
from collections.abc import Callable

import pytest

from builders.cel import gpu, outcome
from muster.cel.errors import BadExpression, CostLimitExceeded
from muster.cel.parser import MAX_NESTING
from muster.cel.selector import COST_LIMIT, MAX_BYTES, compile_selector

TEN = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
MEMORY = 64 * 2**20
"""Bytes that an evaluation may take at its peak."""


def nested(levels: int, body: str) -> str:
    for level in range(levels):
        body = f"{TEN}.all(x{level}, {body})"
    return body


def doubled(levels: int, first: str, step: str, last: str) -> str:
    """Bindings of which each uses the one before it several times."""
    text = last.replace("X", f"x{levels}")
    for level in range(levels, 0, -1):
        text = f"cel.bind(x{level}, {step.replace('X', f'x{level - 1}')}, {text})"
    return f"cel.bind(x0, {first}, {text})"


EXPENSIVE = {
    "nested comprehensions": nested(7, "int('1'.find('[0-9]*')) < 100"),
    "nested comprehensions of a constant": nested(7, "true"),
    "doubled strings": doubled(40, "'abcdefgh'", "X + X", "X.size() > 0"),
    "doubled bytes": doubled(40, "b'abcdefgh'", "X + X", "X.size() > 0"),
    "doubled lists": doubled(40, "[1]", "X + X", "X.size() > 0"),
    "replaced strings": doubled(8, "'a'.replace('', 'aaaaaaaa')", "X.replace('a', X)", "X.size() > 0"),
    "replaced empty strings": doubled(6, "'aaaaaaaaaa'", "X.replace('', X)", "X.size() > 0"),
    "joined lists": doubled(40, "'abcdefgh'", "[X, X, X, X].join(X)", "X.size() > 0"),
    "compared nests": doubled(35, "[1]", "[X, X]", "X == X + []"),
    "compared maps": doubled(35, "{'a': 1}", "{'a': X, 'b': X}", "X == X"),
    "flattened nests": doubled(35, "[1]", "[X, X]", "X.flatten(99).size() > 0"),
    "an error that is used often": "cel.bind(x, 1 / 0, lists.range(200000).all(i, x == 1 || true))",
    "a large range": "lists.range(9223372036854775807).size() > 0",
    "nested ranges": "lists.range(2000).all(x, lists.range(2000).all(y, y >= 0))",
    "split strings": doubled(20, "'abcdefgh'", "X + X", "X.split('').size() > 0"),
    "quadratic distinct": "lists.range(20000).distinct().size() > 0",
    "quadratic sets": "sets.contains(lists.range(20000), lists.range(20000).reverse())",
    "quadratic map": "lists.range(3000).map(x, lists.range(3000)).size() > 0",
    "patterns made in a loop": "lists.range(100000).all(x, 'a'.matches('a' + '|b'))",
    "large programs in a loop": "lists.range(100000).all(x, 'a'.matches('(a?)' + '{500}'))",
    "long texts": doubled(17, "'abcdefgh'", "X + X", "X.matches('(?:(?:a?){30}){30}c')"),
    "many matches": doubled(14, "'abcdefgh'", "X + X", "X.findAll('.*x|a').size() > 0"),
    "copied maps": "lists.range(2000).transformMap(k, v, lists.range(2000).transformMap(a, b, b)).size() > 0",
    "sorted lists": "lists.range(200).all(x, lists.range(2000).sortBy(y, -y).size() > 0)",
}


GROWING = [name for name, text in EXPENSIVE.items() if text.startswith("cel.bind") and "compared" not in name]


@pytest.mark.parametrize("name", EXPENSIVE)
def test_an_expensive_expression_ends_at_its_cost_limit(name: str) -> None:
    with pytest.raises(CostLimitExceeded, match=f"costs more than {COST_LIMIT} units"):
        compile_selector(EXPENSIVE[name]).matches(gpu())


@pytest.mark.parametrize("name", [*GROWING, "a large range", "quadratic map", "copied maps"])
def test_an_expensive_expression_takes_bounded_memory(name: str) -> None:
    selector = compile_selector(EXPENSIVE[name])
    device = gpu()

    tracemalloc.start()
    try:
        with pytest.raises(CostLimitExceeded):
            selector.matches(device)
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()


def test_the_cost_limit_is_not_absorbed() -> None:
    assert "costs more than" in str(outcome(f"true && ({nested(7, 'true')} || true)"))
    assert "costs more than" in str(outcome(f"[1].exists(x, {nested(7, 'true')} || true)"))


def test_a_lower_limit_and_the_cost_of_an_evaluation() -> None:
    selector = compile_selector(nested(2, "true"))
    cost = selector.evaluate(gpu()).cost

    assert 100 < cost < 2000
    assert selector.evaluate(gpu(), cost_limit=cost).matches
    with pytest.raises(CostLimitExceeded):
        selector.matches(gpu(), cost_limit=cost - 1)


def test_the_length_is_limited_in_bytes() -> None:
    assert outcome("true" + " " * (MAX_BYTES - 4)) is True
    assert "longer than 10240 bytes" in str(outcome("true" + " " * (MAX_BYTES - 3)))
    assert "longer than 10240 bytes" in str(outcome(f"'{'é' * (MAX_BYTES // 2)}' == ''"))


DEEP: dict[str, Callable[[int], str]] = {
    "brackets": lambda depth: "(" * depth + "true" + ")" * depth,
    "lists": lambda depth: "[" * depth + "]" * depth + ".size() >= 0",
    "maps": lambda depth: "{1: " * depth + "1" + "}" * depth + ".size() >= 0",
    "calls": lambda depth: "dyn(" * depth + "true" + ")" * depth,
    "methods": lambda depth: "'a'" + ".trim()" * depth + " == 'a'",
    "selections": lambda depth: "device" + ".attributes" * depth + " == 1",
    "indexes": lambda depth: "[1]" + "[0]" * depth + " == 1",
    "sums": lambda depth: "1 + " * depth + "1 > 0",
    "conditions": lambda depth: "true ? true : " * depth + "true",
    "conditions inside": lambda depth: "(true ? " * depth + "true" + " : true)" * depth,
    "mixed operators": lambda depth: "(true || true && 1 == 1 + 2 * -" * depth + "1" + ")" * depth,
    "bindings": lambda depth: "cel.bind(a, true, " * depth + "a" + ")" * depth,
    "comprehensions": lambda depth: "[true].all(a, " * depth + "a" + ")" * depth,
    "alternating logic": lambda depth: "(true && (false || " * depth + "true" + "))" * depth,
    "signs": lambda depth: "!-" * depth + "true",
}


@pytest.mark.parametrize("name", DEEP)
def test_deep_nesting_is_refused_without_recursion_errors(name: str) -> None:
    def within(frames: int) -> None:
        if frames:
            within(frames - 1)
            return
        for depth in (10, 20, 40, 45, 50, 90, 99, 100, 101, 500, 5000):
            found = outcome(DEEP[name](depth))
            assert isinstance(found, bool) or "recursion" not in found

    within(200)
    found = str(outcome(DEEP[name](MAX_BYTES // len(DEEP[name](100)) * 100)))
    assert found in ("True", "False") or "levels of nesting" in found or "write brackets" in found or "bytes" in found


@pytest.mark.parametrize(
    "chain",
    [
        " || ".join(["false"] * 1000 + ["true"]),
        " && ".join(["true"] * 1000),
        "3 in [" + "1, " * 3000 + "3]",
        "!" * 5000 + "true",
        "- " * 2000 + "1 == 1",
    ],
    ids=["or", "and", "list", "not", "minus"],
)
def test_long_chains_that_need_no_nesting_are_allowed(chain: str) -> None:
    assert outcome(chain) is True


def test_the_values_of_a_binding_may_be_nested_beyond_what_is_compared() -> None:
    expression = doubled(45, "[1]", "[[X]]", "X == X")

    assert "more than 64 levels cannot be compared" in str(outcome(expression))


MALFORMED = {
    "backslashes": "'" + "\\" * 5001,
    "quotes": "'" * 5000,
    "triple quotes": '"""' + '"' * 5000 + "a",
    "raw text": "r'" + "a" * 5000,
    "bytes": "b'" + "\\xff" * 2000,
    "digits": "9" * 5000,
    "hexadecimal digits": "0x" + "f" * 5000,
    "exponent": "1e" + "9" * 5000,
    "points": "1." * 3000,
    "selections": "a." * 3000,
    "slashes": "/ " * 5000,
    "question marks": "?" * 5000,
    "surrogate": "\ud800 == ''",
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED)
def test_malformed_text_is_refused(text: str) -> None:
    with pytest.raises(BadExpression):
        compile_selector(text)


@pytest.mark.parametrize(
    "pattern",
    ["(a?){1000}" * 10, "((a{100}){100}){100}", "a{1001}", "(" * 2000, "[" * 2000],
)
def test_a_regular_expression_with_a_large_program_is_refused(pattern: str) -> None:
    assert "is not a regular expression of RE2" in str(outcome(f"'a'.matches('{pattern}')"))


def test_a_catastrophic_pattern_takes_linear_time() -> None:
    cost = [
        compile_selector(f"'{'a' * length}'.matches('^(a+)+$') || true").evaluate(gpu()).cost for length in (1000, 8000)
    ]

    assert cost[1] < 9 * cost[0]


def test_the_recursion_limit_is_as_assumed() -> None:
    assert sys.getrecursionlimit() >= 10 * MAX_NESTING

"""Topology constraints: parsing, formatting, and contradictions."""

from itertools import combinations_with_replacement, product

import pytest

from muster.gangs.facts import LevelConstraint, LevelPolicy
from muster.topology.constraints import (
    MAX_PROBLEMS,
    MAX_TEXT_LENGTH,
    BadConstraints,
    as_text,
    clashes,
    contradictions,
    parse_constraints,
)
from muster.topology.divisible import MAX_GANG_SIZE, satisfiable

LEVELS = ("zone", "rack", "node")
PACK, SPREAD, PARTITION = LevelPolicy.PACK, LevelPolicy.SPREAD, LevelPolicy.PARTITION
RANGE, FACTOR = LevelPolicy.RANGE, LevelPolicy.FACTOR


def problems(text: str, minimum: int, wanted: int) -> list[str]:
    return contradictions(parse_constraints(text), LEVELS, minimum, wanted)


class TestReading:
    def test_levels_and_their_policies(self) -> None:
        assert parse_constraints("rack: hard pack; node: spread, hard range(2,4)") == (
            LevelConstraint("rack", PACK, hard=True),
            LevelConstraint("node", SPREAD),
            LevelConstraint("node", RANGE, hard=True, minimum=2, maximum=4),
        )

    @pytest.mark.parametrize(
        "text",
        [
            "zone:partition(3),factor(2)",
            "  zone :  soft partition( 3 ) ,  soft factor (2) ; ",
            "zone: Partition(3)\nzone: FACTOR(2)\n",
            "\r\nzone: SOFT partition(3), factor(2);;",
        ],
    )
    def test_spaces_case_and_line_breaks_do_not_matter(self, text: str) -> None:
        assert parse_constraints(text) == (
            LevelConstraint("zone", PARTITION, count=3),
            LevelConstraint("zone", FACTOR, count=2),
        )

    def test_names_of_levels_are_case_sensitive(self) -> None:
        (constraint,) = parse_constraints("Top of Rack/1_a.b: pack")
        assert constraint.level == "Top of Rack/1_a.b"

    @pytest.mark.parametrize("written", ["rack: hard pack", "node: spread", "node: hard range(2,4)", "zone: factor(8)"])
    def test_constraints_are_formatted_as_users_write_them(self, written: str) -> None:
        (constraint,) = parse_constraints(written)
        assert as_text(constraint) == written

    @pytest.mark.parametrize(
        ("text", "quoted"),
        [
            ("", '""'),
            (" ;\n; ", "has no constraint"),
            ("rack", '"rack"'),
            ("rack hard pack", '"rack hard pack"'),
            (": pack", '": pack"'),
            ("rack: ", '"" on level "rack"'),
            ("rack: pack,", '"" on level "rack"'),
            ("rack: hard", '"hard" on level "rack"'),
            ("rack: hardpack", '"hardpack" on level "rack"'),
            ("rack: bunch", '"bunch" on level "rack"'),
            ("rack: hard soft pack", '"hard soft pack" on level "rack"'),
            ("rack: pack()", '"pack()" on level "rack", but it is written pack'),
            ("rack: partition", "written partition(n)"),
            ("rack: partition()", "written partition(n)"),
            ("rack: range(2)", "written range(min,max)"),
            ("rack: range(2,3,4)", "written range(min,max)"),
            ("rack: range(2,)", '"range(2,)" on level "rack" with ""'),
            ("rack: factor(-1)", '"-1"'),
            ("rack: factor(1.5)", '"1.5"'),
            ("rack: factor(2147483648)", '"2147483648"'),
            ("rack: factor(٣)", '"٣"'),
            ("rack: range(2,4", '"range(2" on level "rack"'),
            ("rack: pack)", '"pack)"'),
            ("rack: pack: hard", '"pack: hard"'),
        ],
    )
    def test_malformed_constraints_are_quoted(self, text: str, quoted: str) -> None:
        with pytest.raises(BadConstraints) as raised:
            parse_constraints(text)
        assert quoted in str(raised.value)

    def test_a_text_that_is_too_long_is_rejected(self) -> None:
        with pytest.raises(BadConstraints, match=f"{MAX_TEXT_LENGTH} are allowed"):
            parse_constraints("rack: pack; " * 1000)


class TestClashes:
    @pytest.mark.parametrize(
        "text",
        [
            "rack: pack, partition(1)",
            "rack: pack, range(2,4), factor(2)",
            "rack: pack; node: spread, range(3,5), factor(5)",
            "rack: partition(2), factor(4)",
        ],
    )
    def test_compatible_constraints_do_not_clash(self, text: str) -> None:
        assert clashes(parse_constraints(text)) == []

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("rack: pack, hard spread", '"rack: pack" and "rack: hard spread" contradict each other'),
            ("rack: pack, partition(2)", '"rack: pack" and "rack: partition(2)" contradict each other'),
            ("rack: spread, partition(2)", '"rack: spread" and "rack: partition(2)" contradict each other'),
            ("rack: factor(2); node: pack; rack: factor(4)", '"rack: factor(2)" and "rack: factor(4)" are of one kind'),
            ("rack: pack, hard pack", '"rack: pack" and "rack: hard pack" are of one kind'),
            ("node: range(4,2)", '"node: range(4,2)" begins above its end: write range(2,4)'),
            ("node: range(0,2)", '"node: range(0,2)" begins at 0'),
            ("node: partition(0)", '"node: partition(0)" has the number 0'),
            ("node: factor(0), range(2,3)", '"node: factor(0)" has the number 0'),
        ],
    )
    def test_clashing_constraints_are_reported(self, text: str, message: str) -> None:
        (problem,) = clashes(parse_constraints(text))
        assert message in problem

    def test_p14_a_range_without_a_multiple_of_the_factor(self) -> None:
        (problem,) = problems("node: range(3,4), factor(5)", 6, 6)
        assert problem == (
            'constraints "node: range(3,4)" and "node: factor(5)" contradict each other: '
            "no multiple of 5 is from 3 to 4"
        )


class TestContradictionsOfAGang:
    def test_p36_a_level_that_the_tree_does_not_have(self) -> None:
        (problem,) = problems("rak: pack; node: spread", 4, 8)
        assert problem == (
            'constraint "rak: pack" is on a level that the tree does not have: its levels are zone, rack, node'
        )

    def test_the_tree_is_named_if_its_name_is_given(self) -> None:
        (problem,) = contradictions(parse_constraints("rak: pack"), ("rack", "node"), 4, 8, tree="main")
        assert problem == (
            'constraint "rak: pack" is on a level that topology tree "main" does not have: its levels are rack, node'
        )

    @pytest.mark.parametrize(
        ("text", "minimum", "wanted", "message"),
        [
            ("node: hard factor(3)", 4, 5, '"node: hard factor(3)" cannot be met by any number of members from 4 to 5'),
            ("node: hard factor(3)", 5, 5, '"node: hard factor(3)" cannot be met by 5 members'),
            ("node: hard range(3,4)", 5, 5, '"node: hard range(3,4)" cannot be met by 5 members'),
            ("rack: hard partition(9)", 1, 8, "asks for 9 domains, but there are only 8 members"),
            ("rack: hard pack; node: hard pack, hard range(2,4)", 5, 8, "cannot all be met"),
            ("zone: hard partition(2); rack: hard partition(3)", 5, 5, "cannot all be met by 5 members"),
        ],
    )
    def test_hard_constraints_that_no_number_of_members_satisfies(
        self, text: str, minimum: int, wanted: int, message: str
    ) -> None:
        (problem,) = problems(text, minimum, wanted)
        assert message in problem

    @pytest.mark.parametrize(
        ("text", "minimum", "wanted"),
        [
            ("node: factor(3)", 4, 5),
            ("rack: partition(9)", 1, 8),
            ("node: hard factor(3)", 4, 6),
            ("node: hard range(3,4)", 7, 7),
            ("zone: hard partition(2); rack: hard partition(3)", 5, 6),
            ("rack: hard pack; node: hard spread", 1, 4096),
            ("rack: hard factor(7)", 0, 0),
        ],
    )
    def test_soft_and_satisfiable_constraints_are_no_contradiction(self, text: str, minimum: int, wanted: int) -> None:
        assert problems(text, minimum, wanted) == []

    def test_a_hard_pack_makes_a_soft_one_above_it_hard(self) -> None:
        assert problems("zone: pack, hard range(1,4); node: spread", 5, 5) == []
        (problem,) = problems("zone: pack, hard range(1,4); node: hard pack", 5, 5)
        assert "cannot all be met by 5 members" in problem

    def test_partitions_are_counted_for_gangs_of_any_size(self) -> None:
        wanted = MAX_GANG_SIZE + 1
        (problem,) = problems(f"rack: hard partition({wanted + 1})", 1, wanted)
        assert f"only {wanted} members" in problem
        assert problems("node: hard factor(3)", wanted, wanted) == []


def dividings(total: int) -> list[tuple[int, ...]]:
    """All ways to divide members over domains that get at least one each."""
    return [
        sizes
        for domains in range(1, total + 1)
        for sizes in combinations_with_replacement(range(1, total + 1), domains)
        if sum(sizes) == total
    ]


DIVIDINGS = {total: dividings(total) for total in range(1, 9)}


def holds(level: list[LevelConstraint], sizes: tuple[int, ...]) -> bool:
    even = max(sizes) - min(sizes) <= 1
    return all(
        {
            PACK: len(sizes) == 1,
            SPREAD: even,
            PARTITION: even and len(sizes) == each.count,
            RANGE: all(each.minimum <= size <= each.maximum for size in sizes),
            FACTOR: all(size % max(1, each.count) == 0 for size in sizes),
        }[each.policy]
        for each in level
    )


def can_be(upper: list[LevelConstraint], lower: list[LevelConstraint], total: int) -> bool:
    """Compared with an exhaustive search on two levels."""
    below = {size for size in range(1, total + 1) if any(holds(lower, sizes) for sizes in DIVIDINGS[size])}
    if not upper:  # as if there were no such level
        return total in below
    return any(holds(upper, sizes) and below.issuperset(sizes) for sizes in DIVIDINGS[total])


SHAPES = [[], ["pack"], ["spread"], ["partition(2)"], ["partition(3)"]]
SIZES = [[], ["range(2,3)"], ["factor(2)"], ["range(2,5)", "factor(3)"], ["range(4,4)"]]


@pytest.mark.parametrize("upper", [shape + size for shape, size in product(SHAPES, SIZES)], ids=",".join)
def test_satisfiable_numbers_equal_those_of_exhaustive_search(upper: list[str]) -> None:
    for lower in [shape + size for shape, size in product(SHAPES, SIZES)]:
        given = [("rack", policy) for policy in upper] + [("node", policy) for policy in lower]
        if not given:
            continue
        constraints = parse_constraints("; ".join(f"{level}: hard {policy}" for level, policy in given))
        racks = [each for each in constraints if each.level == "rack"]
        nodes = [each for each in constraints if each.level == "node"]
        for total in DIVIDINGS:
            found = satisfiable(constraints, LEVELS, total, total)
            assert found == can_be(racks, nodes, total), f"{upper} over {lower} with {total}"


def test_only_the_first_few_problems_are_reported() -> None:
    text = "; ".join(f"level-{number}: pack" for number in range(200))
    assert len(problems(text, 1, 1)) == MAX_PROBLEMS
    assert (
        len(clashes(parse_constraints("; ".join(f"level-{number}: factor(0)" for number in range(100)))))
        == MAX_PROBLEMS
    )

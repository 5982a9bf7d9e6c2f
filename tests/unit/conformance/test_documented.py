"""The suite is documented: every case with what it asks, every group, and every feature that may be left out."""

import re
from pathlib import Path

from muster.clusterstate.v1 import clusterstate_pb2 as state_pb
from muster.conformance.case import FEATURES, Group
from muster.conformance.cases import CASES
from muster.placement.v1 import placement_pb2 as pb

DOCS = Path(__file__).parents[3] / "docs"


def test_every_case_is_listed_as_it_is_and_no_other() -> None:
    listed = (DOCS / "conformance-cases.md").read_text()
    rows = re.findall(r"^\| ([A-Z]\d\d) \| (.*) \| (.*) \|$", listed, re.MULTILINE)
    assert rows == [
        (case.id, case.asks, ", ".join(case.needs)) for group in Group for case in CASES if case.group is group
    ], "write it anew, or mend the case"


def test_ids_are_unique_and_say_the_group() -> None:
    assert len({case.id for case in CASES}) == len(CASES)
    assert {case.group for case in CASES} == set(Group)


def test_the_guide_names_every_group_and_feature() -> None:
    guide = (DOCS / "writing-a-placement.md").read_text()
    assert all(f"| {group.value} |" in guide for group in Group)
    assert all(f"| {name} |" in guide for name, number in pb.Feature.items() if number)


def test_every_feature_of_the_contract_is_known_to_the_suite() -> None:
    assert set(FEATURES) == {number for number in pb.Feature.values() if number}


def test_the_example_in_the_guide_uses_names_that_the_contracts_have() -> None:
    guide = (DOCS / "writing-a-placement.md").read_text()
    [code] = re.findall(r"^```go$(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    for package, contract in (("state", state_pb), ("pb", pb)):
        for name in set(re.findall(rf"[^\w.]{package}\.([A-Z]\w*)", code)):
            if "Service" not in name:
                assert hasattr(contract, name.split("_", 1)[0]), f"{package}.{name}"

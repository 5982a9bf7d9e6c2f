"""The suite is documented: every case with its title, every group, and every optional feature."""

import re
from pathlib import Path

from muster.clusterstate.v1 import clusterstate_pb2 as state_pb
from muster.conformance.case import FEATURES, CaseGroup
from muster.conformance.cases import CASES
from muster.placement.v1 import placement_pb2 as pb

DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_lists_exactly_the_cases() -> None:
    listed = (DOCS / "conformance-cases.md").read_text()
    rows = re.findall(r"^\| ([A-Z]\d\d) \| (.*) \| (.*) \|$", listed, re.MULTILINE)
    assert rows == [
        (case.id, case.title, ", ".join(case.needs)) for group in CaseGroup for case in CASES if case.group is group
    ], "update docs/conformance-cases.md or the case"


def test_ids_are_unique_and_begin_with_the_groups_letter() -> None:
    assert len({case.id for case in CASES}) == len(CASES)
    assert {case.group for case in CASES} == set(CaseGroup)


def test_the_guide_names_every_group_and_feature() -> None:
    guide = (DOCS / "writing-a-placement.md").read_text()
    assert all(f"| {group.value} |" in guide for group in CaseGroup)
    assert all(f"| {name} |" in guide for name, number in pb.Feature.items() if number)


def test_the_suite_knows_every_feature_of_the_contract() -> None:
    assert set(FEATURES) == {number for number in pb.Feature.values() if number}


def test_the_guides_example_uses_names_of_the_contracts() -> None:
    guide = (DOCS / "writing-a-placement.md").read_text()
    [code] = re.findall(r"^```go$(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    for package, contract in (("state", state_pb), ("pb", pb)):
        for name in set(re.findall(rf"[^\w.]{package}\.([A-Z]\w*)", code)):
            if "Service" not in name:
                assert hasattr(contract, name.split("_", 1)[0]), f"{package}.{name}"
    fields = {field.name.replace("_", "") for field in pb.SolveRequest.DESCRIPTOR.fields}
    for name in set(re.findall(r"[^\w.]ask\.(?:Get)?([A-Z]\w*)", code)):
        assert name.lower() in fields, f"SolveRequest has no field {name}"

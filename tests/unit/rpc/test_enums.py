"""Every enum of the contracts has the same names and numbers in the code that mirrors it."""

import re
from enum import IntEnum
from typing import Any

import pytest

from muster.binding.v1 import binding_pb2
from muster.clusterstate.v1 import clusterstate_pb2
from muster.coordinator.core.effects import Phase
from muster.coordinator.core.events import BindOutcome, DeallocateOutcome, EvictOutcome, RecordState
from muster.coordinator.v1 import coordinator_pb2, record_pb2
from muster.dialects.progress import WriteRule
from muster.gangs.facts import (
    DeviceObjectKind,
    GangMode,
    LevelPolicy,
    MatchPolicy,
    NodeOperator,
    PodPhase,
    RepairPolicy,
    Severity,
    TaintEffect,
    TolerationOperator,
)
from muster.gangs.selectors import Operator
from muster.gangs.solve import SolveOutcome
from muster.placement.metrics import OUTCOMES
from muster.placement.v1 import placement_pb2

CONTRACTS = (binding_pb2, clusterstate_pb2, coordinator_pb2, placement_pb2, record_pb2)
MIRRORS: dict[str, type[IntEnum]] = {
    "muster.binding.v1.BindResult.Outcome": BindOutcome,
    "muster.binding.v1.DeallocateResult.Outcome": DeallocateOutcome,
    "muster.binding.v1.EvictResult.Outcome": EvictOutcome,
    "muster.binding.v1.ObjectCondition.WriteRule": WriteRule,
    "muster.clusterstate.v1.DeviceObject.Kind": DeviceObjectKind,
    "muster.clusterstate.v1.Gang.MatchPolicy": MatchPolicy,
    "muster.clusterstate.v1.LabelRequirement.Operator": Operator,
    "muster.clusterstate.v1.Gang.Mode": GangMode,
    "muster.clusterstate.v1.Gang.RepairPolicy": RepairPolicy,
    "muster.clusterstate.v1.LevelConstraint.Policy": LevelPolicy,
    "muster.clusterstate.v1.NodeRequirement.Operator": NodeOperator,
    "muster.clusterstate.v1.Pod.Phase": PodPhase,
    "muster.clusterstate.v1.Problem.Severity": Severity,
    "muster.clusterstate.v1.TaintEffect": TaintEffect,
    "muster.clusterstate.v1.Toleration.Operator": TolerationOperator,
    "muster.coordinator.v1.Phase": Phase,
    "muster.coordinator.v1.GangRecord.State": RecordState,
    "muster.placement.v1.GroupResult.Outcome": SolveOutcome,
}
USED_AS_GENERATED = {"muster.placement.v1.Feature"}


def enums(holder: Any) -> dict[str, Any]:
    """Enum descriptors below a file or a message, by full name."""
    found = {enum.full_name: enum for enum in holder.enum_types_by_name.values()}
    messages = getattr(holder, "message_types_by_name", None) or getattr(holder, "nested_types_by_name", {})
    for message in messages.values():
        found.update(enums(message))
    return found


ENUMS = {name: enum for contract in CONTRACTS for name, enum in enums(contract.DESCRIPTOR).items()}


def test_every_enum_of_the_contracts_is_compared() -> None:
    assert ENUMS.keys() == MIRRORS.keys() | USED_AS_GENERATED


@pytest.mark.parametrize("name", sorted(MIRRORS))
def test_names_and_numbers_are_those_of_the_contract(name: str) -> None:
    prefix = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", ENUMS[name].name).upper() + "_"
    contract = {value.name.removeprefix(prefix): value.number for value in ENUMS[name].values}
    mirror = {member.name: member.value for member in MIRRORS[name]}
    assert contract.pop("UNSPECIFIED") == 0
    unspecified = {member for member, number in mirror.items() if number == 0}
    assert unspecified <= {"UNSPECIFIED", "NONE", "ALWAYS"}
    assert {member: number for member, number in mirror.items() if number} == contract


def test_placement_metrics_have_a_label_for_every_outcome() -> None:
    assert OUTCOMES.keys() == {outcome.value for outcome in SolveOutcome}

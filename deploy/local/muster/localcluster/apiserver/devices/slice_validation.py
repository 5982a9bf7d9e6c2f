"""Validation of ResourceSlices, with the texts of kube-apiserver.

Not implemented: binding conditions, policies of consumable capacity, node-allocatable resources.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from muster.localcluster.apiserver.devices.claim_validation import EFFECTS
from muster.localcluster.apiserver.devices.names import (
    attribute_causes,
    driver_causes,
    duplicate_causes,
    each_causes,
    label_causes,
    pool_causes,
)
from muster.localcluster.apiserver.devices.slice_types import (
    Attribute,
    Consumption,
    Counter,
    CounterSet,
    Device,
    Pool,
    SliceSpec,
    Taint,
)
from muster.localcluster.apiserver.metadata import qualified_name_problems, subdomain_problems, value_problems
from muster.localcluster.apiserver.pod_types import NodeSelector
from muster.localcluster.apiserver.pod_validation import node_term_causes
from muster.localcluster.apiserver.status import (
    Cause,
    forbidden_value,
    invalid_value,
    not_supported,
    required,
    too_long,
    too_many,
)

_MAX_DEVICES: Final = 128
_MAX_DEVICES_WITH_COUNTERS: Final = 64
"""Most devices of a slice with taints, consumed counters or lists as attributes."""
_MAX_ATTRIBUTES: Final = 32
_MAX_VALUE_LENGTH: Final = 64
_MAX_COUNTER_SETS: Final = 8
_MAX_COUNTERS: Final = 32
_MAX_CONSUMED_SETS: Final = 2
_MAX_TAINTS: Final = 16
_UNSET_OR_TRUE: Final = "must be either unset or set to true"
_SELECTIONS: Final = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
_DEVICE_SELECTIONS: Final = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true "
    "in the ResourceSlice spec"
)
_ONLY_PER_DEVICE: Final = (
    "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the "
    "ResourceSlice spec"
)
_is_semver: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
).fullmatch


def slice_spec_causes(spec: SliceSpec, field: str) -> Iterator[Cause]:
    """Problems of the spec of a slice."""
    yield from driver_causes(spec.driver, f"{field}.driver")
    yield from _pool_causes(spec.pool or Pool(), f"{field}.pool")
    yield from _node_causes(spec, field)
    if spec.shared_counters is not None and spec.devices is not None:
        yield invalid_value(field, "", "only one of `sharedCounters` or `devices` is allowed")
    devices, counter_sets = spec.devices or [], spec.shared_counters or []
    maximum = _MAX_DEVICES_WITH_COUNTERS if any(map(_is_large, devices)) else _MAX_DEVICES
    per_device = bool(spec.per_device_node_selection)
    yield from each_causes(
        devices, maximum, lambda each, at: _device_causes(each, at, per_device=per_device), f"{field}.devices"
    )
    yield from duplicate_causes([each.name for each in devices], f"{field}.devices")
    yield from each_causes(counter_sets, _MAX_COUNTER_SETS, _counter_set_causes, f"{field}.sharedCounters")
    yield from duplicate_causes([each.name for each in counter_sets], f"{field}.sharedCounters")


def node_selector_causes(selector: NodeSelector, field: str) -> Iterator[Cause]:
    """Problems of a node selector."""
    terms = msgspec.to_builtins(selector.nodeSelectorTerms or [])
    if not terms:
        yield required(f"{field}.nodeSelectorTerms", "must have at least one node selector term")
    for index, term in enumerate(terms):
        yield from node_term_causes(term, f"{field}.nodeSelectorTerms[{index}]")


def _pool_causes(pool: Pool, field: str) -> Iterator[Cause]:
    yield from pool_causes(pool.name, f"{field}.name")
    if (count := pool.resource_slice_count or 0) <= 0:
        yield invalid_value(f"{field}.resourceSliceCount", count, "must be greater than zero")
    if (generation := pool.generation or 0) < 0:
        yield invalid_value(f"{field}.generation", generation, "must be greater than or equal to zero")


def _node_causes(spec: SliceSpec, field: str) -> Iterator[Cause]:
    selections = []
    if spec.node_name is not None:
        selections.append("`nodeName`")
        yield from _node_name_causes(spec.node_name, f"{field}.nodeName")
    if spec.node_selector is not None:
        selections.append("`nodeSelector`")
        yield from node_selector_causes(spec.node_selector, f"{field}.nodeSelector")
        if len(spec.node_selector.nodeSelectorTerms or ()) > 1:
            at = f"{field}.nodeSelector.nodeSelectorTerms"
            yield invalid_value(at, None, "must have exactly one node selector term")
    for name, flag in (("allNodes", spec.all_nodes), ("perDeviceNodeSelection", spec.per_device_node_selection)):
        if flag:
            selections.append(f"`{name}`")
        elif flag is False:
            yield invalid_value(f"{field}.{name}", False, _UNSET_OR_TRUE)
    if not selections:
        yield required(field, _SELECTIONS)
    elif len(selections) > 1:
        yield invalid_value(field, f"{{{', '.join(selections)}}}", f"{_SELECTIONS}, but multiple fields are set")


def _node_name_causes(name: str, field: str) -> Iterator[Cause]:
    if not name:
        yield invalid_value(field, name, "must be either unset or set to a non-empty string")
    for problem in subdomain_problems(name) if name else ():
        yield invalid_value(field, name, problem)


def _is_large(device: Device) -> bool:
    """Whether fewer devices like this one may be in a slice."""
    lists = (isinstance(value, list) for each in (device.attributes or {}).values() for value in each.values)
    return bool(device.taints or device.consumes_counters) or any(lists)


def _device_causes(device: Device, field: str, *, per_device: bool) -> Iterator[Cause]:
    yield from label_causes(device.name, f"{field}.name")
    attributes, capacity = device.attributes or {}, device.capacity or {}
    if (total := len(attributes) + len(capacity)) > _MAX_ATTRIBUTES:
        detail = f"the total number of attributes and capacities must not exceed {_MAX_ATTRIBUTES}"
        yield invalid_value(field, total, detail)
        return
    for name, attribute in attributes.items():
        yield from attribute_causes(name, f"{field}.attributes")
        yield from _attribute_causes(attribute, f"{field}.attributes[{name}]")
    for name, amount in capacity.items():
        yield from attribute_causes(name, f"{field}.capacity")
        if amount.request_policy is not None and not device.allow_multiple_allocations:
            detail = "allowMultipleAllocations must be true"
            yield forbidden_value(f"{field}.capacity[{name}].requestPolicy", detail)
    yield from each_causes(device.taints or [], _MAX_TAINTS, taint_causes, f"{field}.taints")
    consumed = device.consumes_counters or []
    yield from each_causes(consumed, _MAX_CONSUMED_SETS, _consumption_causes, f"{field}.consumesCounters")
    yield from duplicate_causes([each.counter_set for each in consumed], f"{field}.consumesCounters")
    yield from _device_node_causes(device, field, per_device=per_device)


def _device_node_causes(device: Device, field: str, *, per_device: bool) -> Iterator[Cause]:
    selections = [device.node_name, device.node_selector, device.all_nodes]
    number = sum(each is not None for each in selections)
    if not per_device:
        if number:
            yield invalid_value(field, None, _ONLY_PER_DEVICE)
        return
    if number != 1:
        yield invalid_value(field, None, _DEVICE_SELECTIONS) if number else required(field, _DEVICE_SELECTIONS)
    if device.node_name is not None:
        yield from _node_name_causes(device.node_name, f"{field}.nodeName")
    if device.node_selector is not None:
        yield from node_selector_causes(device.node_selector, f"{field}.nodeSelector")
    if device.all_nodes is False:
        yield invalid_value(f"{field}.allNodes", False, _UNSET_OR_TRUE)


def _attribute_causes(attribute: Attribute, field: str) -> Iterator[Cause]:
    if len(attribute.values) != 1:
        yield invalid_value(field, "", "exactly one value must be specified")
    if [] in attribute.values:
        yield invalid_value(field, [], "must not be empty if specified")
    versions = [(f"{field}.versions[{index}]", each) for index, each in enumerate(attribute.versions or ())]
    texts = [(f"{field}.strings[{index}]", each) for index, each in enumerate(attribute.strings or ())]
    if attribute.version is not None:
        versions.append((f"{field}.version", attribute.version))
    if attribute.string is not None:
        texts.append((f"{field}.string", attribute.string))
    for at, text in (*texts, *versions):
        if len(text.encode(errors="replace")) > _MAX_VALUE_LENGTH:
            yield too_long(at, _MAX_VALUE_LENGTH)
    for at, version in versions:
        if not _is_semver(version):
            yield invalid_value(at, version, "must be a string compatible with semver.org spec 2.0.0")


def taint_causes(taint: Taint, field: str) -> Iterator[Cause]:
    """Problems of a taint of devices."""
    for problem in qualified_name_problems(taint.key or ""):
        yield invalid_value(f"{field}.key", taint.key or "", problem)
    for problem in value_problems(taint.value or ""):
        yield invalid_value(f"{field}.value", taint.value, problem)
    if not taint.effect:
        yield required(f"{field}.effect")
    elif taint.effect not in EFFECTS:
        yield not_supported(f"{field}.effect", taint.effect, EFFECTS)


def _counter_set_causes(counter_set: CounterSet, field: str) -> Iterator[Cause]:
    yield from label_causes(counter_set.name, f"{field}.name")
    yield from _counters_causes(counter_set.counters or {}, f"{field}.counters")


def _consumption_causes(consumption: Consumption, field: str) -> Iterator[Cause]:
    yield from label_causes(consumption.counter_set, f"{field}.counterSet")
    yield from _counters_causes(consumption.counters or {}, f"{field}.counters")


def _counters_causes(counters: dict[str, Counter], field: str) -> Iterator[Cause]:
    if not counters:
        yield required(field)
    elif len(counters) > _MAX_COUNTERS:
        yield too_many(field, len(counters), _MAX_COUNTERS)
    else:
        for name in counters:
            yield from label_causes(name, field)

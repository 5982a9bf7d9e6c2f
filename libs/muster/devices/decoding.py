"""Decodes objects of resource.k8s.io/v1 into facts; unknown fields are ignored, and sizes are bounded as by the API."""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from muster.devices.facts import (
    MAX_ALTERNATIVES,
    MAX_EXPRESSION_LENGTH,
    MAX_REQUESTS,
    MAX_RESULTS,
    MAX_SELECTORS,
    MAX_SLICE_DEVICES,
    Allocation,
    Alternative,
    Attribute,
    Claim,
    Config,
    Constraint,
    CounterSet,
    Device,
    DeviceClass,
    DeviceId,
    DeviceResult,
    DeviceTaint,
    DeviceToleration,
    Request,
    Selection,
    Slice,
    TaintRule,
    Unsupported,
    Version,
)
from muster.gangs.facts import NodeOperator, NodeRequirement, NodeSelectorTerm, TaintEffect, TolerationOperator
from muster.gangs.quantity import BadQuantity, parse_quantity
from muster.gangs.quoting import quoted

MAX_RESERVED_FOR: Final = 256
"""Consumers of one claim."""
EXTENDED_ANNOTATION: Final = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of claims that schedulers create for extended resources; "true"."""

_MAX_TAINTS: Final = 16
_MAX_COUNTER_SETS: Final = 8
_MAX_CONSUMED_SETS: Final = 2
_MAX_COUNTERS: Final = 32
_MAX_NAMES: Final = 48
_MAX_TERMS: Final = 64
_MAX_CONFIGS: Final = 32

_EFFECTS: Final = {"NoSchedule": TaintEffect.NO_SCHEDULE, "NoExecute": TaintEffect.NO_EXECUTE}
_TOLERATION_EFFECTS: Final = {"": TaintEffect.NONE, **_EFFECTS}
_OPERATORS: Final = {
    "In": NodeOperator.IN,
    "NotIn": NodeOperator.NOT_IN,
    "Exists": NodeOperator.EXISTS,
    "DoesNotExist": NodeOperator.DOES_NOT_EXIST,
    "Gt": NodeOperator.GT,
    "Lt": NodeOperator.LT,
}
_TOLERATION_OPERATORS: Final = {
    "": TolerationOperator.EQUAL,
    "Equal": TolerationOperator.EQUAL,
    "Exists": TolerationOperator.EXISTS,
}
_STEP: Final = re.compile(r"\.([^.\[]+)|\[([0-9]+|\.\.\.)\]")

Name = Annotated[str, Meta(max_length=253)]
Text = Annotated[str, Meta(max_length=253)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Quantity = str | int | float
T = TypeVar("T")


class BadDeviceObject(ValueError):
    """An object of resource.k8s.io that cannot be read; the message quotes the field."""


class _Meta(Struct, rename="camel", frozen=True):
    name: Name = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: list["_Owner"] | None = None
    annotations: dict[str, str] | None = None


class _Owner(Struct, frozen=True):
    uid: str = ""
    controller: bool | None = None


class _Requirement(Struct, frozen=True):
    key: str
    operator: str
    values: list[str] | None = None


class _Term(Struct, rename="camel", frozen=True):
    match_expressions: list[_Requirement] | None = None
    match_fields: list[_Requirement] | None = None


class _Selector(Struct, rename="camel", frozen=True):
    node_selector_terms: Annotated[list[_Term], Meta(max_length=_MAX_TERMS)] = []


class _Attribute(Struct, frozen=True):
    number: Int64 | None = field(default=None, name="int")
    flag: bool | None = field(default=None, name="bool")
    string: Text | None = None
    version: Text | None = None


class _Amount(Struct, frozen=True):
    value: Quantity


class _Counters(Struct, rename="camel", frozen=True):
    counter_set: Name
    counters: Annotated[dict[Name, _Amount], Meta(max_length=_MAX_COUNTERS)] | None = None
    compatibility_groups: list[str] | None = None


class _SharedCounters(Struct, frozen=True):
    name: Name
    counters: Annotated[dict[Name, _Amount], Meta(max_length=_MAX_COUNTERS)] | None = None


class _Taint(Struct, frozen=True):
    key: Name = ""
    value: Text = ""
    effect: str = ""


class _Device(Struct, rename="camel", frozen=True):
    name: Name
    attributes: Annotated[dict[str, _Attribute], Meta(max_length=_MAX_NAMES)] | None = None
    capacity: Annotated[dict[str, _Amount], Meta(max_length=_MAX_NAMES)] | None = None
    consumes_counters: Annotated[list[_Counters], Meta(max_length=_MAX_CONSUMED_SETS)] | None = None
    taints: Annotated[list[_Taint], Meta(max_length=_MAX_TAINTS)] | None = None
    node_name: Name | None = None
    node_selector: _Selector | None = None
    all_nodes: bool | None = None
    binds_to_node: bool | None = None
    binding_conditions: list[str] | None = None
    allow_multiple_allocations: bool | None = None
    node_allocatable_resources: dict[str, Any] | None = None


class _Pool(Struct, rename="camel", frozen=True):
    name: Name
    generation: Int64
    resource_slice_count: Annotated[int, Meta(ge=1, le=2**63 - 1)]


class _SliceSpec(Struct, rename="camel", frozen=True):
    driver: Name
    pool: _Pool
    node_name: Name | None = None
    node_selector: _Selector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: Annotated[list[_Device], Meta(max_length=MAX_SLICE_DEVICES)] | None = None
    shared_counters: Annotated[list[_SharedCounters], Meta(max_length=_MAX_COUNTER_SETS)] | None = None


class _Slice(Struct, frozen=True):
    spec: _SliceSpec
    metadata: _Meta = field(default_factory=_Meta)


class _Cel(Struct, frozen=True):
    expression: Annotated[str, Meta(max_length=MAX_EXPRESSION_LENGTH)]


class _DeviceSelector(Struct, frozen=True):
    cel: _Cel | None = None


class _Config(Struct, frozen=True):
    requests: Annotated[list[str], Meta(max_length=MAX_REQUESTS)] | None = None
    opaque: dict[str, Any] | None = None


_Configs = Annotated[list[_Config], Meta(max_length=_MAX_CONFIGS)] | None
_Selectors = Annotated[list[_DeviceSelector], Meta(max_length=MAX_SELECTORS)] | None


class _TaintSelector(Struct, rename="camel", frozen=True):
    driver: Name | None = None
    pool: Name | None = None
    device: Name | None = None
    device_class_name: Name | None = None
    selectors: _Selectors = None


class _TaintRuleSpec(Struct, rename="camel", frozen=True):
    taint: _Taint
    device_selector: _TaintSelector | None = None


class _TaintRule(Struct, frozen=True):
    spec: _TaintRuleSpec
    metadata: _Meta = field(default_factory=_Meta)


class _ClassSpec(Struct, rename="camel", frozen=True):
    selectors: _Selectors = None
    extended_resource_name: str | None = None
    config: _Configs = None


class _Class(Struct, frozen=True):
    metadata: _Meta = field(default_factory=_Meta)
    spec: _ClassSpec = field(default_factory=_ClassSpec)


class _Toleration(Struct, rename="camel", frozen=True):
    key: Name = ""
    operator: str = ""
    value: Text = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class _Exact(Struct, rename="camel", frozen=True):
    device_class_name: Name
    name: Name = ""
    selectors: _Selectors = None
    allocation_mode: str = ""
    count: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    admin_access: bool | None = None
    tolerations: Annotated[list[_Toleration], Meta(max_length=_MAX_TAINTS)] | None = None
    capacity: Any = None
    derived_attributes: list[Any] | None = None


class _Request(Struct, rename="camel", frozen=True):
    name: Name
    exactly: _Exact | None = None
    first_available: Annotated[list[_Exact], Meta(max_length=MAX_ALTERNATIVES)] | None = None


class _Constraint(Struct, rename="camel", frozen=True):
    requests: Annotated[list[str], Meta(max_length=MAX_REQUESTS)] | None = None
    match_attribute: Text | None = None
    distinct_attribute: Text | None = None


class _DeviceClaim(Struct, frozen=True):
    requests: Annotated[list[_Request], Meta(max_length=MAX_REQUESTS)] | None = None
    constraints: Annotated[list[_Constraint], Meta(max_length=MAX_REQUESTS)] | None = None
    config: _Configs = None


class _ClaimSpec(Struct, frozen=True):
    devices: _DeviceClaim = field(default_factory=_DeviceClaim)


class _Result(Struct, rename="camel", frozen=True):
    request: str
    driver: Name
    pool: Name
    device: Name
    admin_access: bool | None = None
    tolerations: Annotated[list[_Toleration], Meta(max_length=_MAX_TAINTS)] | None = None
    share_id: str | None = field(default=None, name="shareID")
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None


class _Results(Struct, frozen=True):
    results: Annotated[list[_Result], Meta(max_length=MAX_RESULTS)] | None = None


class _Allocation(Struct, rename="camel", frozen=True):
    devices: _Results = field(default_factory=_Results)
    node_selector: _Selector | None = None


class _Consumer(Struct, frozen=True):
    uid: str = ""


class _Condition(Struct, frozen=True):
    type: str = ""
    status: str = ""


class _DeviceStatus(Struct, frozen=True):
    driver: Name = ""
    pool: Name = ""
    device: Name = ""
    share_id: str | None = field(default=None, name="shareID")
    conditions: list[_Condition] | None = None


class _ClaimStatus(Struct, rename="camel", frozen=True):
    allocation: _Allocation | None = None
    reserved_for: Annotated[list[_Consumer], Meta(max_length=MAX_RESERVED_FOR)] | None = None
    devices: list[_DeviceStatus] | None = None


class _Claim(Struct, frozen=True):
    metadata: _Meta = field(default_factory=_Meta)
    spec: _ClaimSpec = field(default_factory=_ClaimSpec)
    status: _ClaimStatus | None = None


def decode_slice(fields: object) -> Slice:
    """A ResourceSlice from the fields of its JSON. Raises BadDeviceObject."""
    read = _read("ResourceSlice", fields, _Slice)
    spec = read.spec
    try:
        return Slice(
            name=read.metadata.name,
            driver=spec.driver,
            pool=spec.pool.name,
            generation=spec.pool.generation,
            count=spec.pool.resource_slice_count,
            node_name=spec.node_name or "",
            node_selector=_selection(spec.node_selector),
            all_nodes=bool(spec.all_nodes),
            per_device=bool(spec.per_device_node_selection),
            devices=tuple(_device(spec.driver, each) for each in spec.devices or ()),
            shared=tuple(CounterSet(each.name, _amounts(each.counters)) for each in spec.shared_counters or ()),
        )
    except (BadQuantity, _BadValue) as error:
        raise BadDeviceObject(f"ResourceSlice {quoted(read.metadata.name)}: {error}") from None


def decode_class(fields: object) -> DeviceClass:
    """A DeviceClass from the fields of its JSON. Raises BadDeviceObject."""
    read = _read("DeviceClass", fields, _Class)
    selectors, unsupported = _expressions(read.spec.selectors)
    return DeviceClass(
        name=read.metadata.name,
        selectors=selectors,
        extended_resource=read.spec.extended_resource_name or "",
        created_seconds=_seconds(read.metadata.creation_timestamp),
        unsupported=unsupported,
        config=tuple(each.opaque for each in _configs(read.spec.config)),
    )


def decode_taint_rule(fields: object) -> TaintRule:
    """A DeviceTaintRule from the fields of its JSON. Raises BadDeviceObject."""
    read = _read("DeviceTaintRule", fields, _TaintRule)
    selector = read.spec.device_selector
    if selector is None:
        return TaintRule(read.metadata.name, _taint(read.spec.taint), selects=False)
    selectors, unsupported = _expressions(selector.selectors)
    return TaintRule(
        name=read.metadata.name,
        taint=_taint(read.spec.taint),
        selects=unsupported is None,
        driver=selector.driver or "",
        pool=selector.pool or "",
        device=selector.device or "",
        device_class=selector.device_class_name or "",
        selectors=selectors,
    )


def decode_claim(fields: object) -> Claim:
    """A ResourceClaim from the fields of its JSON. Raises BadDeviceObject."""
    read = _read("ResourceClaim", fields, _Claim)
    meta, status = read.metadata, read.status or _ClaimStatus()
    try:
        return Claim(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            requests=tuple(map(_request, read.spec.devices.requests or ())),
            constraints=tuple(map(_constraint, read.spec.devices.constraints or ())),
            allocation=None if status.allocation is None else _allocation(status.allocation),
            reserved_for=tuple(each.uid for each in status.reserved_for or ()),
            owner=next((each.uid for each in meta.owner_references or () if each.controller), ""),
            deleting=meta.deletion_timestamp is not None,
            config=_configs(read.spec.devices.config),
            extended=(meta.annotations or {}).get(EXTENDED_ANNOTATION) == "true",
            version=meta.resource_version,
            unmet=_unmet(status),
        )
    except _BadValue as error:
        raise BadDeviceObject(f"ResourceClaim {quoted(f'{meta.namespace}/{meta.name}')}: {error}") from None


class _BadValue(ValueError):
    """A value that the API server would not store."""


def _read(kind: str, fields: object, shape: type[T]) -> T:
    try:
        return msgspec.convert(fields, shape)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at ")
        path = path.strip("`")
        raise BadDeviceObject(
            f"{kind} {quoted(_name(fields))}: {path.removeprefix('$.') or kind} is {_at(fields, path)}: {message}"
        ) from None


def _name(fields: object) -> str:
    meta = fields.get("metadata") if isinstance(fields, dict) else None
    name = meta.get("name") if isinstance(meta, dict) else None
    return name if isinstance(name, str) else ""


def _at(fields: object, path: str) -> str:
    """The value at the path of an error, quoted."""
    value = fields
    for key, index in _STEP.findall(path):
        if key and isinstance(value, dict) and key in value:
            value = value[key]
        elif index.isdecimal() and isinstance(value, list) and int(index) < len(value):
            value = value[int(index)]
        else:
            break
    if isinstance(value, list | dict):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    return quoted(value if isinstance(value, str) else repr(value))


def _device(driver: str, read: _Device) -> Device:
    consumes = read.consumes_counters or ()
    unsupported = None
    if read.binding_conditions:
        unsupported = Unsupported.BINDING_CONDITIONS
    elif read.allow_multiple_allocations:
        unsupported = Unsupported.CONSUMABLE_CAPACITY
    elif read.node_allocatable_resources:
        unsupported = Unsupported.NODE_ALLOCATABLE_RESOURCES
    elif any(each.compatibility_groups for each in consumes):
        unsupported = Unsupported.COMPATIBILITY_GROUPS
    values = {name: _attribute(each) for name, each in (read.attributes or {}).items()}
    return Device(
        name=read.name,
        driver=driver,
        attributes=_qualified(driver, {name: value for name, value in values.items() if value is not None}),
        capacity=_qualified(driver, {name: _nanos(each.value) for name, each in (read.capacity or {}).items()}),
        consumes=tuple(CounterSet(each.counter_set, _amounts(each.counters)) for each in consumes),
        taints=tuple(map(_taint, read.taints or ())),
        node_name=read.node_name or "",
        node_selector=_selection(read.node_selector),
        all_nodes=bool(read.all_nodes),
        binds_to_node=bool(read.binds_to_node),
        unsupported=unsupported,
    )


def _taint(read: _Taint) -> DeviceTaint:
    """The taint; effects that are not known have no effect."""
    return DeviceTaint(read.key, read.value, _EFFECTS.get(read.effect, TaintEffect.NONE))


def _qualified(driver: str, values: dict[str, T]) -> dict[str, T]:
    """By qualified name; a name that the driver qualified itself takes precedence."""
    every = {name if "/" in name else f"{driver}/{name}": value for name, value in values.items()}
    if len(every) == len(values):
        return every
    short = {f"{driver}/{name}": value for name, value in values.items() if "/" not in name}
    return short | {name: value for name, value in values.items() if "/" in name}


def _attribute(read: _Attribute) -> Attribute | None:
    """The value; None for lists and types that are not known."""
    if read.version is not None:
        return Version(read.version)
    for value in (read.string, read.flag, read.number):
        if value is not None:
            return value
    return None


def _nanos(value: Quantity) -> int:
    return parse_quantity(value if isinstance(value, str) else str(value))


def _amounts(read: dict[str, _Amount] | None) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, _nanos(each.value)) for name, each in (read or {}).items()))


def _selection(read: _Selector | None) -> Selection:
    if read is None:
        return None
    return tuple(
        NodeSelectorTerm(_requirements(each.match_expressions), _requirements(each.match_fields))
        for each in read.node_selector_terms
    )


def _requirements(read: list[_Requirement] | None) -> tuple[NodeRequirement, ...]:
    return tuple(
        NodeRequirement(each.key, _known(_OPERATORS, each.operator, "node selector operator"), tuple(each.values or ()))
        for each in read or ()
    )


def _known(values: dict[str, T], text: str, what: str) -> T:
    if text not in values:
        raise _BadValue(f"{what} {quoted(text)} is unknown; known are {', '.join(filter(None, values))}")
    return values[text]


def _configs(read: list[_Config] | None) -> tuple[Config, ...]:
    return tuple(
        Config(msgspec.json.encode(each.opaque).decode(), tuple(each.requests or ()))
        for each in read or ()
        if each.opaque is not None
    )


def _expressions(read: list[_DeviceSelector] | None) -> tuple[tuple[str, ...], Unsupported | None]:
    expressions = tuple(each.cel.expression for each in read or () if each.cel is not None)
    return expressions, Unsupported.SELECTOR_TYPE if len(expressions) < len(read or ()) else None


def _request(read: _Request) -> Request:
    exact = (read.exactly,) if read.exactly is not None else tuple(read.first_available or ())
    return Request(read.name, tuple(_alternative(each, read.exactly is None) for each in exact))


def _alternative(read: _Exact, named: bool) -> Alternative:
    selectors, unsupported = _expressions(read.selectors)
    if read.capacity is not None:
        unsupported = Unsupported.CONSUMABLE_CAPACITY
    elif read.derived_attributes:
        unsupported = Unsupported.DERIVED_ATTRIBUTES
    elif read.allocation_mode not in ("", "ExactCount", "All"):
        unsupported = Unsupported.ALLOCATION_MODE
    return Alternative(
        device_class=read.device_class_name,
        name=read.name if named else "",
        selectors=selectors,
        count=0 if read.allocation_mode == "All" else read.count or 1,
        admin_access=bool(read.admin_access),
        tolerations=_tolerations(read.tolerations),
        unsupported=unsupported,
    )


def _tolerations(read: list[_Toleration] | None) -> tuple[DeviceToleration, ...]:
    return tuple(
        DeviceToleration(
            each.key,
            _known(_TOLERATION_OPERATORS, each.operator, "toleration operator"),
            each.value,
            _known(_TOLERATION_EFFECTS, each.effect, "toleration effect"),
            each.toleration_seconds,
        )
        for each in read or ()
    )


def _constraint(read: _Constraint) -> Constraint:
    requests = tuple(read.requests or ())
    if read.match_attribute is not None:
        return Constraint(read.match_attribute, False, requests)
    if read.distinct_attribute is not None:
        return Constraint(read.distinct_attribute, True, requests)
    return Constraint(requests=requests, unsupported=Unsupported.CONSTRAINT_TYPE)


def _allocation(read: _Allocation) -> Allocation:
    return Allocation(
        tuple(
            DeviceResult(
                each.request,
                DeviceId(each.driver, each.pool, each.device),
                bool(each.admin_access),
                _tolerations(each.tolerations),
            )
            for each in read.devices.results or ()
        ),
        _selection(read.node_selector),
    )


def _unmet(status: _ClaimStatus) -> str:
    """A binding condition of an allocated device that is not true, or a binding failure condition that is."""
    results = (status.allocation.devices.results if status.allocation is not None else None) or ()
    results = [each for each in results if each.binding_conditions]
    if not results:
        return ""
    true = {
        (each.driver, each.pool, each.device, each.share_id): {
            one.type for one in each.conditions or () if one.status == "True"
        }
        for each in status.devices or ()
    }
    for each in results:
        met: set[str] = true.get((each.driver, each.pool, each.device, each.share_id), set())
        device = DeviceId(each.driver, each.pool, each.device)
        for name in each.binding_failure_conditions or ():
            if name in met:
                return f"the binding failure condition {quoted(name)} of device {device} is true"
        for name in each.binding_conditions or ():
            if name not in met:
                return f"the binding condition {quoted(name)} of device {device} is not true"
    return ""


def _seconds(timestamp: str | None) -> int:
    try:
        return int(datetime.fromisoformat(timestamp).astimezone(UTC).timestamp()) if timestamp else 0
    except (ValueError, OverflowError):
        return 0

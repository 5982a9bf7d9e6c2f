"""Validation of claim specs, templates and device classes, with the texts of kube-apiserver.

Not implemented: requests of capacity, derived attributes, the estimated cost of expressions.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from muster.cel.errors import BadExpression
from muster.cel.selector import MAX_BYTES, compile_selector
from muster.localcluster.apiserver.devices.names import (
    attribute_causes,
    driver_causes,
    duplicate_causes,
    each_causes,
    label_causes,
    subdomain_causes,
)
from muster.localcluster.apiserver.devices.types import (
    ClaimSpec,
    ClassSpec,
    Config,
    Constraint,
    DeviceClaim,
    Exact,
    Request,
    Selector,
    Toleration,
)
from muster.localcluster.apiserver.metadata import qualified_name_problems, value_problems
from muster.localcluster.apiserver.status import (
    Cause,
    invalid_value,
    not_supported,
    required,
    too_long,
)

MAX_REQUESTS: Final = 32
MAX_CONFIGS: Final = 32
EFFECTS: Final = ("NoExecute", "NoSchedule", "None")

_MAX_CONSTRAINTS: Final = 32
_MAX_ALTERNATIVES: Final = 8
_MAX_SELECTORS: Final = 32
_MAX_PARAMETER_BYTES: Final = 10 * 1024
_MODES: Final = ("All", "ExactCount")
_ONE_OF: Final = "exactly one of `exactly` or `firstAvailable` is required"
_NO_SUCH_REQUEST: Final = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)

Names = Mapping[str, frozenset[str]]
"""Names of requests -> names of their subrequests."""


def request_names(devices: DeviceClaim | None) -> Names:
    requests = (devices.requests if devices is not None else None) or ()
    return {each.name or "": frozenset(sub.name or "" for sub in each.first_available or ()) for each in requests}


def claim_spec_causes(spec: ClaimSpec, field: str) -> Iterator[Cause]:
    """Problems of the spec of a claim or template."""
    devices = spec.devices or DeviceClaim()
    names, field = request_names(devices), f"{field}.devices"
    requests, constraints, configs = devices.requests or [], devices.constraints or [], devices.config or []
    yield from each_causes(requests, MAX_REQUESTS, _request_causes, f"{field}.requests")
    yield from duplicate_causes([each.name for each in requests], f"{field}.requests")
    yield from each_causes(
        constraints, _MAX_CONSTRAINTS, lambda each, at: _constraint_causes(each, at, names), f"{field}.constraints"
    )
    yield from each_causes(configs, MAX_CONFIGS, lambda each, at: config_causes(each, at, names), f"{field}.config")


def class_spec_causes(spec: ClassSpec, field: str) -> Iterator[Cause]:
    """Problems of the spec of a device class."""
    yield from each_causes(spec.selectors or [], _MAX_SELECTORS, _selector_causes, f"{field}.selectors")
    yield from each_causes(spec.config or [], MAX_CONFIGS, _driver_config_causes, f"{field}.config")
    name = spec.extended_resource_name
    if name is not None and not _is_extended_resource(name):
        yield invalid_value(f"{field}.extendedResourceName", name, "must be a valid extended resource name")


def reference_causes(name: str | None, names: Names, field: str) -> Iterator[Cause]:
    """Problems of a reference to a request ("request") or subrequest ("request/subrequest")."""
    request, slash, subrequest = (name or "").partition("/")
    if request not in names or (slash and subrequest not in names[request]):
        yield invalid_value(field, name or "", _NO_SUCH_REQUEST)


def config_causes(config: Config, field: str, names: Names) -> Iterator[Cause]:
    """Problems of the configuration of a claim or allocation."""
    yield from _references_causes(config.requests or [], names, f"{field}.requests")
    yield from _driver_config_causes(config, field)


def toleration_causes(toleration: Toleration, field: str) -> Iterator[Cause]:
    if toleration.key:
        for problem in qualified_name_problems(toleration.key):
            yield invalid_value(f"{field}.key", toleration.key, problem)
    if toleration.operator == "Exists":
        if toleration.value:
            yield invalid_value(f"{field}.value", toleration.value, "must be empty for operator `Exists`")
    elif toleration.operator == "Equal":
        for problem in value_problems(toleration.value or ""):
            yield invalid_value(f"{field}.value", toleration.value, problem)
    else:
        yield not_supported(f"{field}.operator", toleration.operator, ("Equal", "Exists"))
    if toleration.effect and toleration.effect not in EFFECTS:
        yield not_supported(f"{field}.effect", toleration.effect, EFFECTS)


def _references_causes(references: list[str], names: Names, field: str) -> Iterator[Cause]:
    yield from each_causes(references, MAX_REQUESTS, lambda each, at: reference_causes(each, names, at), field)
    yield from duplicate_causes(references, field)


def _request_causes(request: Request, field: str) -> Iterator[Cause]:
    yield from label_causes(request.name, f"{field}.name")
    alternatives = request.first_available or []
    if request.exactly is not None and alternatives:
        yield invalid_value(field, None, f"{_ONE_OF}, but multiple fields are set")
    elif request.exactly is not None:
        yield from _exact_causes(request.exactly, f"{field}.exactly")
    elif alternatives:
        at = f"{field}.firstAvailable"
        yield from each_causes(alternatives, _MAX_ALTERNATIVES, _subrequest_causes, at)
        yield from duplicate_causes([each.name for each in alternatives], at)
    else:
        yield required(field, _ONE_OF)


def _subrequest_causes(subrequest: Exact, field: str) -> Iterator[Cause]:
    yield from label_causes(subrequest.name, f"{field}.name")
    yield from _exact_causes(subrequest, field)


def _exact_causes(exact: Exact, field: str) -> Iterator[Cause]:
    yield from subdomain_causes(exact.device_class_name, f"{field}.deviceClassName")
    yield from each_causes(exact.selectors or [], _MAX_SELECTORS, _selector_causes, f"{field}.selectors")
    count = exact.count or 0
    if exact.allocation_mode not in _MODES:
        yield not_supported(f"{field}.allocationMode", exact.allocation_mode, _MODES)
    elif exact.allocation_mode == "All" and count != 0:
        yield invalid_value(f"{field}.count", count, "must not be specified when allocationMode is 'All'")
    elif exact.allocation_mode == "ExactCount" and count <= 0:
        yield invalid_value(f"{field}.count", count, "must be greater than zero")
    for index, toleration in enumerate(exact.tolerations or ()):
        yield from toleration_causes(toleration, f"{field}.tolerations[{index}]")


def _selector_causes(selector: Selector, field: str) -> Iterator[Cause]:
    if selector.cel is None:
        yield required(f"{field}.cel")
        return
    field, expression = f"{field}.cel.expression", selector.cel.expression or ""
    if len(expression.encode(errors="replace")) > MAX_BYTES:
        yield too_long(field, MAX_BYTES)
        return
    try:
        compile_selector(expression)
    except BadExpression as error:
        yield invalid_value(field, expression, f"at character {error.position + 1}: {error.reason}")


def _constraint_causes(constraint: Constraint, field: str, names: Names) -> Iterator[Cause]:
    yield from _references_causes(constraint.requests or [], names, f"{field}.requests")
    if constraint.match_attribute is not None:
        yield from attribute_causes(constraint.match_attribute, f"{field}.matchAttribute", domain_required=True)
    elif constraint.distinct_attribute is not None:
        yield from attribute_causes(constraint.distinct_attribute, f"{field}.distinctAttribute", domain_required=True)
    else:
        yield required(field, 'exactly one of "matchAttribute" or "distinctAttribute" is required')


def _driver_config_causes(config: Config, field: str) -> Iterator[Cause]:
    if config.opaque is None:
        yield required(f"{field}.opaque")
        return
    yield from driver_causes(config.opaque.driver, f"{field}.opaque.driver")
    parameters = config.opaque.parameters
    if parameters is None:
        yield required(f"{field}.opaque.parameters")
    elif not isinstance(parameters, dict):
        yield invalid_value(f"{field}.opaque.parameters", "<value omitted>", "must be a valid JSON object")
    elif len(msgspec.json.encode(parameters)) > _MAX_PARAMETER_BYTES:
        yield too_long(f"{field}.opaque.parameters", _MAX_PARAMETER_BYTES)


def _is_extended_resource(name: str) -> bool:
    domain, slash, _ = name.partition("/")
    native = domain == "kubernetes.io" or domain.endswith(".kubernetes.io") or name.startswith("requests.")
    return bool(slash) and not native and not any(qualified_name_problems(name))

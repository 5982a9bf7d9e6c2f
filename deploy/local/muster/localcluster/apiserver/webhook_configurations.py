"""ValidatingWebhookConfigurations: validation, and selection of the webhooks of a request.

Not implemented: matchConditions (CEL), and webhooks behind a Service, which are treated as unreachable.
"""

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from muster.localcluster.apiserver.access.users import ADMINISTRATOR, User
from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.kinds import Kind, Rules
from muster.localcluster.apiserver.selectors import LabelRequirement, label_selector
from muster.localcluster.apiserver.status import (
    Cause,
    forbidden_value,
    invalid_value,
    not_supported,
    required,
)
from muster.localcluster.apiserver.store import Object

CONFIGURATIONS: Final = "validatingwebhookconfigurations.admissionregistration.k8s.io"

_GROUP: Final = "admissionregistration.k8s.io"
_OPERATIONS: Final = ("CREATE", "UPDATE", "DELETE", "CONNECT", "*")
_POLICIES: Final = ("Fail", "Ignore")
_SIDE_EFFECTS: Final = ("None", "NoneOnDryRun")
_MAX_TIMEOUT_SECONDS: Final = 30
_MIN_NAME_SEGMENTS: Final = 3


class ConfigurationRules(Rules):
    """Validation of ValidatingWebhookConfigurations."""

    counts_generations = True
    keeps_status_apart = False

    def default(self, obj: Object) -> None:
        for webhook in obj.get("webhooks") or ():
            webhook.setdefault("failurePolicy", "Fail")
            webhook.setdefault("matchPolicy", "Equivalent")
            webhook.setdefault("namespaceSelector", {})
            webhook.setdefault("objectSelector", {})
            webhook.setdefault("timeoutSeconds", 10)
            for rule in webhook.get("rules") or ():
                rule.setdefault("scope", "*")

    def validate(self, obj: Object) -> Iterable[Cause]:
        for index, webhook in enumerate(obj.get("webhooks") or ()):
            yield from _webhook_causes(f"webhooks[{index}]", webhook)


@dataclass(frozen=True)
class Request:
    """Subject of an AdmissionReview. `object` is None for deletions, `old` for creations."""

    operation: str
    kind: Kind
    namespace: str | None
    name: str
    subresource: str = ""
    object: Object | None = None
    old: Object | None = None
    dry_run: bool = False
    options: Object = field(default_factory=dict)
    user: User = ADMINISTRATOR


@dataclass(frozen=True)
class Webhook:
    """Webhook to call."""

    name: str
    url: str
    """URL; empty: behind a Service."""
    service: str
    ca_bundle: bytes
    timeout_seconds: int
    ignores_failures: bool


def has_matching_rule(cluster: Cluster, operation: str, kind: Kind, subresource: str) -> bool:
    """Whether any webhook has a matching rule; its selectors may still exclude the request."""
    return any(
        _has_rule(webhook, operation, kind, subresource)
        for webhook in _registered(cluster)
        if kind.group != _GROUP  # otherwise a configuration that rejects everything could not be repaired
    )


def matching_webhooks(cluster: Cluster, request: Request) -> list[Webhook]:
    """Webhooks whose rules and selectors match the request."""
    if request.kind.group == _GROUP:
        return []
    labels = _namespace_labels(cluster, request)
    objects = [each["metadata"].get("labels") or {} for each in (request.object, request.old) if each is not None]
    return [
        _parsed(webhook)
        for webhook in _registered(cluster)
        if _has_rule(webhook, request.operation, request.kind, request.subresource)
        and (labels is None or _meets(_requirements(webhook, "namespaceSelector"), labels))
        and any(_meets(_requirements(webhook, "objectSelector"), each) for each in objects)
    ]


def _registered(cluster: Cluster) -> Iterator[Object]:
    for record in cluster.store.collection(CONFIGURATIONS).records.values():
        yield from record.object.get("webhooks") or ()


def _has_rule(webhook: Object, operation: str, kind: Kind, subresource: str) -> bool:
    return any(_covers(rule, operation, kind, subresource) for rule in webhook.get("rules") or ())


def _covers(rule: Object, operation: str, kind: Kind, subresource: str) -> bool:
    scope = rule.get("scope", "*")
    return (
        _names(rule.get("operations"), operation)
        and _names(rule.get("apiGroups"), kind.group)
        and _names(rule.get("apiVersions"), kind.version)
        and any(_is_resource(each, kind.plural, subresource) for each in rule.get("resources") or ())
        and (scope == "*" or (scope == "Namespaced") is kind.namespaced)
    )


def _names(given: Iterable[str] | None, wanted: str) -> bool:
    return any(each in ("*", wanted) for each in given or ())


def _is_resource(pattern: str, plural: str, subresource: str) -> bool:
    """Patterns are "pods", "pods/status", "pods/*", "*" (no subresources), "*/status" and "*/*"."""
    resource, slash, sub = pattern.partition("/")
    if resource not in ("*", plural):
        return False
    return sub in ("*", subresource) if slash else not subresource


def _namespace_labels(cluster: Cluster, request: Request) -> Mapping[str, str] | None:
    """Labels for namespaceSelector; None for objects without a namespace, to which it does not apply."""
    if request.kind.collection == "namespaces":
        subject = request.object or request.old or {"metadata": {}}
        return subject["metadata"].get("labels") or {}
    if request.namespace is None:
        return None
    record = cluster.store.get("namespaces", request.namespace)
    return (record.metadata.get("labels") or {}) if record is not None else {}


def _requirements(webhook: Object, name: str) -> tuple[LabelRequirement, ...]:
    return label_selector(webhook.get(name) or {}) or ()


def _meets(requirements: Iterable[LabelRequirement], labels: Mapping[str, str]) -> bool:
    return all(each.matches(labels) for each in requirements)


def _parsed(webhook: Object) -> Webhook:
    config = webhook["clientConfig"]
    service = config.get("service") or {}
    return Webhook(
        name=webhook["name"],
        url=config.get("url") or "",
        service=f"{service.get('name', '')}.{service.get('namespace', '')}.svc",
        ca_bundle=base64.b64decode(config.get("caBundle") or ""),
        timeout_seconds=webhook.get("timeoutSeconds", 10),
        ignores_failures=webhook.get("failurePolicy") == "Ignore",
    )


def _webhook_causes(path: str, webhook: Object) -> Iterable[Cause]:
    name = webhook.get("name") or ""
    if not name:
        yield required(f"{path}.name")
    elif len(name.split(".")) < _MIN_NAME_SEGMENTS:
        detail = "should be a domain with at least three segments separated by dots"
        yield invalid_value(f"{path}.name", name, detail)
    if webhook.get("sideEffects") not in _SIDE_EFFECTS:
        yield not_supported(f"{path}.sideEffects", webhook.get("sideEffects"), _SIDE_EFFECTS)
    if "v1" not in (webhook.get("admissionReviewVersions") or ()):
        detail = "must include at least one of v1"
        yield invalid_value(f"{path}.admissionReviewVersions", webhook.get("admissionReviewVersions"), detail)
    if webhook.get("failurePolicy") not in _POLICIES:
        yield not_supported(f"{path}.failurePolicy", webhook.get("failurePolicy"), _POLICIES)
    seconds = webhook.get("timeoutSeconds")
    if not isinstance(seconds, int) or not 1 <= seconds <= _MAX_TIMEOUT_SECONDS:
        detail = "the timeout value must be between 1 and 30 seconds"
        yield invalid_value(f"{path}.timeoutSeconds", seconds, detail)
    if webhook.get("matchConditions"):
        yield forbidden_value(f"{path}.matchConditions", "the local cluster does not evaluate CEL")
    yield from _client_causes(f"{path}.clientConfig", webhook.get("clientConfig") or {})
    for index, rule in enumerate(webhook.get("rules") or ()):
        yield from _rule_causes(f"{path}.rules[{index}]", rule)


def _client_causes(path: str, config: Object) -> Iterable[Cause]:
    url = config.get("url")
    if bool(url) is bool(config.get("service")):
        yield required(path, "exactly one of url or service is required")
    elif url and urlsplit(url).scheme != "https":
        yield invalid_value(f"{path}.url", url, "'https' is the only allowed URL scheme")
    try:
        base64.b64decode(config.get("caBundle") or "", validate=True)
    except (binascii.Error, ValueError, TypeError):
        yield invalid_value(f"{path}.caBundle", config.get("caBundle"), "must be certificates in PEM, in base64")


def _rule_causes(path: str, rule: Object) -> Iterable[Cause]:
    for name in ("operations", "apiGroups", "apiVersions", "resources"):
        if not rule.get(name):
            yield required(f"{path}.{name}")
    for operation in rule.get("operations") or ():
        if operation not in _OPERATIONS:
            yield not_supported(f"{path}.operations", operation, _OPERATIONS)

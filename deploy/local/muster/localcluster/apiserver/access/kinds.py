"""RBAC kinds and kinds of access reviews."""

from collections.abc import Iterable
from typing import Final

import msgspec

from muster.localcluster.apiserver.access.authorizer import GROUP, Rule
from muster.localcluster.apiserver.kinds import Kind, Rules
from muster.localcluster.apiserver.status import (
    Cause,
    bad_request,
    forbidden_value,
    invalid_value,
    not_supported,
    required,
)
from muster.localcluster.apiserver.store import Object

AUTHORIZATION, AUTHENTICATION = "authorization.k8s.io", "authentication.k8s.io"

_SUBJECTS: Final = ("ServiceAccount", "User", "Group")


class _RoleRules(Rules):
    """Roles: every rule must be complete."""

    def __init__(self, *, of_cluster: bool) -> None:
        self._of_cluster = of_cluster

    def default(self, obj: Object) -> None:
        rules = obj.get("rules")
        if rules is None:
            return
        try:
            msgspec.convert(rules, list[Rule])
        except msgspec.ValidationError as error:
            raise bad_request(f'{obj["kind"]} in version "v1" cannot be handled as a {obj["kind"]}: {error}') from None

    def validate(self, obj: Object) -> Iterable[Cause]:
        for index, rule in enumerate(obj.get("rules") or ()):
            yield from self._causes(rule, f"rules[{index}]")

    def _causes(self, rule: Object, field: str) -> Iterable[Cause]:
        if not rule.get("verbs"):
            yield required(f"{field}.verbs", "verbs must contain at least one value")
        if urls := rule.get("nonResourceURLs"):
            if not self._of_cluster:
                yield invalid_value(
                    f"{field}.nonResourceURLs", urls, "namespaced rules cannot apply to non-resource URLs"
                )
            if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                message = "rules cannot apply to both regular resources and non-resource URLs"
                yield invalid_value(f"{field}.nonResourceURLs", urls, message)
            return
        if not rule.get("apiGroups"):
            yield required(f"{field}.apiGroups", "resource rules must supply at least one api group")
        if not rule.get("resources"):
            yield required(f"{field}.resources", "resource rules must supply at least one resource")


class _BindingRules(Rules):
    """Bindings: an immutable role reference, and subjects."""

    def __init__(self, *roles: str) -> None:
        self._roles = roles

    def default(self, obj: Object) -> None:
        if isinstance(reference := obj.get("roleRef"), dict):
            reference.setdefault("apiGroup", GROUP)
        for subject in obj.get("subjects") or ():
            if not isinstance(subject, dict):
                raise bad_request(f"{obj['kind']}: a subject is an object, not {subject!r:.100}")
            if subject.get("kind") in ("User", "Group"):
                subject.setdefault("apiGroup", GROUP)

    def validate(self, obj: Object) -> Iterable[Cause]:
        reference = obj.get("roleRef")
        if not isinstance(reference, dict):
            yield required("roleRef")
            return
        if reference["apiGroup"] != GROUP:
            yield not_supported("roleRef.apiGroup", reference["apiGroup"], (GROUP,))
        if reference.get("kind") not in self._roles:
            yield not_supported("roleRef.kind", reference.get("kind", ""), self._roles)
        if not reference.get("name"):
            yield required("roleRef.name")
        for index, subject in enumerate(obj.get("subjects") or ()):
            yield from _subject_causes(subject, f"subjects[{index}]", namespaced="Role" in self._roles)

    def validate_update(self, new: Object, old: Object) -> Iterable[Cause]:
        if new.get("roleRef") != old.get("roleRef"):
            yield invalid_value("roleRef", new.get("roleRef"), "cannot change roleRef")


def _subject_causes(subject: Object, field: str, *, namespaced: bool) -> Iterable[Cause]:
    kind = subject.get("kind", "")
    if kind not in _SUBJECTS:
        yield not_supported(f"{field}.kind", kind, _SUBJECTS)
    if not subject.get("name"):
        yield required(f"{field}.name")
    if kind == "ServiceAccount" and not subject.get("namespace"):
        yield required(f"{field}.namespace")
    if kind != "ServiceAccount" and subject.get("namespace"):
        yield forbidden_value(f"{field}.namespace", "only service accounts are in namespaces")


def access_kinds() -> list[Kind]:
    """All kinds of this module."""
    role, binding = _RoleRules, _BindingRules
    return [
        _rbac("Role", "roles", role(of_cluster=False)),
        _rbac("ClusterRole", "clusterroles", role(of_cluster=True), namespaced=False),
        _rbac("RoleBinding", "rolebindings", binding("ClusterRole", "Role")),
        _rbac("ClusterRoleBinding", "clusterrolebindings", binding("ClusterRole"), namespaced=False),
        _review(AUTHORIZATION, "SelfSubjectAccessReview"),
        _review(AUTHORIZATION, "SubjectAccessReview"),
        _review(AUTHENTICATION, "TokenReview"),
    ]


def _review(group: str, name: str) -> Kind:
    return Kind(group, "v1", name, f"{name.lower()}s", namespaced=False, verbs=("create",))


def _rbac(name: str, plural: str, rules: Rules, *, namespaced: bool = True) -> Kind:
    return Kind(GROUP, "v1", name, plural, namespaced=namespaced, rules=rules)

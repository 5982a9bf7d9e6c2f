"""Privilege escalation checks: what a write needs besides the right to its verb.

* Roles and bindings may grant only the rights of their writer, unless it may `escalate` or `bind` them.
* An owner reference that blocks its owner's deletion needs the right to update the owner's finalizers, as with the
  admission plugin OwnerReferencesPermissionEnforcement, which some distributions enable.
* An apply that creates an object needs the right to create.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from muster.localcluster.apiserver.access.attributes import Attributes, denial_text, denied
from muster.localcluster.apiserver.access.authorizer import GROUP, Authorizer, Rule, allowed_names, rules_in
from muster.localcluster.apiserver.access.tokens import May
from muster.localcluster.apiserver.kinds import Kinds
from muster.localcluster.apiserver.routing import Call
from muster.localcluster.apiserver.status import forbidden
from muster.localcluster.apiserver.store import Object

_BINDINGS: Final = ("rolebindings", "clusterrolebindings")
_BLOCKS: Final = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on"


class EscalationCheck:
    """Checks an object before it is stored."""

    def __init__(self, authorizer: Authorizer, may: May, kinds: Kinds) -> None:
        """`may` authorizes rights of their own, such as `escalate`."""
        self._authorizer, self._allows, self._kinds = authorizer, may, kinds

    def check(self, call: Call, new: Object, old: Object | None) -> None:
        """Raises StatusError 403."""
        user = call.user
        if user.unbounded:
            return
        target = call.target
        if call.method == "PATCH" and old is None:
            attributes = Attributes("create", target.kind.group, target.kind.plural, target.namespace or "")
            if not self._allows(user, attributes):
                raise denied(user.name, attributes)
        self._check_owners(call, new, old)
        if target.kind.group == GROUP:
            self._check_gift(call, new, old)

    def _check_owners(self, call: Call, new: Object, old: Object | None) -> None:
        before = list(_blocking(old)) if old is not None else []
        for reference in _blocking(new):
            if reference in before:
                continue
            owner = self._kinds.named(str(reference.get("apiVersion")), str(reference.get("kind")))
            if owner is None:
                continue
            namespace = (call.target.namespace or "") if owner.namespaced else ""
            of_owner = f"{owner.plural}/finalizers"
            attributes = Attributes("update", owner.group, of_owner, namespace, str(reference.get("name")))
            if not self._allows(call.user, attributes):
                raise _forbidden(call, new, f"{_BLOCKS}: {denial_text(call.user.name, attributes)}")

    def _check_gift(self, call: Call, new: Object, old: Object | None) -> None:
        user, kind, namespace = call.user, call.target.kind, call.target.namespace or ""
        if kind.plural in _BINDINGS:
            if old is not None and (old["roleRef"], old.get("subjects")) == (new["roleRef"], new.get("subjects")):
                return
            plural = "roles" if new["roleRef"].get("kind") == "Role" else "clusterroles"
            name = str(new["roleRef"].get("name"))
            allowing = Attributes("bind", GROUP, plural, namespace, name)
            given = self._authorizer.rules_of(new["roleRef"], namespace)
        else:
            if old is not None and old.get("rules") == new.get("rules"):
                return
            allowing = Attributes("escalate", GROUP, kind.plural, namespace, str(new["metadata"].get("name", "")))
            given = rules_in(new)
        if self._authorizer.allows(user, allowing):
            return
        own = self._authorizer.grants(user).of(namespace)
        if missing := [rule for rule in given if not _covered(rule, own)]:
            listed = "\n".join(_rule_text(rule) for rule in missing)
            who = f'user "{user.name}" (groups={_quoted(user.groups)})'
            raise _forbidden(call, new, f"{who} is attempting to grant RBAC permissions not currently held:\n{listed}")


def _blocking(obj: Object) -> Iterator[Any]:
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("blockOwnerDeletion") is True:
            yield reference


def _covered(rule: Rule, own: Iterable[Rule]) -> bool:
    own = tuple(own)
    for verb in rule.verbs:
        for group in rule.api_groups:
            for resource in rule.resources:
                names = allowed_names(own, verb, group, resource)
                if names is not None and not (rule.resource_names and names.issuperset(rule.resource_names)):
                    return False
        for path in rule.non_resource_urls:
            if not any(each.has_path(verb, path) for each in own):
                return False
    return True


def _rule_text(rule: Rule) -> str:
    parts = (
        ("APIGroups", rule.api_groups),
        ("Resources", rule.resources),
        ("ResourceNames", rule.resource_names),
        ("NonResourceURLs", rule.non_resource_urls),
        ("Verbs", rule.verbs),
    )
    return "{" + ", ".join(f"{name}:{_quoted(values)}" for name, values in parts if values) + "}"


def _quoted(values: Iterable[str]) -> str:
    return "[" + " ".join(f'"{each}"' for each in values) + "]"


def _forbidden(call: Call, new: Object, message: str) -> Exception:
    kind = call.target.kind
    return forbidden(kind.plural, kind.group, str(new["metadata"].get("name", "")), message)

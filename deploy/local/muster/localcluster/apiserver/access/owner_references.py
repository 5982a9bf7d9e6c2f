"""Permission to block the deletion of an owner, as with the admission plugin OwnerReferencesPermissionEnforcement.

An owner reference with blockOwnerDeletion needs the permission to update the owner's finalizers. Some distributions
enable the plugin, so Muster's services must have that permission.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from muster.localcluster.apiserver.access.attributes import Attributes, denial_text
from muster.localcluster.apiserver.access.users import User
from muster.localcluster.apiserver.kinds import Kinds
from muster.localcluster.apiserver.routing import Call
from muster.localcluster.apiserver.status import forbidden
from muster.localcluster.apiserver.store import Object

_BLOCKS: Final = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on"


class OwnerReferenceCheck:
    """Checks the owner references of an object before it is stored."""

    def __init__(self, allows: Callable[[User, Attributes], bool], kinds: Kinds) -> None:
        self._allows, self._kinds = allows, kinds

    def check(self, call: Call, new: Object, old: Object | None) -> None:
        """Raises StatusError 403."""
        user = call.user
        if user.unbounded:
            return
        before = list(_blocking(old)) if old is not None else []
        for reference in _blocking(new):
            owner = self._kinds.named(str(reference.get("apiVersion")), str(reference.get("kind")))
            if reference in before or owner is None:
                continue
            namespace = (call.target.namespace or "") if owner.namespaced else ""
            of_owner = f"{owner.plural}/finalizers"
            attributes = Attributes("update", owner.group, of_owner, namespace, str(reference.get("name")))
            if not self._allows(user, attributes):
                kind, name = call.target.kind, str(new["metadata"].get("name", ""))
                message = f"{_BLOCKS}: {denial_text(user.name, attributes)}"
                raise forbidden(kind.plural, kind.group, name, message)


def _blocking(obj: Object) -> Iterator[Any]:
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("blockOwnerDeletion") is True:
            yield reference

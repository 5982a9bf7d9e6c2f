"""Permission to change the allocation and the users of a ResourceClaim, as since Kubernetes 1.36.

Besides the one for resourceclaims/status, a write needs permission for resourceclaims/binding in all namespaces. No
such subresource is served.
"""

from collections.abc import Callable
from typing import Final

from muster.localcluster.apiserver.access.attributes import Attributes, denial_text
from muster.localcluster.apiserver.access.users import User
from muster.localcluster.apiserver.devices.kinds import CLAIMS, GROUP
from muster.localcluster.apiserver.routing import Call
from muster.localcluster.apiserver.status import forbidden_value, invalid
from muster.localcluster.apiserver.store import Object

_RESOURCE: Final = "resourceclaims/binding"
_FIELDS: Final = ("allocation", "reservedFor")


class ClaimBindingCheck:
    """Checks changes of a claim's status before it is stored."""

    def __init__(self, allows: Callable[[User, Attributes], bool]) -> None:
        self._allows = allows

    def check(self, call: Call, new: Object, old: Object | None) -> None:
        """Raises StatusError 422, as kube-apiserver."""
        kind, user = call.target.kind, call.user
        if kind.collection != CLAIMS or call.target.subresource != "status" or user.unbounded or old is None:
            return
        before, after = old.get("status") or {}, new.get("status") or {}
        if all((before.get(field) or None) == (after.get(field) or None) for field in _FIELDS):
            return
        verb = "update" if call.method == "PUT" else "patch"
        attributes = Attributes(verb, GROUP, _RESOURCE)
        if not self._allows(user, attributes):
            detail = (
                f'changing status.allocation or status.reservedFor requires resource="{_RESOURCE}", verb="{verb}" '
                f"permission: {denial_text(user.name, attributes)}"
            )
            problem = forbidden_value("status.allocation", detail)
            raise invalid(kind.name, kind.group, str(new["metadata"].get("name", "")), [problem])

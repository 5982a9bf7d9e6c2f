"""Access control of every request: authentication, authorization, audit."""

import asyncio
from collections.abc import Mapping
from typing import Final

import structlog

from muster.localcluster.apiserver.access.attributes import Attributes, attributes_of, denied
from muster.localcluster.apiserver.access.audit import AccessAudit
from muster.localcluster.apiserver.access.authorizer import Authorizer
from muster.localcluster.apiserver.access.claim_bindings import ClaimBindingCheck
from muster.localcluster.apiserver.access.owner_references import OwnerReferenceCheck
from muster.localcluster.apiserver.access.reviews import Reviews
from muster.localcluster.apiserver.access.tokens import Authenticator, Headers
from muster.localcluster.apiserver.access.users import User
from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.store import Change, Collection

_ACCOUNTS: Final = "serviceaccounts"
_SAME_DENIAL_SECONDS: Final = 60.0

_log: Final = structlog.get_logger(__name__)


class Access:
    """Authentication and authorization of one API server."""

    def __init__(self, cluster: Cluster, tokens: Mapping[str, User]) -> None:
        self.authenticator = Authenticator(tokens)
        self.authorizer = Authorizer(cluster.store)
        self.record = AccessAudit()
        self.reviews = Reviews(cluster, self.authenticator, self.authorizer)
        cluster.guards += [OwnerReferenceCheck(self._allows, cluster.kinds), ClaimBindingCheck(self._allows)]
        cluster.store.listen(self._note)
        self._logged: dict[tuple[str, str, str], float] = {}

    def admit(self, headers: Headers, method: str, path: str, query: dict[str, str]) -> User:
        """The user, if it is authorized. Raises StatusError 401, 403."""
        user = self.authenticator.user(headers)
        if user.unbounded:
            return user
        attributes = attributes_of(method, path, query)
        if not self._allows(user, attributes):
            self._log_denial(user, attributes)
            raise denied(user.name, attributes)
        return user

    def _allows(self, user: User, attributes: Attributes) -> bool:
        allowed = self.authorizer.allows(user, attributes)
        if not user.unbounded:
            self.record.note(user, attributes, allowed=allowed)
        return allowed

    def _log_denial(self, user: User, attributes: Attributes) -> None:
        now = asyncio.get_running_loop().time()
        key = (user.name, attributes.verb, attributes.resource or attributes.path)
        if now - self._logged.get(key, float("-inf")) >= _SAME_DENIAL_SECONDS:
            if len(self._logged) > 1000:
                self._logged.clear()
            self._logged[key] = now
            _log.warning("request_denied", error=str(denied(user.name, attributes)))

    def _note(self, collection: Collection, change: Change) -> None:
        if collection.name == _ACCOUNTS and change.type == "DELETED":
            metadata = change.record.metadata
            self.authenticator.revoke(str(metadata["namespace"]), str(metadata["name"]))

"""Reviews of access (`kubectl auth can-i`) and of tokens, and token requests of ServiceAccounts."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from muster.localcluster.apiserver.access.attributes import Attributes
from muster.localcluster.apiserver.access.authorizer import Authorizer
from muster.localcluster.apiserver.access.kinds import AUTHENTICATION, AUTHORIZATION
from muster.localcluster.apiserver.access.tokens import Authenticator
from muster.localcluster.apiserver.access.users import User
from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.decoding import decode_body, decode_object
from muster.localcluster.apiserver.routing import Call
from muster.localcluster.apiserver.status import bad_request, method_not_allowed
from muster.localcluster.apiserver.store import Object

_ACCOUNTS: Final = "serviceaccounts"
_MIN_SECONDS, _DEFAULT_SECONDS = 600, 3600
_MAX_REVIEWED: Final = 1000


class Reviews:
    """Handles reviews and token requests."""

    def __init__(self, cluster: Cluster, authenticator: Authenticator, authorizer: Authorizer) -> None:
        self._cluster, self._authenticator, self._authorizer = cluster, authenticator, authorizer
        self._reviewed: dict[tuple[str, tuple[str, ...]], User] = {}
        """Users of reviews by name and groups: the authorizer knows users by identity."""

    def handles(self, call: Call) -> bool:
        """Whether the call is a review or token request."""
        kind = call.target.kind
        return kind.group in (AUTHORIZATION, AUTHENTICATION) or (
            kind.collection == _ACCOUNTS and call.target.subresource == "token"
        )

    def respond(self, call: Call) -> bytes:
        """The review with its status. Raises StatusError 400, 404, 405."""
        is_token = call.target.subresource == "token"
        if call.method != "POST" or (call.target.name and not is_token):
            raise method_not_allowed()
        if is_token:
            return msgspec.json.encode(self._token(call))
        review = decode_object(call.target.kind, call.body, call.content_type)
        answer = self._token_review if call.target.kind.group == AUTHENTICATION else self._access_review
        return msgspec.json.encode(answer(call, review))

    def _token_review(self, call: Call, review: Object) -> Object:
        user = self._authenticator.user_of(str((review.get("spec") or {}).get("token") or ""))
        # The token is not sent back, as by kube-apiserver's authenticators.
        status = {"authenticated": user is not None, "user": user.as_object() if user is not None else {}}
        return review | {"spec": {}, "status": status}

    def _access_review(self, call: Call, review: Object) -> Object:
        own = call.target.kind.name.startswith("Self")
        allowed = self._authorizer.allows(call.user if own else self._user_of(review), _reviewed(review))
        return review | {"status": {"allowed": allowed, "reason": "" if allowed else "RBAC: no role allows it"}}

    def _user_of(self, review: Object) -> User:
        """The user that a SubjectAccessReview is about. Raises StatusError 400."""
        spec = review.get("spec") or {}
        name, groups = str(spec.get("user") or ""), tuple(map(str, spec.get("groups") or ()))
        if not name and not groups:
            raise bad_request("spec: at least one of user or group must be specified")
        if len(self._reviewed) >= _MAX_REVIEWED:
            self._reviewed.clear()
        return self._reviewed.setdefault((name, groups), User(name, groups))

    def _token(self, call: Call) -> Object:
        target = call.target
        account = self._cluster.record(target.kind, target.namespace, target.name or "").metadata
        request: Any = decode_body(call.body, call.content_type) if call.body else {}
        spec = (request.get("spec") if isinstance(request, dict) else None) or {}
        seconds = spec.get("expirationSeconds", _DEFAULT_SECONDS)
        if not isinstance(seconds, int) or seconds < _MIN_SECONDS:
            raise bad_request(f"spec.expirationSeconds: {seconds!r:.50} is not {_MIN_SECONDS} or more")
        token = self._authenticator.issue(str(target.namespace), str(target.name), account["uid"])
        expires = (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "kind": "TokenRequest",
            "apiVersion": f"{AUTHENTICATION}/v1",
            "metadata": {"name": target.name, "namespace": target.namespace},
            "spec": {"audiences": spec.get("audiences") or [], "expirationSeconds": seconds},
            "status": {"token": token, "expirationTimestamp": expires},
        }


def _reviewed(review: Object) -> Attributes:
    """Attributes that the review is about. Raises StatusError 400."""
    spec = review.get("spec") or {}
    if isinstance(of_resource := spec.get("resourceAttributes"), dict):
        text = {key: str(value or "") for key, value in of_resource.items()}
        resource, subresource = text.get("resource", ""), text.get("subresource", "")
        return Attributes(
            text.get("verb", ""),
            text.get("group", ""),
            f"{resource}/{subresource}" if subresource else resource,
            text.get("namespace", ""),
            text.get("name", ""),
        )
    if isinstance(of_path := spec.get("nonResourceAttributes"), dict):
        return Attributes(str(of_path.get("verb") or ""), path=str(of_path.get("path") or ""))
    raise bad_request("spec: exactly one of nonResourceAttributes or resourceAttributes must be specified")

"""Access reviews (`kubectl auth can-i`) and token requests of ServiceAccounts."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from muster.localcluster.apiserver.access.attributes import Attributes
from muster.localcluster.apiserver.access.authorizer import Authorizer
from muster.localcluster.apiserver.access.kinds import AUTHENTICATION, AUTHORIZATION
from muster.localcluster.apiserver.access.tokens import Authenticator
from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.decoding import decode_body, decode_object
from muster.localcluster.apiserver.routing import Call
from muster.localcluster.apiserver.status import bad_request, method_not_allowed
from muster.localcluster.apiserver.store import Object

_ACCOUNTS: Final = "serviceaccounts"
_MIN_SECONDS, _DEFAULT_SECONDS = 600, 3600


class Reviews:
    """Handles access reviews and token requests."""

    def __init__(self, cluster: Cluster, authenticator: Authenticator, authorizer: Authorizer) -> None:
        self._cluster, self._authenticator, self._authorizer = cluster, authenticator, authorizer

    def handles(self, call: Call) -> bool:
        """Whether the call is an access review or token request."""
        kind = call.target.kind
        return kind.group == AUTHORIZATION or (kind.collection == _ACCOUNTS and call.target.subresource == "token")

    def respond(self, call: Call) -> bytes:
        """The review with its status. Raises StatusError 400, 404, 405."""
        is_token = call.target.subresource == "token"
        if call.method != "POST" or (call.target.name and not is_token):
            raise method_not_allowed()
        return msgspec.json.encode(self._token(call) if is_token else self._access_review(call))

    def _access_review(self, call: Call) -> Object:
        review = decode_object(call.target.kind, call.body, call.content_type)
        allowed = self._authorizer.allows(call.user, _reviewed(review))
        return review | {"status": {"allowed": allowed, "reason": "" if allowed else "RBAC: no role allows it"}}

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

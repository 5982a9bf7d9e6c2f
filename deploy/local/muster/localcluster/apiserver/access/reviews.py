"""Access reviews (`kubectl auth`) and token requests of ServiceAccounts (`kubectl create token`)."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from muster.localcluster.apiserver.access.attributes import Attributes
from muster.localcluster.apiserver.access.authorizer import Authorizer, Rule
from muster.localcluster.apiserver.access.kinds import AUTHENTICATION, AUTHORIZATION
from muster.localcluster.apiserver.access.tokens import Authenticator
from muster.localcluster.apiserver.access.users import AUTHENTICATED, User
from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.decoding import decode_body, decode_object
from muster.localcluster.apiserver.routing import Call
from muster.localcluster.apiserver.status import bad_request, method_not_allowed
from muster.localcluster.apiserver.store import Object

_ACCOUNTS: Final = "serviceaccounts"
_SHORTEST_SECONDS, _USUAL_SECONDS = 600, 3600


class Reviews:
    """Handles access reviews and token requests."""

    def __init__(self, cluster: Cluster, authenticator: Authenticator, authorizer: Authorizer) -> None:
        self._cluster, self._authenticator, self._authorizer = cluster, authenticator, authorizer
        self._answers: dict[str, Callable[[User, Object], Object]] = {
            "selfsubjectreviews": lambda user, _: {"status": {"userInfo": user.as_object()}},
            "selfsubjectaccessreviews": self._own_access,
            "subjectaccessreviews": self._access_of,
            "selfsubjectrulesreviews": self._own_rules,
        }

    def concerns(self, call: Call) -> bool:
        """Whether the call is an access review or token request."""
        kind = call.target.kind
        if call.target.subresource == "token":
            return kind.collection == _ACCOUNTS
        return kind.group in (AUTHORIZATION, AUTHENTICATION)

    def answer(self, call: Call) -> bytes:
        """The review with its status. Raises StatusError 400, 404, 405."""
        if call.method != "POST" or (call.target.subresource != "token" and call.target.name):
            raise method_not_allowed()
        if call.target.subresource == "token":
            return msgspec.json.encode(self._token(call))
        review = decode_object(call.target.kind, call.body, call.content_type)
        return msgspec.json.encode(review | self._answers[call.target.kind.plural](call.user, review))

    def _own_access(self, user: User, review: Object) -> Object:
        return {"status": self._verdict(user, _asked(review))}

    def _access_of(self, _: User, review: Object) -> Object:
        spec = review.get("spec") or {}
        groups = tuple(dict.fromkeys([*(spec.get("groups") or ()), AUTHENTICATED]))
        return {"status": self._verdict(User(str(spec.get("user") or ""), groups), _asked(review))}

    def _verdict(self, user: User, attributes: Attributes) -> Object:
        allowed = self._authorizer.allows(user, attributes)
        return {"allowed": allowed, "reason": "" if allowed else "RBAC: no role allows it"}

    def _own_rules(self, user: User, review: Object) -> Object:
        namespace = str((review.get("spec") or {}).get("namespace") or "")
        if not namespace:
            raise bad_request("no namespace on request")
        everything = Rule(("*",), ("*",), ("*",)), Rule(("*",), non_resource_urls=("*",))
        rules: Iterable[Rule] = everything if user.unbounded else self._authorizer.grants(user).of(namespace)
        shown = [{key: value for key, value in msgspec.to_builtins(rule).items() if value} for rule in rules]
        return {
            "status": {
                "resourceRules": [rule for rule in shown if "nonResourceURLs" not in rule],
                "nonResourceRules": [rule for rule in shown if "nonResourceURLs" in rule],
                "incomplete": False,
            }
        }

    def _token(self, call: Call) -> Object:
        target = call.target
        account = self._cluster.record(target.kind, target.namespace, target.name or "").metadata
        request: Any = decode_body(call.body, call.content_type) if call.body else {}
        spec = (request.get("spec") if isinstance(request, dict) else None) or {}
        seconds = spec.get("expirationSeconds", _USUAL_SECONDS)
        if not isinstance(seconds, int) or seconds < _SHORTEST_SECONDS:
            raise bad_request(f"spec.expirationSeconds: {seconds!r:.50} is not {_SHORTEST_SECONDS} or more")
        token = self._authenticator.issue(str(target.namespace), str(target.name), account["uid"])
        expires = (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "kind": "TokenRequest",
            "apiVersion": f"{AUTHENTICATION}/v1",
            "metadata": {"name": target.name, "namespace": target.namespace},
            "spec": {"audiences": spec.get("audiences") or [], "expirationSeconds": seconds},
            "status": {"token": token, "expirationTimestamp": expires},
        }


def _asked(review: Object) -> Attributes:
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

"""Authentication by bearer token.

The token file has the format of kube-apiserver's --token-auth-file: one line per token, with the token, user name, uid,
and optionally groups: `TOKEN,binding,1,"system:masters,others"`. Tokens of ServiceAccounts are issued on request and
valid until the server stops.

Requests without a token are anonymous over HTTPS. Over plain HTTP, which only this machine reaches, they are the
administrator's, since kubectl sends no token to a server without TLS.
"""

import csv
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from multidict import CIMultiDictProxy

from muster.localcluster.apiserver.access.attributes import Attributes, denial_text
from muster.localcluster.apiserver.access.users import (
    ANONYMOUS,
    AUTHENTICATED,
    OWNER,
    User,
    account_of,
    service_account,
)
from muster.localcluster.apiserver.status import StatusError

_BEARER: Final = "Bearer "
_MIN_FIELDS, _MAX_FIELDS = 3, 4
_MAX_ISSUED: Final = 10_000
_AS_USER, _AS_GROUP, _AS_UID = "Impersonate-User", "Impersonate-Group", "Impersonate-Uid"

May = Callable[[User, Attributes], bool]
Headers = CIMultiDictProxy[str]


class BadTokenFile(ValueError):
    """The token file is invalid; the message has the line and the cause, without the token."""


def read_tokens(path: Path) -> dict[str, User]:
    """Token -> user. Raises BadTokenFile."""
    try:
        with path.open(newline="") as file:
            lines = [(number, line) for number, line in enumerate(csv.reader(file, skipinitialspace=True), 1) if line]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadTokenFile(f"the token file {path} cannot be read: {error}") from error
    users: dict[str, User] = {}
    for number, line in lines:
        if not _MIN_FIELDS <= len(line) <= _MAX_FIELDS or not line[0] or not line[1]:
            wanted = 'TOKEN,USER,UID or TOKEN,USER,UID,"GROUP,GROUP"'
            raise BadTokenFile(f"line {number} of {path} has {len(line)} fields; it has to be {wanted}")
        if line[0] in users:
            raise BadTokenFile(f"line {number} of {path}: the token is there twice, for {line[1]!r} the second time")
        groups = [each.strip() for each in line[3].split(",") if each.strip()] if len(line) > _MIN_FIELDS else []
        users[line[0]] = User(line[1], tuple(dict.fromkeys([*groups, AUTHENTICATED])), line[2])
    return users


class Authenticator:
    """Authenticates requests."""

    def __init__(self, tokens: Mapping[str, User], *, secure: bool) -> None:
        """`secure`: requests come over HTTPS."""
        self._users = {_BEARER + token: user for token, user in tokens.items()}
        self._issued: dict[str, User] = {}
        self._others: dict[tuple[str, tuple[str, ...], str], User] = {}
        self._default_user = ANONYMOUS if secure else OWNER
        known = (token for token, user in tokens.items() if user.unbounded)
        self.owners_token: str = next(known, "") or secrets.token_urlsafe(24)
        """Token of the administrator."""
        self._users.setdefault(_BEARER + self.owners_token, OWNER)

    def user(self, headers: Headers, may: May) -> User:
        """Raises StatusError 401, and 403 for impersonation without the right to it."""
        token = headers.get("Authorization", "")
        user = self._default_user if not token else self._known(token)
        return self._instead_of(user, headers, may) if _AS_USER in headers else user

    def issue(self, namespace: str, name: str, uid: str) -> str:
        """Issue a token for a ServiceAccount. Revokes the oldest token if there are too many."""
        token = secrets.token_urlsafe(32)
        while len(self._issued) >= _MAX_ISSUED:
            del self._issued[next(iter(self._issued))]
        self._issued[_BEARER + token] = service_account(namespace, name, uid)
        return token

    def revoke(self, namespace: str, name: str) -> None:
        """Revoke the tokens of a deleted ServiceAccount."""
        gone = service_account(namespace, name).name
        self._issued = {token: user for token, user in self._issued.items() if user.name != gone}

    def _known(self, token: str) -> User:
        user = self._users.get(token) or self._issued.get(token)
        if user is None:
            raise StatusError(401, "Unauthorized")
        return user

    def _instead_of(self, user: User, headers: Headers, may: May) -> User:
        """The impersonated user. Raises StatusError 403."""
        name, groups = headers[_AS_USER], tuple(headers.getall(_AS_GROUP, []))
        account = account_of(name)
        if account is not None:
            wanted = [Attributes("impersonate", "", "serviceaccounts", *account)]
        else:
            wanted = [Attributes("impersonate", "", "users", "", name)]
        wanted += [Attributes("impersonate", "", "groups", "", group) for group in groups]
        for attributes in wanted:
            if not may(user, attributes):
                what = f'{attributes.resource} "{attributes.name}" is forbidden: {denial_text(user.name, attributes)}'
                raise StatusError(403, what, details={"name": attributes.name, "kind": attributes.resource})
        if account is not None and not groups:
            groups = service_account(*account).groups
        return self._other(name, tuple(dict.fromkeys([*groups, AUTHENTICATED])), headers.get(_AS_UID, ""))

    def _other(self, *key: *tuple[str, tuple[str, ...], str]) -> User:
        """One object per user, since caches use its identity."""
        if key not in self._others and len(self._others) >= _MAX_ISSUED:
            self._others.clear()
        return self._others.setdefault(key, User(*key))

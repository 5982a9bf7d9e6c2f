"""Authentication by bearer token.

The token file has the format of kube-apiserver's --token-auth-file: one line per token, with the token, user name, uid,
and optionally groups: `TOKEN,binding,1,"system:masters,others"`. Tokens of ServiceAccounts are issued on request and
valid until the server stops.

Requests without a token are the administrator's: only this machine reaches the server, and kubectl sends no token to a
server without TLS.
"""

import csv
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from multidict import CIMultiDictProxy

from muster.localcluster.apiserver.access.users import ADMINISTRATOR, AUTHENTICATED, User, service_account
from muster.localcluster.apiserver.status import StatusError

_BEARER: Final = "Bearer "
_MIN_FIELDS, _MAX_FIELDS = 3, 4
_MAX_ISSUED: Final = 10_000

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
            expected = 'TOKEN,USER,UID or TOKEN,USER,UID,"GROUP,GROUP"'
            raise BadTokenFile(f"line {number} of {path} has {len(line)} fields; expected {expected}")
        if line[0] in users:
            raise BadTokenFile(f"line {number} of {path}: duplicate token, for {line[1]!r}")
        groups = [each.strip() for each in line[3].split(",") if each.strip()] if len(line) > _MIN_FIELDS else []
        users[line[0]] = User(line[1], tuple(dict.fromkeys([*groups, AUTHENTICATED])), line[2])
    return users


class Authenticator:
    """Authenticates requests."""

    def __init__(self, tokens: Mapping[str, User]) -> None:
        self._users = {_BEARER + token: user for token, user in tokens.items()}
        self._issued: dict[str, User] = {}
        """Users by issued token, at most _MAX_ISSUED; ends with the ServiceAccount."""
        unbounded = (token for token, user in tokens.items() if user.unbounded)
        self.administrator_token: str = next(unbounded, "") or secrets.token_urlsafe(24)
        """Token of the administrator."""
        self._users.setdefault(_BEARER + self.administrator_token, ADMINISTRATOR)

    def user(self, headers: Headers) -> User:
        """Raises StatusError 401."""
        header = headers.get("Authorization", "")
        if not header:
            return ADMINISTRATOR
        user = self._users.get(header) or self._issued.get(header)
        if user is None:
            raise StatusError(401, "Unauthorized")
        return user

    def user_of(self, token: str) -> User | None:
        """The user with this token; None: there is none."""
        header = _BEARER + token
        return self._users.get(header) or self._issued.get(header)

    def issue(self, namespace: str, name: str, uid: str) -> str:
        """Issue a token for a ServiceAccount. Revokes the oldest token if there are too many."""
        token = secrets.token_urlsafe(32)
        while len(self._issued) >= _MAX_ISSUED:
            del self._issued[next(iter(self._issued))]
        self._issued[_BEARER + token] = service_account(namespace, name, uid)
        return token

    def revoke(self, namespace: str, name: str) -> None:
        """Revoke the tokens of a deleted ServiceAccount."""
        deleted = service_account(namespace, name).name
        self._issued = {token: user for token, user in self._issued.items() if user.name != deleted}

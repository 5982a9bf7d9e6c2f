"""Who a request comes from, by the token that it shows.

The file of tokens has the form that kube-apiserver reads by --token-auth-file: a line per token, with the token, the
user's name, its uid, and optionally its groups: `TOKEN,binding,1,"system:masters,others"`. Tokens of ServiceAccounts
are handed out on request and last until the server ends.

Over HTTPS who shows no token is anonymous. Over plain HTTP, which only this machine reaches, it is who started the
cluster: kubectl shows no token to a server without TLS.
"""

import csv
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from multidict import CIMultiDictProxy

from muster.localcluster.apiserver.access.attributes import Asked, cannot
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
_FEWEST_FIELDS, _MOST_FIELDS = 3, 4
_MOST_ISSUED: Final = 10_000
_AS_USER, _AS_GROUP, _AS_UID = "Impersonate-User", "Impersonate-Group", "Impersonate-Uid"

May = Callable[[User, Asked], bool]
Headers = CIMultiDictProxy[str]


class BadTokenFile(ValueError):
    """The file of tokens cannot be used; says where and why, without the token."""


def read_tokens(path: Path) -> dict[str, User]:
    """Users by token. Raises BadTokenFile."""
    try:
        with path.open(newline="") as file:
            lines = [(number, line) for number, line in enumerate(csv.reader(file, skipinitialspace=True), 1) if line]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadTokenFile(f"the file of tokens {path} cannot be read: {error}") from error
    users: dict[str, User] = {}
    for number, line in lines:
        if not _FEWEST_FIELDS <= len(line) <= _MOST_FIELDS or not line[0] or not line[1]:
            wanted = 'TOKEN,USER,UID or TOKEN,USER,UID,"GROUP,GROUP"'
            raise BadTokenFile(f"line {number} of {path} has {len(line)} fields; it has to be {wanted}")
        if line[0] in users:
            raise BadTokenFile(f"line {number} of {path}: the token is there twice, for {line[1]!r} the second time")
        groups = [each.strip() for each in line[3].split(",") if each.strip()] if len(line) > _FEWEST_FIELDS else []
        users[line[0]] = User(line[1], tuple(dict.fromkeys([*groups, AUTHENTICATED])), line[2])
    return users


class Authenticator:
    """Knows users by what they show."""

    def __init__(self, tokens: Mapping[str, User], *, secure: bool) -> None:
        """`secure`: requests come over HTTPS."""
        self._users = {_BEARER + token: user for token, user in tokens.items()}
        self._issued: dict[str, User] = {}
        self._others: dict[tuple[str, tuple[str, ...], str], User] = {}
        self._nobody = ANONYMOUS if secure else OWNER
        known = (token for token, user in tokens.items() if user.unbounded)
        self.owners_token: str = next(known, "") or secrets.token_urlsafe(24)
        """By which whoever started the cluster shows itself."""
        self._users.setdefault(_BEARER + self.owners_token, OWNER)

    def user(self, headers: Headers, may: May) -> User:
        """Raises StatusError 401, and 403 for those who come as somebody else and may not."""
        shown = headers.get("Authorization", "")
        user = self._nobody if not shown else self._known(shown)
        return self._instead_of(user, headers, may) if _AS_USER in headers else user

    def issue(self, namespace: str, name: str, uid: str) -> str:
        """A new token of a ServiceAccount. The oldest ends when there are too many."""
        token = secrets.token_urlsafe(32)
        while len(self._issued) >= _MOST_ISSUED:
            del self._issued[next(iter(self._issued))]
        self._issued[_BEARER + token] = service_account(namespace, name, uid)
        return token

    def revoke(self, namespace: str, name: str) -> None:
        """The tokens of a ServiceAccount hold no more: it is gone."""
        gone = service_account(namespace, name).name
        self._issued = {shown: user for shown, user in self._issued.items() if user.name != gone}

    def _known(self, shown: str) -> User:
        user = self._users.get(shown) or self._issued.get(shown)
        if user is None:
            raise StatusError(401, "Unauthorized")
        return user

    def _instead_of(self, user: User, headers: Headers, may: May) -> User:
        """Who the user says it wants to be taken for. Raises StatusError 403."""
        name, groups = headers[_AS_USER], tuple(headers.getall(_AS_GROUP, []))
        account = account_of(name)
        if account is not None:
            wanted = [Asked("impersonate", "", "serviceaccounts", *account)]
        else:
            wanted = [Asked("impersonate", "", "users", "", name)]
        wanted += [Asked("impersonate", "", "groups", "", group) for group in groups]
        for asked in wanted:
            if not may(user, asked):
                what = f'{asked.resource} "{asked.name}" is forbidden: {cannot(user.name, asked)}'
                raise StatusError(403, what, details={"name": asked.name, "kind": asked.resource})
        if account is not None and not groups:
            groups = service_account(*account).groups
        return self._other(name, tuple(dict.fromkeys([*groups, AUTHENTICATED])), headers.get(_AS_UID, ""))

    def _other(self, *who: *tuple[str, tuple[str, ...], str]) -> User:
        """The same user each time, as what is known of it is found by that."""
        if who not in self._others and len(self._others) >= _MOST_ISSUED:
            self._others.clear()
        return self._others.setdefault(who, User(*who))

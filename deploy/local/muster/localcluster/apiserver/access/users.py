"""Who a request comes from."""

from dataclasses import dataclass
from typing import Final

MASTERS: Final = "system:masters"
AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
SERVICE_ACCOUNTS: Final = "system:serviceaccounts"
_ACCOUNT: Final = "system:serviceaccount:"


@dataclass(frozen=True, eq=False)
class User:
    """A person, or a program. Two with the same name may have different groups: each object is a user of its own."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""

    @property
    def unbounded(self) -> bool:
        """It may do everything, whatever roles say."""
        return MASTERS in self.groups

    def as_object(self) -> dict[str, object]:
        """UserInfo, as reviews show it."""
        shown: dict[str, object] = {"username": self.name, "groups": list(self.groups)}
        return {**shown, "uid": self.uid} if self.uid else shown


OWNER: Final = User("muster-local", (MASTERS, AUTHENTICATED))
"""Whoever started the cluster, and what it does by itself."""
ANONYMOUS: Final = User("system:anonymous", (UNAUTHENTICATED,))


def service_account(namespace: str, name: str, uid: str = "") -> User:
    """The user that a ServiceAccount is."""
    groups = (SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}", AUTHENTICATED)
    return User(f"{_ACCOUNT}{namespace}:{name}", groups, uid)


def account_of(user: str) -> tuple[str, str] | None:
    """Namespace and name of the ServiceAccount that a user is; None: it is none."""
    namespace, colon, name = user.removeprefix(_ACCOUNT).partition(":")
    return (namespace, name) if user.startswith(_ACCOUNT) and colon and namespace and name else None

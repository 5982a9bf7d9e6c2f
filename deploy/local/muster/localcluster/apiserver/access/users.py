"""Users and groups."""

from dataclasses import dataclass
from typing import Final

MASTERS: Final = "system:masters"
AUTHENTICATED: Final = "system:authenticated"
SERVICE_ACCOUNTS: Final = "system:serviceaccounts"
_ACCOUNT: Final = "system:serviceaccount:"


@dataclass(frozen=True, eq=False)
class User:
    """User of the API. Compared by identity: two users with one name may have different groups."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""

    @property
    def unbounded(self) -> bool:
        """Whether the user bypasses authorization."""
        return MASTERS in self.groups

    def as_object(self) -> dict[str, object]:
        """UserInfo of reviews."""
        user_info: dict[str, object] = {"username": self.name, "groups": list(self.groups)}
        return {**user_info, "uid": self.uid} if self.uid else user_info


ADMINISTRATOR: Final = User("muster-local", (MASTERS, AUTHENTICATED))
"""The administrator; also the identity of built-in controllers."""


def service_account(namespace: str, name: str, uid: str = "") -> User:
    """User of a ServiceAccount."""
    groups = (SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}", AUTHENTICATED)
    return User(f"{_ACCOUNT}{namespace}:{name}", groups, uid)


def account_of(user: str) -> tuple[str, str] | None:
    """Namespace and name of a user's ServiceAccount; None if it has none."""
    namespace, colon, name = user.removeprefix(_ACCOUNT).partition(":")
    return (namespace, name) if user.startswith(_ACCOUNT) and colon and namespace and name else None

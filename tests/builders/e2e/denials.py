"""What services were refused for want of a right, as the answers say: a real API server keeps no record for tests."""

import re
from typing import Final

import msgspec

_LACKING: Final = re.compile(r'User ".+" cannot |cannot set blockOwnerDeletion')
"""RBAC's words, and those of OwnerReferencesPermissionEnforcement: a quota or a webhook refuses with 403, too."""


class Refusals:
    """The messages, each once."""

    def __init__(self) -> None:
        self.messages: set[str] = set()

    def note(self, status: int, body: bytes) -> None:
        """An API server answered this."""
        if status != 403:
            return
        try:
            message = str(msgspec.json.decode(body)["message"])
        except (msgspec.DecodeError, KeyError, TypeError):
            message = body.decode(errors="replace")
        if _LACKING.search(message):
            self.messages.add(message)

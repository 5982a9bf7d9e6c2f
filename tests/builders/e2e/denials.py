"""Denied requests of services, read from the responses: a real API server keeps no log for tests."""

import re
from typing import Final

import msgspec

_LACKING: Final = re.compile(r'User ".+" cannot |cannot set blockOwnerDeletion')
"""Messages of RBAC and of OwnerReferencesPermissionEnforcement; quota and webhooks reject with 403, too."""


class Refusals:
    """The distinct messages."""

    def __init__(self) -> None:
        self.messages: set[str] = set()

    def note(self, status: int, body: bytes) -> None:
        """Take in a response of the API server."""
        if status != 403:
            return
        try:
            message = str(msgspec.json.decode(body)["message"])
        except (msgspec.DecodeError, KeyError, TypeError):
            message = body.decode(errors="replace")
        if _LACKING.search(message):
            self.messages.add(message)

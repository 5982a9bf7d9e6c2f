"""What all calls of binding's Write have in common: how much is in one, how long it may take, when not to repeat it."""

from typing import Final

import grpc
from grpc import aio

MOST_WRITES_PER_CALL: Final = 500
WRITE_TIMEOUT_SECONDS: Final = 60.0

_FINAL: Final = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)


def is_final(error: aio.AioRpcError) -> bool:
    """The answer would be the same if the call were repeated."""
    return error.code() in _FINAL

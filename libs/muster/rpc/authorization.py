"""Who may call a server: a certificate of the right authority says who somebody is, not that it may call."""

from collections.abc import Sequence
from typing import Any, Final

import grpc
from grpc import aio

from muster.rpc.errors import RpcError

_DNS_NAMES: Final = "peer_dns"
"""Where gRPC keeps the DNS names (SAN) of the peer's certificate."""
_NAMES_TOLD: Final = 10
_NAME_LENGTH: Final = 253


class Callers:
    """DNS names, one of which a caller's certificate must be for. Without any, whoever has a certificate may call."""

    def __init__(self, wanted: Sequence[str]) -> None:
        self.wanted = tuple(sorted({name.lower() for name in wanted}))

    def __bool__(self) -> bool:
        return bool(self.wanted)

    def check(self, context: aio.ServicerContext[Any, Any]) -> None:
        """Raise RpcError unless the call is one of theirs."""
        names = [name.decode(errors="replace").lower() for name in context.auth_context().get(_DNS_NAMES, ())]
        if not any(name in self.wanted for name in names):
            theirs = ", ".join(repr(name[:_NAME_LENGTH]) for name in names[:_NAMES_TOLD]) or "no DNS name"
            ours = ", ".join(self.wanted)
            message = f"the caller's certificate is for {theirs}, and only {ours} may call here (tls.clients)"
            raise RpcError(grpc.StatusCode.PERMISSION_DENIED, message)

"""Restricts a server to named clients: a valid certificate proves an identity, but not the right to call."""

from collections.abc import Sequence
from typing import Any, Final

import grpc
from grpc import aio

from muster.rpc.errors import RpcError

_DNS_NAMES: Final = "peer_dns"
"""Key of the DNS names (SAN) of the peer's certificate in gRPC's auth context."""
_MAX_NAMES: Final = 10
_MAX_NAME_LENGTH: Final = 253


class AllowedClients:
    """DNS names, one of which a client's certificate must contain. Without any, every certificate is accepted."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(sorted({name.lower() for name in names}))

    def __bool__(self) -> bool:
        return bool(self.names)

    def check(self, context: aio.ServicerContext[Any, Any]) -> None:
        """Raise RpcError PERMISSION_DENIED unless the client is allowed."""
        names = [name.decode(errors="replace").lower() for name in context.auth_context().get(_DNS_NAMES, ())]
        if not any(name in self.names for name in names):
            theirs = ", ".join(repr(name[:_MAX_NAME_LENGTH]) for name in names[:_MAX_NAMES]) or "no DNS name"
            ours = ", ".join(self.names)
            message = f"the caller's certificate is for {theirs}, and only {ours} may call here (tls.clients)"
            raise RpcError(grpc.StatusCode.PERMISSION_DENIED, message)

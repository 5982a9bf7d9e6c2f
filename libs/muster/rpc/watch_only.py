"""cluster-state's service without marks, for servers whose subscribers have no use for them."""

from collections.abc import AsyncIterator
from typing import Any

import grpc

from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.clusterstate.v1 import clusterstate_pb2_grpc as pb_grpc
from muster.rpc.errors import RpcError


class WatchOnly(pb_grpc.ClusterStateServiceServicer):
    """Subclasses implement Watch. Follow is unknown, as to versions before it: subscribers watch instead."""

    def Follow(self, request_iterator: Any, context: Any) -> AsyncIterator[pb.WatchResponse]:  # noqa: N802
        raise RpcError(grpc.StatusCode.UNIMPLEMENTED, "this server sends no marks: use Watch")

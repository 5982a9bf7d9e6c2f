"""cluster-state's service with Watch alone, for servers whose subscribers need nothing else."""

from typing import Any

import grpc

from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.clusterstate.v1 import clusterstate_pb2_grpc as pb_grpc
from muster.rpc.errors import RpcError


class WatchOnly(pb_grpc.ClusterStateServiceServicer):
    """Subclasses implement Watch. GetRevision is unknown, as to versions before it."""

    async def GetRevision(self, request: pb.GetRevisionRequest, context: Any) -> pb.GetRevisionResponse:  # noqa: N802
        raise RpcError(grpc.StatusCode.UNIMPLEMENTED, "this server has no GetRevision")

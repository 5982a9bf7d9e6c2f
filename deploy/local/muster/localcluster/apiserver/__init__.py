"""Kubernetes API server with all state in memory, for trying Muster out and for tests. Not for production.

Start it with `python -m muster.localcluster.apiserver --listen 127.0.0.1:8080 --kubeconfig-out kubeconfig`, or in your
own process:

    server = ApiServer()
    url = await server.start()

It listens on loopback. Requests with a token have the RBAC permissions of its user; requests without one over plain
HTTP are the administrator's. A request passes `server` (HTTP) -> `access` (authentication and authorization) ->
`routing` (kind, object and subresource of the path) -> `admission` (webhooks) -> `api` (the verb) -> `read`, `watch`,
`write`, `delete`, `binding`, `eviction` -> `store`. `kinds` defines what a kind is, `builtin_kinds` lists the served
ones, `custom_kinds` derives more from CustomResourceDefinitions, `devices` is about dynamic resource
allocation, `resource_quotas` enforces quotas, `controllers` runs the controllers that a cluster needs, and `faults`
injects faults.
"""

from muster.localcluster.apiserver.cluster import Timing
from muster.localcluster.apiserver.server import ApiServer

__all__ = ["ApiServer", "Timing"]

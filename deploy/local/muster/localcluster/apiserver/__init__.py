"""An API server that keeps a cluster in memory: for trying Muster out, and for tests. Not for production.

Start it with `python -m muster.localcluster.apiserver --listen 127.0.0.1:8080 --kubeconfig-out kubeconfig`, or in a
process of your own:

    server = ApiServer()
    url = await server.start()

It listens on loopback. Who shows a token is held to the roles that RBAC binds to its user; over plain HTTP, who shows
none is whoever started it. Requests take one path: `server` (HTTP) -> `access` (who it is, and whether that user may)
-> `routing` (what the path is about) -> `admission` (which webhooks are asked) -> `api` (the verb) -> `reading`,
`watching`, `writing`, `deleting`, `binding`, `eviction` -> `store`. `kinds` says what a kind is, `builtin` which there
are, `custom_kinds` how CustomResourceDefinitions make more. `quotas` say whether there is room for an object.
`controllers` are the parts of a real cluster's controllers that nothing works without. `faults` breaks it on demand.
"""

from muster.localcluster.apiserver.cluster import Timing
from muster.localcluster.apiserver.server import ApiServer

__all__ = ["ApiServer", "Timing"]

"""What the services of a cluster asked of its API server, and what they were refused."""

import msgspec

from muster.config.settings import KubeSettings
from muster.kube.session import KubeSession
from muster.localcluster.apiserver.access.record import PATH, Use
from muster.localcluster.apiserver.access.users import service_account
from muster.localcluster.apiserver.kubeconfigs import write_kubeconfig
from muster.localcluster.identities import Identities
from muster.localcluster.rights import NAMESPACE, Right, account

_SECONDS = 20.0
_CONNECTIONS = 256


async def uses(session: KubeSession) -> list[Use]:
    """Of all who may not do everything. `session` is of somebody who may."""
    answer = await session.request("GET", PATH, timeout_seconds=_SECONDS)
    assert answer.status == 200, answer.body
    return msgspec.json.decode(answer.body, type=list[Use])


def user_of(service: str) -> str:
    """As whom a service comes."""
    return service_account(NAMESPACE, account(service)).name


def refused(all_uses: list[Use]) -> list[Use]:
    """What was not allowed."""
    return [use for use in all_uses if not use.allowed]


def is_used(right: Right, service: str, all_uses: list[Use]) -> bool:
    """The service did what the right allows."""
    return any(
        (use.user, use.verb, use.group, use.resource) == (user_of(service), right.verb, right.group, right.resource)
        and right.namespace in ("", use.namespace)
        and use.allowed
        for use in all_uses
    )


async def sessions_by_credentials(identities: Identities, server: str) -> dict[str, KubeSession]:
    """Sessions with the API server as each service, by the Authorization header that it shows."""
    sessions = {}
    for name, token in identities.tokens.items():
        path = identities.token_file.with_name(f"{name}.straight.kubeconfig")
        write_kubeconfig(path, server, token)
        settings = KubeSettings(kubeconfig=path)
        sessions[f"Bearer {token}"] = await KubeSession.connect(settings, connections=_CONNECTIONS)
    return sessions

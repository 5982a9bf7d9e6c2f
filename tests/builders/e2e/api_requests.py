"""What the services of a cluster asked of its API server, and what they were refused."""

from typing import Any

import msgspec
import yaml

from muster.config.settings import KubeSettings
from muster.kube.paths import object_path
from muster.kube.session import KubeSession
from muster.localcluster.apiserver.access.record import PATH, Use
from muster.localcluster.apiserver.access.users import service_account
from muster.localcluster.manifests import apply_manifests
from muster.localcluster.rights import NAMESPACE, SERVICES, Right, account, find_rights, grants, read_rights
from muster.localcluster.stack import Stack

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


async def sessions_by_credentials(stack: Stack, session: KubeSession) -> dict[str, KubeSession]:
    """Sessions with the API server as each service, by the Authorization header that it shows. A real API server is
    told of the services first, and gives them tokens of its own.
    """
    if not stack.is_embedded:
        await apply_manifests(session, grants(read_rights(find_rights())))
    sessions = {}
    for service in SERVICES:
        shown = stack.identities.tokens[service]
        token = shown if stack.is_embedded else await _token(session, service)
        path = stack.directory / "access" / f"{service}.straight.kubeconfig"
        path.write_text(_kubeconfig_for(yaml.safe_load(stack.kubeconfig.read_text()), token))
        settings = KubeSettings(kubeconfig=path)
        sessions[f"Bearer {shown}"] = await KubeSession.connect(settings, connections=_CONNECTIONS)
    return sessions


def _kubeconfig_for(kubeconfig: Any, token: str) -> str:
    """One that leads to the same cluster, for somebody else."""
    [context] = [each for each in kubeconfig["contexts"] if each["name"] == kubeconfig["current-context"]]
    user = {"name": context["context"]["user"], "user": {"token": token}}
    return yaml.safe_dump({**kubeconfig, "contexts": [context], "users": [user]})


async def _token(session: KubeSession, service: str) -> str:
    path = object_path("v1", "serviceaccounts", NAMESPACE, account(service)) + "/token"
    answer = await session.request("POST", path, body=b'{"spec":{}}', timeout_seconds=_SECONDS)
    assert answer.status == 201, answer.body
    return str(msgspec.json.decode(answer.body)["status"]["token"])

"""Requests of the services to their API server, and those that were denied."""

from typing import Any

import msgspec
import yaml

from muster.config.settings import KubeSettings
from muster.kube.paths import object_path
from muster.kube.session import KubeSession
from muster.localcluster.apiserver.access.audit import PATH, Use
from muster.localcluster.apiserver.access.users import service_account
from muster.localcluster.manifests import apply_manifests
from muster.localcluster.permissions import (
    NAMESPACE,
    SERVICES,
    Permission,
    account,
    find_permissions,
    grants,
    read_permissions,
)
from muster.localcluster.stack import Stack

_SECONDS = 60.0
_CONNECTIONS = 256


async def uses(session: KubeSession) -> list[Use]:
    """Requests of all users who are not administrators. `session` is an administrator's."""
    answer = await session.request("GET", PATH, timeout_seconds=_SECONDS)
    assert answer.status == 200, answer.body
    return msgspec.json.decode(answer.body, type=list[Use])


def user_of(service: str) -> str:
    """The user name of a service."""
    return service_account(NAMESPACE, account(service)).name


def refused(all_uses: list[Use]) -> list[Use]:
    """The denied requests."""
    return [use for use in all_uses if not use.allowed]


def is_used(permission: Permission, service: str, all_uses: list[Use]) -> bool:
    """Whether the service used a permission."""
    return any(
        (use.user, use.verb, use.group, use.resource)
        == (user_of(service), permission.verb, permission.group, permission.resource)
        and permission.namespace in ("", use.namespace)
        and use.allowed
        for use in all_uses
    )


async def sessions_by_credentials(stack: Stack, session: KubeSession) -> dict[str, KubeSession]:
    """Sessions with the API server as each service, by the Authorization header. On a real API server the service
    accounts are created first, and it issues their tokens.
    """
    if not stack.is_embedded:
        await apply_manifests(session, grants(read_permissions(find_permissions())))
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
    """A session with the same cluster as another user."""
    [context] = [each for each in kubeconfig["contexts"] if each["name"] == kubeconfig["current-context"]]
    user = {"name": context["context"]["user"], "user": {"token": token}}
    return yaml.safe_dump({**kubeconfig, "contexts": [context], "users": [user]})


async def _token(session: KubeSession, service: str) -> str:
    path = object_path("v1", "serviceaccounts", NAMESPACE, account(service)) + "/token"
    answer = await session.request("POST", path, body=b'{"spec":{}}', timeout_seconds=_SECONDS)
    assert answer.status == 201, answer.body
    return str(msgspec.json.decode(answer.body)["status"]["token"])

"""Applies YAML manifests in a working order: CRDs, namespaces, priority classes, quotas, then all others."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import yaml

from muster.kube.session import ApiStatusError, KubeSession, Response

_CALL_SECONDS = 30.0
_ESTABLISH_SECONDS = 30.0  # a CRD is served within a second, unless the API server rejected it
_QUOTA_STATUS_SECONDS = 30.0  # a quota has its status within a second, unless no quota controller runs
_POLL_SECONDS = 0.05
_MAX_CONCURRENT = 32
_DEFINITION = "CustomResourceDefinition"
_QUOTA = "ResourceQuota"
_RANKS = {_DEFINITION: 0, "Namespace": 1, "PriorityClass": 2, _QUOTA: 3}
_DEFAULT_RANK = 4
_FIELD_MANAGER = "muster-cli"


class BadManifest(ValueError):
    """A file does not contain Kubernetes objects."""


class ManifestRejected(RuntimeError):
    """The API server rejected an object; the message has its answer."""


@dataclass(frozen=True)
class Manifest:
    """One object and its file."""

    body: Mapping[str, Any]
    source: Path | None = field(default=None, compare=False)

    @property
    def api_version(self) -> str:
        return str(self.body["apiVersion"])

    @property
    def kind(self) -> str:
        return str(self.body["kind"])

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self.body["metadata"]  # type: ignore[no-any-return]

    @property
    def name(self) -> str:
        return str(self.metadata["name"])

    @property
    def namespace(self) -> str:
        return str(self.metadata.get("namespace") or "default")

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.metadata.get("annotations") or {}

    @property
    def labels(self) -> Mapping[str, str]:
        return self.metadata.get("labels") or {}

    def __str__(self) -> str:
        source = f" of {self.source}" if self.source else ""
        return f"{self.kind} {self.namespace}/{self.name}{source}"


def load_manifests(path: Path) -> list[Manifest]:
    """Objects of a file, or of all *.yaml, *.yml and *.json files of a directory in the order of their names.

    Objects of `kind: List` are expanded. Raises BadManifest.
    """
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in {".yaml", ".yml", ".json"})
    elif path.exists():
        files = [path]
    else:
        raise BadManifest(f"there is no file or directory {path}")
    return [manifest for file in files for manifest in _objects_of(file)]


def _objects_of(file: Path) -> Iterator[Manifest]:
    try:
        documents = list(yaml.safe_load_all(file.read_text()))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadManifest(f"{file} is not YAML: {error}") from error
    for document in documents:
        if document is not None:
            yield from _flattened(document, file)


def _flattened(document: Any, file: Path) -> Iterator[Manifest]:
    if not isinstance(document, dict) or not document.get("kind") or not document.get("apiVersion"):
        raise BadManifest(f"{file}: every document needs apiVersion and kind, unlike {str(document)[:80]!r}")
    if document["kind"] == "List":
        for item in document.get("items") or ():
            yield from _flattened(item, file)
    elif not isinstance(document.get("metadata"), dict) or not document["metadata"].get("name"):
        raise BadManifest(f"{file}: a {document['kind']} has no metadata.name")
    else:
        yield Manifest(document, file)


async def apply_manifests(session: KubeSession, manifests: Iterable[Manifest]) -> None:
    """Create objects, or merge the manifests into existing ones. Raises ManifestRejected.

    An existing CustomResourceDefinition is not changed: it belongs to another project, and other objects depend on it.
    """
    resources = _Resources(session)
    by_rank: dict[int, list[Manifest]] = {}
    for manifest in manifests:
        by_rank.setdefault(_RANKS.get(manifest.kind, _DEFAULT_RANK), []).append(manifest)
    for _, batch in sorted(by_rank.items()):
        for start in range(0, len(batch), _MAX_CONCURRENT):
            await asyncio.gather(
                *(_apply(session, resources, manifest) for manifest in batch[start : start + _MAX_CONCURRENT])
            )


async def _apply(session: KubeSession, resources: "_Resources", manifest: Manifest) -> None:
    path = await resources.path(manifest)
    body = msgspec.json.encode(manifest.body)
    query = {"fieldManager": _FIELD_MANAGER}
    created = await session.request("POST", path, query=query, body=body, timeout_seconds=_CALL_SECONDS)
    if created.status == 409 and manifest.kind == _DEFINITION:
        return
    if created.status == 409:
        created = await session.request(
            "PATCH",
            f"{path}/{quote(manifest.name)}",
            query=query,
            body=body,
            content_type="application/merge-patch+json",
            timeout_seconds=_CALL_SECONDS,
        )
    if created.status >= 300:
        raise ManifestRejected(f"the API server rejected {manifest}: {_status_of(created)}")
    if manifest.kind == _QUOTA:
        await _wait_for_quota_status(session, f"{path}/{quote(manifest.name)}", manifest)


async def _wait_for_quota_status(session: KubeSession, path: str, manifest: Manifest) -> None:
    """Wait until a quota is enforced: objects that are created before are not limited by it."""
    deadline = asyncio.get_running_loop().time() + _QUOTA_STATUS_SECONDS
    while asyncio.get_running_loop().time() < deadline:
        found = await session.request("GET", path, timeout_seconds=_CALL_SECONDS)
        if found.status == 200 and "used" in (msgspec.json.decode(found.body).get("status") or {}):
            return
        await asyncio.sleep(_POLL_SECONDS)
    raise ManifestRejected(
        f"{manifest} has no status.used after {_QUOTA_STATUS_SECONDS:g} s: no quota controller runs in the cluster"
    )


class _Resources:
    """Cache of paths by apiVersion and kind, from the API server's discovery documents."""

    def __init__(self, session: KubeSession) -> None:
        self._session = session
        self._known: dict[tuple[str, str], tuple[str, bool]] = {}
        self._lock = asyncio.Lock()

    async def path(self, manifest: Manifest) -> str:
        """Path of the object's collection; waits until a new CRD is served."""
        async with self._lock:
            key = (manifest.api_version, manifest.kind)
            deadline = asyncio.get_running_loop().time() + _ESTABLISH_SECONDS
            while key not in self._known:
                problem = await self._discover(manifest.api_version)
                if key in self._known:
                    break
                if "/" not in manifest.api_version or asyncio.get_running_loop().time() > deadline:
                    raise ManifestRejected(f"the API server does not serve {manifest}: {problem}")
                await asyncio.sleep(_POLL_SECONDS)
            plural, namespaced = self._known[key]
        scope = f"/namespaces/{quote(manifest.namespace)}" if namespaced else ""
        return f"{_root(manifest.api_version)}{scope}/{plural}"

    async def _discover(self, api_version: str) -> str:
        found = await self._session.request("GET", _root(api_version), timeout_seconds=_CALL_SECONDS)
        if found.status != 200:
            return _status_of(found)
        for resource in msgspec.json.decode(found.body).get("resources", []):
            if "/" not in resource["name"]:
                self._known[api_version, resource["kind"]] = (resource["name"], resource["namespaced"])
        return "no such kind"


def _root(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def _status_of(response: Response) -> str:
    return str(ApiStatusError.from_response(response))

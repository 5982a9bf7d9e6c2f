"""Puts YAML manifests into an API server, in an order that works: CRDs, namespaces, priority classes, quotas, then the
rest.
"""

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
_SERVED_SECONDS = 30.0  # a CRD is served within a second; more means that the API server refused it
_COUNTED_SECONDS = 30.0  # a quota is counted within a second; more means that no controller does it
_PAUSE_SECONDS = 0.05
_AT_ONCE = 32
_DEFINITION = "CustomResourceDefinition"
_QUOTA = "ResourceQuota"
_FIRST = {_DEFINITION: 0, "Namespace": 1, "PriorityClass": 2, _QUOTA: 3}
_REST = 4
_OUR_NAME = "muster-cli"


class BadManifest(ValueError):
    """A file that holds no Kubernetes objects; says which and why."""


class ManifestRefused(RuntimeError):
    """The API server did not take an object; says which and what it said."""


@dataclass(frozen=True)
class Manifest:
    """One object, and the file that it came from."""

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
        where = f" of {self.source}" if self.source else ""
        return f"{self.kind} {self.namespace}/{self.name}{where}"


def load_manifests(path: Path) -> list[Manifest]:
    """The objects of a file, or of all *.yaml, *.yml and *.json files of a directory, by file name.

    Lists (`kind: List`) are taken apart. Raises BadManifest.
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
        raise BadManifest(f"{file}: every document needs apiVersion and kind; found {str(document)[:80]!r}")
    if document["kind"] == "List":
        for item in document.get("items") or ():
            yield from _flattened(item, file)
    elif not isinstance(document.get("metadata"), dict) or not document["metadata"].get("name"):
        raise BadManifest(f"{file}: a {document['kind']} has no metadata.name")
    else:
        yield Manifest(document, file)


async def apply_manifests(session: KubeSession, manifests: Iterable[Manifest]) -> None:
    """Create objects; those that exist get the manifest merged in. Raises ManifestRefused.

    A CustomResourceDefinition that exists stays as it is: it belongs to the project whose kind it is, and others write
    objects by it.
    """
    resources = _Resources(session)
    by_rank: dict[int, list[Manifest]] = {}
    for manifest in manifests:
        by_rank.setdefault(_FIRST.get(manifest.kind, _REST), []).append(manifest)
    for _, batch in sorted(by_rank.items()):
        for start in range(0, len(batch), _AT_ONCE):
            await asyncio.gather(*(_put(session, resources, manifest) for manifest in batch[start : start + _AT_ONCE]))


async def _put(session: KubeSession, resources: "_Resources", manifest: Manifest) -> None:
    path = await resources.path(manifest)
    body = msgspec.json.encode(manifest.body)
    query = {"fieldManager": _OUR_NAME}
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
        raise ManifestRefused(f"the API server refused {manifest}: {_said(created)}")
    if manifest.kind == _QUOTA:
        await _until_counted(session, f"{path}/{quote(manifest.name)}", manifest)


async def _until_counted(session: KubeSession, path: str, manifest: Manifest) -> None:
    """Wait until a quota counts: what is created before is not held to it."""
    deadline = asyncio.get_running_loop().time() + _COUNTED_SECONDS
    while asyncio.get_running_loop().time() < deadline:
        found = await session.request("GET", path, timeout_seconds=_CALL_SECONDS)
        if found.status == 200 and "used" in (msgspec.json.decode(found.body).get("status") or {}):
            return
        await asyncio.sleep(_PAUSE_SECONDS)
    raise ManifestRefused(f"nobody counts what is used of {manifest}: no quota controller runs in the cluster")


class _Resources:
    """Paths by apiVersion and kind, from the API server's discovery documents."""

    def __init__(self, session: KubeSession) -> None:
        self._session = session
        self._known: dict[tuple[str, str], tuple[str, bool]] = {}
        self._lock = asyncio.Lock()

    async def path(self, manifest: Manifest) -> str:
        """Path of the collection that the object belongs to; waits while a new CRD is not served yet."""
        async with self._lock:
            key = (manifest.api_version, manifest.kind)
            deadline = asyncio.get_running_loop().time() + _SERVED_SECONDS
            while key not in self._known:
                said = await self._discover(manifest.api_version)
                if key in self._known:
                    break
                if "/" not in manifest.api_version or asyncio.get_running_loop().time() > deadline:
                    raise ManifestRefused(f"the API server does not serve {manifest}: {said}")
                await asyncio.sleep(_PAUSE_SECONDS)
            plural, namespaced = self._known[key]
        where = f"/namespaces/{quote(manifest.namespace)}" if namespaced else ""
        return f"{_root(manifest.api_version)}{where}/{plural}"

    async def _discover(self, api_version: str) -> str:
        found = await self._session.request("GET", _root(api_version), timeout_seconds=_CALL_SECONDS)
        if found.status != 200:
            return _said(found)
        for resource in msgspec.json.decode(found.body).get("resources", []):
            if "/" not in resource["name"]:
                self._known[api_version, resource["kind"]] = (resource["name"], resource["namespaced"])
        return "no such kind"


def _root(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def _said(response: Response) -> str:
    return str(ApiStatusError.from_response(response))

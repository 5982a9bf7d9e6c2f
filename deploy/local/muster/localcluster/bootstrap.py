"""Bootstraps the cluster of compose.yaml: tokens before its API server starts, CRDs and RBAC objects after.

python -m muster.localcluster.bootstrap identities --directory DIR --server URL
python -m muster.localcluster.bootstrap objects --server URL --permissions DIR MANIFESTS...
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from muster.config.settings import KubeSettings
from muster.kube.session import KubeSession, KubeUnreachable
from muster.localcluster.apiserver.kubeconfigs import write_kubeconfig
from muster.localcluster.identities import Identities
from muster.localcluster.manifests import BadManifest, Manifest, ManifestRejected, apply_manifests, load_manifests
from muster.localcluster.permissions import UnreadablePermissions, grants, read_permissions


def main() -> None:
    options = _arguments()
    try:
        if options.step == "identities":
            make_identities(options.directory, options.server)
        else:
            asyncio.run(_make_objects(options))
    except (BadManifest, ManifestRejected, UnreadablePermissions, KubeUnreachable, OSError) as error:
        sys.exit(str(error))


def make_identities(directory: Path, server: str) -> None:
    """Write tokens and kubeconfigs. Existing ones stay, since running processes use them."""
    identities = Identities(directory)
    if not identities.token_file.exists():
        identities.write(server=server, services_server=server)


async def _make_objects(options: argparse.Namespace) -> None:
    """Apply RBAC objects and manifests as an administrator.

    Raises BadManifest, ManifestRejected, UnreadablePermissions.
    """
    manifests: list[Manifest] = [each for path in options.manifests for each in load_manifests(path)]
    manifests += grants(read_permissions(options.permissions))
    with tempfile.TemporaryDirectory() as directory:
        kubeconfig = Path(directory) / "kubeconfig"
        write_kubeconfig(kubeconfig, options.server, "")
        session = await KubeSession.connect(KubeSettings(kubeconfig=kubeconfig))
    try:
        await apply_manifests(session, manifests)
    finally:
        await session.close()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m muster.localcluster.bootstrap")
    steps = parser.add_subparsers(dest="step", required=True)
    identities = steps.add_parser("identities", help="write tokens and kubeconfigs, unless they exist")
    identities.add_argument("--directory", type=Path, required=True)
    identities.add_argument("--server", required=True, help="URL of the API server for the services")
    objects = steps.add_parser("objects", help="apply RBAC objects and manifests")
    objects.add_argument("--server", required=True, help="URL of the API server")
    objects.add_argument("--permissions", type=Path, required=True, help="directory with the services' RBAC rules")
    objects.add_argument("manifests", type=Path, nargs="*", help="files or directories of manifests")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""Makes a cluster of containers what Muster needs, for the compose file: tokens before its API server starts, objects
after.

python -m muster.localcluster.bootstrap identities --directory DIR --server URL
python -m muster.localcluster.bootstrap objects --server URL --rights DIR MANIFESTS...
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
from muster.localcluster.manifests import BadManifest, Manifest, ManifestRefused, apply_manifests, load_manifests
from muster.localcluster.rights import NoRights, grants, read_rights


def main() -> None:
    options = _arguments()
    try:
        if options.what == "identities":
            make_identities(options.directory, options.server)
        else:
            asyncio.run(_make_objects(options))
    except (BadManifest, ManifestRefused, NoRights, KubeUnreachable, OSError) as error:
        sys.exit(str(error))


def make_identities(directory: Path, server: str) -> None:
    """Write tokens and kubeconfigs. Those that are there stay: processes that run know no others."""
    identities = Identities(directory)
    if not identities.token_file.exists():
        identities.write(server=server, services_server=server)


async def _make_objects(options: argparse.Namespace) -> None:
    """Put rights and manifests into the cluster, as its owner. Raises BadManifest, ManifestRefused, NoRights."""
    wanted: list[Manifest] = [each for path in options.manifests for each in load_manifests(path)]
    wanted += grants(read_rights(options.rights))
    with tempfile.TemporaryDirectory() as directory:
        kubeconfig = Path(directory) / "kubeconfig"
        write_kubeconfig(kubeconfig, options.server, "")
        session = await KubeSession.connect(KubeSettings(kubeconfig=kubeconfig))
    try:
        await apply_manifests(session, wanted)
    finally:
        await session.close()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m muster.localcluster.bootstrap")
    steps = parser.add_subparsers(dest="what", required=True)
    identities = steps.add_parser("identities", help="write tokens and kubeconfigs, unless they are there")
    identities.add_argument("--directory", type=Path, required=True)
    identities.add_argument("--server", required=True, help="URL of the API server, as services reach it")
    objects = steps.add_parser("objects", help="put rights and manifests into the cluster")
    objects.add_argument("--server", required=True, help="URL of an API server that needs no credentials")
    objects.add_argument("--rights", type=Path, required=True, help="directory with the services' rights")
    objects.add_argument("manifests", type=Path, nargs="*", help="files or directories of manifests")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""Locates the manifests of deploy/ that a local cluster applies: CRDs, examples, the services' RBAC rules."""

from pathlib import Path


class NoDeployFiles(RuntimeError):
    """Neither a checkout of Muster nor this package has the files."""


def find_deploy_files(name: str) -> Path:
    """deploy/<name> of the working directory or a directory above it, else of this code's checkout or package.

    Raises NoDeployFiles.
    """
    for above in (Path.cwd(), *Path.cwd().parents, *Path(__file__).resolve().parents):
        if (found := above / "deploy" / name).is_dir():
            return found
    raise NoDeployFiles(f"there is no deploy/{name} here; run this in a checkout of Muster")

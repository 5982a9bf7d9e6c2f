"""People and gangs of the tests of authentication."""

from dataclasses import dataclass
from pathlib import Path

from builders.console.services import Services
from builders.kube.client import ApiClient
from muster.console.settings import Settings
from muster.localcluster.apiserver import ApiServer
from muster.localcluster.apiserver.access.users import AUTHENTICATED, User, service_account
from muster.localcluster.permissions import NAMESPACE

TOKENS = {
    "console-token": service_account(NAMESPACE, "muster-console"),
    "ann-token": User("ann", ("team-a", AUTHENTICATED), "7"),
    "root-token": User("root", ("operators", AUTHENTICATED)),
    "nobody-token": User("nobody", (AUTHENTICATED,)),
}
OURS, THEIRS = "koordinator/ours/train", "koordinator/theirs/secret-project"


@dataclass
class Guarded:
    """Services with a console that authenticates."""

    services: Services
    server: ApiServer
    api: ApiClient
    settings: Settings
    kubeconfig: Path

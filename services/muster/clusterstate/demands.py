"""Additions of a pod's claims, of volumes and of devices, to its class and its facts."""

from typing import Final

from msgspec import Struct

from muster.gangs.facts import Amounts
from muster.kube.volume_facts import NodeTerms


class Demands(Struct, frozen=True):
    """Node selector terms of a pod's claims, names of those that are bound or allocated only after placement, why the
    pod must wait, and the resources that stand for the claims.
    """

    terms: tuple[NodeTerms, ...] = ()
    claims: tuple[str, ...] = ()
    problem: str = ""
    requests: Amounts = ()


NO_DEMANDS: Final = Demands()

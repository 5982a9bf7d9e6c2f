"""Additions of a pod's claims, of volumes and of devices, to its class and its facts."""

from typing import Final

from msgspec import Struct

from muster.gangs.facts import Amounts, PodTerm
from muster.gangs.selectors import PodSelector
from muster.kube.volume_facts import NodeTerms


class Demands(Struct, frozen=True):
    """Node selector terms of a pod's claims, names of those that are bound or allocated only after placement, why the
    pod must wait, the resources that stand for the claims, and affinity to the pods that share them, with the selectors
    that it names.
    """

    terms: tuple[NodeTerms, ...] = ()
    claims: tuple[str, ...] = ()
    problem: str = ""
    requests: Amounts = ()
    shared_claims: tuple[PodTerm, ...] = ()
    selectors: tuple[PodSelector, ...] = ()
    group_claims: tuple[str, ...] = ()
    """Names of the claims that are reserved for the pod's PodGroup."""
    group: tuple[str, str] = ("", "")
    """Name and uid of this PodGroup."""


NO_DEMANDS: Final = Demands()

"""Facts of objects that are not in a cluster, and of the gangs that manifests would create, for commands and the
console.
"""

from muster.clusterstate.manifests import (
    SYSTEM_CLASSES,
    BadManifests,
    Edits,
    Priority,
    gangs_of,
    parse_manifests,
    proposable,
)
from muster.clusterstate.unsubmitted import UnreadableObject, facts_of, is_read

__all__ = [
    "SYSTEM_CLASSES",
    "BadManifests",
    "Edits",
    "Priority",
    "UnreadableObject",
    "facts_of",
    "gangs_of",
    "is_read",
    "parse_manifests",
    "proposable",
]

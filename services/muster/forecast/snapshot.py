"""What the scheduler knows, as a file: the facts of the cluster, the coordinator's records and its settings.

The file is a ZIP archive: `snapshot.json` has the version, the time and the settings; `cluster.pb` the facts as one
message of the stream of cluster-state; `records.json` the records; `term-state.json` what only the leader's memory
holds. A file of another version of Muster is refused.
"""

import zipfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec
from google.protobuf.message import DecodeError
from msgspec import Struct

from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.coordinator.core.events import Record
from muster.coordinator.core.term_state import TermState
from muster.gangs.facts import Batch
from muster.rpc.watch_codec import decode_batch, encode_batch

_ABOUT: Final = "snapshot.json"
_CLUSTER: Final = "cluster.pb"
_RECORDS: Final = "records.json"
_TERM_STATE: Final = "term-state.json"
MAX_BYTES: Final = 1 << 30
"""Bytes of each part, unpacked."""


class BadSnapshot(ValueError):
    """A file that is not a snapshot of this version. The message names it."""


class Snapshot(Struct, frozen=True):
    """What the scheduler knew at a time."""

    unix_seconds: float
    settings: dict[str, str]
    records: tuple[Record, ...]
    batch: Batch
    term_state: TermState = TermState()
    revision: dict[str, int] = {}
    """Of the cluster, by kind of objects: all changes up to there are in it."""
    exact: bool = True
    """The cluster is the one that the coordinator knew, and not a newer one."""


class _About(Struct, frozen=True):
    version: str
    unix_seconds: float
    settings: dict[str, str]
    revision: dict[str, int]
    exact: bool


def write(snapshot: Snapshot, path: Path) -> None:
    """Write a file; one that exists is replaced. Raises OSError."""
    about = _About(version("muster"), snapshot.unix_seconds, snapshot.settings, snapshot.revision, snapshot.exact)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_ABOUT, msgspec.json.encode(about))
        archive.writestr(_CLUSTER, encode_batch(snapshot.batch).SerializeToString())
        archive.writestr(_RECORDS, msgspec.json.encode(snapshot.records))
        archive.writestr(_TERM_STATE, msgspec.json.encode(snapshot.term_state))


def read(path: Path) -> Snapshot:
    """Read a file. Raises BadSnapshot, OSError."""
    try:
        with zipfile.ZipFile(path) as archive:
            about = msgspec.json.decode(_part(archive, _ABOUT), type=_About)
            if about.version != version("muster"):
                raise BadSnapshot(
                    f"{path} was written by version {about.version}, and this is {version('muster')}: use that version"
                )
            records = decode_records(_part(archive, _RECORDS))
            term_state = decode_term_state(_part(archive, _TERM_STATE))
            batch = decode_batch(pb.Batch.FromString(_part(archive, _CLUSTER)))
    except (zipfile.BadZipFile, KeyError, msgspec.DecodeError, DecodeError, UnicodeDecodeError) as error:
        raise BadSnapshot(f"{path} is not a snapshot: {error}") from None
    return Snapshot(about.unix_seconds, about.settings, tuple(records), batch, term_state, about.revision, about.exact)


def decode_records(content: bytes) -> Sequence[Record]:
    """Records from a JSON list. Raises msgspec.DecodeError."""
    return msgspec.json.decode(content, type=list[Record])


def decode_record(content: bytes) -> Record:
    """One record from JSON. Raises msgspec.DecodeError."""
    return msgspec.json.decode(content, type=Record)


def decode_term_state(content: bytes) -> TermState:
    """The state of a term from JSON. Raises msgspec.DecodeError."""
    return msgspec.json.decode(content, type=TermState)


def _part(archive: zipfile.ZipFile, name: str) -> bytes:
    """Raises BadSnapshot for one that is too long: archives may unpack to any length."""
    if archive.getinfo(name).file_size > MAX_BYTES:
        raise BadSnapshot(f"{name} has more than {MAX_BYTES} bytes")
    return archive.read(name)

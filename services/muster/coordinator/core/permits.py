"""Permits on their way to etcd: what is written about a gang, and who waits for it to be durable (I2)."""

from collections.abc import Sequence

from muster.coordinator.core.events import Persist, Record, RecordState
from muster.coordinator.core.model import Gang, Group


class Permits:
    """Numbers the writes and remembers which of them are permits."""

    def __init__(self) -> None:
        self._last_id = 0
        self._awaited: dict[int, tuple[Group, Sequence[Gang]]] = {}

    def persist(self, puts: tuple[Record, ...] = (), deletes: tuple[str, ...] = ()) -> Persist:
        """A write that nobody waits for."""
        self._last_id += 1
        return Persist(self._last_id, puts, deletes)

    def permit(self, group: Group, gangs: Sequence[Gang], records: tuple[Record, ...]) -> Persist:
        """A write after which these gangs may bind."""
        persist = self.persist(records)
        self._awaited[persist.persist_id] = (group, gangs)
        return persist

    def durable(self, persist_id: int) -> tuple[Group, Sequence[Gang]] | None:
        """A write is durable: the permit in it, if it was one."""
        return self._awaited.pop(persist_id, None)

    @staticmethod
    def record(gang: Gang, state: RecordState, unix_seconds: float) -> Record:
        """What is durable about the gang from now on. All seats not known to be bound are in it, also those of an
        earlier permit, since a record replaces the one before it.
        """
        facts = gang.facts
        gang.record = Record(
            gang=gang.id,
            incarnation=facts.incarnation if facts is not None else "",
            state=state,
            seats=tuple(gang.outstanding) if state is RecordState.BINDING else (),
            schedule_cycle=gang.cycle.number,
            group=_permitted_with(gang),
            permitted_unix_millis=gang.record.permitted_unix_millis if gang.record else int(unix_seconds * 1000),
        )
        return gang.record


def _permitted_with(gang: Gang) -> tuple[str, ...]:
    """The group that it started in, also if it declares another one by now."""
    if gang.permitted:
        return gang.record.group if gang.record is not None else ()
    return gang.facts.group if gang.facts is not None else ()

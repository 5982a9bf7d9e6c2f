"""Queues of reviews by namespace, and the ledgers that are kept with them."""

from muster.lifecycle.quota.admission import NamespaceQueues
from muster.lifecycle.quota.ledger import Ledger, Reservation
from muster.lifecycle.quota.ledger_store import StoredLedger

USED = StoredLedger(Ledger(reservations={"g": Reservation(uid="u", total=())}), "1")


def reviewed(queues: NamespaceQueues, namespace: str, known: StoredLedger | None = USED) -> None:
    queues.open(namespace).known = known
    queues.close(namespace)


def test_i11_of_namespaces_without_reviews_the_latest_ledgers_are_kept() -> None:
    queues = NamespaceQueues(max_idle=2)
    for number in range(10):
        reviewed(queues, f"ns{number}")
    assert len(queues) == 2
    assert queues.open("ns9").known is USED
    assert queues.open("ns0").known is None


def test_i11_a_namespace_without_reservations_or_a_known_ledger_is_forgotten() -> None:
    queues = NamespaceQueues()
    reviewed(queues, "empty", StoredLedger(Ledger(), "1"))
    reviewed(queues, "failed", None)
    assert len(queues) == 0


def test_a_namespace_with_reviews_keeps_its_queue_whatever_the_number() -> None:
    queues = NamespaceQueues(max_idle=1)
    busy = queues.open("busy")
    for number in range(10):
        reviewed(queues, f"ns{number}")
    assert queues.open("busy") is busy

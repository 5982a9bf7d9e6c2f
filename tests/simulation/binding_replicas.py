"""Replicas of binding with the real leader fence, leaders by epoch, and calls of former leaders in flight."""

import asyncio
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field

from structlog.testing import capture_logs

from muster.binding.leader_fence import LeaderFence
from muster.coordinator.core.effects import Bind, Deallocate, Evict, MarkTimedOut
from muster.rpc.errors import RpcError

REPLICAS = 2
FIRST_EPOCH = 1_000_000
STEP = 10
MADE_UP_EPOCH = 2**63 - 1

_loop = asyncio.new_event_loop()

Call = Bind | Deallocate | Evict | MarkTimedOut


@dataclass
class FormerCall:
    """A call of a former leader that is carried out at a replica, or has not arrived at any."""

    call: Call
    epoch: int
    running_at: int = -1
    """The replica that admitted it; -1: it has not arrived."""
    stopped: bool = False
    _admission: AbstractAsyncContextManager[None] | None = None

    def stop(self, _reason: str) -> None:
        self.stopped = True


@dataclass
class _Replica:
    fence: LeaderFence
    latest: int = -1
    """The latest term of which a call was carried out here."""


@dataclass
class BindingReplicas:
    """The replicas, and the epochs of leaders in the order of their terms."""

    epochs: list[int] = field(default_factory=list)
    former_calls: list[FormerCall] = field(default_factory=list)
    used: int = 0
    """The replica to which the leader sends its calls."""

    def __post_init__(self) -> None:
        self._replicas = [_Replica(LeaderFence(self._read_epoch)) for _ in range(REPLICAS)]

    async def _read_epoch(self) -> int:
        return self.epochs[-1]

    def new_leader(self, *, restored: bool = False) -> None:
        """Another coordinator leads; `restored`: etcd was restored from a backup, and revisions are lower."""
        known = self.epochs or [FIRST_EPOCH]
        self.epochs.append(min(known) - STEP if restored else max(known) + STEP)

    def leader_calls(self) -> None:
        """A call of the leader is carried out: it is always admitted, and stops calls of former leaders there."""
        admitted = self._admits(self.used, self.epochs[-1])
        assert admitted, f"fence: the leader with epoch {self.epochs[-1]} is locked out"
        self._carried_out(self.used, self.epochs[-1])

    def made_up_call(self) -> None:
        """Somebody calls with an epoch that no leader has."""
        assert not self._admits(self.used, MADE_UP_EPOCH), "fence: a made-up epoch is admitted"

    def leave_in_flight(self, call: Call, epoch: int, *, running: bool) -> None:
        """The leader with this epoch has sent the call and leads no more; `running`: a replica has admitted it."""
        former = FormerCall(call, epoch)
        if running:
            admission = self._replicas[self.used].fence.admit(epoch, former.stop)
            if self._enters(admission):
                former.running_at, former._admission = self.used, admission
        self.former_calls.append(former)

    @contextmanager
    def late_call(self, which: int, replica: int) -> Generator[Call | None, None, None]:
        """A call of a former leader arrives at a replica, or goes on there. None: the fence refuses it."""
        former = self.former_calls.pop(which % len(self.former_calls))
        if former.running_at >= 0:
            at, admitted = former.running_at, not former.stopped
        else:
            at, admitted = replica, self._admits(replica, former.epoch)
        if admitted:
            self._carried_out(at, former.epoch)
        yield former.call if admitted else None
        if former._admission is not None:
            _run(former._admission.__aexit__(None, None, None))

    def _carried_out(self, replica: int, epoch: int) -> None:
        term, there = self.epochs.index(epoch), self._replicas[replica]
        assert term >= there.latest, (
            f"fence: binding carries out a call of leader {epoch} after one of {self.epochs[there.latest]}"
        )
        there.latest = term

    def _admits(self, replica: int, epoch: int) -> bool:
        admission = self._replicas[replica].fence.admit(epoch, lambda _reason: None)
        if not self._enters(admission):
            return False
        _run(admission.__aexit__(None, None, None))
        return True

    @staticmethod
    def _enters(admission: AbstractAsyncContextManager[None]) -> bool:
        with capture_logs():
            try:
                _run(admission.__aenter__())
            except RpcError:
                return False
        return True


def _run(call: object) -> None:
    _loop.run_until_complete(call)  # type: ignore[arg-type]

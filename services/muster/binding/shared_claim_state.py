"""State about claims that all Bind calls of a replica share."""

from msgspec import Struct

from muster.binding.claim_protection import ClaimProtection
from muster.binding.claim_watch import ClaimWatch
from muster.binding.device_owners import DeviceOwners
from muster.kube.session import KubeSession


class SharedClaimState(Struct, frozen=True):
    """Lives as long as the service; each part states what bounds it."""

    volumes: ClaimWatch
    owners: DeviceOwners
    protection: ClaimProtection

    @classmethod
    def of(cls, session: KubeSession) -> "SharedClaimState":
        """The state of a new replica."""
        return cls(ClaimWatch(session), DeviceOwners(session), ClaimProtection())

    async def stop(self) -> None:
        """Stop the watches."""
        await self.volumes.stop()
        await self.owners.stop()

"""Quota as a controller of lifecycle: every replica answers reviews, and the one that leads reserves and returns.

Without a certificate for the webhook nothing is reserved and nobody waits for quota: what nobody guards is no promise.
"""

import structlog

from muster.lifecycle.calls import Calls
from muster.lifecycle.quota.admission import Admission
from muster.lifecycle.quota.keeper import Keeper
from muster.lifecycle.quota.sight import Sight
from muster.lifecycle.quota.store import LedgerStore
from muster.lifecycle.quota.tls import ReloadedTls
from muster.lifecycle.quota.webhook import QuotaWebhook
from muster.lifecycle.settings import lease_namespace
from muster.lifecycle.surroundings import Surroundings

_log = structlog.get_logger(__name__)


class Quota:
    """One replica's part in it."""

    def __init__(self, surroundings: Surroundings) -> None:
        """Raises BadWebhookCertificate."""
        settings = surroundings.settings
        chosen = settings.quota
        self.webhook: QuotaWebhook | None = None
        if chosen.certificate_file is None or chosen.key_file is None:
            _log.info("no quota is reserved for PodGroups: the webhook has no certificate")
            return
        calls = Calls(surroundings.session)
        store = LedgerStore(surroundings.session, lease_namespace(settings))
        sight = Sight(surroundings.watches, lambda namespace: self._keeper.changed(namespace))
        self._keeper = Keeper(surroundings, sight, store, calls)
        self._admission = Admission(sight, store, calls)
        tls = ReloadedTls(chosen.certificate_file, chosen.key_file, chosen.client_ca_file)
        self.webhook = QuotaWebhook(chosen.listen, tls, self._admission, surroundings.watches)

    async def run(self) -> None:
        """Until cancelled."""
        if self.webhook is None:
            return
        try:
            await self.webhook.start()
            await self._keeper.run()
        finally:
            await self.webhook.stop()
            await self._admission.close()

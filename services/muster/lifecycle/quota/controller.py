"""The quota controller: every replica answers admission reviews, and the leader reserves and releases quota.

Without a certificate for the webhook nothing is reserved and no group waits for quota: a reservation that no webhook
protects would not hold.
"""

import structlog

from muster.lifecycle.admission_server import AdmissionServer
from muster.lifecycle.controller import ControllerContext
from muster.lifecycle.object_client import ObjectClient
from muster.lifecycle.quota.admission import Admission
from muster.lifecycle.quota.cache import QuotaCache
from muster.lifecycle.quota.ledger_store import LedgerStore
from muster.lifecycle.quota.reconciler import QuotaReconciler
from muster.lifecycle.quota.webhook import quota_webhook
from muster.lifecycle.settings import lease_namespace
from muster.rpc.https import ReloadedTls

_log = structlog.get_logger(__name__)


class QuotaController:
    """Runs the webhook and the reconciler of one replica."""

    def __init__(self, context: ControllerContext) -> None:
        """Raises BadServerCertificate."""
        settings = context.settings
        quota = settings.quota
        self.webhook: AdmissionServer | None = None
        if quota.certificate_file is None or quota.key_file is None:
            _log.info("quota_reservation_disabled", reason="the webhook has no certificate")
            return
        client = ObjectClient(context.session)
        store = LedgerStore(context.session, lease_namespace(settings))
        cache = QuotaCache(context.informers, lambda namespace: self._reconciler.enqueue(namespace))
        self._reconciler = QuotaReconciler(context, cache, store, client)
        self._admission = Admission(cache, store, client)
        tls = ReloadedTls("the quota webhook", quota.certificate_file, quota.key_file, quota.client_ca_file)
        self.webhook = quota_webhook(quota.listen, tls, self._admission, context.informers)

    async def run(self) -> None:
        """Runs until cancelled."""
        if self.webhook is None:
            return
        try:
            await self.webhook.start()
            await self._reconciler.run()
        finally:
            await self.webhook.stop()
            await self._admission.close()

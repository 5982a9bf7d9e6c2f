"""The device webhook of one replica: every replica answers reviews."""

import asyncio

import structlog

from muster.lifecycle.admission_server import AdmissionServer
from muster.lifecycle.config_map_store import ConfigMapStore
from muster.lifecycle.controller import ControllerContext
from muster.lifecycle.device_allocations.admission import DeviceAdmission
from muster.lifecycle.device_allocations.cache import AllocationCache
from muster.lifecycle.device_allocations.webhook import device_webhook
from muster.lifecycle.object_client import ObjectClient
from muster.lifecycle.settings import lease_namespace
from muster.rpc.https import ReloadedTls

_log = structlog.get_logger(__name__)


class DeviceAllocationController:
    """Runs the webhook, if it has a certificate; without one nothing is watched."""

    def __init__(self, context: ControllerContext) -> None:
        """Raises BadServerCertificate."""
        settings = context.settings.devices
        self.webhook: AdmissionServer | None = None
        if settings.certificate_file is None or settings.key_file is None:
            _log.info("device_webhook_disabled", reason="the webhook has no certificate")
            return
        cache = AllocationCache()
        cache.watch(context.informers)
        store = ConfigMapStore(context.session, lease_namespace(context.settings))
        self._admission = DeviceAdmission(cache, store, ObjectClient(context.session))
        tls = ReloadedTls("the device webhook", settings.certificate_file, settings.key_file, settings.client_ca_file)
        self.webhook = device_webhook(settings.listen, tls, self._admission, context.informers)

    async def run(self) -> None:
        """Runs until cancelled."""
        if self.webhook is None:
            return
        try:
            await self.webhook.start()
            await asyncio.Event().wait()
        finally:
            await self.webhook.stop()
            await self._admission.close()

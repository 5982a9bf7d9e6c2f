"""Events about unbound PersistentVolumeClaims, by the volume controller and the provisioner."""

from typing import Final

from muster.localcluster.apiserver.controller_events import ControllerEvent

CONTROLLER: Final = "persistentvolume-controller"


def waits_for_consumer() -> ControllerEvent:
    """No node is selected, or the provisioner has rejected the selected one."""
    return ControllerEvent("Normal", "WaitForFirstConsumer", "waiting for first consumer to be scheduled", CONTROLLER)


def waits_for_provisioner(provisioner: str) -> ControllerEvent:
    """The provisioner has to create the volume."""
    message = f"waiting for a volume to be created by the provisioner {provisioner!r}, or manually"
    return ControllerEvent("Normal", "ExternalProvisioning", message, CONTROLLER)

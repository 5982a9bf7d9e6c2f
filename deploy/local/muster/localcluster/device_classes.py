"""Device classes of the simulated devices."""

from muster.localcluster.kubelets.devices.cards import DRIVER
from muster.localcluster.manifests import Manifest

_TYPES = {"gpu.example.com": "gpu", "mig.example.com": "mig"}
"""Name of a class -> type of its devices."""


def device_classes() -> list[Manifest]:
    """Classes of whole GPUs and of MIG partitions."""
    return [Manifest(_class(name, device_type)) for name, device_type in _TYPES.items()]


def _class(name: str, device_type: str) -> dict[str, object]:
    expression = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == '{device_type}'"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }

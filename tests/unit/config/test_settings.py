"""Settings from the environment, and messages about invalid ones."""

import importlib
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from pydantic_settings import SettingsConfigDict

from muster.config.settings import (
    Address,
    BadSettings,
    KubeSettings,
    Names,
    ServiceSettings,
    TlsSettings,
    listens_on,
    load,
)


class Settings(ServiceSettings):
    """Settings of a service for tests."""

    model_config = SettingsConfigDict(env_prefix="MUSTER_TEST_")

    listen: Address = listens_on(7999)
    names: Names = ("muster",)
    kube: KubeSettings = KubeSettings()


def test_defaults_are_enough_for_a_start() -> None:
    settings = load(Settings)
    assert (settings.listen, settings.log_level, settings.log_format) == ("127.0.0.1:7999", "info", "json")
    assert settings.tls.files is None
    assert settings.instance


def test_the_environment_sets_nested_settings_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_TEST_LOG_LEVEL", "debug")
    monkeypatch.setenv("MUSTER_TEST_NAMES", "muster, batch ,")
    monkeypatch.setenv("MUSTER_TEST_KUBE__CONTEXT", "kind")
    for name in ("certificate", "key", "ca"):
        monkeypatch.setenv(f"MUSTER_TEST_TLS__{name.upper()}_FILE", f"/tls/{name}.pem")
    settings = load(Settings)
    assert settings.log_level == "debug"
    assert settings.names == ("muster", "batch")
    assert settings.kube.context == "kind"
    assert settings.tls.files == (Path("/tls/certificate.pem"), Path("/tls/key.pem"), Path("/tls/ca.pem"))


def test_flags_win_over_the_environment_unless_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_TEST_INSTANCE", "from-environment")
    assert load(Settings, {"instance": "from-flag"}).instance == "from-flag"
    assert load(Settings, {"instance": None}).instance == "from-environment"


def test_service_variables_of_kubernetes_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_TEST_PORT", "tcp://10.0.0.1:7999")
    monkeypatch.setenv("MUSTER_TEST_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("MUSTER_TEST_PORT_7999_TCP_ADDR", "10.0.0.1")
    assert load(Settings).listen == "127.0.0.1:7999"


@pytest.mark.parametrize("listen", ["7001", ":7001", "localhost", "localhost:http", "localhost:70000", "a:-1"])
def test_a_wrong_address_is_quoted_with_its_variable(monkeypatch: pytest.MonkeyPatch, listen: str) -> None:
    class Checked(ServiceSettings):
        model_config = SettingsConfigDict(env_prefix="MUSTER_TEST_")

    monkeypatch.setenv("MUSTER_TEST_LISTEN", listen)
    with pytest.raises(BadSettings) as caught:
        load(Checked)
    assert str(caught.value) == (
        f"MUSTER_TEST_LISTEN: an address is HOST:PORT with a port from 0 to 65535, e.g. 0.0.0.0:7001, got {listen!r}"
    )


def test_every_mistake_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_TEST_LOG_LEVEL", "loud")
    monkeypatch.setenv("MUSTER_TEST_NAMES", " , ")
    with pytest.raises(BadSettings) as caught:
        load(Settings)
    lines = str(caught.value).splitlines()
    assert len(lines) == 2
    assert any(line.startswith("MUSTER_TEST_LOG_LEVEL: ") and "'loud'" in line for line in lines)
    assert any(line.startswith("MUSTER_TEST_NAMES: ") for line in lines)


def test_two_of_three_tls_files_are_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValidationError, match="only certificate_file, key_file given; mutual TLS also needs ca_file"):
        TlsSettings(certificate_file=Path("a"), key_file=Path("b"))
    monkeypatch.setenv("MUSTER_TEST_TLS__KEY_FILE", "/tls/key.pem")
    with pytest.raises(BadSettings, match="MUSTER_TEST_TLS: only key_file given"):
        load(Settings)


TLS = {"certificate_file": "/tls/c", "key_file": "/tls/k", "ca_file": "/tls/a"}


@pytest.mark.parametrize(
    ("flags", "host"), [({}, "127.0.0.1"), ({"insecure": True}, "0.0.0.0"), ({"tls": TLS}, "0.0.0.0")]
)
def test_service_without_tls_listens_on_loopback_unless_told(flags: dict[str, Any], host: str) -> None:
    assert load(Settings, flags).listen == f"{host}:7999"


@pytest.mark.parametrize("listen", ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "node-1:1", "[fe80::1]:1"])
def test_address_of_the_network_needs_tls_or_a_word(listen: str) -> None:
    with pytest.raises(BadSettings, match="can be reached from the network, and no TLS is configured") as caught:
        load(Settings, {"listen": listen})
    assert str(caught.value).startswith("MUSTER_TEST_LISTEN: ")
    assert load(Settings, {"listen": listen, "insecure": True}).listen == listen
    assert load(Settings, {"listen": listen, "tls": TLS}).listen == listen


@pytest.mark.parametrize("listen", ["127.0.0.1:1", "127.1.2.3:1", "[::1]:1", "localhost:1"])
def test_loopback_needs_neither(listen: str) -> None:
    assert load(Settings, {"listen": listen}).listen == listen


@pytest.mark.parametrize("service", ["clusterstate", "placement", "firstfit", "binding", "lifecycle", "coordinator"])
def test_every_service_is_protected(service: str) -> None:
    settings = importlib.import_module(f"muster.{service}.settings").Settings
    assert load(settings).listen.startswith("127.0.0.1:")
    with pytest.raises(BadSettings, match="no TLS is configured"):
        load(settings, {"listen": "0.0.0.0:1"})

"""Settings from the environment, and messages about invalid ones."""

from pathlib import Path

import pytest
from pydantic import ValidationError
from pydantic_settings import SettingsConfigDict

from muster.config.settings import BadSettings, KubeSettings, Names, ServiceSettings, TlsSettings, load


class Settings(ServiceSettings):
    """Settings of a service for tests."""

    model_config = SettingsConfigDict(env_prefix="MUSTER_TEST_")

    listen: str = "0.0.0.0:7999"
    names: Names = ("muster",)
    kube: KubeSettings = KubeSettings()


def test_defaults_are_enough_for_a_start() -> None:
    settings = load(Settings)
    assert (settings.listen, settings.log_level, settings.log_format) == ("0.0.0.0:7999", "info", "json")
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
    assert load(Settings).listen == "0.0.0.0:7999"


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

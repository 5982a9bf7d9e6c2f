"""Client configuration from kubeconfigs and service accounts."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from kubernetes.aio.config import incluster_config

from builders.kube.kubeconfigs import Plugin, write_kubeconfig
from muster.config.settings import KubeSettings
from muster.kube.client_config import BadKubeconfig, client_config_source

SERVER = "http://127.0.0.1:8080"


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)


async def test_named_kubeconfig(tmp_path: Path) -> None:
    settings = write_kubeconfig(tmp_path, SERVER + "/", user={"token": "abc"})
    config = await client_config_source(settings).load(force=False)
    assert (config.server, config.authorization, config.proxy) == (SERVER, "Bearer abc", None)
    assert "abc" not in repr(config)


async def test_kubeconfig_of_the_environment_and_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = write_kubeconfig(tmp_path, SERVER)
    assert settings.kubeconfig is not None
    default = tmp_path / "home" / ".kube" / "config"
    default.parent.mkdir(parents=True)
    default.write_bytes(settings.kubeconfig.read_bytes().replace(b"8080", b"8081"))
    assert (await client_config_source(KubeSettings()).load(force=False)).server == "http://127.0.0.1:8081"
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/nothing:{settings.kubeconfig}")
    assert (await client_config_source(KubeSettings()).load(force=False)).server == SERVER


async def test_named_context(tmp_path: Path) -> None:
    settings = write_kubeconfig(tmp_path, SERVER).model_copy(update={"context": "y"})
    with pytest.raises(BadKubeconfig, match=r"cannot be used: .*y"):
        await client_config_source(settings).load(force=False)


async def test_basic_credentials(tmp_path: Path) -> None:
    settings = write_kubeconfig(tmp_path, SERVER, user={"username": "me", "password": "pw"})
    assert (await client_config_source(settings).load(force=False)).authorization == "Basic bWU6cHc="


async def test_token_file_is_read_at_each_load(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    source = client_config_source(write_kubeconfig(tmp_path, SERVER, user={"tokenFile": str(token)}))
    first = await source.load(force=False)
    token.write_text("second\n")
    second = await source.load(force=False)
    assert (first.authorization, second.authorization) == ("Bearer first", "Bearer second")
    assert first.transport_stamp == second.transport_stamp, "connections stay usable"


async def test_plugin_without_expiry_runs_again_only_when_forced(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path)
    plugin.answer(token="first")
    source = client_config_source(write_kubeconfig(tmp_path, SERVER, user=plugin.user))
    await source.load(force=False)
    plugin.answer(token="second")
    assert (await source.load(force=False)).authorization == "Bearer first"
    assert plugin.runs == 1
    assert (await source.load(force=True)).authorization == "Bearer second"
    assert plugin.runs == 2


async def test_plugin_with_expiry_runs_again_near_its_end(tmp_path: Path) -> None:
    def in_minutes(minutes: int) -> str:
        return (datetime.now(UTC) + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")

    plugin = Plugin(tmp_path)
    plugin.answer(token="first", expirationTimestamp=in_minutes(60))
    source = client_config_source(write_kubeconfig(tmp_path, SERVER, user=plugin.user))
    await source.load(force=False)
    await source.load(force=False)
    assert plugin.runs == 1
    plugin.answer(token="second", expirationTimestamp=in_minutes(1))
    assert (await source.load(force=True)).authorization == "Bearer second"
    plugin.answer(token="third", expirationTimestamp=in_minutes(60))
    assert (await source.load(force=False)).authorization == "Bearer third"


async def test_failing_plugin_is_an_error(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path)
    plugin.fail()
    with pytest.raises(BadKubeconfig, match="its exec plugin returned no credentials"):
        await client_config_source(write_kubeconfig(tmp_path, SERVER, user=plugin.user)).load(force=False)


async def test_service_account_of_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token, certificate = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("first\n")
    certificate.write_text("certificate")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(certificate))
    source = client_config_source(KubeSettings())
    first = await source.load(force=False)
    assert first.server == "https://[fd00::1]:443"
    assert first.authorization.lower() == "bearer first"
    token.write_text("second")
    assert (await source.load(force=False)).authorization.lower() == "bearer second"
    certificate.write_text("another")
    assert (await source.load(force=False)).transport_stamp != first.transport_stamp
    token.unlink()
    with pytest.raises(BadKubeconfig, match="service account"):
        await source.load(force=False)


def test_missing_configuration_says_what_to_do() -> None:
    with pytest.raises(BadKubeconfig, match=r"no cluster: .*\.kube/config.* set KUBECONFIG"):
        client_config_source(KubeSettings())


def test_named_kubeconfig_must_exist(tmp_path: Path) -> None:
    with pytest.raises(BadKubeconfig, match="'/nowhere/config' does not exist"):
        client_config_source(KubeSettings(kubeconfig=Path("/nowhere/config")))


@pytest.mark.parametrize("content", ["", "[]", "{", "hello", "clusters: 7\ncontexts: 8\ncurrent-context: x", "\x00"])
async def test_malformed_kubeconfig_is_reported_with_its_path(tmp_path: Path, content: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(content)
    with pytest.raises(BadKubeconfig, match="kubeconfig"):
        await client_config_source(KubeSettings(kubeconfig=path)).load(force=False)


@pytest.mark.parametrize("server", ["127.0.0.1:8080", "ftp://x", "http://", "http://x:notaport"])
async def test_server_must_be_a_url(tmp_path: Path, server: str) -> None:
    with pytest.raises(BadKubeconfig, match="server"):
        await client_config_source(write_kubeconfig(tmp_path, server)).load(force=False)


async def test_password_in_the_url_is_rejected_and_not_shown(tmp_path: Path) -> None:
    with pytest.raises(BadKubeconfig) as refused:
        await client_config_source(write_kubeconfig(tmp_path, "http://me:hunter2@x")).load(force=False)
    assert "hunter2" not in str(refused.value)


async def test_proxy_of_the_kubeconfig_and_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://env:1")
    config = await client_config_source(write_kubeconfig(tmp_path, "http://cluster.example:1")).load(force=False)
    assert config.proxy == "http://env:1"
    monkeypatch.setenv("no_proxy", "cluster.example")
    assert (
        await client_config_source(write_kubeconfig(tmp_path, "http://cluster.example:1")).load(force=False)
    ).proxy is None
    named = write_kubeconfig(tmp_path, "http://cluster.example:1", cluster={"proxy-url": "http://own:2"})
    assert (await client_config_source(named).load(force=False)).proxy == "http://own:2"

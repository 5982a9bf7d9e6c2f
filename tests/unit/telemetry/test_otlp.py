"""Tracing settings from the environment follow OpenTelemetry's specification; mistakes are reported."""

from pathlib import Path

import pytest

from muster.telemetry.otlp import BadTracing, OtlpSettings, read_otlp

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES_ENDPOINT = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
TRACES_PROTOCOL = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"
HTTP = {PROTOCOL: "http/protobuf"}


def read(environment: dict[str, str]) -> OtlpSettings:
    settings = read_otlp({ENDPOINT: "http://collector:4317", **environment})
    assert settings is not None
    return settings


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {ENDPOINT: ""},
        {ENDPOINT: "http://a:4317", "OTEL_SDK_DISABLED": "true"},
        {ENDPOINT: "http://a:4317", "OTEL_TRACES_EXPORTER": "none"},
        {PROTOCOL: "grpc", "OTEL_TRACES_SAMPLER": "always_on"},
    ],
    ids=["nothing", "empty", "disabled", "no exporter", "no endpoint"],
)
def test_tracing_is_off_without_an_endpoint_or_when_disabled(environment: dict[str, str]) -> None:
    assert read_otlp(environment) is None


@pytest.mark.parametrize(
    ("environment", "endpoint", "secure"),
    [
        ({ENDPOINT: "http://a:4317"}, "a:4317", False),
        ({ENDPOINT: "https://a:4317"}, "a:4317", True),
        ({ENDPOINT: "https://a"}, "a:4317", True),
        ({ENDPOINT: "http://[::1]:4317"}, "[::1]:4317", False),
        ({ENDPOINT: "a:4317"}, "a:4317", True),
        ({ENDPOINT: "a:4317", "OTEL_EXPORTER_OTLP_INSECURE": "true"}, "a:4317", False),
        ({ENDPOINT: "https://a:4317", "OTEL_EXPORTER_OTLP_INSECURE": "true"}, "a:4317", True),
        ({ENDPOINT: "http://b:1", TRACES_ENDPOINT: "http://a:4317"}, "a:4317", False),
        ({ENDPOINT: "http://a:4318", **HTTP}, "http://a:4318/v1/traces", False),
        ({ENDPOINT: "https://a/otlp/", **HTTP}, "https://a/otlp/v1/traces", True),
        ({TRACES_ENDPOINT: "https://a/own", **HTTP}, "https://a/own", True),
        ({ENDPOINT: "http://a", TRACES_PROTOCOL: "http/protobuf", PROTOCOL: "grpc"}, "http://a/v1/traces", False),
    ],
)
def test_endpoint_by_protocol(environment: dict[str, str], endpoint: str, secure: bool) -> None:
    settings = read_otlp(environment)
    assert settings is not None
    assert (settings.target.endpoint, settings.target.secure) == (endpoint, secure)


def test_headers_are_decoded_and_never_shown() -> None:
    target = read({"OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20s3cret, x-tenant=ml"}).target
    assert target.headers == (("authorization", "Bearer s3cret"), ("x-tenant", "ml"))
    assert "s3cret" not in repr(target)


def test_defaults() -> None:
    settings = read({})
    assert settings.target.timeout_seconds == 2.0
    assert (settings.sampler, settings.ratio) == ("parentbased_always_on", 1.0)
    assert settings.resource == ()


def test_all_variables_are_used(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("ca", "certificate", "key")}
    for file in files.values():
        file.write_text("PEM")
    settings = read(
        {
            "OTEL_EXPORTER_OTLP_TIMEOUT": "1500",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "OTEL_EXPORTER_OTLP_CERTIFICATE": str(files["ca"]),
            "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": str(files["certificate"]),
            "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY": str(files["key"]),
            "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": "0.25",
            "OTEL_RESOURCE_ATTRIBUTES": "k8s.pod.name=muster-0,k8s.namespace.name=kube%2Dsystem",
            "OTEL_SERVICE_NAME": "scheduler",
            "OTEL_BSP_SCHEDULE_DELAY": "200",
            "OTEL_BSP_MAX_QUEUE_SIZE": "10",
        }
    )
    target = settings.target
    assert (target.timeout_seconds, target.compression) == (1.5, "gzip")
    assert (target.ca_file, target.certificate_file, target.key_file) == tuple(files.values())
    assert (settings.sampler, settings.ratio) == ("parentbased_traceidratio", 0.25)
    assert dict(settings.resource) == {
        "k8s.pod.name": "muster-0",
        "k8s.namespace.name": "kube-system",
        "service.name": "scheduler",
    }
    assert (settings.export_interval_seconds, settings.queue_spans) == (0.2, 10)


@pytest.mark.parametrize(
    ("environment", "quoted"),
    [
        ({PROTOCOL: "http/json"}, "'http/json'"),
        ({ENDPOINT: "collector", **HTTP}, "'collector'"),
        ({ENDPOINT: "ftp://collector"}, "'ftp://collector'"),
        ({ENDPOINT: "http://collector:port"}, "'http://collector:port'"),
        ({ENDPOINT: "http://"}, "'http://'"),
        ({"OTEL_EXPORTER_OTLP_COMPRESSION": "zip"}, "'zip'"),
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": "2s"}, "'2s'"),
        ({"OTEL_EXPORTER_OTLP_CERTIFICATE": "/nowhere/ca.crt"}, "'/nowhere/ca.crt'"),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "'zipkin'"),
        ({"OTEL_TRACES_SAMPLER": "half"}, "'half'"),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "10%"}, "'10%'"),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "1.5"}, "'1.5'"),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "nan"}, "'nan'"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "k8s.pod.name"}, "'k8s.pod.name'"),
        ({"OTEL_BSP_MAX_QUEUE_SIZE": "0"}, "'0'"),
        ({"OTEL_SDK_DISABLED": "perhaps"}, "'perhaps'"),
    ],
)
def test_invalid_value_is_quoted_with_its_variable(environment: dict[str, str], quoted: str) -> None:
    with pytest.raises(BadTracing) as caught:
        read(environment)
    [line] = [line for line in str(caught.value).splitlines() if quoted in line]
    assert line.strip().startswith(tuple(environment))


def test_all_mistakes_are_reported_at_once() -> None:
    with pytest.raises(BadTracing) as caught:
        read({PROTOCOL: "udp", "OTEL_TRACES_SAMPLER": "half", "OTEL_BSP_MAX_QUEUE_SIZE": "-1"})
    assert len(str(caught.value).splitlines()) == 4


@pytest.mark.parametrize(
    "environment",
    [
        {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=a,Bearer s3cret"},
        {"OTEL_EXPORTER_OTLP_HEADERS": "bad name=s3cret"},
        {ENDPOINT: "http://user:s3cret@collector:4317"},
        {ENDPOINT: "ftp://user:s3cret@collector:4317"},
    ],
)
def test_messages_contain_no_secret(environment: dict[str, str]) -> None:
    with pytest.raises(BadTracing) as caught:
        read(environment)
    assert "s3cret" not in str(caught.value)


def test_client_certificate_without_its_key_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "crt").write_text("PEM")
    with pytest.raises(BadTracing, match="OTEL_EXPORTER_OTLP_CLIENT_KEY"):
        read({"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": str(tmp_path / "crt")})

"""Settings of tracing, read from the standard OTEL_* variables.

OpenTelemetry logs and ignores invalid values; here they are errors before the service starts, so that traces are not
lost silently. A variable with _TRACES_ in its name overrides the general one. Values of headers are secret and never
quoted.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from urllib.parse import unquote, urlsplit

from muster.config.settings import CannotStart

if TYPE_CHECKING:
    from ssl import SSLContext

    from grpc import ChannelCredentials

Protocol: TypeAlias = Literal["grpc", "http/protobuf"]
Compression: TypeAlias = Literal["none", "gzip"]

EXPORT_TIMEOUT_SECONDS: Final = 2.0
"""Default timeout of an export; spans are not worth a slow shutdown."""
EXPORT_INTERVAL_MILLISECONDS: Final = 1000
"""Less than OpenTelemetry's 5 s: a killed process loses the spans of that time, and traces are often looked up right
after a gang has started."""
QUEUE_SPANS: Final = 2048
BATCH_SPANS: Final = 512

SAMPLERS: Final = (
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
)
_PROTOCOLS: Final = ("grpc", "http/protobuf")
_COMPRESSIONS: Final = ("none", "gzip")
_HEADER_NAME: Final = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")
_BOOLEANS: Final = {"true": True, "false": False}


class BadTracing(CannotStart):
    """Invalid OTEL_* variables; the message has a line per mistake, with the value and the rule."""


@dataclass(frozen=True)
class Target:
    """A collector and how to connect to it."""

    protocol: Protocol
    endpoint: str
    """HOST:PORT for gRPC, the URL for HTTP."""
    secure: bool
    headers: tuple[tuple[str, str], ...] = ()
    compression: Compression = "none"
    timeout_seconds: float = EXPORT_TIMEOUT_SECONDS
    ca_file: Path | None = None
    """CA of the collector's certificate; None: the system's CAs."""
    certificate_file: Path | None = None
    key_file: Path | None = None

    def __repr__(self) -> str:
        return f"Target({self.protocol} {self.endpoint})"

    def credentials(self) -> "ChannelCredentials":
        """TLS credentials for gRPC."""
        from grpc import ssl_channel_credentials

        files = (self.ca_file, self.key_file, self.certificate_file)
        return ssl_channel_credentials(*(file.read_bytes() if file is not None else None for file in files))

    def ssl_context(self) -> "SSLContext":
        """TLS context for HTTP."""
        import ssl

        context = ssl.create_default_context(cafile=self.ca_file)
        if self.certificate_file is not None:
            context.load_cert_chain(self.certificate_file, self.key_file)
        return context


@dataclass(frozen=True)
class OtlpSettings:
    """Target of spans, sampling, and limits of the export."""

    target: Target
    sampler: str = "parentbased_always_on"
    ratio: float = 1.0
    """Share of traces sampled by a `traceidratio` sampler."""
    resource: tuple[tuple[str, str], ...] = ()
    """Resource attributes of the process."""
    queue_spans: int = QUEUE_SPANS
    batch_spans: int = BATCH_SPANS
    export_interval_seconds: float = EXPORT_INTERVAL_MILLISECONDS / 1000


def read_otlp(environment: Mapping[str, str]) -> OtlpSettings | None:
    """Read the settings; None if tracing is off: no endpoint, or disabled. Raises BadTracing."""
    read = _Reader(environment)
    exporter = read.choice("OTEL_TRACES_EXPORTER", ("otlp", "none"), "otlp")
    off = read.boolean("OTEL_SDK_DISABLED") or exporter == "none"
    if off or not (read.text("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or read.text("OTEL_EXPORTER_OTLP_ENDPOINT")):
        read.done()
        return None
    sampler = read.choice("OTEL_TRACES_SAMPLER", SAMPLERS, "parentbased_always_on")
    settings = OtlpSettings(
        target=_target(read),
        sampler=sampler,
        ratio=read.ratio("OTEL_TRACES_SAMPLER_ARG") if sampler.endswith("traceidratio") else 1.0,
        resource=_resource(read),
        queue_spans=read.number("OTEL_BSP_MAX_QUEUE_SIZE", QUEUE_SPANS),
        batch_spans=read.number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", BATCH_SPANS),
        export_interval_seconds=read.number("OTEL_BSP_SCHEDULE_DELAY", EXPORT_INTERVAL_MILLISECONDS) / 1000,
    )
    read.done()
    return settings


class _Reader:
    """Reads variables, and collects all mistakes into one error."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._mistakes: list[str] = []

    def done(self) -> None:
        """Raises BadTracing if there were mistakes."""
        if self._mistakes:
            raise BadTracing("invalid tracing settings in the environment:\n  " + "\n  ".join(self._mistakes))

    def wrong(self, name: str, rule: str) -> None:
        self._mistakes.append(f"{name}: {rule}")

    def text(self, name: str) -> str:
        return self._environment.get(name, "").strip()

    def otlp(self, suffix: str) -> tuple[str, str]:
        """Name and value of OTEL_EXPORTER_OTLP_TRACES_<suffix>, else of OTEL_EXPORTER_OTLP_<suffix>."""
        own, general = f"OTEL_EXPORTER_OTLP_TRACES_{suffix}", f"OTEL_EXPORTER_OTLP_{suffix}"
        return (own, self.text(own)) if self.text(own) else (general, self.text(general))

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = self.text(name).lower() or default
        if value in choices:
            return value
        self.wrong(name, f"must be one of {', '.join(choices)}, got {value!r:.100}")
        return default

    def boolean(self, name: str) -> bool:
        value = self.text(name)
        if value and value.lower() not in _BOOLEANS:
            self.wrong(name, f"must be true or false, got {value!r:.100}")
        return value.lower() == "true"

    def number(self, name: str, default: int) -> int:
        """A positive integer."""
        value = self.text(name)
        if not value:
            return default
        if value.isdecimal() and 0 < int(value) <= 10**9:
            return int(value)
        self.wrong(name, f"must be a whole number from 1 to 1000000000, got {value!r:.100}")
        return default

    def ratio(self, name: str) -> float:
        value = self.text(name) or "1.0"
        try:
            share = float(value)
        except ValueError:
            share = math.nan
        if 0.0 <= share <= 1.0:
            return share
        self.wrong(name, f"must be a ratio from 0 to 1, e.g. 0.1, got {value!r:.100}")
        return 1.0

    def file(self, suffix: str) -> Path | None:
        name, value = self.otlp(suffix)
        if not value:
            return None
        path = Path(value)
        try:
            with path.open("rb"):
                return path
        except OSError as error:
            self.wrong(name, f"cannot be read: {error.strerror}, got {value!r:.300}")
            return None


def _target(read: _Reader) -> Target:
    name, _ = read.otlp("PROTOCOL")
    protocol: Protocol = "grpc" if read.choice(name, _PROTOCOLS, "grpc") == "grpc" else "http/protobuf"
    endpoint, secure = _endpoint(read, protocol)
    name, _ = read.otlp("COMPRESSION")
    compression: Compression = "gzip" if read.choice(name, _COMPRESSIONS, "none") == "gzip" else "none"
    name, _ = read.otlp("TIMEOUT")  # in milliseconds, by OpenTelemetry's specification
    certificate, key = read.file("CLIENT_CERTIFICATE"), read.file("CLIENT_KEY")
    if (certificate is None) != (key is None):
        given, other = ("CLIENT_CERTIFICATE", "CLIENT_KEY") if key is None else ("CLIENT_KEY", "CLIENT_CERTIFICATE")
        read.wrong(read.otlp(given)[0], f"needs a file in OTEL_EXPORTER_OTLP_{other} too")
    return Target(
        protocol=protocol,
        endpoint=endpoint,
        secure=secure,
        headers=_headers(read),
        compression=compression,
        timeout_seconds=read.number(name, int(EXPORT_TIMEOUT_SECONDS * 1000)) / 1000,
        ca_file=read.file("CERTIFICATE"),
        certificate_file=certificate,
        key_file=key,
    )


def _endpoint(read: _Reader, protocol: Protocol) -> tuple[str, bool]:
    """The exporter's endpoint, and whether to use TLS."""
    name, value = read.otlp("ENDPOINT")
    bare = protocol == "grpc" and "://" not in value
    insecure_name, _ = read.otlp("INSECURE")
    try:
        url = urlsplit(f"//{value}" if bare else value)
        scheme_is_right = url.path == "" if bare else url.scheme in ("http", "https")
        usable = bool(url.hostname) and scheme_is_right and url.port != 0
    except ValueError:
        usable = False
    if not usable:
        read.wrong(
            name, f"must be a URL as http://HOST:PORT or https://HOST:PORT, got {value.rpartition('@')[2]!r:.200}"
        )
        return "", False
    if url.username is not None:
        read.wrong(name, "must not have a user or password, which would show in logs; use OTEL_EXPORTER_OTLP_HEADERS")
        return "", False
    secure = not read.boolean(insecure_name) if bare else url.scheme == "https"
    if protocol == "grpc":
        return (url.netloc if url.port else f"{url.netloc}:4317"), secure
    own = name == "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
    return (value if own else f"{value.rstrip('/')}/v1/traces"), secure


def _headers(read: _Reader) -> tuple[tuple[str, str], ...]:
    name, value = read.otlp("HEADERS")
    headers = []
    for number, pair in enumerate(filter(None, map(str.strip, value.split(","))), 1):
        key, equals, text = pair.partition("=")
        key = unquote(key.strip()).lower()
        if equals and _HEADER_NAME.fullmatch(key):
            headers.append((key, unquote(text.strip())))
        else:
            read.wrong(name, f"must be NAME=VALUE,NAME=VALUE with URL-encoded values; number {number} is not")
    return tuple(headers)


def _resource(read: _Reader) -> tuple[tuple[str, str], ...]:
    name = "OTEL_RESOURCE_ATTRIBUTES"
    attributes: dict[str, str] = {}
    for pair in filter(None, map(str.strip, read.text(name).split(","))):
        key, equals, value = pair.partition("=")
        if equals and key.strip():
            attributes[key.strip()] = unquote(value.strip())
        else:
            read.wrong(name, f"must be NAME=VALUE,NAME=VALUE with URL-encoded values, got {pair!r:.100}")
    if service := read.text("OTEL_SERVICE_NAME"):
        attributes["service.name"] = service
    return tuple(attributes.items())

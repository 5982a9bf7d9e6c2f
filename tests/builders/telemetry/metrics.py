"""Scraped metrics of a process, for look-up in tests."""

import re
from dataclasses import dataclass
from typing import Self

import aiohttp
from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_open_metrics
from prometheus_client.parser import text_string_to_metric_families

from muster.telemetry.metrics import REGISTRY


@dataclass(frozen=True)
class Figures:
    """Samples by name and labels, at one moment."""

    samples: dict[tuple[str, frozenset[tuple[str, str]]], float]
    types: dict[str, str]
    """Type by name of the metric; counters end in _total."""
    labels: dict[str, frozenset[str]]
    """The labels of each metric that has a sample."""
    text: str
    """The scraped text."""

    @classmethod
    def read(cls, text: str) -> Self:
        samples, types = {}, {}
        labels: dict[str, frozenset[str]] = {}
        for family in text_string_to_metric_families(text):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            types[name] = family.type
            for sample in family.samples:
                samples[sample.name, frozenset(sample.labels.items())] = sample.value
                labels[name] = labels.get(name, frozenset()) | (frozenset(sample.labels) - {"le"})
        return cls(samples, types, labels, text)

    @classmethod
    def here(cls) -> Self:
        """The metrics of this process."""
        return cls.read(generate_latest(REGISTRY).decode())

    @classmethod
    async def at(cls, address: str) -> Self:
        """The metrics exposed at an address."""
        async with aiohttp.ClientSession() as http, http.get(f"http://{address}/metrics") as answer:
            answer.raise_for_status()
            return cls.read(await answer.text())

    def __call__(self, name: str, **labels: str) -> float:
        """Sum of the samples with that name and these labels; 0 if there are none."""
        wanted = labels.items()
        return sum(
            figure for (each, has), figure in self.samples.items() if each == name and wanted <= dict(has).items()
        )


async def examples_at(address: str, name: str) -> set[str]:
    """Trace ids of a histogram's exemplars at an address."""
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    async with aiohttp.ClientSession() as http, http.get(f"http://{address}/metrics", headers=accept) as answer:
        answer.raise_for_status()
        lines = (await answer.text()).splitlines()
    found = (re.search(r'# \{trace_id="(\w+)"\}', line) for line in lines if line.startswith(f"{name}_bucket"))
    return {example[1] for example in found if example is not None}


def open_metrics() -> list[str]:
    """Lines of this process's metrics in OpenMetrics format, with exemplars."""
    text: bytes = generate_open_metrics(REGISTRY)  # type: ignore[no-untyped-call]
    return text.decode().splitlines()

"""Plots solve times over cluster sizes as SVG, with logarithmic axes."""

from collections.abc import Iterable
from math import log10
from pathlib import Path
from typing import Any, Final

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 720, 420, 70, 50, 40, 170
_INK: Final = ("#1b6ca8", "#c8553d", "#588157")
_FIRST: Final = "pack above, spread on nodes"


def plot_speed(solves: Iterable[dict[str, Any]], file: Path) -> None:
    """One line per gang size and cold or warm, for the first policies."""
    lines: dict[tuple[int, str], list[tuple[int, float]]] = {}
    for each in solves:
        if each["policies"] == _FIRST:
            for kind in ("cold_ms", "warm_ms"):
                lines.setdefault((each["gang"], kind), []).append((each["nodes"], each[kind]))
    if lines:
        file.write_text(_picture(lines))


def _picture(lines: dict[tuple[int, str], list[tuple[int, float]]]) -> str:
    sizes = sorted({nodes for points in lines.values() for nodes, _ in points})
    times = [time for points in lines.values() for _, time in points]
    low, high = _decade(min(times), up=False), _decade(max(times), up=True)

    def x(nodes: float) -> float:
        span = log10(sizes[-1] / sizes[0]) or 1.0
        return LEFT + (WIDTH - LEFT - RIGHT) * log10(nodes / sizes[0]) / span

    def y(time: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * (log10(time) - low) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="14">One solve, ms ({_FIRST}); full line: cold, dashed: warm</text>',
    ]
    for power in range(low, high + 1):
        at = y(10**power)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{10**power:g}</text>')
    parts += [
        f'<text x="{x(nodes):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{nodes:,}</text>' for nodes in sizes
    ]
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">nodes</text>')
    gangs = sorted({gang for gang, _ in lines})
    for (gang, kind), points in lines.items():
        ink = _INK[gangs.index(gang) % len(_INK)]
        path = " ".join(f"{x(nodes):.1f},{y(time):.1f}" for nodes, time in sorted(points))
        dashes = ' stroke-dasharray="5 4"' if kind == "warm_ms" else ""
        parts.append(f'<polyline points="{path}" fill="none" stroke="{ink}" stroke-width="2"{dashes}/>')
    for index, gang in enumerate(gangs):
        at, ink = TOP + 20 * index, _INK[index % len(_INK)]
        parts.append(f'<rect x="{WIDTH - RIGHT + 20}" y="{at}" width="14" height="4" fill="{ink}"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 42}" y="{at + 6}">gang of {gang:,}</text>')
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _decade(time: float, *, up: bool) -> int:
    power = log10(time)
    whole = int(power // 1)
    return whole + (up and power > whole)

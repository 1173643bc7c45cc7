"""Draws the figures of ``bench/scale.py`` as an SVG: resources of a manager by number of pods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

Json = dict[str, Any]

WIDTH: Final = 300
HEIGHT: Final = 190
LEFT: Final = 46
BOTTOM: Final = 34
TOP: Final = 30
COLORS: Final = ("#1f77b4", "#d95f02", "#2a9d5c", "#7a5195")

CHARTS: Final[tuple[tuple[str, float | None, Callable[[Json], float]], ...]] = (
    ("memory at rest, MB", None, lambda each: each["rest_mb"]),
    ("start until ready, s of CPU", 60, lambda each: each["ready_cpu_s"]),
    ("one JobSet restarts, s of CPU", None, lambda each: each["one"]["cpu_s"]),
    (
        "an unrelated JobSet's first Job at most, s",
        1,
        lambda each: max(each["one"]["small_s"] + each["many"]["small_s"]),
    ),
)
"""Title, aim and figure of each chart."""


def drawn(results: Sequence[Json]) -> str:
    """All charts side by side, two in a row; a line for each number of JobSets."""
    kinds = sorted({(each["server"], each["jobsets"]) for each in results})
    rows = (len(CHARTS) + 1) // 2
    size = f'width="{2 * WIDTH}" height="{rows * HEIGHT + 24}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="11" {size}>',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, (title, aim, figure) in enumerate(CHARTS):
        x, y = number % 2 * WIDTH, number // 2 * HEIGHT
        parts.append(f'<g transform="translate({x},{y})">')
        parts += _chart(title, aim, figure, results, kinds)
        parts.append("</g>")
    for number, (server, jobsets) in enumerate(kinds):
        x, y = LEFT + number * 150, rows * HEIGHT + 12
        color = COLORS[number % len(COLORS)]
        parts.append(f'<rect x="{x}" y="{y - 8}" width="9" height="9" fill="{color}"/>')
        what = "JobSet" if jobsets == 1 else "JobSets"
        parts.append(f'<text x="{x + 14}" y="{y}">{jobsets:,} {what}, {server} server</text>')
    return "\n".join([*parts, "</svg>", ""])


def _chart(
    title: str,
    aim: float | None,
    figure: Callable[[Json], float],
    results: Sequence[Json],
    kinds: Sequence[tuple[str, int]],
) -> list[str]:
    most_pods = max(each["pods"] for each in results)
    most = max([figure(each) for each in results] + [aim or 0]) * 1.1

    def at(pods: float, value: float) -> tuple[float, float]:
        wide, high = WIDTH - LEFT - 20, HEIGHT - TOP - BOTTOM
        return LEFT + pods / most_pods * wide, HEIGHT - BOTTOM - value / most * high

    left, floor = at(0, 0)
    right, roof = at(most_pods, most)
    parts = [
        f'<text x="{LEFT}" y="18" font-weight="bold">{title}</text>',
        f'<path d="M{left:.0f} {roof:.0f}V{floor:.0f}H{right:.0f}" stroke="#555" fill="none"/>',
    ]
    for pods in sorted({each["pods"] for each in results}):
        x, _ = at(pods, 0)
        parts.append(f'<text x="{x:.0f}" y="{floor + 14:.0f}" text-anchor="middle">{pods:,}</text>')
    for value in (most / 1.1, most / 2.2):
        _, y = at(0, value)
        parts.append(f'<text x="{LEFT - 5}" y="{y + 4:.0f}" text-anchor="end">{value:.3g}</text>')
    if aim is not None:
        _, y = at(0, aim)
        parts.append(
            f'<path d="M{left:.0f} {y:.0f}H{right:.0f}" stroke="#c00" stroke-dasharray="4 3"/>'
            f'<text x="{right:.0f}" y="{y - 3:.0f}" text-anchor="end" fill="#c00">aim</text>'
        )
    for number, kind in enumerate(kinds):
        mine = sorted(
            (each["pods"], figure(each))
            for each in results
            if (each["server"], each["jobsets"]) == kind
        )
        points = " ".join("{:.1f},{:.1f}".format(*at(*point)) for point in mine)
        color = COLORS[number % len(COLORS)]
        parts.append(f'<polyline points="{points}" stroke="{color}" fill="none" stroke-width="2"/>')
        for point in mine:
            x, y = at(*point)
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>')
    return parts

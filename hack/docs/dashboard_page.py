"""Pages with the graphs of the Grafana dashboard, drawn from answers of a Prometheus server.

Grafana is not needed: panels, expressions and units are those of
``hack/generate/monitoring_dashboard.py``. Each row is a page.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import attrs

COLORS = (
    *("#1f78b4", "#e6811f", "#33a02c", "#c23b3b", "#7a5bb5", "#8c6239"),
    *("#d65fa8", "#555555", "#9a9a00", "#17a2b8"),
)
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 400, 180, 52, 10, 8, 20
SHOWN = 10
"""Maximum number of series that are drawn; the others are counted."""
STYLE = """
body { margin: 0; padding: 10px; background: #f4f5f5; color: #24292e; font: 13px sans-serif; }
h1 { font-size: 16px; margin: 2px 2px 10px; font-weight: 600; }
main { display: grid; gap: 8px; grid-template-columns: repeat(auto-fit, minmax(330px, 1fr)); }
section { background: #fff; border: 1px solid #d8d9da; border-radius: 3px; padding: 8px;
          min-width: 0; }
h2 { font-size: 13px; margin: 0 0 4px; font-weight: 600; }
svg { width: 100%; height: auto; display: block; }
text { font: 11px sans-serif; fill: #555; }
.empty { font-size: 14px; fill: #999; }
ul { list-style: none; margin: 4px 0 0; padding: 0; display: flex; flex-wrap: wrap;
     gap: 1px 10px; font-size: 12px; overflow-wrap: anywhere; }
i { display: inline-block; width: 12px; height: 3px; margin-right: 4px; vertical-align: middle; }
"""


@attrs.frozen
class Series:
    """A line of a graph.

    Args:
        legend: name of the line.
        points: Unix time and value; a value may be missing or not finite.
    """

    legend: str
    points: Sequence[tuple[float, float]]


@attrs.frozen
class Panel:
    """A graph.

    Args:
        title: title of the panel.
        unit: Grafana's name of the unit.
        series: all lines with data.
    """

    title: str
    unit: str
    series: Sequence[Series]


def page(title: str, panels: Iterable[Panel], begin: float, end: float) -> str:
    """Return a row of the dashboard as a page."""
    sections = "\n".join(_section(panel, begin, end) for panel in panels)
    return (
        '<!DOCTYPE html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style>"
        f"<h1>{html.escape(title)}</h1><main>{sections}</main></html>"
    )


def _section(panel: Panel, begin: float, end: float) -> str:
    series = sorted(panel.series, key=lambda one: -_greatest(one))
    shown, more = series[:SHOWN], len(series) - SHOWN
    names = [
        f'<li><i style="background:{COLORS[at]}"></i>{html.escape(one.legend or "value")}</li>'
        for at, one in enumerate(shown)
    ]
    if more > 0:
        names.append(f"<li>and {more} more</li>")
    return (
        f"<section><h2>{html.escape(panel.title)}</h2>"
        f"{_graph(shown, panel.unit, begin, end)}<ul>{''.join(names)}</ul></section>"
    )


def _greatest(series: Series) -> float:
    return max((value for _, value in series.points if math.isfinite(value)), default=0.0)


def _graph(series: Sequence[Series], unit: str, begin: float, end: float) -> str:
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    step, top = scale(max(map(_greatest, series), default=0.0), unit)
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}">']

    def x(at: float) -> float:
        return LEFT + wide * (at - begin) / (end - begin)

    def y(value: float) -> float:
        return TOP + high * (1 - min(max(value, 0.0), top) / top)

    for number in range(round(top / step) + 1):
        value = number * step
        parts.append(
            f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" stroke="#e3e3e3"/>'
            f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">'
            f"{html.escape(in_unit(value, unit, step))}</text>"
        )
    for part in (0.0, 0.5, 1.0):
        at = begin + part * (end - begin)
        anchor = {0.0: "start", 1.0: "end"}.get(part, "middle")
        parts.append(
            f'<text x="{x(at):.1f}" y="{HEIGHT - 4}" text-anchor="{anchor}">'
            f"{datetime.fromtimestamp(at, UTC):%H:%M:%S}</text>"
        )
    if not series:
        middle = f'x="{LEFT + wide / 2}" y="{TOP + high / 2}"'
        parts.append(f'<text class="empty" {middle} text-anchor="middle">no data</text>')
    for number, one in reversed([*enumerate(series)]):
        path = _path([(x(at), y(v)) if math.isfinite(v) else None for at, v in one.points])
        parts.append(
            f'<path d="{path}" fill="none" stroke="{COLORS[number]}" stroke-width="1.6" '
            'stroke-linecap="round"/>'
        )
    return "".join([*parts, "</svg>"])


def _path(points: Sequence[tuple[float, float] | None]) -> str:
    """Return lines between adjacent points; a gap ends a line, and a single point is a dot."""
    out, drawing = [], False
    for point in points:
        if point is not None:
            out.append(f"{'L' if drawing else 'M'}{point[0]:.1f} {point[1]:.1f}")
            if not drawing:
                out.append("h0.1")
        drawing = point is not None
    return "".join(out)


def scale(greatest: float, unit: str) -> tuple[float, float]:
    """Return the step and the end of the axis, as round numbers, with two to five steps."""
    if unit == "percentunit":
        return 0.25, 1.0
    if greatest <= 0:
        return 1.0, 2.0
    if unit == "s":  # also round numbers of minutes, hours and days
        size = next((size for size in (86400.0, 3600.0, 60.0) if greatest >= 2 * size), 0.0)
        if size:
            step, end = scale(greatest / size, "short")
            return step * size, end * size
    if unit == "bytes":
        factors: tuple[float, ...] = (0.25, 0.5, 1.0)
        base = 2.0 ** math.floor(math.log2(greatest))
    else:
        base = 10.0 ** math.floor(math.log10(greatest))
        factors = (0.2, 0.25, 0.5, 1.0, 2.0, 2.5)
    for factor in factors:
        step = base * factor
        if unit == "short" and greatest >= 3 and step < 1:
            continue
        if greatest <= 5 * step:
            return step, step * max(2, math.ceil(greatest / step))
    return base * 2.5, base * 10


def in_unit(value: float, unit: str, step: float) -> str:
    """Return a value of an axis with its unit, formatted like Grafana's but shorter."""
    if value == 0:
        return "0"
    if unit == "percentunit":
        return f"{value:.0%}"
    if unit == "bytes":
        for name, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
            if value >= size:
                return f"{value / size:g} {name}"
        return f"{value:g} B"
    if unit == "s":
        for name, size in (("d", 86400), ("h", 3600), ("min", 60)):
            if step >= size / 2:
                return f"{value / size:.3g} {name}"
        return f"{value:.3g} s" if step >= 0.1 else f"{value * 1000:.3g} ms"
    suffix = {"ops": "/s", "reqps": "/s"}.get(unit, "")
    for name, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.4g}{name}{suffix}"
    return f"{value:.6g}{suffix}"

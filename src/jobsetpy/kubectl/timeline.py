"""The history of restarts as a picture: one row per restart, its phases in colour.

Plain SVG 1.1 without scripts, fonts or links, so that it can stand in a README or a report. Every
text of the cluster's is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final, NamedTuple

from jobsetpy.kubectl import output

PHASES: Final = (
    ("detectionMillis", "detection", "#d1495b"),
    ("deprecationMillis", "deprecation", "#edae49"),
    ("gatheringMillis", "gathering", "#30638e"),
    ("liftMillis", "lift", "#3f8f5b"),
)
_WIDTH: Final = 960
_LEFT: Final = 250
_RIGHT: Final = 220
_ROW: Final = 34
_TOP: Final = 64
_TEXT: Final = "#24292f"
_FAINT: Final = "#6e7781"
_FONT: Final = "font-family='system-ui, sans-serif' font-size='12'"

Record = Mapping[str, Any]


class Bar(NamedTuple):
    """A phase of a restart, in pixels."""

    left: float
    width: float
    colour: str
    label: str


def name_of(record: Record) -> str:
    """Kind and number."""
    kind, number = record.get("kind", ""), record.get("number")
    if kind == "InPlace":
        return f"in place, epoch {number}"
    return f"{kind} {record.get('target', '')}".strip() + (f" ({number})" if number else "")


def cause_of(record: Record) -> str:
    """The cause in a few words."""
    cause = record.get("cause") or {}
    parts = [cause.get("reason", "")]
    if cause.get("pod"):
        parts.append(cause["pod"])
    elif cause.get("job"):
        parts.append(cause["job"])
    if "exitCode" in cause:
        parts.append(f"exit {cause['exitCode']}{_signal(cause['exitCode'])}")
    if cause.get("node"):
        parts.append(f"on {cause['node']}")
    return " ".join(filter(None, parts))


def _signal(code: int) -> str:
    if not 128 < code < 160:
        return ""
    import signal

    try:
        return f" ({signal.Signals(code - 128).name})"
    except ValueError:
        return ""


def total(record: Record) -> int | None:
    """How long a restart took, in milliseconds, if it is over."""
    if record.get("outcome") != "Completed":
        return None
    return sum(record.get(key) or 0 for key, _, _ in PHASES)


def svg(title: str, history: Sequence[Record]) -> str:
    """The picture.

    Args:
        title: of it.
        history: records, the oldest first.
    """
    longest = max((sum(r.get(key) or 0 for key, _, _ in PHASES) for r in history), default=0) or 1
    scale = (_WIDTH - _LEFT - _RIGHT) / longest
    bottom = _TOP + _ROW * max(1, len(history))
    height = bottom + 40
    out = [
        _opening(height),
        f"<title>{escape(title)}</title>",
        f"<rect width='{_WIDTH}' height='{height}' fill='#ffffff'/>",
        _text(16, 26, title, 16),
        *_legend(),
    ]
    for step in range(5):
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * step / 4
        out.append(
            f"<line x1='{x:.1f}' y1='{_TOP - 6}' x2='{x:.1f}' y2='{bottom}' stroke='#d8dee4'/>"
            f"<text x='{x:.1f}' y='{bottom + 18}' text-anchor='middle' fill='{_FAINT}'>"
            f"{escape(output.millis(round(longest * step / 4)))}</text>"
        )
    for row, record in enumerate(history):
        out += _row(record, _TOP + row * _ROW, scale)
    if not history:
        out.append(f"<text x='16' y='{_TOP + 20}' fill='{_FAINT}'>no restarts yet</text>")
    return "\n".join((*out, "</svg>\n"))


def html(title: str, history: Sequence[Record]) -> str:
    """A page with the picture and a table of the same."""
    head = "".join(f"<th>{escape(each)}</th>" for each in COLUMNS)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells(record)) + "</tr>"
        for record in reversed(history)
    )
    style = (
        "body{font-family:system-ui,sans-serif;margin:2rem;color:#24292f}"
        "svg{max-width:100%;height:auto}table{border-collapse:collapse;font-size:14px}"
        "th,td{text-align:left;padding:.35rem .7rem;border-bottom:1px solid #d8dee4}"
    )
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f"<title>{escape(title)}</title><style>{style}</style></head><body>"
        f"{svg(title, history)}<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        "</body></html>\n"
    )


COLUMNS: Final = (
    *("BEGAN", "RESTART", "COUNTED", "RULE", "CAUSE"),
    *("DETECTION", "DEPRECATION", "GATHERING", "LIFT", "LAST POD", "OUTCOME"),
)


def cells(record: Record) -> list[str]:
    """A row of the table."""
    began = (record.get("beganAt") or "").replace("T", " ")
    last = record.get("lastPod", "")
    if record.get("lastNode"):
        last = f"{last} on {record['lastNode']}"
    more = record.get("moreJobs")
    return [
        began,
        name_of(record) + (f" and {more} more" if more else ""),
        "yes" if record.get("counted") else "no",
        record.get("rule", ""),
        cause_of(record),
        *(output.millis(record.get(key)) for key, _, _ in PHASES),
        last,
        record.get("outcome") or "under way",
    ]


def _legend() -> list[str]:
    out, x = [], _LEFT
    for _, label, colour in PHASES:
        out.append(
            f"<rect x='{x}' y='38' width='11' height='11' rx='2' fill='{colour}'/>"
            f"<text x='{x + 16}' y='48' fill='{_FAINT}'>{label}</text>"
        )
        x += 110
    return out


def _row(record: Record, y: int, scale: float) -> list[str]:
    began = (record.get("beganAt") or "")[11:19]
    faint = "" if record.get("counted") else " (not counted)"
    out = [
        f"<text x='16' y='{y + 13}' fill='{_TEXT}'>{escape(name_of(record)[:38])}</text>",
        f"<text x='16' y='{y + 27}' font-size='10' fill='{_FAINT}'>{began}{faint}</text>",
    ]
    x = float(_LEFT)
    for bar in _bars(record, scale):
        out.append(
            f"<rect x='{bar.left:.1f}' y='{y + 4}' width='{bar.width:.1f}' height='14' rx='2' "
            f"fill='{bar.colour}'><title>{escape(bar.label)}</title></rect>"
        )
        x = bar.left + bar.width
    whole = total(record)
    end = output.millis(whole) if whole is not None else (record.get("outcome") or "under way")
    out += [
        f"<text x='{x + 8:.1f}' y='{y + 16}' fill='{_TEXT}'>{escape(end)}</text>",
        _text(_LEFT, y + 29, cause_of(record)[:110], 10, _FAINT),
    ]
    return out


def _opening(height: int) -> str:
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {height}' "
        f"width='{_WIDTH}' height='{height}' role='img' {_FONT}>"
    )


def _text(x: float, y: float, text: str, size: int, colour: str = _TEXT) -> str:
    return f"<text x='{x:.1f}' y='{y}' font-size='{size}' fill='{colour}'>{escape(text)}</text>"


def _bars(record: Record, scale: float) -> list[Bar]:
    out, x = [], float(_LEFT)
    for key, label, colour in PHASES:
        value = record.get(key)
        if value is None:
            continue
        width = max(1.0, value * scale)
        out.append(Bar(x, width, colour, f"{label}: {output.millis(value)}"))
        x += width
    return out

"""The history of restarts as a picture: a bar per restart, its phases in colour."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final, NamedTuple

from jobsetpy.kubectl import output
from jobsetpy.kubectl.svg import (
    BOLD_LETTER,
    LEFT,
    LETTER,
    RIGHT,
    WIDTH,
    bar,
    cut,
    legend,
    picture,
    words,
)
from jobsetpy.reconcilers.rules.json_tree import child


class Phase(NamedTuple):
    """A part of a restart.

    Args:
        key: of its duration in a record.
        label: in one word.
        text: what happens in it.
        colour: of its bar.
        ink: of text on that.
    """

    key: str
    label: str
    text: str
    colour: str
    ink: str


PHASES: Final = (
    Phase("detectionMillis", "detection", "seen and decided", "#c2410c", "#ffffff"),
    Phase("deprecationMillis", "deprecation", "pods restart", "#f2b134", "#24292f"),
    Phase("gatheringMillis", "gathering", "new pods come", "#2f6fb2", "#ffffff"),
    Phase("liftMillis", "lift", "workers may start", "#2e8b57", "#ffffff"),
)
_ROW: Final = 56
_TOP: Final = 84

Record = Mapping[str, Any]


def name_of(record: Record) -> str:
    """Return kind and number of a restart."""
    kind, number = record.get("kind", ""), record.get("number")
    if kind == "InPlace":
        return f"in place, epoch {number}"
    return f"{kind} {record.get('target', '')}".strip() + (f" ({number})" if number else "")


def cause_of(record: Record) -> str:
    """Return the cause of a restart in a few words."""
    cause = child(record, "cause")
    parts = [cause.get("reason"), cause.get("pod") or cause.get("job")]
    if "exitCode" in cause:
        parts.append(exit_text(cause["exitCode"]))
    if cause.get("node"):
        parts.append(f"on {cause['node']}")
    text = " ".join(filter(None, parts))
    message = cause.get("message")
    # "Error" is the kubelet's reason for any exit code but 0.
    text = f"{text}: {message}" if message and message != "Error" else text
    if pods := record.get("pods"):
        return f"{text}; {pods} {'pod works' if pods == 1 else 'pods work'} since then"
    seats = record.get("seatsTaken")
    return f"{text}; spares took {seats} {'seat' if seats == 1 else 'seats'}" if seats else text


def last_of(record: Record) -> str:
    """Return the pod that arrived last, and its node."""
    pod, node = record.get("lastPod", ""), record.get("lastNode")
    return f"{pod} on {node}" if node else pod


def exit_text(code: int) -> str:
    """Return an exit code, with the name of the signal that it stands for."""
    import signal

    return f"exit {code}" + next((f" ({s.name})" for s in signal.Signals if s == code - 128), "")


def total(record: Record) -> int | None:
    """Return the duration of a completed restart in milliseconds, else ``None``."""
    return _length(record) if record.get("outcome") == "Completed" else None


def svg(title: str, history: Sequence[Record]) -> str:
    """The picture.

    Args:
        title: of it.
        history: records, the oldest first.
    """
    longest = max((_length(record) for record in history), default=0) or 1
    scale = (WIDTH - LEFT - RIGHT) / longest
    bottom = _TOP + _ROW * max(1, len(history))
    height = bottom + 34
    out = [*legend((phase.label, phase.text, phase.colour) for phase in PHASES)]
    if history:
        out += _axis(longest, scale, bottom)
        for row, record in enumerate(history):
            out += _row(record, _TOP + row * _ROW, scale)
    else:
        out.append(words(LEFT, _TOP + 20, "no restarts yet", "jr-faint"))
    return picture(title, height, out)


COLUMNS: Final = (
    *("BEGAN", "RESTART", "COUNTED", "RULE", "CAUSE"),
    *("DETECTION", "DEPRECATION", "GATHERING", "LIFT", "LAST POD", "OUTCOME"),
)


def table(history: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    """Columns that are not empty, and their rows, the oldest first."""
    rows = [cells(record) for record in history]
    shown = [at for at in range(len(COLUMNS)) if any(row[at] for row in rows)]
    return [COLUMNS[at] for at in shown], [[row[at] for at in shown] for row in rows]


def cells(record: Record) -> list[str]:
    """A row of the table."""
    began = (record.get("beganAt") or "").replace("T", " ")
    more = record.get("moreJobs")
    return [
        began,
        name_of(record) + (f" and {more} more" if more else ""),
        "yes" if record.get("counted") else "no",
        record.get("rule", ""),
        cause_of(record),
        *(output.millis(record.get(phase.key)) for phase in PHASES),
        last_of(record),
        record.get("outcome") or "under way",
    ]


def _length(record: Record) -> int:
    return sum(record.get(phase.key) or 0 for phase in PHASES)


def _axis(longest: int, scale: float, bottom: int) -> Iterator[str]:
    """A line each round number of seconds, or of parts of one."""
    step = next(
        size * factor
        for size in (10**power for power in range(12))
        for factor in (1, 2, 5)
        if longest / (size * factor) <= 8
    )
    for millis in range(0, longest + 1, step):
        x = LEFT + millis * scale
        text = output.millis(millis) if millis else "0"
        yield (f"<line class='jr-grid' x1='{x:.1f}' y1='{_TOP - 8}' x2='{x:.1f}' y2='{bottom}'/>")
        yield words(x, bottom + 18, text, "jr-faint", "font-size='12' text-anchor='middle'")


def _row(record: Record, y: int, scale: float) -> Iterator[str]:
    name = name_of(record)
    when = f"{(record.get('beganAt') or '')[11:19]} UTC" if record.get("beganAt") else ""
    if not record.get("counted"):
        when += ", not counted"
    name = cut(name, 56)
    room = WIDTH - 2 * LEFT - 16 - len(name) * BOLD_LETTER - len(when) * LETTER
    cause = cut(cause_of(record), int(room / LETTER))
    yield (
        f"<text x='{LEFT}' y='{y + 14}'><tspan class='jr-text jr-bold'>{escape(name)}</tspan>"
        f"<tspan class='jr-faint' dx='8' font-size='12'>{escape(when)}</tspan>"
        f"<tspan class='jr-text' dx='8' font-size='12'>{escape(cause)}</tspan></text>"
    )
    x = float(LEFT)
    for phase in PHASES:
        millis = record.get(phase.key)
        if millis is None:
            continue
        width = max(1.0, millis * scale)
        yield from _bar(record, phase, (x, y, width))
        x += width
    whole = total(record)
    end = output.millis(whole) if whole is not None else (record.get("outcome") or "under way")
    yield words(x + 8, y + 37, end.lower(), "jr-text jr-bold")


def _bar(record: Record, phase: Phase, at: tuple[float, int, float]) -> Iterator[str]:
    (x, y, width), took, more = at, output.millis(record[phase.key]), ""
    if phase.label == "gathering" and record.get("lastPod"):
        more = f", last came {last_of(record)}"
    about = f"{phase.label}: {took}{more}"
    yield from bar((x, y + 22, width), (phase.colour, phase.ink), took, about)

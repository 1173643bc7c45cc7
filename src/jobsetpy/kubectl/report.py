"""``report``: what the time of JobSets went into, and what restarts cost."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, timedelta
from typing import Any, Final

from jobsetpy.aio import LoopClock
from jobsetpy.errors import ForbiddenError
from jobsetpy.kubectl import output, svg
from jobsetpy.kubectl.bill import Bill, Estimate, bill, estimate, goodput, total
from jobsetpy.kubectl.cluster import JOBSETS, Cluster
from jobsetpy.kubectl.errors import CommandError
from jobsetpy.kubectl.listing import FULL
from jobsetpy.kubectl.restarts import save

HOUR: Final = 3600
_UNITS: Final = {"s": 1, "m": 60, "h": HOUR, "d": 24 * HOUR}
_COLUMNS: Final = (
    *("NAMESPACE", "NAME", "TIME", "TRAINING", "REPEATED", "RESTARTS", "WAITING", "QUEUE"),
    *("GOODPUT", "NODES LOST", "COST"),
)
_PARTS: Final = (
    ("training", "#2e8b57"),
    ("repeated", "#8250df"),
    ("missing pods", "#bf8700"),
    ("first step", "#f2b134"),
    ("restarts", "#b3261e"),
    ("waiting", "#2f6fb2"),
    ("queue", "#8c959f"),
)
"""Parts of a bar, and their colours."""
_TOP: Final = 84
_ROW: Final = 56


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="the JobSet; all when absent")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="of all namespaces")
    parser.add_argument(
        "--since", metavar="TIME", type=_time, help="report the last 7d, 12h, 30m or 90s only"
    )
    parser.add_argument(
        "--node-hour", metavar="PRICE", type=_price, help="price of an hour of a node"
    )
    parser.add_argument(
        "--pods-per-node", metavar="N", type=output.at_least(1), default=1,
        help="pods on a node (default 1)",
    )  # fmt: skip
    parser.add_argument("--svg", metavar="FILE", help="draw it into a file; - for the output")


async def run(cluster: Cluster, options: argparse.Namespace) -> int:
    """Print the report."""
    now = LoopClock().now().astimezone(UTC)
    start = None if options.since is None else now - options.since
    if options.name and options.all_namespaces:
        raise CommandError("error: NAME and -A exclude each other")
    wanted, cluster_wide = await _jobsets(cluster, options)
    bills = [each for one in wanted if (each := bill(one, now, start)) is not None]
    others = [each for one in cluster_wide if (each := bill(one, now)) is not None]
    if not bills:
        print(_nothing(wanted))  # noqa: T201
        return 0
    price = None if options.node_hour is None else options.node_hour / options.pods_per_node
    if options.svg:
        title = (
            f"Time of {bills[0].namespace}/{bills[0].name}" if options.name else "Time of JobSets"
        )
        save(picture(title, bills), options.svg)
    elif options.output:
        found = [_entry(each, estimate(each, others), price) for each in bills]
        output.write(found[0] if options.name else found, options.output)
    else:
        lines = _one(bills[0], others, price) if options.name else _all(bills, price, options)
        print(*lines, *_notes(bills), sep="\n")  # noqa: T201
    return 0


async def _jobsets(
    cluster: Cluster, options: argparse.Namespace
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the JobSets that are asked for, and all that the estimate may be based on."""
    if not options.name:
        where = "" if options.all_namespaces else f"/namespaces/{cluster.namespace}"
        found = await cluster.items(f"{JOBSETS}{where}/jobsets")
        return found, found
    jobset = await cluster.jobset(options.name)
    try:
        return [jobset], await cluster.items(f"{JOBSETS}/jobsets")
    except ForbiddenError:  # those of the namespace are measured in this cluster, too
        try:
            return [jobset], await cluster.jobsets()
        except ForbiddenError:
            return [jobset], []


def _nothing(wanted: Sequence[object]) -> str:
    if not wanted:
        return "No JobSets found."
    return (
        "Nothing is known: no status has timeSpent for that time. The manager of this release "
        "writes it with the next change of a JobSet that has not ended."
    )


def _one(one: Bill, others: Sequence[Bill], price: float | None) -> Iterator[str]:
    rows = [
        ("training" + (" (at most)" if one.bound else ""), one.training),
        *([("repeated steps", one.repeating)] if one.repeating else []),
        *([("until the first step of a run", one.starting)] if one.starting else []),
        *([("missing pods", one.missing)] if one.missing else []),
        *(
            (f"restarts: {each.number} × {each.cause}, {each.kind}", each.seconds)
            for each in one.restarts
        ),
    ]
    if not one.bound:
        rows += [("waiting for pods", one.waiting), ("queue or suspended", one.queued)]
    rows.append(("all", one.seconds))
    since = f"{one.since:%Y-%m-%d %H:%M:%S}Z"
    yield f"{one.namespace}/{one.name} {one.state}, since {since}, {one.pods} pods"
    cells = [
        [name, _took(seconds), _share(seconds, one.seconds), _money(one, seconds, price)]
        for name, seconds in rows
    ]
    # Nodes are not paid for while a JobSet is in a queue.
    if price is not None:
        cells[-1][3] = _money(one, one.paid, price)
        if not one.bound:
            cells[-2][3] = ""
    columns = ("USE", "TIME", "SHARE", "COST") if price is not None else ("USE", "TIME", "SHARE")
    yield from output.table(columns, [row[: len(columns)] for row in cells])
    yield f"goodput: {_goodput(one)} of the time outside queues; nodes lost: {one.nodes_lost}"
    yield f"estimate, all Jobs recreated instead: {_estimated(one, estimate(one, others), price)}"


def _estimated(one: Bill, found: Estimate | None, price: float | None) -> str:
    if found is None:
        return "not known; this cluster has measured neither a recreation nor a first start"
    if not found.failures:
        return "no failure led to a restart in place"
    would = found.failures * found.each
    cost = f", {_money(one, would - found.actual, price)} more" if price is not None else ""
    return (
        f"{found.failures} × {_took(found.each)} = {_took(would)} instead of "
        f"{_took(found.actual)}{cost} ({found.basis})"
    )


def _all(bills: Sequence[Bill], price: float | None, options: argparse.Namespace) -> Iterator[str]:
    rows = [_cells(each, price) for each in (*bills, total(bills))]
    rows[-1][_COLUMNS.index("GOODPUT")] = _goodput(*bills)
    if price is not None:
        costs = sum(each.paid * each.pods for each in bills) / HOUR * price
        rows[-1][-1] = f"{costs:.2f}"
    first = 0 if options.all_namespaces else 1
    last = len(_COLUMNS) if price is not None else -1
    yield from output.table(_COLUMNS[first:last], [row[first:last] for row in rows])


def _cells(each: Bill, price: float | None) -> list[str]:
    unknown = ["", ""] if each.bound else [_took(each.waiting), _took(each.queued)]
    return [
        *(each.namespace, each.name, _took(each.seconds), _took(each.training)),
        *(_took(each.repeating), _took(each.restarting), *unknown, _goodput(each)),
        *(str(each.nodes_lost), _money(each, each.paid, price)),
    ]


def _notes(bills: Sequence[Bill]) -> Iterator[str]:
    silent = sum(each.running - each.reported for each in bills if not each.bound)
    if silent > 0:
        yield (
            f"Of the time of training, {_took(silent)} cannot be divided into new and repeated "
            "steps: their workers have not reported them, or do at the next restart in place."
        )
    if bound := [each for each in bills if each.bound]:
        names = ", ".join(each.name for each in bound[:3]) + (", ..." if len(bound) > 3 else "")
        yield (
            f"Of JobSets that began before that ({names}), restarts come from the history of the "
            f"last {FULL}; queue, waiting, missing pods and repeated steps are not known."
        )


def _entry(each: Bill, found: Estimate | None, price: float | None) -> dict[str, Any]:
    cost = {} if price is None else {"cost": round(_cost(each, each.paid, price), 2)}
    fields = {
        **each._asdict(),
        "since": f"{each.since:%Y-%m-%dT%H:%M:%SZ}",
        "restarts": [one._asdict() for one in each.restarts],
        "training": each.training,
        "goodput": goodput([each]),
        "nodes_lost": each.nodes_lost,
        "estimate_if_recreated": None if found is None else found._asdict(),
        **cost,
    }
    return {re.sub("_(.)", lambda found: found[1].upper(), name): fields[name] for name in fields}


def picture(title: str, bills: Sequence[Bill]) -> str:
    """Return a picture with a bar for each JobSet, its parts in colour."""
    out = [*svg.legend((name, "", colour) for name, colour in _PARTS)]
    for row, each in enumerate(bills):
        out += _bar(each, _TOP + row * _ROW)
    return svg.picture(title, _TOP + _ROW * len(bills) + 12, out)


def _bar(each: Bill, y: int) -> Iterator[str]:
    name = svg.cut(f"{each.namespace}/{each.name}", 48)
    about = f"goodput {_goodput(each)}, {_took(each.seconds)}, nodes lost {each.nodes_lost}"
    yield svg.words(svg.LEFT, y + 14, name, "jr-text jr-bold")
    right = "font-size='12' text-anchor='end'"
    yield svg.words(svg.WIDTH - svg.LEFT, y + 14, about, "jr-faint", right)
    parts = (each.training, each.repeating, each.missing, each.starting, each.restarting)
    x, scale = float(svg.LEFT), (svg.WIDTH - 2 * svg.LEFT) / max(each.seconds, 0.001)
    for (label, colour), seconds in zip(_PARTS, (*parts, each.waiting, each.queued), strict=True):
        width = seconds * scale
        if width <= 0:
            continue
        ink = "#24292f" if label == "first step" else "#ffffff"
        about = f"{label}: {_took(seconds)}, {_share(seconds, each.seconds)}"
        yield from svg.bar((x, y + 22, width), (colour, ink), _took(seconds), about)
        x += width


def _took(seconds: float) -> str:
    if seconds < 10:
        return output.millis(round(seconds * 1000))
    # Bills are in hours: days would be too coarse.
    return f"{seconds / HOUR:.0f}h" if seconds >= 48 * HOUR else output.duration(seconds)


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.2%}" if whole > 0 else ""


def _goodput(*bills: Bill) -> str:
    share, bound = goodput(bills), any(each.bound for each in bills)
    return "-" if share is None else f"{'≤ ' if bound else ''}{share:.2%}"


def _cost(each: Bill, seconds: float, price: float) -> float:
    return seconds / HOUR * each.pods * price


def _money(each: Bill, seconds: float, price: float | None) -> str:
    return "" if price is None else f"{_cost(each, seconds, price):.2f}"


def _time(text: str) -> timedelta:
    found = re.fullmatch(r"([1-9][0-9]{0,5})([smhd])", text, re.ASCII)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of s, m, h or d, such as 7d")
    return timedelta(seconds=int(found[1]) * _UNITS[found[2]])


def _price(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a price, such as 16.8")
    return found

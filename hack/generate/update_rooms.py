"""Generate ``docs/images/rooms.svg``, the picture of ARCHITECTURE.md, from the imports.

update_rooms.py            write the picture
update_rooms.py --verify   write nothing; exit 1 and list the differences, if any
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

from hack.generate.generated import write_or_compare
from hack.generate.rooms import Folder, all_folders

PICTURE = "docs/images/rooms.svg"
SHOWN = (
    "jobsetpy",
    "jobsetpy.reconcilers",
    "jobsetpy.reconcilers.restart_in_place",
    "jobsetpy.agent.supervisor",
    "jobsetpy.coscheduler.gang_scheduler",
)
WIDTH, MARGIN, ROOM, FLOOR, LETTER = 1180, 20, 24, 52, 7.4
STYLE = (
    "text{font:12px ui-monospace,monospace;fill:#1f2328}.h{font-weight:bold}"
    "rect{fill:#eef4fb;stroke:#4f7cac}path{fill:none;stroke:#8a94a0;stroke-opacity:.55}"
)


def main(argv: Sequence[str]) -> int:
    """Write or compare the picture; return the exit code."""
    return write_or_compare([(PICTURE, picture(all_folders()))], __doc__ or "", argv)


def picture(folders: Iterable[Folder]) -> str:
    """Return the picture: the rooms of some folders by floor, with their direct arrows."""
    by_name = {folder.name: folder for folder in folders}
    parts: list[str] = []
    top = MARGIN
    for name in SHOWN:
        folder = by_name[name]
        parts += _folder(folder, top)
        top += 34 + FLOOR * len(folder.floors)
    size = f'width="{WIDTH}" height="{top}" viewBox="0 0 {WIDTH} {top}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    ground = f'<rect width="{WIDTH}" height="{top}" style="fill:#fff;stroke:none"/>'
    title = "<title>Rooms by floor: each imports only what is below it</title>"
    return "\n".join([head, title, f"<style>{STYLE}</style>", ground, *parts, "</svg>", ""])


def _folder(folder: Folder, top: int) -> Iterator[str]:
    yield f'<text class="h" x="{MARGIN}" y="{top + 12}">{folder.name}</text>'
    places = dict(_places(folder, top + 24))
    for start, end in sorted(folder.direct_arrows()):
        (x1, y1, w1), (x2, y2, w2) = places[start], places[end]
        x1, x2, y1 = x1 + w1 / 2, x2 + w2 / 2, y1 + ROOM
        middle = (y1 + y2) / 2
        yield f'<path d="M{x1:g} {y1:g}C{x1:g} {middle:g} {x2:g} {middle:g} {x2:g} {y2:g}"/>'
    for room, (x, y, width) in sorted(places.items()):
        yield f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{ROOM}" rx="4"/>'
        yield f'<text x="{x + 8:g}" y="{y + 16:g}">{room}</text>'


def _places(folder: Folder, top: int) -> Iterator[tuple[str, tuple[float, float, float]]]:
    """Yield each room with its left edge, its upper edge and its width, top floor first."""
    for at, floor in enumerate(reversed(folder.floors)):
        widths = [LETTER * len(room) + 16 for room in sorted(floor)]
        gap = (WIDTH - 2 * MARGIN - sum(widths)) / (len(widths) + 1)
        x = MARGIN + gap
        for room, width in zip(sorted(floor), widths, strict=True):
            yield room, (round(x, 1), top + FLOOR * at, round(width, 1))
            x += width + gap


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

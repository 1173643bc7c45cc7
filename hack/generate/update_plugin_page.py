"""Generate the documentation's pictures and output of ``kubectl jobset``, or check them.

    update_plugin_page.py            write docs/images and the texts in docs/how-to/kubectl.md
    update_plugin_page.py --verify   write nothing; exit 1 and list the differences, if any

The plugin's own commands make them from recorded answers of a real cluster (``make recordings``,
``hack/docs/recorded``), so that a change of their output appears without a cluster. A text is
written between the fences that follow ``<!-- shown: NAME -->``, with its command in the first line.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple
from unittest import mock

from hack.generate.generated import ROOT, write_or_compare
from jobsetpy.aio import LoopClock
from jobsetpy.client import HttpRequest, HttpResponse
from jobsetpy.kubectl import cluster, output
from jobsetpy.kubectl import main as plugin
from jobsetpy.kubectl.kubeconfig import Target

RECORDED = ROOT / "hack/docs/recorded"
PAGE: Final = "docs/how-to/kubectl.md"


class Moment(NamedTuple):
    """A recorded JobSet at one moment.

    Args:
        file: name of the file in ``hack/docs/recorded``, without suffix.
        name: name of the moment in the file.
    """

    file: str
    name: str


SIDECAR: Final = Moment("sidecar", "running")
SUPERVISED: Final = Moment("supervised", "running")
MISTAKES: Final = "mistakes.yaml"

COMMANDS: Final[Mapping[str, str]] = {
    "status": "status training",
    "list": "list",
    "waiting": "status late",
    "restart": "restart training --in-place",
    "suspend": "suspend training",
    "resume": "resume training",
    "doctor": "doctor",
    "lint-server": "lint elsewhere.yaml --server",
}
"""Requests of ``hack/docs/record_plugin.py`` to a cluster; the answers are kept by name."""

SHOWN: Final[Mapping[str, tuple[Moment, str]]] = {
    "restarts": (SIDECAR, "restarts sidecar"),
    **{
        name: (Moment("commands", name), command)
        for name, command in COMMANDS.items()
        if name != "list"
    },
}
"""Moment and command of each text, by name."""

OFFLINE: Final[Mapping[str, str]] = {
    "lint": f"lint {MISTAKES}",
}
"""Commands that need no cluster; files are in ``hack/docs/recorded``."""

CREATE: Final = "create llm --image example.com/train:1 --nodes 4 --nproc 8 --spares 1"
PICTURES: Final[Mapping[str, tuple[Moment, str]]] = {
    "docs/images/restarts-sidecar.svg": (SIDECAR, "sidecar"),
    "docs/images/restarts-supervised.svg": (SUPERVISED, "supervised"),
}

SCREENS: Final[Mapping[str, tuple[Moment | None, str, str]]] = {
    "status": (Moment("commands", "status"), "status training", "status training --watch"),
    "list": (Moment("commands", "list"), "list", "list"),
    "create": (None, *[f"{CREATE} --dry-run -- python train.py"] * 2),
}
"""Pictures of a terminal: moment, command, and the command that is shown."""


def asked(request: HttpRequest) -> str:
    """Return the key of a recorded request: method, path, query and body."""
    query = "&".join(f"{key}={value}" for key, value in request.query)
    body = request.body.decode() if request.body and request.method == "POST" else ""
    return f"{request.method} {request.path}?{query} {body}".rstrip(" ?")


class Recorded:
    """A transport that replays the answers of one moment.

    Args:
        moment: the recorded moment.
    """

    def __init__(self, moment: Moment) -> None:
        found = json.loads((RECORDED / f"{moment.file}.json").read_text())[moment.name]
        self.now = datetime.fromisoformat(found["now"])
        self._answers = found["answers"]

    async def request(self, request: HttpRequest) -> HttpResponse:
        """Return the recorded answer to the same request."""
        found = self._answers.get(asked(request))
        if found is None:
            raise SystemExit(f"{asked(request)} is not recorded; see hack/docs/record_plugin.py")
        body = found["body"]
        text = body if isinstance(body, str) else json.dumps(body)
        return HttpResponse(found["status"], {}, text.encode())

    async def aclose(self) -> None:
        """Nothing to close."""


def printed(command: str, moment: Moment | None = None) -> str:
    """Return the output of a command, for a recorded moment or without a cluster."""
    out = io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(out))
        stack.enter_context(contextlib.chdir(RECORDED))
        if moment is not None:
            answers = Recorded(moment)
            target = Target(answers, "https://recorded:6443", "default")
            stack.enter_context(mock.patch.object(LoopClock, "now", return_value=answers.now))
            stack.enter_context(mock.patch.object(cluster, "target", return_value=target))
        plugin.main(command.split())
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip().splitlines())


def texts() -> Iterator[tuple[str, str]]:
    """Names of texts, and their content between the fences."""
    for name, (moment, command) in SHOWN.items():
        yield name, f"$ kubectl jobset {command}\n{printed(command, moment)}"
    for name, command in OFFLINE.items():
        yield name, f"$ kubectl jobset {command}\n{printed(command)}"


def page_text() -> str:
    """Return the page with its generated texts."""
    page = (ROOT / PAGE).read_text()
    for name, text in texts():
        page, count = re.subn(
            rf"(<!-- shown: {name} -->\n```text\n).*?^```$",
            lambda found, text=text: f"{found[1]}{text}\n```",
            page,
            flags=re.DOTALL | re.MULTILINE,
        )
        if count != 1:
            raise SystemExit(f"{PAGE}: <!-- shown: {name} --> has {count} text blocks, expected 1")
    return page


def picture(moment: Moment, name: str) -> str:
    """Return the file that ``restarts NAME --svg FILE`` writes."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "restarts.svg")  # noqa: PTH118 - text, for a command line
        printed(f"restarts {name} --svg {file}", moment)
        return Path(file).read_text()


def screen(name: str) -> str:
    """Return a picture of a command's output on a terminal, in its colours."""
    from rich.console import Console
    from rich.text import Text

    moment, command, shown = SCREENS[name]
    with mock.patch.object(output, "coloured", return_value=True):
        text = Text.from_ansi(f"$ kubectl jobset {shown}\n{printed(command, moment)}")
    width = max(map(len, text.plain.splitlines())) + 1
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
    console.print(text)
    picture = console.export_svg(title="kubectl jobset", unique_id=name)
    fonts = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # of another host
    return re.sub("<!--.*?-->\\s*", "", fonts.sub("", picture)).rstrip() + "\n"


def outputs() -> Iterator[tuple[str, str]]:
    """Generated files and their content."""
    for path, (moment, name) in PICTURES.items():
        yield path, picture(moment, name)
    for name in SCREENS:
        yield f"docs/images/kubectl-{name}.svg", screen(name)
    yield PAGE, page_text()


def main(argv: list[str]) -> int:
    """Write or compare; return the exit code."""
    return write_or_compare(outputs(), __doc__, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

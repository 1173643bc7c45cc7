"""Commands of the documentation: found by their marks, and run as a reader would.

The marks are explained in CONTRIBUTING.md.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import attrs

from hack.cluster._binaries import Binaries
from hack.cluster._progress import Progress
from support import patience

ROOT = Path(__file__).resolve().parents[3]
PAGES = (*sorted((ROOT / "docs/how-to").glob("*.md")), ROOT / "docs/tutorial/first-jobset.md")
PLACES = ("shell", "cluster", "node")
COPIED = ("config", "examples", "charts", "docs", "pyproject.toml", "README.md")
PAGE_TIMEOUT_S = 240.0
SEEN_LINES = 40
"""Maximum number of lines of one block's output in a transcript."""

_MARK = re.compile(r"<!-- run: (\w+)(?:: (.+?))? -->")
_SETUP = re.compile(r"<!-- setup: (\w+)")
_FENCE = re.compile(r"( *)```(\w*)")
_HERE_DOCUMENT = re.compile(r"<<-?'?(\w+)'?")
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_COMMAND = re.compile(r" {4,}\$?\s*(kubectl|helm|jobsetpy|curl|make|docker|podman|promtool)\b")


class MarkError(Exception):
    """A page does not follow the convention."""


@attrs.frozen
class Block:
    """Commands of a page."""

    line: int
    place: str
    text: str


@attrs.frozen
class Page:
    """A page and its commands, in their order."""

    path: Path
    blocks: tuple[Block, ...]
    installed: bool

    @property
    def name(self) -> str:
        return self.path.stem

    def at(self, place: str) -> tuple[Block, ...]:
        return tuple(block for block in self.blocks if block.place == place)


def read(path: Path) -> Page:
    """A page's commands; MarkError names the line that is wrong."""
    text = path.read_text()
    return Page(path, tuple(_blocks(path, text.splitlines())), "<!-- page: installed -->" in text)


def _blocks(path: Path, lines: list[str]) -> Iterator[Block]:
    def wrong(number: int, what: str) -> MarkError:
        return MarkError(f"{path.relative_to(ROOT)}:{number}: {what}")

    mark: tuple[str, str | None] | None = None
    numbers = iter(range(len(lines)))
    for at in numbers:
        line = lines[at]
        if found := _SETUP.match(line.strip()):
            if found[1] not in PLACES:
                raise wrong(at + 1, f"no such place: {found[1]}")
            body = []
            for inner in numbers:
                if lines[inner].strip() == "-->":
                    break
                body.append(lines[inner])
            else:
                raise wrong(at + 1, "a setup comment has no end")
            yield Block(at + 1, found[1], "\n".join(body))
        elif found := _MARK.fullmatch(line.strip()):
            if found[1] not in (*PLACES, "none") or (found[1] == "none") != bool(found[2]):
                raise wrong(at + 1, f"{line.strip()!r} is no mark; those are in CONTRIBUTING.md")
            mark = (found[1], found[2])
        elif found := _FENCE.match(line):
            indent, language = found[1], found[2]
            body = []
            for inner in numbers:
                if lines[inner].strip() == "```":
                    break
                body.append(lines[inner].removeprefix(indent))
            if language in ("bash", "shell", "console"):
                raise wrong(at + 1, "commands are fenced as sh")
            if language == "sh":
                if mark is None:
                    raise wrong(at + 1, "no mark before these commands")
                yield Block(at + 1, mark[0], "\n".join(body))
            elif mark is not None:
                raise wrong(at + 1, "a mark before something else than commands")
            mark = None
        elif line.strip():
            if mark is not None:
                raise wrong(at + 1, "a mark has to be right before its commands")
            if _COMMAND.match(line):
                raise wrong(at + 1, "a command that is not fenced")


def script(blocks: tuple[Block, ...]) -> str:
    """One shell script of all; each command is shown before it runs."""
    parts = ["set -euo pipefail"]
    for block in blocks:
        parts += [f"echo '=== line {block.line}'", block.text]
    return "\n".join(parts) + "\n"


def checkout(folder: Path) -> Path:
    """A copy of what commands read, in which they may write."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name)
        elif source.exists():
            shutil.copy(source, folder / name)
    return folder


def environment(kubeconfig: Path | None, *wanted: str) -> dict[str, str]:
    """Of commands: the tools are found, and the cluster."""
    tools = Binaries.find(wanted, Progress())
    folders = [str(path.parent) for path in tools.values()]
    path = os.pathsep.join([*folders, str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
    if kubeconfig is not None:
        env["KUBECONFIG"] = str(kubeconfig)
    return {**env, "PATH": path}


def tools_of(blocks: tuple[Block, ...]) -> tuple[str, ...]:
    """Which of the tools that we get ourselves the commands use."""
    text = script(blocks)
    return tuple(name for name in ("kubectl", "helm", "promtool") if re.search(rf"\b{name} ", text))


def run(blocks: tuple[Block, ...], folder: Path, env: dict[str, str]) -> str:
    """Run them; their output. A failure shows all of it, and ends what they left running."""
    log = folder / "commands.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["bash", "-c", script(blocks)],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(patience.scaled(PAGE_TIMEOUT_S))
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process.pid)
            process.wait()
    text = log.read_text(errors="replace")
    assert code == 0, f"exit code {code} (None: too long)\n{text[-6000:]}"

    return text


def seen(page: Page, place: str, output: str) -> str:
    """Input and output that a reader of a page sees, as Markdown: each block, and what it printed.

    Args:
        page: the page.
        place: mark of the blocks that were run.
        output: what ``run`` returned for them.
    """
    lines = page.path.read_text().splitlines()
    printed = re.split(r"=== line (\d+)\n", output)  # what a command printed may end anywhere
    by_line = dict(zip(map(int, printed[1::2]), printed[2::2], strict=True))
    parts, heading = [], ""
    for block in page.at(place):
        if _SETUP.match(lines[block.line - 1].strip()):
            continue
        above = _headings(lines[: block.line])
        if above and above[-1] != heading:
            heading = above[-1]
            parts += [f"### {heading.lstrip('# ')}", ""]
        shown = _COLOR.sub("", by_line[block.line]).rstrip().splitlines()
        if len(shown) > SEEN_LINES:
            left_out = f"... {len(shown) - SEEN_LINES} lines more ..."
            shown = [*shown[: SEEN_LINES - 5], left_out, *shown[-5:]]
        parts += ["```text", *_typed(block.text), *shown, "```", ""]
    return "\n".join(parts)


def _typed(text: str) -> Iterator[str]:
    """Commands after a prompt; lines that belong to the one before have the shell's other prompt."""
    end, goes_on = "", False
    for line in text.splitlines():
        yield f"{'>' if end or goes_on else '$'} {line}"
        if end:
            end = "" if line == end else end
        elif here := _HERE_DOCUMENT.search(line):
            end = here[1]
        goes_on = line.endswith("\\")


def _headings(lines: list[str]) -> list[str]:
    """The headings among some lines; comments in blocks of code are none."""
    found, fenced = [], False
    for line in lines:
        if _FENCE.match(line):
            fenced = not fenced
        elif line.startswith("#") and not fenced:
            found.append(line)
    return found


def _end(group: int) -> None:
    """End the process group that the commands were started as, such as forwarders of ports."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def renamed(archive: Path, name: str, out: Path) -> Path:
    """An image's archive under another name; a plain one is completed as runtimes do it."""
    with tarfile.open(archive) as old, tarfile.open(out, "w") as new:
        for member in old:
            if member.name in ("oci-layout", "index.json"):
                continue  # its other form, in which names have to be complete
            content = old.extractfile(member)
            if member.name == "manifest.json" and content is not None:
                manifest = json.load(content)
                for image in manifest:
                    image["RepoTags"] = [name]
                data = json.dumps(manifest).encode()
                member.size = len(data)
                content = io.BytesIO(data)
            new.addfile(member, content)
    return out

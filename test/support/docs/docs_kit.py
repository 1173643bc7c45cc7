"""Commands of the documentation, found by their marks, and run as a reader would run them.

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
README = ROOT / "README.md"
PLACES = ("shell", "cluster", "node", "fresh")
COPIED = ("config", "examples", "charts", "docs", "pyproject.toml", "README.md")
PAGE_TIMEOUT_S = 240.0
SEEN_LINES = 12
"""Maximum number of lines of one block's output in a transcript."""

_MARK = re.compile(r"<!-- run: (\w+)(?:: (.+?))? -->")
_SETUP = re.compile(r"<!-- setup: (\w+)")
_FENCE = re.compile(r"( *)```(\w*)")
_HERE_DOCUMENT = re.compile(r"<<-?'?(\w+)'?")
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_COMMAND = re.compile(r" {4,}\$?\s*(kubectl|helm|jobsetpy|curl|make|docker|podman|promtool)\b")


class MarkError(Exception):
    """A page violates the convention of marks."""


@attrs.frozen
class Block:
    """Commands of a page at one place."""

    line: int
    place: str
    text: str


@attrs.frozen
class Page:
    """A page and its commands in order."""

    path: Path
    blocks: tuple[Block, ...]
    installed: bool

    @property
    def name(self) -> str:
        return self.path.stem

    def at(self, place: str) -> tuple[Block, ...]:
        return tuple(block for block in self.blocks if block.place == place)


def read(path: Path) -> Page:
    """Return a page with its commands; MarkError names the invalid line."""
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
    """Return one shell script of all blocks; it shows each block's line before it runs."""
    parts = ["set -euo pipefail"]
    for block in blocks:
        parts += [f"echo '=== line {block.line}'", block.text]
    return "\n".join(parts) + "\n"


def checkout(folder: Path) -> Path:
    """Copy the files that commands read into a folder, in which they may write."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name)
        elif source.exists():
            shutil.copy(source, folder / name)
    return folder


def clone(folder: Path) -> Path:
    """Copy what a clone of the repository has, with changes that are not committed yet."""
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def plain_environment(state: Path) -> dict[str, str]:
    """Return the environment of a reader who has done nothing yet, except that caches are filled.

    Args:
        state: folder of the clusters that are started.
    """
    kept = {"HOME", "XDG_CACHE_HOME", "JOBSETPY_PATIENCE", "LANG"}
    env = {key: value for key, value in os.environ.items() if key in kept or "proxy" in key.lower()}
    system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {**env, "PATH": system, "JOBSETPY_STATE_DIR": str(state)}


def environment(kubeconfig: Path | None, *wanted: str) -> dict[str, str]:
    """Return the commands' environment, in which the tools and the cluster are found."""
    tools = Binaries.find(wanted, Progress())
    folders = [str(path.parent) for path in tools.values()]
    path = os.pathsep.join([*folders, str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
    if kubeconfig is not None:
        env["KUBECONFIG"] = str(kubeconfig)
    return {**env, "PATH": path}


def tools_of(blocks: tuple[Block, ...]) -> tuple[str, ...]:
    """Return the tools used by the commands that this project builds or fetches itself."""
    text = script(blocks)
    return tuple(name for name in ("kubectl", "helm", "promtool") if re.search(rf"\b{name} ", text))


def run(
    blocks: tuple[Block, ...], folder: Path, env: dict[str, str], timeout_s: float = PAGE_TIMEOUT_S
) -> str:
    """Run blocks; return their output. A failure shows all of it; processes left running are ended."""
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
            code = process.wait(patience.scaled(timeout_s))
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process.pid)
            process.wait()
    text = log.read_text(errors="replace")
    assert code == 0, f"exit code {code} (None: too long)\n{text[-6000:]}"

    return text


def seen(page: Page, place: str, output: str) -> str:
    """Return what a reader of a page sees, as Markdown: each block and its output.

    Args:
        page: the page.
        place: mark of the blocks that were run.
        output: what ``run`` returned for them.
    """
    lines = page.path.read_text().splitlines()
    printed = re.split(r"=== line (\d+)\n", output)  # output may lack a line feed at its end
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
    """Yield commands after a prompt; continued lines have the shell's second prompt."""
    end, continues = "", False
    for line in text.splitlines():
        yield f"{'>' if end or continues else '$'} {line}"
        if end:
            end = "" if line == end else end
        elif here := _HERE_DOCUMENT.search(line):
            end = here[1]
        continues = line.endswith("\\")


def _headings(lines: list[str]) -> list[str]:
    """Return the headings among some lines; comments in blocks of code are not headings."""
    found, fenced = [], False
    for line in lines:
        if _FENCE.match(line):
            fenced = not fenced
        elif line.startswith("#") and not fenced:
            found.append(line)
    return found


def _end(group: int) -> None:
    """End the process group of the commands, such as port forwarders."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def renamed(archive: Path, name: str, out: Path) -> Path:
    """Write an image's archive under another name; a plain name is completed as runtimes do."""
    with tarfile.open(archive) as old, tarfile.open(out, "w") as new:
        for member in old:
            if member.name in ("oci-layout", "index.json"):
                continue  # the archive's other form needs complete names
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

"""Build the documentation's site: a folder of static pages with search, for any web server.

    docs_site.py                 build/site, from the pages in docs/, the README and the code
    docs_site.py --out FOLDER    somewhere else

Pages are copied from the repository without changes, so that links work in both places: the sources
have the same layout under build/site-src, with the README as the first page, and a page for each
public package, generated from its docstrings. Nothing is downloaded. A broken link, a page that is
in no section, or an invalid docstring fails the build.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from hack.docs import library

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build/site"
STAGE = ROOT / "build/site-src"
SETTINGS = ROOT / "hack/docs/site"

SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "Start": (
        "docs/tutorial/first-jobset",
        "docs/how-to/kubectl",
    ),
    "Train": (
        "docs/how-to/restart-in-place",
        "docs/how-to/standby",
        "docs/how-to/launchers",
        "docs/how-to/progress",
        "docs/how-to/log-rules",
        "docs/how-to/spares",
        "docs/how-to/lost-nodes",
        "docs/how-to/devices",
        "docs/how-to/failure-policy",
        "docs/how-to/group-scheduling",
        "docs/how-to/coscheduling",
        "docs/how-to/native-gangs",
        "docs/how-to/tpu",
        "docs/how-to/elastic",
        "docs/how-to/volumes",
        "docs/how-to/pod-network",
        "docs/how-to/kueue-and-trainer",
        "docs/how-to/report",
    ),
    "Operate": (
        "docs/how-to/install",
        "docs/how-to/production",
        "docs/how-to/onboard-a-team",
        "docs/how-to/multi-tenancy",
        "docs/how-to/platform-rules",
        "docs/how-to/label-nodes",
        "docs/how-to/configure",
        "docs/how-to/operate",
        "docs/how-to/restart-in-place-operate",
        "docs/how-to/alerts",
        "docs/how-to/troubleshooting",
        "docs/how-to/upgrade",
        "docs/how-to/version-skew",
        "docs/how-to/backup",
        "docs/how-to/gitops",
        "docs/how-to/air-gap",
        "docs/how-to/migrate",
    ),
    "Write controllers": (
        "docs/tutorial/custom-controller",
        "docs/tutorial/coming-from",
        *library.pages_of("docs/reference/runtime"),
        *library.pages_of("docs/reference/testing"),
    ),
    "Explanation": (
        "docs/explanation/jobset",
        "docs/explanation/in-place-restart",
        "docs/explanation/exclusive-placement",
        "docs/explanation/group-scheduling",
        "docs/explanation/coscheduling",
        "docs/explanation/faults",
        "docs/explanation/security",
        "docs/explanation/known-limitations",
    ),
    "Reference": (
        "docs/reference/glossary",
        "docs/reference/annotations",
        "docs/reference/agent",
        "docs/reference/jobset",
        "docs/reference/metrics",
        "docs/reference/dashboard",
        "docs/reference/clients",
        "docs/reference/versions",
        "charts/jobsetpy/README",
        "examples/README",
    ),
    "Project": (
        "ARCHITECTURE",
        "CONTRIBUTING",
        "SECURITY",
        "hack/release/README",
        "bench/walk-user",
        "bench/walk-operator",
        "bench/README",
        "test/README",
        "CHANGELOG",
    ),
}
"""Pages of each section, in the order of the navigation."""

UNSEARCHED: Final = ("bench/", "test/README", "CHANGELOG")
"""Beginnings of pages that search leaves out: they have every word."""

BUTTONS: Final = (
    ("Start in five minutes", "docs/tutorial/first-jobset"),
    ("Install in a cluster", "docs/how-to/install"),
)
"""Texts and pages of the buttons on the first screen."""

FOLDERS: Final = ("docs", "examples")
"""Copied as a whole: pages, and the files that they link to."""

_MARK: Final = re.compile(r'^<a id="([\w-]+)"></a>$', re.MULTILINE)
"""An anchor other than a heading, in GitHub's notation."""
_TO_FILE: Final = re.compile(r"\[([^\]]+)\]\(([^)\s:#]+)(?:#[\w-]+)?\)")
_RECORDED: Final = re.compile(r"^(!\[[^\]]*\]\([^)\s]+)-1280\.png\)$", re.MULTILINE)
"""A picture that is also recorded for phones; the style sheet shows the one that fits."""
_PICTURE: Final = re.compile(r"^!\[[^\]]*\]\(([^)\s]+\.(?:svg|png))\)$", re.MULTILINE)
"""A picture by itself; it becomes a link to its file, which a phone shows larger."""
_LINK: Final = re.compile(r"\]\([^)\s#]*#([\w-]+)\)")


def pages() -> list[str]:
    """Return all pages except the first one, without their suffix."""
    return [page for section in SECTIONS.values() for page in section]


def index_text() -> str:
    """Return the first page: the README, and the sections for the navigation."""
    title, about, rest = (ROOT / "README.md").read_text().split("\n\n", 2)
    links = (f'<a class="button" href="{page}.html">{text}</a>' for text, page in BUTTONS)
    out = [title, "", about, "", f'<p class="buttons">{" ".join(links)}</p>', "", rest]
    for caption, listed in SECTIONS.items():
        out += ["```{toctree}", f":caption: {caption}", ":hidden:", "", *listed, "```", ""]
    return "\n".join(out)


def lay_out(stage: Path) -> None:
    """Copy the sources to the folder that the site's generator reads."""
    shutil.rmtree(stage, ignore_errors=True)
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, stage / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for page in pages():
        source, copy = ROOT / f"{page}.md", stage / f"{page}.md"
        if source.exists() and not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy)
    for package in library.PACKAGES:
        for page, text in library.page_texts(package):
            (stage / f"{page}.rst").write_text(text)
    (stage / "index.md").write_text(index_text())
    pages_with_marks = {path: path.read_text() for path in stage.rglob("*.md")}
    marks = {mark for text in pages_with_marks.values() for mark in _MARK.findall(text)}
    for path, text in pages_with_marks.items():
        text = with_targets(with_files(text, path.relative_to(stage), stage), marks)
        unsearched = str(path.relative_to(stage)).startswith(UNSEARCHED)
        path.write_text(f"---\nnosearch: true\n---\n{text}" if unsearched else text)


def with_files(text: str, page: Path, stage: Path) -> str:
    """Copy files that a page links to; links to pages outside of the site become plain text."""

    def link(found: re.Match[str]) -> str:
        path = Path(os.path.normpath(page.parent / found[2]))
        if (stage / path).exists() or not (ROOT / path).exists():
            return found[0]
        if (ROOT / path).is_dir() or path.suffix == ".md":
            return found[1]
        (stage / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, stage / path)
        return found[0]

    text = _RECORDED.sub(r"\g<0>\n\n\1-390.png)", _TO_FILE.sub(link, text))
    return _PICTURE.sub(r"[\g<0>](\1)", text)


def with_targets(text: str, marks: Collection[str]) -> str:
    """Convert manual anchors, and links to them, to the generator's notation."""
    text = _MARK.sub(r"(\1)=", text)
    return _LINK.sub(lambda link: f"](#{link[1]})" if link[1] in marks else link[0], text)


def main(argv: list[str]) -> int:
    """Build the site; return the exit code."""
    from sphinx.cmd.build import build_main

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=SITE)
    out = parser.parse_args(argv).out
    lay_out(STAGE)
    shutil.rmtree(out, ignore_errors=True)
    strict = ("--fail-on-warning", "--keep-going", "--fresh-env", "--quiet")
    state = ("--doctree-dir", str(STAGE.with_name("site-doctrees")), "--conf-dir", str(SETTINGS))
    code = build_main(["--builder", "html", *strict, *state, str(STAGE), str(out)])
    if code == 0:
        print(f"{out}: {len(pages()) + 1} pages; open {out / 'index.html'}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

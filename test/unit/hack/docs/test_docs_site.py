"""The documentation: every page is in a section, links have targets, references are complete."""

import functools
import importlib
import re
from pathlib import Path

import pytest

from hack.docs import docs_site, library
from hack.docs.site import sequence, tables
from hack.generate import update_reference
from jobsetpy.api import schema

ROOT = Path(__file__).resolve().parents[4]
FENCED = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)


@functools.cache
def prose(path):
    """Text of a page without fenced blocks."""
    return FENCED.sub("", path.read_text())


@functools.cache
def anchors(path):
    """Anchors of headings, as GitHub and the site derive them, and explicit anchors."""
    found = set(re.findall(r'^<a id="(.+?)"></a>$', path.read_text(), re.MULTILINE))
    for heading in re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE):
        text = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-")
        found.add(name if name not in found else f"{name}-1")
    return found


def test_every_page_is_in_a_section_once():
    """Readers can find every page."""
    generated = [each for page in library.PACKAGES for each in library.pages_of(page)]
    pages = [page for page in docs_site.pages() if page not in generated]
    written = [path.relative_to(ROOT).with_suffix("") for path in ROOT.glob("docs/*/*.md")]

    assert len(set(pages)) == len(pages)
    assert {page for page in pages if page.startswith("docs/")} == set(map(str, written))
    assert [page for page in pages if not (ROOT / f"{page}.md").exists()] == []


@pytest.mark.parametrize(("page", "name"), library.PACKAGES.items())
def test_public_names_are_described_once(page, name):
    """Each exported name is on the page of its task; tasks have no other names."""
    names = library.public_names(importlib.import_module(name))
    text = "\n".join(text for _, text in library.page_texts(page))
    listed = " ".join(task.names for task in library.TASKS[page].values()).split()
    described = re.findall(r"^\.\. auto(?:class|data|function):: (\w+)$", text, re.MULTILINE)
    assert sorted(described) == names
    assert set(listed) <= set(names)


@pytest.mark.parametrize(("page", "name"), library.PACKAGES.items())
def test_each_public_name_has_a_description(page, name):
    """An alias of a type has the text below it; no cell of a table is empty."""
    package = importlib.import_module(name)
    empty = [each for each in library.public_names(package) if not library._text(package, each)]

    assert empty == []


def test_buttons_of_the_first_screen_lead_to_pages():
    """Their links are HTML, which the site's build does not check."""
    assert {page for _, page in docs_site.BUTTONS} <= set(docs_site.pages())


def test_recorded_picture_is_there_for_both_widths(tmp_path):
    """Each is a link to its file; the style sheet shows one of them."""
    found = docs_site.with_files("![a b](x/y-1280.png)", Path("page.md"), tmp_path)
    pictures = [f"[![a b](x/y-{width}.png)](x/y-{width}.png)" for width in (1280, 390)]

    assert found == "\n\n".join(pictures)


def test_cells_of_wide_tables_have_labels():
    """A narrow table stays as it is; a cell with a dash is left out of blocks."""
    head = "<table><thead><tr><th>a</th><th>b</th>{}</tr></thead><tbody><tr><td>1</td><td>–</td>{}"
    narrow = head.format("", "") + "</tr></tbody></table>"
    wide = tables.labelled(head.format("<th>c</th>", "<td>3</td>") + "</tr></tbody></table>")
    assert tables.labelled(narrow) == narrow
    assert '<td data-label="b" data-empty>–</td><td data-label="c">3</td>' in wide


class TestFields:
    def test_every_field_is_reported(self):
        """The page has all fields of the CRD, except those inside types of other APIs."""
        (version,) = schema.jobset_crd()["spec"]["versions"]
        properties = version["schema"]["openAPIV3Schema"]["properties"]
        text = update_reference.page_text()
        ahead = [(name, properties[name]) for name in ("spec", "status")]
        missing = []
        while ahead:
            path, of = ahead.pop()
            table = re.search(
                rf"^#+ {re.escape(path)}\n(.*?)(?=^#|\Z)", text, re.DOTALL | re.MULTILINE
            )
            for name, field in of["properties"].items():
                if not table or f"`{name}`" not in table[1]:
                    missing.append(f"{path}.{name}")
                inner = field.get("items", field)
                others = table and re.search(
                    rf"`{name}`(?:\]\([^)]*\))? \| \*[^*|]* of [\w.]+/v", table[1]
                )
                if "properties" in inner and not others and name not in ("template", "templates"):
                    ahead.append((f"{path}.{name}", inner))
        assert missing == []

    @pytest.mark.parametrize(
        "line",
        [
            "`default` by default*: Group of ReplicatedJobs",
            "| `replicas` | *integer, `1` by default*: Number",
            "created from the template.<br>*Valid:* at least 0. |",
            "| `template` | *JobTemplateSpec of batch/v1, required*:",
            "| `templates` | *list of PersistentVolumeClaim of v1*:",
            "| [`successPolicy`](#specsuccesspolicy) | *object*:",
            "all Jobs have to succeed.<br>*Valid:* cannot be changed. |",
            "*Valid:* one of `Ready`, `Complete`.",
            "| `countedTimes` | *list of time*:",
        ],
    )
    def test_a_field_has_type_default_text_and_limits(self, line):
        """They are those of the CRD."""
        assert line in update_reference.page_text()


class TestSequenceDiagrams:
    @pytest.mark.parametrize(
        "text", ["graph TD", "sequenceDiagram\nparticipant A as a\nloop x\nend"]
    )
    def test_unknown_syntax_is_refused(self, text):
        """The error has the line, so that no picture is incomplete."""
        with pytest.raises(sequence.DiagramError, match=r"not drawn: (graph TD|loop x)"):
            sequence.svg(text.splitlines())

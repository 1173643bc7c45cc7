"""Examples and pages need the public modules only; ``jobsetpy.runtime`` is complete."""

import ast
import re
import textwrap
from pathlib import Path

import pytest

from jobsetpy import errors
from jobsetpy import runtime as rt

REPOSITORY = Path(__file__).resolve().parents[3]
PUBLIC = ("jobsetpy.runtime", "jobsetpy.submit", "jobsetpy.testing")
SOURCES = [
    *REPOSITORY.glob("examples/**/*.py"),
    *REPOSITORY.glob("docs/tutorial/*.md"),
    *REPOSITORY.glob("docs/how-to/*.md"),
]


def code(path: Path) -> list[str]:
    """Python code of a file, or of the fenced blocks of a page, also inside lists."""
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        return [text]
    return [textwrap.dedent(block) for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]


def imports(text: str) -> set[str]:
    """Imports from jobsetpy, as ``module`` or ``module.name``."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            if node.module == "jobsetpy":
                found |= {f"jobsetpy.{each.name}" for each in node.names}
            else:
                found.add(node.module)
    return {name for name in found if name.partition(".")[0] == "jobsetpy"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_examples_and_tutorials_import_public_names_only(path):
    """A copy of an example depends only on stable names."""
    for text in code(path):
        assert imports(text) <= set(PUBLIC), path


def test_every_error_is_public():
    """A reconciler can name every error that it may have to catch."""
    found = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert found <= set(vars(rt))

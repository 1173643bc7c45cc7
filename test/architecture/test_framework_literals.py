"""The framework does not know JobSets: their names are passed to it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src/jobsetpy"
FRAMEWORK = (
    *("aio", "client", "controller", "informers", "manager", "observability", "runtime"),
    *("serving", "workqueue"),
)


def literals(tree: ast.Module) -> Iterator[ast.Constant]:
    """Yield the strings of a module, without docstrings and other strings that are statements."""
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            yield node


@pytest.mark.parametrize("folder", FRAMEWORK)
def test_framework_has_no_literal_of_jobset(folder):
    """Labels, namespaces and names of JobSet are parameters, as for any other program."""
    found = [
        f"{file.relative_to(SOURCE)}:{literal.lineno}: {literal.value!r}"
        for file in sorted((SOURCE / folder).rglob("*.py"))
        for literal in literals(ast.parse(file.read_text()))
        if re.search(r"(?i)\bjobsets?\b", literal.value)
    ]
    assert found == []

"""Each part of a shared record has one writer."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "jobsetpy"
GANGS = ROOT / "coscheduler" / "gang_scheduler"
EPOCHS = ROOT / "reconcilers" / "restart_in_place"

GANG_RECORDS = {"held": "holding.py"}
EPOCH_PARTS = {
    "Waiting": "steps/waiting.py",
    "RunSoFar": "history/measure.py",
    "Heard": "detection/silence.py",
    "SparesShown": "observed/spare_counts.py",
}


def trees(folder: Path) -> Iterator[tuple[str, ast.Module]]:
    """Yield the modules of a folder with their paths in it."""
    for path in sorted(folder.rglob("*.py")):
        yield str(path.relative_to(folder)), ast.parse(path.read_text())


def written(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the targets of all assignments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from target.elts if isinstance(target, ast.Tuple) else [target]
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            yield node.target


@pytest.mark.parametrize("record", GANG_RECORDS)
def test_record_of_a_gang_is_written_by_one_part(record: str) -> None:
    """The others read it, or call a method of the part."""
    writers = {
        path
        for path, tree in trees(GANGS)
        for target in written(tree)
        if isinstance(target, ast.Attribute) and ast.unparse(target.value).endswith(f".{record}")
    }
    assert writers == {GANG_RECORDS[record]}


@pytest.mark.parametrize("part", EPOCH_PARTS)
def test_part_of_the_state_of_epochs_is_made_by_one_module(part: str) -> None:
    """Others use an empty one, or what a method returns."""
    makers = {
        path
        for path, tree in trees(EPOCHS)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and (node.args or node.keywords)
        and ast.unparse(node.func).rpartition(".")[2] in {part, "cls"}
        and (ast.unparse(node.func) != "cls" or f"class {part}" in ast.unparse(tree))
    }
    assert makers == {EPOCH_PARTS[part]}

"""Groups of tests are skipped only if nothing has changed since they passed."""

import re

import pytest

from hack.ci import unchanged
from hack.ci.unchanged import CLIENTS, CLUSTER

INPUT = "src/jobsetpy/reconcilers/rules/rule.py"
PASS, FAIL = ("true",), ("false",)
"""Programs that are run instead of pytest."""


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A small checkout with its own cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("FORCE", raising=False)
    checkout = tmp_path / "checkout"
    for name, text in (
        (INPUT, "RULE = 1\n"),
        ("README.md", "words\n"),
        ("pyproject.toml", ""),
        ("test/conftest.py", ""),
        ("test/clients/test_one.py", "def test_one(): pass\n"),
    ):
        path = checkout / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return checkout


@pytest.mark.parametrize(
    ("group", "name", "counts"),
    [
        (CLIENTS, INPUT, True),
        (CLIENTS, "config/new.yaml", True),
        (CLIENTS, "hack/cluster/gomod_kueue/go.mod", True),
        (CLIENTS, "test/clients/test_one.py", True),
        (CLIENTS, "test/support/kit.py", True),
        (CLIENTS, "README.md", False),
        (CLIENTS, "test/unit/test_other.py", False),
        (CLIENTS, "src/jobsetpy/__pycache__/rule.pyc", False),
        (CLUSTER, INPUT, False),
        (CLUSTER, "config/new.yaml", False),
        (CLUSTER, "hack/cluster/_nodes.py", True),
        (CLUSTER, "hack/images/basic.py", True),
        (CLUSTER, "test/unit/hack/cluster/test_node.py", True),
        (CLUSTER, "test/support/patience.py", True),
    ],
)
def test_only_inputs_of_the_tests_count_as_changes(root, group, name, counts):
    """Inputs are the tests, their support, versions and manifests; code only where it is tested."""
    before = group.fingerprint(root)
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("changed\n")
    assert (group.fingerprint(root) != before) is counts


def test_another_version_of_the_servers_counts(root, monkeypatch):
    """Versions may also be set in the environment."""
    before = CLIENTS.fingerprint(root)
    monkeypatch.setenv("JOBSETPY_KUBERNETES_VERSION", "1.99.0")
    assert CLIENTS.fingerprint(root) != before


def test_tests_are_skipped_after_all_have_passed(root, monkeypatch):
    """They run again with FORCE, and after a change."""
    assert CLIENTS.why_not(root) == ""
    assert unchanged.run([], root, PASS) == 0
    assert "FORCE=1" in CLIENTS.why_not(root)
    monkeypatch.setenv("FORCE", "1")
    assert CLIENTS.why_not(root) == ""
    monkeypatch.delenv("FORCE")
    (root / INPUT).write_text("RULE = 2\n")
    assert CLIENTS.why_not(root) == ""


def test_neither_a_failure_nor_a_part_is_remembered(root):
    """Tests that did not all pass run again."""
    assert unchanged.run(["-k", "one"], root, PASS) == 0
    assert CLIENTS.why_not(root) == ""
    assert unchanged.run([], root, FAIL) == 1
    assert CLIENTS.why_not(root) == ""


def test_cluster_tool_and_its_tests_import_only_inputs():
    """Otherwise a change could break them unnoticed."""
    imports = re.compile(r"^\s*(?:from|import) ((?:jobsetpy|hack|support)[\w.]*)", re.MULTILINE)
    found = set()
    for place in (CLUSTER.place, "hack/cluster", "hack/images"):
        for file in (unchanged.ROOT / place).glob("*.py"):
            found |= set(imports.findall(file.read_text()))
    allowed = ("hack.cluster", "hack.images", "support")
    assert [
        each for each in found if not f"{each}.".startswith(tuple(f"{a}." for a in allowed))
    ] == []


def test_every_input_exists():
    """Otherwise a renamed folder would not be noticed."""
    inputs = {each for group in unchanged.GROUPS for each in (group.place, *group.inputs)}
    missing = [each for each in inputs if not (unchanged.ROOT / each).exists()]
    assert missing == []

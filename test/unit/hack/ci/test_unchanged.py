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
    ("name", "counts"),
    [
        (INPUT, True),
        ("config/new.yaml", True),
        ("hack/cluster/gomod_kueue/go.mod", True),
        ("test/clients/test_one.py", True),
        ("test/support/kit.py", True),
        ("README.md", False),
        ("test/unit/test_other.py", False),
        ("src/jobsetpy/__pycache__/rule.pyc", False),
    ],
)
def test_only_inputs_of_the_tests_count_as_changes(root, name, counts):
    """Inputs are code, manifests, versions and the tests themselves."""
    before = CLIENTS.fingerprint(root)
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("changed\n")
    assert (CLIENTS.fingerprint(root) != before) is counts


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


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        (INPUT, False),
        ("config/new.yaml", False),
        ("hack/cluster/_nodes.py", True),
        ("hack/images/basic.py", True),
        ("test/unit/hack/cluster/test_node.py", True),
        ("test/support/patience.py", True),
    ],
)
def test_tests_of_the_cluster_tool_do_not_depend_on_the_product(root, name, counts):
    """They run again when the tool changes, its images, or the tests' own support."""
    before = CLUSTER.fingerprint(root)
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("changed\n")
    assert (CLUSTER.fingerprint(root) != before) is counts


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

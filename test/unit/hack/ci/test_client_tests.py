"""Tests with other projects' clients are skipped only if nothing has changed since they passed."""

import pytest

from hack.ci import client_tests

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
    before = client_tests.fingerprint(root)
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("changed\n")
    assert (client_tests.fingerprint(root) != before) is counts


def test_another_version_of_the_servers_counts(root, monkeypatch):
    """Versions may also be set in the environment."""
    before = client_tests.fingerprint(root)
    monkeypatch.setenv("JOBSETPY_KUBERNETES_VERSION", "1.99.0")
    assert client_tests.fingerprint(root) != before


def test_tests_are_skipped_after_all_have_passed(root, monkeypatch):
    """They run again with FORCE, and after a change."""
    assert client_tests.why_not(root) == ""
    assert client_tests.run([], root, PASS) == 0
    assert "FORCE=1" in client_tests.why_not(root)
    monkeypatch.setenv("FORCE", "1")
    assert client_tests.why_not(root) == ""
    monkeypatch.delenv("FORCE")
    (root / INPUT).write_text("RULE = 2\n")
    assert client_tests.why_not(root) == ""


def test_neither_a_failure_nor_a_part_is_remembered(root):
    """Tests that did not all pass run again."""
    assert client_tests.run(["-k", "one"], root, PASS) == 0
    assert client_tests.why_not(root) == ""
    assert client_tests.run([], root, FAIL) == 1
    assert client_tests.why_not(root) == ""


def test_every_input_exists():
    """Otherwise a renamed folder would not be noticed."""
    missing = [each for each in client_tests.INPUTS if not (client_tests.ROOT / each).exists()]
    assert missing == []

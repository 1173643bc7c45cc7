"""Tests with other projects' clients are left out only where nothing changed since they passed."""

import pytest

from hack.ci import client_tests

INPUT = "src/jobsetpy/reconcilers/rules/rule.py"
PASS, FAIL = ("true",), ("false",)
"""What is run in place of pytest."""


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A small checkout, and a memory of its own."""
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
def test_what_counts_as_a_change(root, name, counts):
    """Code, manifests, versions and the tests themselves; not what they never read."""
    before = client_tests.fingerprint(root)
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("changed\n")
    assert (client_tests.fingerprint(root) != before) is counts


def test_another_version_of_the_servers_counts(root, monkeypatch):
    """Versions may also come by the environment."""
    before = client_tests.fingerprint(root)
    monkeypatch.setenv("JOBSETPY_KUBERNETES_VERSION", "1.99.0")
    assert client_tests.fingerprint(root) != before


def test_a_pass_of_all_is_remembered(root, monkeypatch):
    """They run on a fresh machine, not again, but with FORCE, and after a change."""
    assert client_tests.why_not(root) == ""
    assert client_tests.run([], root, PASS) == 0
    assert "FORCE=1" in client_tests.why_not(root)
    monkeypatch.setenv("FORCE", "1")
    assert client_tests.why_not(root) == ""
    monkeypatch.delenv("FORCE")
    (root / INPUT).write_text("RULE = 2\n")
    assert client_tests.why_not(root) == ""


def test_neither_a_failure_nor_a_part_is_remembered(root):
    """What has not passed as a whole runs again."""
    assert client_tests.run(["-k", "one"], root, PASS) == 0
    assert client_tests.why_not(root) == ""
    assert client_tests.run([], root, FAIL) == 1
    assert client_tests.why_not(root) == ""


def test_every_input_is_there():
    """A renamed folder would go unnoticed otherwise."""
    missing = [each for each in client_tests.INPUTS if not (client_tests.ROOT / each).exists()]
    assert missing == []

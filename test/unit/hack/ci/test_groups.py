"""Each test is in one group, and files are left out only where none of a group can be."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hack.ci import groups, run_tests
from hack.ci.groups import Group

ALL = (run_tests.SHOWN, *run_tests.BEHIND, run_tests.CLIENTS)
FILES = {
    "a/test_pure.py": "def test_it(): pass",
    "a/test_mixed.py": "import pytest\n@pytest.mark.cluster\ndef test_it(): pass",
    "a/test_servers.py": "pytestmark = pytest.mark.cluster\n# see mark.node",
    "b/test_many.py": "pytestmark = [\n    pytest.mark.cluster,\n    pytest.mark.node,\n]\n",
    "b/conftest.py": "pytest.mark.faults",
}


def files(folder, texts):
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    "folder", ["test/contract", "test/integration/docs", "test/integration/agents", "test/e2e"]
)
def test_each_test_is_in_one_group(folder):
    """Whatever marks it has, and wherever it is; but for those with targets of their own."""
    told_apart = groups.MARKS[:4]
    for count in range(len(told_apart) + 1):
        for marks in itertools.combinations(told_apart, count):
            has = {mark: mark in marks for mark in groups.MARKS}
            holders = [
                group.what
                for group in ALL
                if eval(group.marks, {}, has)
                and group.holds(Path("/root", folder, "test_it.py"), Path("/root"))
            ]
            assert len(holders) == 1, (marks, holders)


def test_places_of_groups_exist_when_files_move():
    """A file or folder that is named wrongly would leave its tests to another group in silence."""
    root = Path(__file__).resolve().parents[4]
    places = {place for group in ALL for place in (*group.inside, *group.outside)}

    assert {place for place in places if not (root / place).exists()} == set()


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (Group("pure", without=("cluster", "node")), ["a/test_mixed.py", "a/test_pure.py"]),
        (
            Group("servers", wants=("cluster",)),
            ["a/test_mixed.py", "a/test_servers.py", "b/test_many.py"],
        ),
        (
            Group("no nodes", wants=("cluster",), without=("node",)),
            ["a/test_mixed.py", "a/test_servers.py"],
        ),
        (Group("faults", wants=("faults",)), ["b/test_many.py"]),
        (Group("here", inside=("b",)), ["b/test_many.py"]),
        (Group("there", wants=("cluster",), outside=("a",)), ["b/test_many.py"]),
    ],
    ids=lambda value: getattr(value, "what", ""),
)
def test_files_that_a_group_may_be_in(tmp_path, group, expected):
    """A mark may be one test's, the module's or the folder's."""
    root = files(tmp_path, FILES)
    found = [
        str(file.relative_to(root))
        for file in sorted(root.rglob("test_*.py"))
        if group.may_be_in(file, root)
    ]
    assert found == expected


def collected(folder, group, *words):
    """What pytest says of the tests of a group in a folder."""
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  cluster\n  node\n")
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *words, *group.arguments]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=folder, env=env, check=False, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_a_file_of_another_place_belongs_to_none_else(tmp_path):
    """Though it was asked for by name, which has pytest collect it."""
    folder = files(tmp_path, {"a/test_it.py": "def test_it(): pass"})
    assert collected(folder, Group("b", outside=("a",)), "a/test_it.py")[0] == run_tests.NO_TESTS
    assert collected(folder, Group("a", inside=("a",)), "a/test_it.py")[0] == 0


def test_a_mark_that_cannot_be_seen_is_refused(tmp_path):
    """Its group would leave the file out."""
    texts = {
        "marks.py": "import pytest\nSERVERS = getattr(pytest.mark, 'cluster')",
        "test_it.py": "from marks import SERVERS\n@SERVERS\ndef test_it(): pass",
    }
    code, said = collected(files(tmp_path, texts), Group("pure", without=("cluster",)))
    assert code == pytest.ExitCode.USAGE_ERROR
    assert "test_it.py::test_it has the mark cluster, which neither its file nor" in said

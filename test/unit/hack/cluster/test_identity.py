"""Identity of processes: a process that reuses a pid gets no signal."""

import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from hack.cluster._identity import ProcessId, find_child

SLEEP = [sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"]


@pytest.fixture
def child():
    """A process that waits."""
    with subprocess.Popen(SLEEP) as process:
        yield process
        process.kill()


def test_a_process_is_identified_by_its_start_time(child):
    """The same pid with another start time, or of another boot, is another process."""
    identity = ProcessId.of(child.pid)
    assert identity.alive()
    assert ProcessId.from_json(identity.to_json()) == identity
    assert not replace(identity, start_time=identity.start_time + 1).alive()
    assert not replace(identity, boot="another").alive()


def test_a_recycled_pid_gets_no_signal(child):
    """A signal for the old process does not reach the new one."""
    stranger = replace(ProcessId.of(child.pid), start_time=1)
    assert stranger.send(signal.SIGKILL) is False
    stranger.end(grace_s=0.0)
    assert child.poll() is None


def test_children_are_found_by_their_inner_pid(tmp_path):
    """A process of a nested pid namespace is found by its pid there."""
    for pid, parent, inner in ((10, 1, 1), (11, 10, 3), (12, 10, 4)):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "stat").write_text(f"{pid} (x) S {parent} " + "0 " * 40)
        (folder / "status").write_text(f"Name:\tx\nNSpid:\t{pid}\t{inner}\n")
    (tmp_path / "uptime").touch()
    assert find_child(1, proc=tmp_path) == 10
    assert find_child(10, inner_pid=4, proc=tmp_path) == 12
    assert find_child(10, inner_pid=9, proc=tmp_path) is None

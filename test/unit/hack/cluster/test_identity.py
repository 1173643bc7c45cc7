"""Identity of processes: a process that reuses a pid gets no signal."""

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from hack.cluster._identity import ProcessId, boot_id, find_child, patient, stat_fields, wait_until
from support import patience

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


def test_end_ends_the_process(child):
    """SIGTERM is sufficient for a process that handles it."""
    ProcessId.of(child.pid).end(grace_s=10.0)
    assert child.wait(patience.scaled(10)) == -signal.SIGTERM


def test_an_ended_process_has_no_identity(child):
    """A zombie counts as ended, and is gone after it was waited for."""
    identity = ProcessId.of(child.pid)
    child.kill()
    assert identity.wait(patience.scaled(10.0))
    assert not identity.alive()
    child.wait(patience.scaled(10))
    assert ProcessId.of(child.pid) is None
    assert identity.cpu_seconds() == 0.0
    assert identity.rss_bytes() == 0


def test_a_command_name_may_have_brackets(tmp_path):
    """The name in /proc/PID/stat may contain blanks and brackets."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text("7 (a b) c) S 1 2 3")
    assert stat_fields(7, tmp_path) == ["S", "1", "2", "3"]


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


def test_usage_of_the_own_process():
    """CPU time and memory of a running process are not zero."""
    me = ProcessId.of(os.getpid())
    assert me.boot == boot_id()
    assert me.cpu_seconds() > 0
    assert me.rss_bytes() > 1 << 20


def test_wait_until_ends_at_its_time_limit():
    """It returns whether the condition became true in time."""
    answers = iter([False, True])
    assert wait_until(lambda: next(answers), 5.0, 0.0)
    assert not wait_until(lambda: False, 0.0, 0.0)


@pytest.mark.parametrize(("factor", "seconds"), [(None, 10.0), ("", 10.0), ("2.5", 25.0)])
def test_limits_grow_with_patience(monkeypatch, factor, seconds):
    """A busy machine needs longer to start a cluster."""
    monkeypatch.delenv("JOBSETPY_PATIENCE", raising=False)
    if factor is not None:
        monkeypatch.setenv("JOBSETPY_PATIENCE", factor)
    assert patient(10.0) == seconds

"""``kubectl jobset`` against a real API server: output on a terminal, findings of the doctor.

The manager is a process of its own; the test simulates the agents.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import signal
import struct
import sys
import termios

import pytest

from jobsetpy.api.jobset import JobSet
from support import patience
from support.cluster.account import account_kubeconfig
from support.cluster.manager_process import manager_process
from support.cluster.objects import in_place_jobset
from support.restarts.epoch_reports import pod_names, report_epoch

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(180)]

PLUGIN = (sys.executable, "-m", "jobsetpy.kubectl.main")
LEAVES = "\x1b[?1049l"
"""Sequence by which a program restores a terminal's screen."""


class Terminal:
    """A terminal of 120 by 40 characters, and all of its output."""

    def __init__(self) -> None:
        self.ours, self.theirs = pty.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.seen = b""
        asyncio.get_running_loop().add_reader(self.ours, self._read)

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the last writer has closed it
            self.seen += os.read(self.ours, 65536)
            return
        asyncio.get_running_loop().remove_reader(self.ours)

    async def shows(self, *parts: str) -> None:
        """Wait until all of these have been written since the call."""
        wanted, began = [part.encode() for part in parts], self.seen
        try:
            await patience.eventually(
                lambda: all(part in self.seen[len(began) :] for part in wanted), 30, poll_s=0.1
            )
        except AssertionError:
            pytest.fail(f"not shown: {parts}\n{self.seen.decode(errors='replace')[-4000:]}")

    def close(self) -> None:
        """Close the terminal."""
        asyncio.get_running_loop().remove_reader(self.ours)
        for each in (self.ours, self.theirs):
            os.close(each)


async def plugin(cluster, namespace, *words, on=asyncio.subprocess.PIPE):
    """Start a command of the plugin."""
    return await asyncio.create_subprocess_exec(
        *PLUGIN, words[0], f"--kubeconfig={cluster.kubeconfig}", f"--namespace={namespace}",
        *words[1:], stdin=on, stdout=on, stderr=on, env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip


async def test_status_is_drawn_through_a_restart(cluster, client, namespace, tmp_path):
    """Each second the barrier, the pods that block it, the restart; Ctrl-C restores the screen."""
    async with manager_process(cluster.kubeconfig, tmp_path / "log"):
        await client.create(JobSet, namespace, in_place_jobset("seen", jobs=1, pods=2))
        pods = await pod_names(client, namespace, 2)
        terminal = Terminal()
        process = await plugin(cluster, namespace, "status", "seen", "--watch", on=terminal.theirs)
        try:
            await terminal.shows(f"{namespace}/seen", "barrier of epoch 1 is closed", pods[1])
            await report_epoch(client, namespace, 1, *pods)
            await terminal.shows("epoch 1: workers run")
            await report_epoch(client, namespace, 2, pods[0])
            await terminal.shows("barrier of epoch 2 is closed", f"waits for {pods[1]}")
            await report_epoch(client, namespace, 2, pods[1])
            await terminal.shows("restarts: 1 in place", "epoch 2: workers run")
            process.send_signal(signal.SIGINT)
            async with patience.timeout(20):
                code = await process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            terminal.close()
        await client.delete(JobSet, namespace, "seen")
    text = terminal.seen.decode()
    assert (code, LEAVES in text, "Traceback" in text) == (130, True, False)


CREATE = ("create", "made", "--image", "r/x:1", "--nodes", "2")
PROGRAM = ("--", "python", "train.py")


async def test_create_says_why_it_cannot(cluster, client, namespace, tmp_path):
    """The namespace does not exist, the user has no rights, or there is one of this name."""
    account = await account_kubeconfig(client, cluster.kubeconfig, tmp_path, namespace, "default")
    cases = (
        (("--namespace=nowhere",), 'namespaces "nowhere" not found'),
        ((f"--kubeconfig={account}",), "Error from server (Forbidden): jobsets.jobset.x-k8s.io is"),
        (("--dry-run=server",), ""),
        ((), ""),
        ((), 'jobsets.jobset.x-k8s.io "made" already exists'),
    )
    found = []
    for words, _ in cases:
        where = {"--kubeconfig": f"{cluster.kubeconfig}", "--namespace": namespace}
        where |= dict(each.split("=") for each in words if each.split("=")[0] in where)
        flags = [f"{key}={value}" for key, value in where.items()]
        flags += [each for each in words if each.split("=")[0] not in where]
        process = await asyncio.create_subprocess_exec(
            *PLUGIN, *CREATE, *flags, *PROGRAM,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        err = (await process.communicate())[1].decode()
        found.append((process.returncode, err))

    assert [code for code, _ in found] == [1, 1, 0, 0, 1], found
    for (_, message), (_, err) in zip(cases, found, strict=True):
        assert message in err
    await client.delete(JobSet, namespace, "made")


async def says(process, text):
    """Read lines of a command's errors up to one with a text."""
    while text not in (line := (await process.stderr.readline()).decode()):
        assert line, f"it ends without {text!r}"


@pytest.mark.faults
@pytest.mark.parametrize("flag", ["--wait", "--follow"])
async def test_create_waits_through_an_outage(cluster, client, namespace, flag):
    """It says so meanwhile, and ends as the JobSet does once the API server answers again."""
    process = await plugin(cluster, namespace, *CREATE, flag, *PROGRAM)
    try:
        async with patience.timeout(120):
            await says(process, "made is")
            await asyncio.to_thread(cluster.stop_apiserver, kill=True)
            try:
                await says(process, "The connection to the server")
            finally:
                await asyncio.to_thread(cluster.start_apiserver)
            await says(process, "made is")
            ended = {"type": "Completed", "status": "True", "reason": "AllJobsCompleted"}
            ended |= {"message": "done", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            status = {"status": {"conditions": [ended]}}
            await client.merge_patch(JobSet, namespace, "made", status, subresource="status")
            _, err = await process.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    assert (process.returncode, b"Traceback" in err) == (0, False), err


async def test_doctor_has_a_command_for_each_problem(cluster, namespace, client):
    """All checks run; each finding has a command that fixes it."""
    doctor = await plugin(cluster, namespace, "doctor", "-o", "json")
    out, err = await doctor.communicate()
    found = {each["check"]: each for each in json.loads(out)}

    verdicts = {name: each["verdict"] for name, each in found.items()}
    assert (b"", int("error" in verdicts.values())) == (err, doctor.returncode)
    assert "ok" == verdicts["API server"] == verdicts["CRD"]
    assert verdicts["agents' account"] == "warning"
    assert verdicts["kubelets"] == "warning"
    wrong = [each for each in found.values() if each["verdict"] in {"warning", "error"}]
    assert [each for each in wrong if not each["fix"]] == []

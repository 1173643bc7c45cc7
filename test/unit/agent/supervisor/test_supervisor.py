"""The agent as a process, with real workers to supervise, over TLS, against the fake API server."""

from __future__ import annotations

import asyncio
import ctypes
import json
import math
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from jobsetpy.agent.supervisor.ring import Ring, WorkerMotion
from jobsetpy.agent.supervisor.ring_rules import Members, Part, RingRules
from jobsetpy.api.meta import ResourceInfo
from jobsetpy.testing import FakeApiServer, make_jobset, make_pod
from support import patience
from support.agents.foreign_images import emulated, root_of
from support.faults.tcp_proxy import TcpProxy
from support.patience import eventually

MAP = "js-group-scheduling"
EPOCH = "jobset.sigs.k8s.io/epoch"
JOBSETS = ResourceInfo("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
FIRST_PROCESS = ["unshare", "--pid", "--mount-proc", "--kill-child", "--fork"]
SHARED_NAMESPACE = [*FIRST_PROCESS, "sh", "-c", 'sleep 299 & "$@"; exit $?', "pause"]
"""As with ``shareProcessNamespace``: the first process and its other child are not the agent's."""
WITHOUT_RIGHT_TO_KILL = ["setpriv", "--bounding-set=-kill", "--inh-caps=-kill"]
CAN_UNSHARE = (
    shutil.which("unshare") is not None
    and subprocess.run([*FIRST_PROCESS, "true"], capture_output=True, check=False).returncode == 0
)
SLEEPER = "echo started $$; trap 'echo saved; exit 143' TERM; while :; do sleep 30 & wait $!; done"


def free_udp_port() -> int:
    """A port that is free at this moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


class Process:
    """One run of the supervisor; what the worker printed, and the agent's log."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.out: list[str] = []
        self.lines: list[dict[str, Any]] = []

    async def read(self) -> None:
        """Collect both streams until they end."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read_out())
            group.create_task(self._read_log())

    async def _read_out(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.out.append(line.decode().rstrip("\n"))

    async def _read_log(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            if line.startswith(b"{"):
                self.lines.append(json.loads(line))

    async def printed(self, text: str, times: int = 1) -> None:
        """Wait until that many lines begin with ``text``."""
        try:
            await eventually(
                lambda: sum(line.startswith(text) for line in self.out) >= times, seconds=10
            )
        except BaseException as error:
            error.add_note(f"printed: {self.out}, logged: {self.lines}")
            raise

    async def logged(self, event: str) -> dict[str, Any]:
        """Wait for a line of the log."""
        try:
            await eventually(lambda: any(line["event"] == event for line in self.lines), seconds=10)
        except BaseException as error:
            error.add_note(f"printed: {self.out}, logged: {self.lines}")
            raise
        return next(line for line in self.lines if line["event"] == event)

    def logs(self, event: str) -> int:
        """How often that was logged."""
        return sum(line["event"] == event for line in self.lines)

    async def exit_code(self) -> int:
        """Wait for the end."""
        async with patience.timeout(10):
            return await self.process.wait()


class Pod:
    """One pod of a JobSet on a fake API server, in supervisor mode."""

    def __init__(self, server: FakeApiServer, account: Path, arrival: Path) -> None:
        self.server = server
        self.environ = {
            "ARRIVAL_FILE": str(arrival),
            "JOBSET_PROGRESS_FILE": str(arrival.with_name("progress")),
            "JOBSET_EPOCH_FILE": str(arrival.with_name("epoch")),
            "WORKER_IMPORTS_FILE": str(arrival.with_name("imports")),
            "NAMESPACE": "default",
            "POD_NAME": "p-0",
            "JOBSET_NAME": "js",
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(server.port),
            "SERVICE_ACCOUNT_DIR": str(account),
            "PATH": os.environ["PATH"],
        }

    @asynccontextmanager
    async def run(
        self,
        *command: str,
        first: Sequence[str] = (),
        python: Sequence[str] = (sys.executable, "-I"),
        cwd: str = "/",
        **environ: str,
    ) -> AsyncIterator[Process]:
        """Run the supervisor with a command, or without one the sidecar."""
        process = await asyncio.create_subprocess_exec(
            *first,
            *(*python, "-m", "jobsetpy.agent"),
            *(("supervise", "--", *command) if command else ()),
            env={**self.environ, **environ},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=cwd,
        )
        agent = Process(process)
        reading = asyncio.create_task(agent.read())
        try:
            yield agent
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            if not first:  # otherwise they have ended with the namespace
                while left := self.left():
                    for pid in left:
                        with suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                    await asyncio.sleep(0.01)
            async with patience.timeout(10):
                await process.wait()  # for the streams' ends, too
                await reading

    def left(self) -> list[int]:
        """What the agent has started and left, by the environment that they all have of it."""
        mark, found = f"ARRIVAL_FILE={self.environ['ARRIVAL_FILE']}".encode(), []
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if mark in environ.read_bytes():
                    found.append(int(environ.parent.name))
        return found

    def status(self, **epochs: int) -> None:
        """Play the controller."""
        self.server.set_status(JOBSETS, "js", **epochs)

    async def at(self, epoch: int) -> None:
        """Wait until the annotation shows the epoch."""
        await eventually(lambda: self.epoch == str(epoch), seconds=10)

    async def lift(self, epoch: int) -> None:
        """Wait for the epoch and lift the barrier."""
        await self.at(epoch)
        self.status(syncedEpoch=epoch)

    @property
    def epoch(self) -> str | None:
        """The pod's annotation."""
        pod = self.server.get("pods", "p-0")
        assert pod is not None
        found: str | None = pod["metadata"].get("annotations", {}).get(EPOCH)
        return found


@pytest.fixture
async def pod(account: Path, tmp_path: Path) -> AsyncIterator[Pod]:
    """A pod and its JobSet."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(account / "api.crt", account / "api.key")
    async with FakeApiServer(tls=context, token="pod-token") as server:
        server.register(JOBSETS)
        server.create(JOBSETS, make_jobset("js").in_place_restart().build())
        server.create("pods", make_pod("p-0").build())
        yield Pod(server, account, tmp_path / "arrival")


async def test_a_group_restart(pod: Pod) -> None:
    """The worker saves, stops and starts again; one watch, and one patch for each epoch."""
    async with pod.run("sh", "-c", SLEEPER) as agent:
        await pod.at(1)
        assert agent.out == []
        pod.status(syncedEpoch=1)
        await agent.printed("started")
        pod.status(deprecatedEpoch=1)
        await agent.printed("saved")
        await pod.at(2)
        assert len(agent.out) == 2
        pod.status(syncedEpoch=2)
        await agent.printed("started", 2)

    assert pod.server.requests.count("watch", "jobsets") == 1
    assert pod.server.requests.count("patch", "pods") == 2


async def test_a_worker_whose_place_another_has_is_killed(pod: Pod) -> None:
    """Cut off with its node, the pod was replaced: no checkpoint is written over the other one's."""
    async with pod.run("sh", "-c", SLEEPER) as agent:
        await pod.lift(1)
        await agent.printed("started")
        pod.server.delete("pods", "p-0")
        pod.status(syncedEpoch=2, deprecatedEpoch=1)
        await agent.logged("the group runs without this pod")
        await agent.logged("epoch not stored")
        pod.status(syncedEpoch=3)  # the one that it would have joined
        pod.status(syncedEpoch=4, deprecatedEpoch=3)
        await eventually(lambda: agent.logs("epoch not stored") > 1, seconds=10)
        assert len(agent.out) == 1


FENCED = (
    "said() { echo $1 epoch $(cat $JOBSET_EPOCH_FILE 2>/dev/null); }; said started; "
    "trap 'said stopping; exit 143' TERM; trap 'said hangs; exit 134' ABRT; "
    "while :; do sleep 30 & wait $!; done"
)
"""A worker that prints the epoch that is in the file."""


async def test_epoch_file_has_the_epoch_until_its_worker_is_killed(pod: Pod) -> None:
    """What a worker saves within its grace period counts; between the epochs there is no file."""
    path = Path(pod.environ["JOBSET_EPOCH_FILE"])
    path.write_text("99")  # of an earlier run of the container
    async with pod.run("sh", "-c", FENCED) as agent:
        await pod.at(1)
        assert not path.exists()
        await pod.lift(1)
        await agent.printed("started epoch 1")
        pod.status(deprecatedEpoch=1)
        await agent.printed("stopping epoch 1")
        await pod.at(2)
        assert not path.exists()
        await pod.lift(2)
        await agent.printed("started epoch 2")
        pod.status(syncedEpoch=3, deprecatedEpoch=2)
        await pod.at(4)
        assert not path.exists()


async def test_epoch_file_is_gone_before_a_hung_worker_gets_a_signal(pod: Pod) -> None:
    """It may have hung in a write, and end that."""
    script = "echo 1 > $JOBSET_PROGRESS_FILE; " + FENCED
    async with pod.run("sh", "-c", script, HANG_SECONDS="1", HANG_FIRST_SECONDS="1") as agent:
        await pod.lift(1)
        await agent.printed("started epoch 1")
        await agent.printed("hangs epoch")
        assert "hangs epoch" in agent.out


async def test_a_token_is_renewed_while_the_worker_runs(pod: Pod, tmp_path: Path) -> None:
    """The watch that is open goes on; what comes after the old token's end has the new one."""
    account = Path(pod.environ["SERVICE_ACCOUNT_DIR"])
    for name, token in (("one", "pod-token"), ("two", "renewed")):
        (tmp_path / name).mkdir()
        shutil.copy(account / "ca.crt", tmp_path / name)
        (tmp_path / name / "token").write_text(token)
    (tmp_path / "data").symlink_to("one")
    pod.environ["SERVICE_ACCOUNT_DIR"] = str(tmp_path / "data")
    async with pod.run("sh", "-c", SLEEPER) as agent:
        await pod.lift(1)
        await agent.printed("started")
        (tmp_path / "new").symlink_to("two")
        (tmp_path / "new").rename(tmp_path / "data")
        pod.server.token = "renewed"
        pod.status(deprecatedEpoch=1)
        await pod.lift(2)
        await agent.printed("started", 2)
        pod.server.faults.cut(verb="watch", reset=True)
        pod.status(deprecatedEpoch=2)
        await pod.at(3)

    assert pod.server.requests.count("watch", "jobsets") <= 3


async def test_a_worker_that_fails_opens_the_next_epoch(pod: Pod) -> None:
    """Nobody has to deprecate the epoch; the agent lives on."""
    async with pod.run("sh", "-c", "echo started; exit 1") as agent:
        for epoch in (1, 2, 3):
            await pod.lift(epoch)
            await agent.printed("started", epoch)
        await pod.at(4)

    assert agent.process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", 137)],
    ids=["success", "listed", "listed signal"],
)
async def test_exit_codes_that_end_the_pod(pod: Pod, script: str, code: int) -> None:
    """Success and the listed codes are the container's exit code, signals as shells count them."""
    async with pod.run("sh", "-c", script, END_POD_EXIT_CODES="3,137") as agent:
        await pod.lift(1)
        assert await agent.exit_code() == code
        assert pod.epoch == "1"


async def test_what_a_shell_started_is_stopped_gracefully(pod: Pod) -> None:
    """A program behind a shell gets the signal too, and is waited for after the shell has gone."""
    inner = "trap 'sleep 0.3; echo saved; exit 0' TERM; echo started; while :; do sleep 0.05; done"
    async with pod.run("sh", "-c", f'sh -c "{inner}"; true') as agent:
        await pod.lift(1)
        await agent.printed("started")
        pod.status(deprecatedEpoch=1)
        await pod.at(2)

    assert agent.out == ["started", "saved"]


async def test_a_worker_that_does_not_stop(pod: Pod) -> None:
    """After its grace period it is killed, and the group goes on."""
    script = "trap '' TERM; echo started; while :; do sleep 0.05; done"
    async with pod.run("sh", "-c", script, WORKER_GRACE_SECONDS="0.3") as agent:
        await pod.lift(1)
        await agent.printed("started")
        pod.status(deprecatedEpoch=1)
        await agent.logged("the worker did not stop within its grace period")
        await pod.lift(2)
        await agent.printed("started", 2)


async def test_what_the_worker_sees(pod: Pod, tmp_path: Path) -> None:
    """Environment, working directory, arguments and signal dispositions are the container's."""
    script = "import os, signal, sys; print(dict(os.environb), os.getcwd(), sys.argv[1:])\n"
    script += "print(open('/proc/self/status').read().partition('SigIgn:')[2].split()[0])"
    plain = await asyncio.create_subprocess_exec(
        *("/usr/bin/env", "-i", *(f"{k}={v}" for k, v in pod.environ.items()), "A=ä b"),
        *(sys.executable, "-c", script, "--", ""),
        stdout=asyncio.subprocess.PIPE,
        cwd=tmp_path,
    )
    expected, _ = await plain.communicate()
    command = (sys.executable, "-c", script, "--", "")
    async with pod.run(*command, cwd=str(tmp_path), A="ä b") as agent:
        await pod.lift(1)
        assert await agent.exit_code() == 0

    seen, ignored = agent.out
    environ, folder, arguments = re.fullmatch(r"(\{.*\}) (\S+) (\[.*\])", seen).groups()  # type: ignore[union-attr]
    shown = expected.decode().splitlines()[0]
    added = {b"JOBSET_PROGRESS_FILE": os.fsencode(pod.environ["JOBSET_PROGRESS_FILE"])}
    added[b"JOBSET_EPOCH_FILE"] = os.fsencode(pod.environ["JOBSET_EPOCH_FILE"])
    added[b"JOBSET_EPOCH"] = b"1"
    assert eval(environ) == eval(shown[: shown.index("}") + 1]) | added
    assert (folder, arguments) == (str(tmp_path), "['--', '']")
    # The C library has its own two signals, 32 and 33, ignored in whatever posix_spawn() starts,
    # perhaps already in what started these tests.
    own = ~(3 << 31)
    assert int(ignored, 16) & own == int(expected.split()[-1], 16) & own


async def test_standard_input_is_the_containers(pod: Pod) -> None:
    """The worker reads what the container gets, here nothing."""
    async with pod.run("sh", "-c", "cat; echo end") as agent:
        await pod.lift(1)
        assert await agent.exit_code() == 0

    assert agent.out == ["end"]


async def test_signals_are_forwarded(pod: Pod) -> None:
    """A signal that is not the stop signal reaches the worker and changes nothing else."""
    script = "trap 'echo usr1' USR1; echo started; while :; do sleep 0.05; done"
    async with pod.run("sh", "-c", script) as agent:
        await pod.lift(1)
        await agent.printed("started")
        agent.process.send_signal(signal.SIGUSR1)
        await agent.printed("usr1")
        assert agent.process.returncode is None


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("trap 'exit 0' TERM; echo started; while :; do sleep 0.05; done", 143),
        ("trap 'exit 7' TERM; echo started; while :; do sleep 0.05; done", 7),
        ("echo started; exec sleep 60", 143),
    ],
    ids=["saves and exits 0", "failure", "default action"],
)
async def test_sigterm_ends_the_pod_without_success(pod: Pod, script: str, code: int) -> None:
    """The worker gets the signal, no next epoch is opened, and its exit code counts unless 0."""
    async with pod.run("sh", "-c", script) as agent:
        await pod.lift(1)
        await agent.printed("started")
        agent.process.send_signal(signal.SIGTERM)
        assert await agent.exit_code() == code
        assert pod.epoch == "1"


async def test_sigterm_before_the_barrier_lifts(pod: Pod) -> None:
    """A pod whose worker never ran has not succeeded."""
    async with pod.run("true") as agent:
        await pod.at(1)
        agent.process.send_signal(signal.SIGTERM)
        assert await agent.exit_code() == 143


@pytest.mark.parametrize(
    ("command", "code"), [("no-such-program", 127), ("/etc", 126)], ids=["missing", "a folder"]
)
async def test_a_command_that_cannot_be_run(pod: Pod, command: str, code: int) -> None:
    """The log names it, and shells' exit codes may be listed to end the pod."""
    async with pod.run(command, END_POD_EXIT_CODES=str(code)) as agent:
        await pod.lift(1)
        assert await agent.exit_code() == code
    line = await agent.logged("the worker's command cannot be run")

    assert line["command"] == command


async def test_a_command_that_cannot_be_run_counts_as_failure(pod: Pod) -> None:
    """Without being listed it opens the next epoch, which the controller's budget bounds."""
    async with pod.run("no-such-program"):
        await pod.lift(1)
        await pod.at(2)


def reported(pod: Pod) -> tuple[str | None, str | None]:
    """What the pod says of the run of its worker that is over."""
    annotations = pod.server.get("pods", "p-0")["metadata"]["annotations"]  # type: ignore[index]
    cause = annotations.get("jobset.sigs.k8s.io/in-place-restart-cause")
    return cause, annotations.get("jobset.sigs.k8s.io/progress")


async def test_report_of_a_run_that_is_over(pod: Pod) -> None:
    """Exit code and last step go with the epoch's one patch; a restart by others has no cause."""
    script = 'echo 41 >"$JOBSET_PROGRESS_FILE"; echo 42 >"$JOBSET_PROGRESS_FILE"; echo started\n'
    script += "while ! [ -e stop ]; do sleep 0.02; done; rm stop; kill -KILL $$"
    folder = Path(pod.environ["JOBSET_PROGRESS_FILE"]).parent
    async with pod.run("sh", "-c", script, cwd=str(folder)) as agent:
        await pod.lift(1)
        await agent.printed("started")
        assert reported(pod) == (None, None)
        (folder / "stop").touch()
        await pod.at(2)
        assert reported(pod) == ("exit-code=137", "42")
        pod.status(syncedEpoch=2)
        await agent.printed("started", 2)
        pod.status(deprecatedEpoch=2)
        await pod.at(3)
        assert reported(pod) == (None, "42")

    assert pod.server.requests.count("patch", "pods") == 3


async def test_a_policy_that_knows_only_the_epoch(pod: Pod) -> None:
    """What is refused of the report is left out; the epoch itself is stored all the same."""
    pod.server.faults.status(422, verb="patch", resource="pods", count=1, skip=1)
    async with pod.run("sh", "-c", "echo started; exit 7") as agent:
        await pod.lift(1)
        await agent.printed("started")
        await pod.at(2)

    assert reported(pod) == (None, None)


@pytest.mark.parametrize("how", ["stopped", "dumps its stacks", "exits with 0"])
async def test_a_worker_that_hangs(pod: Pod, how: str) -> None:
    """It says where it is, if it can, and is killed within the time, and its group restarts."""
    code = 0 if how == "exits with 0" else 1
    trap = "" if how == "stopped" else f"trap 'echo stacks; exit {code}' ABRT;"
    script = f"echo 7 >$JOBSET_PROGRESS_FILE; {trap} echo started $$; "
    script += "kill -STOP $$; sleep 300" if how == "stopped" else "while :; do sleep 0.1; done"
    async with pod.run("sh", "-c", script, HANG_SECONDS="1") as agent:
        await pod.lift(1)
        await agent.printed("started")
        line = await agent.logged("no progress: the worker hangs")
        assert (line["step"], line["level"]) == (7, "error")
        await pod.at(2)
        assert reported(pod) == ("no-progress=1", "7")
        assert ("stacks" in agent.out) is (how != "stopped")
        pod.status(syncedEpoch=2)
        await agent.printed("started", 2)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_a_program_that_becomes_another_user_reports_its_steps(pod: Pod) -> None:
    """As under gosu: in a sticky folder, under any umask, and when it replaces the file."""
    file = Path("/dev/shm", f"jobset-test-{os.getpid()}")
    drop = "setpriv --reuid 65534 --regid 65534 --clear-groups sh -ec"
    script = f"""if [ $JOBSET_EPOCH = 1 ]; then {drop} 'echo 5 >$JOBSET_PROGRESS_FILE'; exit 7; fi
    rm $JOBSET_PROGRESS_FILE; {drop} 'umask 077; echo 6 >$JOBSET_PROGRESS_FILE'; exit 7"""
    umask = ["sh", "-c", 'umask 077; exec "$@"', "sh"]
    given = {"JOBSET_PROGRESS_FILE": str(file), "HANG_SECONDS": "60"}
    try:
        async with pod.run("sh", "-c", script, first=umask, **given) as agent:
            await pod.lift(1)
            await pod.at(2)
            assert reported(pod) == ("exit-code=7", "5")
            for epoch in (2, 3):
                await pod.lift(epoch)
                await pod.at(epoch + 1)
                assert reported(pod) == ("exit-code=7", "6")
            assert agent.logs("there is no progress file: steps and hangs of the worker") == 0
            assert not any("progress file" in line["event"] for line in agent.lines)
            agent.process.kill()
    finally:
        file.unlink(missing_ok=True)


async def test_a_worker_that_writes_nonsense_continues(pod: Pod) -> None:
    """Whatever is in the file, it was written to: the worker is alive, and is told of it once."""
    script = "echo started; for n in 1 2 3 4 5 6 7 8 9; do "
    script += 'echo "loss $n" >"$JOBSET_PROGRESS_FILE"; sleep 0.3; done; exit 0'
    async with pod.run("sh", "-c", script, HANG_SECONDS="2") as agent:
        await pod.lift(1)
        assert await agent.exit_code() == 0

    assert agent.logs("the progress file is no step") == 1
    assert agent.logs("no progress: the worker hangs") == 0


async def test_a_hung_worker_is_killed_when_its_log_is_not_read(pod: Pod) -> None:
    """With a full standard error, as of a container runtime that is down, the agent still acts."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    script = "echo 7 >$JOBSET_PROGRESS_FILE; while :; do sleep 0.1; done"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-m", "jobsetpy.agent", "supervise", "--", "sh", "-c", script),
        env={**pod.environ, "HANG_SECONDS": "1"},
        stdin=asyncio.subprocess.DEVNULL,
        stderr=writer,
    )
    try:
        await pod.lift(1)
        await pod.at(2)
        assert reported(pod) == ("no-progress=1", "7")
        process.send_signal(signal.SIGTERM)
        async with patience.timeout(10):
            assert await process.wait() == 143
    finally:
        os.close(reader)  # whoever still writes ends
        os.close(writer)
        with suppress(ProcessLookupError):
            process.kill()
        for pid in pod.left():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await process.wait()


async def test_a_silent_agent(pod: Pod) -> None:
    """With AGENT_LOG=off the worker has standard error for itself."""
    async with pod.run("sh", "-c", "echo only >&2", AGENT_LOG="off") as agent:
        await pod.lift(1)
        assert await agent.exit_code() == 0

    assert agent.lines == []


async def test_only_problems_are_reported(pod: Pod) -> None:
    """With AGENT_LOG=problems, standard error is the worker's until something goes wrong."""
    script = "echo started; trap '' TERM; while :; do sleep 30 & wait $!; done"
    choice = {"AGENT_LOG": "problems", "WORKER_GRACE_SECONDS": "0.1"}
    async with pod.run("sh", "-c", script, **choice) as agent:
        await pod.lift(1)
        await agent.printed("started")
        assert agent.lines == []
        pod.status(deprecatedEpoch=1)
        await agent.logged("the worker did not stop within its grace period")
        await pod.at(2)

    assert len(agent.lines) == 1


async def test_injected_variables_are_not_the_workers(pod: Pod) -> None:
    """What admission injects steers the agent; the worker has its own under the same names."""
    own = {"NAMESPACE", "POD_NAME", "JOBSET_NAME", "SERVICE_ACCOUNT_DIR"}
    pod.environ |= {f"JOBSET_AGENT_{name}": pod.environ[name] for name in own}
    pod.environ |= dict.fromkeys(own, "mine") | {"BARRIER_PORT": "no port"}
    async with pod.run("env", JOBSET_AGENT_AGENT_LOG="on") as agent:
        await pod.lift(1)
        assert await agent.exit_code() == 0

    assert {f"{name}=mine" for name in own} <= set(agent.out)
    assert not any(line.startswith("JOBSET_AGENT_") for line in agent.out)


def test_no_command() -> None:
    """The exit code of a wrong configuration, and a message that says why."""
    done = subprocess.run(
        [sys.executable, "-m", "jobsetpy.agent", "supervise"], capture_output=True, check=False
    )

    assert done.returncode == 2
    assert "COMMAND" in json.loads(done.stderr)["error"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_sidecar_that_is_asked_to_stop(pod: Pod, number: signal.Signals) -> None:
    """Once its worker may run it ends with the code for a restart in place, before with 0."""
    environ = {"BARRIER_PORT": "0", "RESTART_POD_IN_PLACE_EXIT_CODE": "77"}
    async with pod.run(**environ) as agent:
        await pod.at(1)
        agent.process.send_signal(number)
        assert await agent.exit_code() == 0
    async with pod.run(**environ) as agent:
        await agent.logged("joining")  # an epoch that is synced before would be over for it
        await pod.lift(1)
        await agent.logged("barrier lifted")
        agent.process.send_signal(number)
        assert await agent.exit_code() == 77


async def test_a_sidecar_that_was_away_when_the_barrier_lifted(pod: Pod, tmp_path: Path) -> None:
    """Ended while it waits, it comes back at the same epoch; once its worker may run, at the next."""
    environ = {"BARRIER_PORT": "0", "BARRIER_BIND_ADDRESS": "127.0.0.1"}
    async with pod.run(**environ) as agent:
        await pod.at(1)
        agent.process.send_signal(signal.SIGTERM)
        assert await agent.exit_code() == 0
    pod.status(syncedEpoch=1)
    async with pod.run(**environ) as agent:
        await agent.logged("barrier lifted")
        agent.process.send_signal(signal.SIGTERM)
        assert await agent.exit_code() == 42

    assert pod.epoch == "1"
    assert not (tmp_path / "arrival").exists()
    async with pod.run(**environ):
        await pod.at(2)


async def test_a_sidecar_whose_probe_gave_up_as_the_barrier_lifted(pod: Pod) -> None:
    """Until its probe was told, no worker may run: it ends with 0, and comes back where it was."""
    environ = {"BARRIER_PORT": "0", "BARRIER_BIND_ADDRESS": "127.0.0.1"}
    async with pod.run(**environ) as agent:
        port = (await agent.logged("started"))["port"]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /barrier-is-lifted HTTP/1.1\r\n\r\n")
        assert b" 503 " in await reader.read()
        writer.close()
        await pod.lift(1)
        await agent.logged("barrier lifted")
        agent.process.send_signal(signal.SIGTERM)
        assert await agent.exit_code() == 0
    async with pod.run(**environ) as agent:
        await agent.logged("barrier lifted")
        assert pod.epoch == "1"


FIRST_OR_NOT = pytest.mark.parametrize(
    "first", [FIRST_PROCESS, SHARED_NAMESPACE], ids=["first process", "shared namespace"]
)


@pytest.mark.skipif(not CAN_UNSHARE, reason="needs a PID namespace")
@FIRST_OR_NOT
async def test_orphans_are_reaped_and_none_is_left(pod: Pod, first: list[str]) -> None:
    """Orphans become no zombies; those in a session of their own do not outlive the epoch."""
    # What is counted starts no others: a shell's children look like it for a moment.
    script = (
        "echo left $(ps -eo args= | grep -c '^sleep 297'); "
        "(setsid sh -c 'trap \"\" TERM; exec sleep 297' &); "
        "for i in 1 2 3; do (true &); done; "
        "until ps -eo args= | grep -q '^sleep 297' && ! ps -eo stat= | grep -q Z; "
        "do sleep 0.05; done; "
        "echo started $(ps -eo args= | grep -c '^sleep 297'); "
        "echo others $(ps -eo args= | grep -c '^sleep 299'); "
        "exec sleep 60"
    )
    async with pod.run("sh", "-c", script, first=first) as agent:
        await pod.lift(1)
        await agent.printed("others")
        pod.status(deprecatedEpoch=1)
        await pod.lift(2)
        await agent.printed("others", 2)

    others = "others 1" if first is SHARED_NAMESPACE else "others 0"
    assert agent.out == ["left 0", "started 1", others] * 2


@pytest.mark.skipif(not CAN_UNSHARE, reason="needs a PID namespace")
@pytest.mark.parametrize("script", ["", "exit 7"], ids=["asked to stop", "failed"])
async def test_what_is_started_while_it_is_killed(pod: Pod, tmp_path: Path, script: str) -> None:
    """Processes that leave the worker's session and start others meanwhile are all ended."""
    loop = "while :; do setsid sleep 298 & sleep 0.01; done"
    script = (
        f"setsid sh -c '{loop}' & setsid sh -c '{loop}' & "
        "echo started; sleep 0.3; "
        f"{script or 'exec sleep 60'}"
    )
    counted = f"n=$(ps -eo args= | grep -c '^sleep 298'); echo left $n; {script}"
    async with pod.run("sh", "-c", counted, first=SHARED_NAMESPACE) as agent:
        await pod.lift(1)
        await agent.printed("started")
        if "exit 7" not in script:
            pod.status(deprecatedEpoch=1)
        await pod.lift(2)
        await agent.printed("left", 2)

    assert [line for line in agent.out if line.startswith("left")][:2] == ["left 0", "left 0"]


@pytest.mark.skipif(not CAN_UNSHARE, reason="needs a PID namespace")
@pytest.mark.parametrize("apart", ["", "setsid"], ids=["in the group", "in a session of its own"])
@FIRST_OR_NOT
async def test_what_cannot_be_killed_ends_with_the_container(
    pod: Pod, apart: str, first: list[str]
) -> None:
    """A process of another user ends the container; the next epoch is never joined beside it."""
    script = f"{apart} setpriv --reuid 65534 --clear-groups sleep 300 & sleep 0.3; exit 7"
    outer, inner = first[: len(FIRST_PROCESS)], first[len(FIRST_PROCESS) :]
    first = [*outer, *WITHOUT_RIGHT_TO_KILL, *inner]
    async with pod.run("sh", "-c", script, first=first) as agent:
        await pod.lift(1)
        assert await agent.exit_code() == 137

    assert pod.epoch == "1"
    assert any("cannot be killed" in line["event"] for line in agent.lines)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may trace")
async def test_a_killed_process_that_does_not_end_is_reported(pod: Pod) -> None:
    """Held by a tracer here, as by the kernel in state D; the next epoch waits for it."""
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    script = "trap '' TERM; echo started $$; while :; do sleep 0.1; done"
    async with pod.run("sh", "-c", script, WORKER_GRACE_SECONDS="0.1") as agent:
        await pod.lift(1)
        await agent.printed("started")
        pid = int(agent.out[0].split()[1])
        if ptrace(0x4206, pid, 0, 0):  # PTRACE_SEIZE: its end is the tracer's to collect
            pytest.skip("may not trace here")
        try:
            pod.status(deprecatedEpoch=1)
            line = await agent.logged(
                "killed processes do not end, and the next epoch waits for them"
            )
            assert line["processes"] == [f"{pid} sh Z"]
            assert pod.epoch == "1"
        finally:
            os.waitpid(pid, 0x40000000)  # noqa: ASYNC222 - __WALL; it has ended
        await pod.lift(2)
        await agent.printed("started", 2)


RECYCLED = """
import asyncio, signal, subprocess, sys
from pathlib import Path
from jobsetpy.agent.supervisor.processes import Processes

async def main():
    processes = Processes(["sh", "-c", 'exec sleep "$T"'], on_exit=ended.append, on_empty=lambda: None,
                          on_unkillable=lambda: None)
    processes.attach(lambda number: None)
    first = processes.start({b"PATH": b"/usr/bin:/bin", b"T": b"0"})
    processes.start({b"PATH": b"/usr/bin:/bin", b"T": b"99"})
    while not ended:
        await asyncio.sleep(0.01)
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(first - 1))
    other = subprocess.Popen(["sleep", "99"], start_new_session=True)
    assert other.pid == first, (other.pid, first)
    processes.send(signal.SIGTERM)
    while len(ended) < 2:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    print("other", Path(f"/proc/{first}/stat").read_text().rpartition(")")[2].split()[0])

ended = []
asyncio.run(main())
"""


@pytest.mark.skipif(not CAN_UNSHARE, reason="needs a PID namespace")
def test_a_process_group_with_a_recycled_number_gets_no_signal() -> None:
    """One of two processes has ended, and another container's process has got its number."""
    done = subprocess.run(
        [*FIRST_PROCESS, sys.executable, "-c", RECYCLED],
        capture_output=True,
        text=True,
        check=False,
        timeout=patience.scaled(20),
    )
    assert done.stdout == "other S\n", done.stderr


# ---- standbys

WORKER = """
import contextlib, os, signal, socket, subprocess, sys
epoch, child = os.environ.get("JOBSET_EPOCH"), None
if "JOBSET_STANDBY_FD" in os.environ:
    child = subprocess.Popen(["sleep", "297"])
    with socket.socket(fileno=int(os.environ["JOBSET_STANDBY_FD"])) as channel:
        with contextlib.suppress(OSError):
            channel.send(b"ready\\n")
            epoch = channel.recv(64).decode().strip().partition("run epoch=")[2]
    if not epoch:
        child.kill()
        sys.exit(0)
else:
    subprocess.Popen(["setsid", "sh", "-c", "trap '' TERM; while :; do setsid sleep 298 & sleep 0.01; done"])
left = subprocess.run(["ps", "-eo", "args="], capture_output=True, text=True).stdout.splitlines()
print("left", sum(line.startswith("sleep 298") for line in left), child and child.poll(), flush=True)
signal.signal(signal.SIGUSR1, lambda *_: print("usr1", flush=True))
print("started", epoch, os.getpid(), flush=True)
while True:
    signal.pause()
"""
STANDBY = {"WORKER_STANDBY": "on", "WORKER_STANDBY_DELAY_SECONDS": "0"}
PYTHON = (sys.executable, "-c")


async def test_a_standby_continues(pod: Pod) -> None:
    """At the lift the prepared process is told its epoch, and it is the worker from then on."""
    async with pod.run(*PYTHON, WORKER, **STANDBY) as agent:
        await pod.lift(1)
        await agent.printed("started 1")
        ready = await agent.logged("standby ready")
        agent.process.send_signal(signal.SIGUSR1)
        await agent.printed("usr1")
        pod.status(deprecatedEpoch=1)
        await pod.lift(2)
        await agent.printed("started 2")
        assert f"started 2 {ready['pid']}" in agent.out
        assert agent.out.count("usr1") == 1
        await eventually(lambda: agent.logs("standby ready") > 1, seconds=10)
        os.kill(ready["pid"], signal.SIGKILL)
        await pod.lift(3)
        await agent.printed("started 3")
        agent.process.send_signal(signal.SIGTERM)
        assert await agent.exit_code() == 143
    assert [line for line in agent.out if line.startswith("left")][1:] == ["left 0 None"] * 2


@pytest.mark.skipif(not CAN_UNSHARE, reason="needs a PID namespace")
@FIRST_OR_NOT
async def test_a_standby_outlives_the_killing_of_the_worker(pod: Pod, first: list[str]) -> None:
    """With what it has started; of the old worker nothing is left, however it hides."""
    async with pod.run(*PYTHON, WORKER, first=first, **STANDBY) as agent:
        await pod.lift(1)
        await agent.printed("started 1")
        ready = await agent.logged("standby ready")
        pod.status(deprecatedEpoch=1)
        await pod.lift(2)
        await agent.printed("started 2")

    assert f"started 2 {ready['pid']}" in agent.out
    assert "left 0 None" in agent.out


@pytest.mark.parametrize(
    ("standby", "said"),
    [
        ("sys.exit(3)", "the standby has ended"),
        ("os.write(fd, b'hello\\n'); time.sleep(99)", "no standby any more"),
        ("time.sleep(99)", "no standby any more"),
        ("os.write(fd, b'ready\\n'); sys.exit(0)", "the standby has ended"),
        ("os.write(fd, b'ready\\n'); os.close(fd); time.sleep(99)", "the standby has ended"),
    ],
    ids=["dies", "says something else", "never ready", "ends while it waits", "closes and lives"],
)
async def test_a_standby_that_is_no_good(pod: Pod, standby: str, said: str) -> None:
    """It is told of and never fails the pod: the next worker is started as without it."""
    script = (
        "import os, sys, time; fd = int(os.environ.get('JOBSET_STANDBY_FD', 0))\n"
        f"if fd: {standby}\n"
        "print('started', os.environ['JOBSET_EPOCH'], flush=True); time.sleep(99)"
    )
    given = STANDBY | {"WORKER_STANDBY_READY_SECONDS": str(patience.scaled(0.5))}
    async with pod.run(*PYTHON, script, **given) as agent:
        await pod.lift(1)
        await agent.printed("started 1")
        await agent.logged(said)
        pod.status(deprecatedEpoch=1)
        await pod.lift(2)
        await agent.printed("started 2")


async def test_a_program_is_preloaded(pod: Pod, tmp_path: Path) -> None:
    """Without a change of its code; what cannot be imported is a line in the log."""
    program = tmp_path / "train.py"
    program.write_text(
        "import os, sys, time; print('started', os.environ['JOBSET_EPOCH'], os.getpid(), "
        "'colorsys' in sys.modules, sys.argv, flush=True); time.sleep(99)"
    )
    given = STANDBY | {"WORKER_PRELOAD": "colorsys, no_such_module"}
    async with pod.run(sys.executable, str(program), "--lr", "1", **given) as agent:
        await pod.lift(1)
        await agent.printed("started 1")
        ready = await agent.logged("standby ready")
        pod.status(deprecatedEpoch=1)
        await pod.lift(2)
        await agent.printed("started 2")

    assert f"started 2 {ready['pid']} True {[str(program), '--lr', '1']}" in agent.out


async def test_what_a_program_imports_is_learned(pod: Pod, tmp_path: Path) -> None:
    """Without a list: the standby has imported what the worker was seen to import."""
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "heavy.py").write_text("import json.tool\n")
    program = tmp_path / "train.py"
    program.write_text(
        "import os, sys, time; before = 'heavy' in sys.modules; import heavy; "
        "print('started', os.environ['JOBSET_EPOCH'], os.getpid(), before, flush=True); "
        "time.sleep(99)"
    )
    given = STANDBY | {"WORKER_STANDBY_DELAY_SECONDS": "1", "PYTHONPATH": str(packages)}
    async with pod.run(sys.executable, str(program), **given) as agent:
        await pod.lift(1)
        await agent.printed("started 1")
        ready = await agent.logged("standby ready")
        pod.status(deprecatedEpoch=1)
        await pod.lift(2)
        await agent.printed("started 2")

    assert f"started 2 {ready['pid']} True" in agent.out


FAILING = """
import atexit, ctypes, os, sys, time
atexit.register(print, "cleaned", flush=True)
class Slow:
    def __del__(self):
        print("torn down", flush=True)
slow = Slow()
print("started", os.environ["JOBSET_EPOCH"], flush=True)
while not os.path.exists(sys.argv[1]): time.sleep(0.02)
os.unlink(sys.argv[1])
raise RuntimeError("no\\x1b[31m luck\\nat all")
"""


async def test_a_program_that_raises_says_why(pod: Pod, tmp_path: Path) -> None:
    """Its handlers run, nothing is torn down, and the cause has the first line of the error."""
    program = tmp_path / "train.py"
    program.write_text(FAILING)
    stop = tmp_path / "stop"
    words = (sys.executable, str(program), str(stop))
    async with pod.run(*words, **STANDBY, WORKER_PRELOAD="json") as agent:
        await pod.lift(1)
        for epoch in (1, 2):  # at a cold start, and as a standby
            await agent.printed(f"started {epoch}")
            await eventually(lambda: agent.logs("standby ready") == epoch, seconds=20)  # noqa: B023
            stop.touch()
            await pod.at(epoch + 1)
            assert reported(pod)[0] == "exit-code=1 RuntimeError: no [31m luck"
            pod.status(syncedEpoch=epoch + 1)

    assert agent.out.count("cleaned") == 2
    assert "torn down" not in agent.out


THREADED = """
import os, sys, threading
def load():
    raise OSError(f"no data in epoch {os.environ['JOBSET_EPOCH']}")
for _ in range(2):
    thread = threading.Thread(target=load)
    thread.start(); thread.join()
print("alive", flush=True)
if "hang" in sys.argv:
    with open(os.environ["JOBSET_PROGRESS_FILE"], "w") as file: file.write("7")
    threading.Event().wait()
os._exit(3)
"""


@pytest.mark.parametrize(("end", "cause"), [("exit", "exit-code=3"), ("hang", "no-progress=1")])
async def test_a_thread_that_raised_is_named_when_the_worker_fails_without_a_reason(
    pod: Pod, tmp_path: Path, end: str, cause: str
) -> None:
    """A thread's error ends no Python program; but the first is in the cause of what follows."""
    program = tmp_path / "train.py"
    program.write_text(THREADED)
    given = {"WORKER_PRELOAD": "json", "HANG_SECONDS": "1"}
    async with pod.run(sys.executable, str(program), end, **given) as agent:
        await pod.lift(1)
        await agent.printed("alive")
        await pod.at(2)

    assert reported(pod)[0] == f"{cause} a thread had ended with OSError: no data in epoch 1"
    assert agent.logs("a thread of the worker has ended with an error") == 1
    assert agent.logs("worker fails") == 0


async def test_a_program_that_raises_and_does_not_end_is_killed(pod: Pod, tmp_path: Path) -> None:
    """Handlers of atexit have the time of a checkpoint."""
    program = tmp_path / "train.py"
    program.write_text(
        "import atexit, time; atexit.register(time.sleep, 99); print('started', flush=True)\n"
        "raise ValueError('stuck')\n"
    )
    given = {"WORKER_PRELOAD": "json", "WORKER_GRACE_SECONDS": "0.5"}
    async with pod.run(sys.executable, str(program), **given) as agent:
        await pod.lift(1)
        await pod.at(2)

    assert reported(pod)[0] == "exit-code=1 ValueError: stuck"
    assert agent.logs("worker fails") == 1


async def test_last_words_that_a_policy_refuses_cost_no_cause(pod: Pod, tmp_path: Path) -> None:
    """A policy may be older than the agent: the exit code is told without them."""
    program = tmp_path / "train.py"
    program.write_text("raise ValueError('no')\n")
    pod.server.faults.status(422, verb="patch", resource="pods", count=1, skip=1)
    async with pod.run(sys.executable, str(program), WORKER_PRELOAD="json"):
        await pod.lift(1)
        await pod.at(2)

    assert reported(pod)[0] == "exit-code=1"


async def test_what_cannot_be_preloaded_runs_all_the_same(pod: Pod) -> None:
    """A shell script: a line in the log says so."""
    async with pod.run("sh", "-c", "exit 0", WORKER_PRELOAD="torch") as agent:
        await pod.lift(1)
        assert await agent.exit_code() == 0
    line = await agent.logged("nothing can be preloaded, and there is no standby")

    assert "'sh' is not Python" in line["why"]


# ---- the health command


async def test_a_worker_starts_on_a_machine_that_is_fit(pod: Pod, tmp_path: Path) -> None:
    """The command runs before each report, with the worker's environment; its output is dropped."""
    ran = tmp_path / "ran"
    check = f"echo $HOME $JOBSET_AGENT_POD_NAME >>{ran}; head -c 1000000 /dev/zero; echo fine"
    given = {"HEALTH_COMMAND": check, "HOME": "/here"}
    given = {f"JOBSET_AGENT_{name}": value for name, value in (pod.environ | given).items()}
    script = "echo started $JOBSET_EPOCH; [ $JOBSET_EPOCH = 1 ] && exit 3; exec sleep 99"
    async with pod.run("sh", "-c", script, HOME="/there", **given) as agent:
        await pod.lift(1)
        await pod.lift(2)
        await agent.printed("started 2")
        assert ran.read_text() == "/there\n" * 2
        assert "fine" not in agent.out
        assert not any("health" in line["event"] for line in agent.lines)


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("head -c 1000000 /dev/zero; echo; echo row remap failed >&2; exit 3", ("exit_code", 3)),
        ("kill -KILL $$", ("exit_code", 137)),
        ("echo row remap failed; exec sleep 296", ("why", "it did not end")),
        ("yes row remap failed", ("why", "it did not end")),
    ],
)
async def test_a_pod_ends_when_its_machine_is_unfit(
    pod: Pod, command: str, found: tuple[str, object]
) -> None:
    """It reports no epoch, so that the barrier does not lift with it, and names the last line."""
    given = {"HEALTH_COMMAND": command, "HEALTH_SECONDS": "0.6"}
    async with pod.run("sh", "-c", "echo started", **given) as agent:
        line = await agent.logged(
            "this machine is unfit: the health command did not succeed in time"
        )
        assert await agent.exit_code() == 85

    assert (line["level"], line[found[0]]) == ("error", found[1])
    assert line["said"] == ("" if "KILL" in command else "row remap failed")
    assert pod.epoch is None
    reason = str(found[1]) if found[0] == "why" else f"exit code {found[1]}"
    assert notes(pod)[STATE] == "unfit: " + ": ".join(filter(None, (reason, line["said"])))
    assert agent.out == []


@pytest.mark.parametrize(
    ("command", "said"),
    [("/none/nvidia-smi", "/none/nvidia-smi: not found"), ("/etc/passwd", "Permission denied")],
)
async def test_a_command_that_cannot_be_run_says_nothing_about_the_machine(
    pod: Pod, command: str, said: str
) -> None:
    """A mistake in the annotation must not end every pod of the group; the log has it."""
    async with pod.run("sh", "-c", "echo started; exec sleep 99", HEALTH_COMMAND=command) as agent:
        await pod.lift(1)
        await agent.printed("started")
        line = await agent.logged("the health command cannot be run: this machine is not checked")

    assert line["level"] == "error"
    assert line["said"].endswith(said)


async def test_processes_that_the_health_command_leaves_are_killed_when_it_ends(pod: Pod) -> None:
    """Those of its group, and one that has a session and a parent of its own."""
    given = {"HEALTH_COMMAND": "sleep 297 & setsid sleep 298 & exit 0"}
    async with pod.run("sh", "-c", "exec sleep 99", **given) as agent:
        await pod.at(1)
        await eventually(lambda: pod.left() == [agent.process.pid], seconds=10)


async def test_an_unfit_pod_ends_when_its_report_is_not_stored(pod: Pod) -> None:
    """The manager replaces it by its exit code alone."""
    pod.server.faults.status(503, verb="patch", resource="pods")
    given = {"HEALTH_COMMAND": "exit 1", "HEALTH_SECONDS": "0.1"}
    async with pod.run("sh", "-c", "exec sleep 99", **given) as agent:
        assert await agent.exit_code() == 85

    assert STATE not in notes(pod)


async def test_a_standby_is_released_when_the_device_is_free(pod: Pod, tmp_path: Path) -> None:
    """Memory of a device is released late: the report waits for it, and so does the barrier."""
    free, tried = tmp_path / "free", tmp_path / "tried"
    free.touch()
    given = STANDBY | {"HEALTH_COMMAND": f"echo >>{tried}; test -e {free}", "HEALTH_SECONDS": "60"}
    async with pod.run(*PYTHON, WORKER, **given) as agent:
        await pod.lift(1)
        await agent.printed("started 1")
        ready = await agent.logged("standby ready")
        free.unlink()
        tried.unlink()
        pod.status(deprecatedEpoch=1)
        await eventually(lambda: tried.exists() and len(tried.read_text()) > 3, seconds=10)
        assert pod.epoch == "1"
        free.touch()
        await pod.lift(2)
        await agent.printed("started 2")
        assert f"started 2 {ready['pid']}" in agent.out


async def test_a_lift_that_comes_before_the_check_is_over_waits_for_it(
    pod: Pod, tmp_path: Path
) -> None:
    """A container that the kubelet has restarted finds its epoch reported by the one before it."""
    free = tmp_path / "free"
    given = {"HEALTH_COMMAND": f"test -e {free}", "HEALTH_SECONDS": "60"}
    pod.server.patch("pods", "p-0", {"metadata": {"annotations": {EPOCH: "1"}}})
    async with pod.run("sh", "-c", "echo started; exec sleep 99", **given) as agent:
        await agent.logged("joining")
        pod.status(syncedEpoch=1)
        await asyncio.sleep(0.3)  # in which a worker would have started
        assert agent.out == []
        free.touch()
        await agent.printed("started")


async def test_the_health_command_runs_while_the_worker_stops(pod: Pod, tmp_path: Path) -> None:
    """Its time begins when the worker has ended; what succeeded before need not run again."""
    ran, go = tmp_path / "ran", tmp_path / "go"
    script = f"trap 'while [ ! -e {go} ]; do sleep 0.02; done; exit 1' TERM; echo started; "
    script += "while :; do sleep 0.02; done"
    given = {"HEALTH_COMMAND": f"echo >>{ran}", "WORKER_GRACE_SECONDS": "60"}
    async with pod.run("sh", "-c", script, **given) as agent:
        await pod.lift(1)
        await agent.printed("started")
        pod.status(deprecatedEpoch=1)
        await eventually(lambda: ran.read_text() == "\n\n", seconds=10)
        assert pod.epoch == "1"
        go.touch()
        await pod.at(2)

    assert ran.read_text() == "\n\n"


NVIDIA_SMI = """#!/bin/sh
[ "$*" = "--query-gpu=memory.used --format=csv,noheader,nounits" ] || exit 9
cat {folder}/used
"""


@pytest.mark.parametrize(
    ("used", "fit", "said"),
    [("3\n12", True, ""), ("3\n40960", False, "40960 MiB in use"), (None, False, "used: No such")],
)
async def test_the_command_of_the_page_on_accelerators(
    pod: Pod, tmp_path: Path, used: str | None, fit: bool, said: str
) -> None:
    """With a program that plays nvidia-smi: memory that is in use, and a driver that fails."""
    page = Path(__file__).parents[4].joinpath("docs/how-to/devices.md").read_text()
    block = page.partition("in-place-restart-health-command: |\n")[2].partition("```")[0]
    program = tmp_path / "nvidia-smi"
    program.write_text(NVIDIA_SMI.format(folder=tmp_path))
    program.chmod(0o755)
    if used is not None:
        (tmp_path / "used").write_text(f"{used}\n")
    given = {"HEALTH_COMMAND": textwrap.dedent(block), "HEALTH_SECONDS": "0.5"}
    given["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    async with pod.run("sh", "-c", "exec sleep 99", **given) as agent:
        if fit:
            await pod.at(1)
            return
        line = await agent.logged(
            "this machine is unfit: the health command did not succeed in time"
        )
        assert await agent.exit_code() == 85

    assert said in line["said"]


async def test_a_pod_that_is_asked_to_end_does_not_wait_for_its_health_command(pod: Pod) -> None:
    """The command is killed, and the exit code is that of a pod without a worker."""
    given = {"HEALTH_COMMAND": "exec sleep 296", "HEALTH_SECONDS": "60"}
    async with pod.run("sh", "-c", "exit 1", **given) as agent:
        await agent.logged("joining")
        agent.process.send_signal(signal.SIGTERM)
        assert await agent.exit_code() == 143

    assert pod.left() == []


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"HEALTH_SECONDS": "3"}, "has no effect without HEALTH_COMMAND"),
        ({"HEALTH_INTERVAL_SECONDS": "3"}, "has no effect without HEALTH_COMMAND"),
        ({"HEALTH_COMMAND": "true", "HEALTH_INTERVAL_SECONDS": "-1"}, "must be a number"),
        ({"HEALTH_COMMAND": "true", "HEALTH_SECONDS": "0"}, "must be more than 0"),
        ({"HEALTH_COMMAND": "true", "HEALTH_SECONDS": "x"}, "must be a number"),
    ],
)
async def test_settings_of_the_health_command_that_cannot_be(
    pod: Pod, variables: dict[str, str], said: str
) -> None:
    """They are refused with the name of the variable."""
    async with pod.run("sh", "-c", "exit 0", **variables) as agent:
        assert await agent.exit_code() == 2

    assert said in agent.lines[-1]["error"]


# ---- several processes

TWO = {
    "WORKER_PROCESSES": "2", "WORKER_WORLD_SIZE": "8", "WORKER_FIRST_RANK": "2",
    "WORKER_JOB_PODS": "2", "WORKER_POD_INDEX": "1", "MASTER_ADDR": "js-w-0-0.js",
}  # fmt: skip
RANKS = (
    "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT $JOBSET_EPOCH"
)


async def test_several_processes_of_one_worker(pod: Pod, tmp_path: Path) -> None:
    """One fails, and the group restarts; when all succeed, the pod does."""
    said = tmp_path / "said"  # by the other one, which would be killed with the first to fail
    script = f"{RANKS}; if [ $JOBSET_EPOCH = 1 ] && [ $LOCAL_RANK = 0 ]; then "
    script += f"touch {said}; exec sleep 99; fi; until [ -e {said} ]; do sleep 0.05; done; "
    script += "[ $JOBSET_EPOCH = 2 ]"
    async with pod.run("sh", "-c", script, **TWO) as agent:
        await pod.lift(1)
        await pod.lift(2)
        assert await agent.exit_code() == 0

    expected = [
        f"{4 + i} {i} 8 2 js-w-0-0.js {29500 + 10 * epoch} {epoch}"
        for epoch in (1, 2)
        for i in (0, 1)
    ]
    assert sorted(agent.out) == sorted(expected)


async def test_each_process_has_its_standby(pod: Pod, tmp_path: Path) -> None:
    """Each keeps its rank, and gets the port of the epoch in which it is released."""
    program = tmp_path / "train.py"
    program.write_text(
        "import os, time; print('started', *map(os.environ.get, ['JOBSET_EPOCH', 'MASTER_PORT', "
        "'RANK']), os.getpid(), flush=True); time.sleep(99)"
    )
    given = STANDBY | TWO | {"WORKER_PRELOAD": "json", "MASTER_ADDR": ""}
    async with pod.run(sys.executable, str(program), **given) as agent:
        await pod.lift(1)
        await eventually(lambda: agent.logs("standby ready") == 2, seconds=20)
        pod.status(deprecatedEpoch=1)
        await pod.lift(2)
        await agent.printed("started 2", 2)

    ready = {
        line["process"]: line["pid"] for line in agent.lines if line["event"] == "standby ready"
    }
    assert {f"started 2 29520 {4 + number} {pid}" for number, pid in ready.items()} <= set(
        agent.out
    )


# ---- groups that start together (KEP-498)


def in_group(pod: Pod, **more: str) -> dict[str, str]:
    """The agent's own variables, as admission gives them to a pod that is held from within."""
    jobset = pod.server.get(JOBSETS, "js")
    assert jobset is not None
    own = {name: value for name, value in pod.environ.items() if name.isupper() and name != "PATH"}
    own |= {"JOBSET_UID": jobset["metadata"]["uid"], "GROUP_ATTEMPT": "3", "GROUP_MOUNT": "/none"}
    return {f"JOBSET_AGENT_{name}": value for name, value in (own | more).items()}


def release(pod: Pod, attempt: int) -> None:
    """Play the controller: the group has started."""
    jobset = pod.server.get(JOBSETS, "js")
    assert jobset is not None
    data = {"started": f"{jobset['metadata']['uid']} {attempt}\n"}
    if pod.server.get("configmaps", MAP) is None:
        pod.server.create("configmaps", {"metadata": {"name": MAP}, "data": data})
    else:
        pod.server.patch("configmaps", MAP, {"data": data})


async def test_a_worker_that_restarts_in_place_waits_for_its_group_first(pod: Pod) -> None:
    """Once: neither the epoch's barrier nor an older attempt lets it run before."""
    async with pod.run("sh", "-c", SLEEPER, **in_group(pod)) as agent:
        await pod.lift(1)
        release(pod, 2)
        await agent.logged("barrier lifted")
        assert agent.out == []
        pod.status(deprecatedEpoch=1)
        await pod.lift(2)
        release(pod, 3)
        await agent.printed("started")
        pod.status(deprecatedEpoch=2)
        await agent.printed("saved")
        await pod.lift(3)
        await agent.printed("started", 2)


async def test_a_group_that_does_not_come_together_in_time_ends_the_pod(
    pod: Pod, tmp_path: Path
) -> None:
    """With the words and the exit code of the init container."""
    log = tmp_path / "last"
    limit_s = math.ceil(patience.scaled(2))  # the barrier has to lift within it
    given = in_group(pod, GROUP_TIMEOUT=str(limit_s), TERMINATION_LOG=str(log))
    async with pod.run("sh", "-c", SLEEPER, **given) as agent:
        await pod.lift(1)
        assert await agent.exit_code() == 1
        assert agent.out == []
    assert f"timed out after {limit_s} s" in log.read_text()


async def test_a_container_held_for_its_group_becomes_its_command(pod: Pod) -> None:
    """The same process, with the environment, the signals and the exit code of the command."""
    script = "echo started $$; grep -E 'Sig(Blk|Ign)' /proc/self/status; env; exit 7"
    given = in_group(pod, MODE="hold")
    async with pod.run("sh", "-c", script, **given) as agent:
        await eventually(lambda: pod.server.requests.count("watch", "configmaps"), seconds=10)
        assert agent.out == []
        release(pod, 3)
        assert await agent.exit_code() == 7
        await eventually(lambda: any(line.startswith("PATH=") for line in agent.out), seconds=10)
        assert f"started {agent.process.pid}" == agent.out[0]
    sets = {line.partition(":")[0]: int(line.split()[1], 16) for line in agent.out if ":\t" in line}
    # What these tests' own parent ignores is inherited; what Python ignores itself is not.
    own = Path("/proc/self/status").read_text()
    ignored = int(own.partition("SigIgn:")[2].split()[0], 16)
    of_python = sum(1 << (each - 1) for each in (signal.SIGPIPE, signal.SIGXFSZ))
    assert {"SigBlk": 0, "SigIgn": ignored & ~of_python} == sets
    assert not [line for line in agent.out if "JOBSET_AGENT_" in line]
    assert pod.server.requests.count("watch", "jobsets") == 0


async def test_a_held_command_that_is_not_there(pod: Pod) -> None:
    """The container ends as a shell would say it; told to stop, with 143."""
    given = in_group(pod, MODE="hold")
    release(pod, 3)
    async with pod.run("/nowhere", **given) as agent:
        assert await agent.exit_code() == 127
    async with pod.run("true", **given | {"JOBSET_AGENT_GROUP_ATTEMPT": "9"}) as agent:
        await eventually(lambda: pod.server.requests.count("watch", "configmaps") > 1, seconds=10)
        agent.process.send_signal(signal.SIGTERM)
        assert await agent.exit_code() == 143


AGENT_SWITCHES = ("-s", "-S", "-OO")
"""As in the Containerfile."""


@pytest.fixture(scope="module")
def arm64(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The agent's image."""
    return root_of("agent", tmp_path_factory.mktemp("arm64"))


@pytest.mark.foreign
@pytest.mark.timeout(900)
async def test_an_image_for_arm64_restarts_a_worker(pod: Pod, arm64: Path) -> None:
    """Emulated: `--help`, then the supervisor around a worker, against the API server over TLS."""
    python = emulated(arm64, *AGENT_SWITCHES)
    app = {"PYTHONPATH": str(arm64 / "app"), "PYTHONDONTWRITEBYTECODE": "1"}
    shown = await asyncio.create_subprocess_exec(
        *python,
        "-m",
        "jobsetpy.agent",
        "--help",
        env={**os.environ, **app},
        stdout=asyncio.subprocess.PIPE,
    )
    async with patience.timeout(60):
        out, _ = await shown.communicate()
    assert shown.returncode == 0
    assert b"usage:" in out
    async with pod.run("sh", "-c", SLEEPER, python=python, **app) as agent:
        await eventually(lambda: pod.epoch == "1", seconds=60)
        pod.status(syncedEpoch=1)
        await agent.printed("started")
        pod.status(deprecatedEpoch=1)
        await agent.printed("saved")
        await pod.lift(2)
        await agent.printed("started", 2)
    assert pod.server.requests.count("patch", "pods") == 2


@pytest.mark.foreign
@pytest.mark.timeout(900)
def test_the_launcher_for_arm64_starts_its_folders_python(arm64: Path, tmp_path: Path) -> None:
    """Emulated, with a stand-in for the dynamic linker that tells its words and variables."""
    qemu = emulated(arm64)[0]
    shutil.copy(arm64 / "app/supervise", tmp_path / "supervise")
    (tmp_path / "ld.so").write_text('#!/bin/sh\necho "$JOBSETPY_SET_ASIDE_LD_X:$*"\n')
    (tmp_path / "ld.so").chmod(0o755)
    words = [qemu, str(tmp_path / "supervise"), "train", "--fast"]
    env = {"PATH": os.environ["PATH"], "LD_X": "kept"}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=env, timeout=600)
    assert done.stdout == (
        f"kept:--inhibit-cache --library-path {tmp_path}/lib --argv0 {tmp_path}/bin/python3 "
        f"{tmp_path}/bin/python3 -I -S -OO {tmp_path}/app supervise -- train --fast\n"
    )


# ---- seats ---------------------------------------------------------------------------------------

STATE = "jobset.sigs.k8s.io/in-place-restart-state"
SEATS = {
    "POD_UID": "u2",
    "WORKER_JOB": "js-w-0",
    "WORKER_SEATS": "2",
    "WORKER_POD_INDEX": "2",
    "WORKER_MASTER_JOB": "js-w-0",
    "WORKER_SEAT_VARIABLES": "JOB_COMPLETION_INDEX",
    "JOB_COMPLETION_INDEX": "2",
    "WORKER_PROCESSES": "1",
    "WORKER_WORLD_SIZE": "2",
    "WORKER_JOB_PODS": "2",
    "MASTER_ADDR": "js-w-0-0.js",
    "WORKER_HOSTS": "w=1x2x1",
}
"""A pod with index 2 of a Job with two seats."""
PRINTER = "echo seat $RANK $JOB_COMPLETION_INDEX $MASTER_ADDR; exec sleep 299"


def seated(*entries: tuple[int, str]) -> dict[str, Any]:
    """The part of the status with the assignment."""
    taken = [
        {"job": "js-w-0", "seat": seat, "pod": uid, "podUID": uid, "address": f"10.0.0.{seat}"}
        for seat, uid in entries
    ]
    return {"takenSeats": taken}


def notes(pod: Pod) -> dict[str, str]:
    """The pod's annotations."""
    found = pod.server.get("pods", "p-0")
    assert found is not None
    return dict(found["metadata"].get("annotations", {}))


async def test_a_pod_without_a_seat_is_parked_until_it_takes_one(pod: Pod) -> None:
    """It follows from epoch to epoch without a worker, then has the rank of the seat."""
    own = {f"JOBSET_AGENT_{k}": v for k, v in (pod.environ | SEATS).items() if k != "PATH"}
    async with pod.run("sh", "-c", PRINTER, **own, JOB_COMPLETION_INDEX="2") as agent:
        await pod.lift(1)
        await pod.at(2)
        assert agent.out == []
        assert notes(pod)[STATE] == "ready"
        pod.status(deprecatedEpoch=1)
        pod.status(syncedEpoch=2, inPlaceRestart=seated((0, "u2")))
        await agent.printed("seat 0 0 10.0.0.0")
        pod.status(deprecatedEpoch=2)
        await pod.at(3)
        assert STATE not in notes(pod)
        pod.status(syncedEpoch=3, inPlaceRestart=seated((1, "u2")))
        await agent.printed("seat 1 1 js-w-0-0.js")


async def test_the_worker_finds_the_hosts_of_its_epoch(pod: Pod, tmp_path: Path) -> None:
    """In a file by rank, written before it starts; the agent asks nobody for it."""
    file = tmp_path / "hosts"
    own = {f"JOBSET_AGENT_{k}": v for k, v in (pod.environ | SEATS).items() if k != "PATH"}
    script = "paste -s -d, $JOBSET_HOSTFILE; exec sleep 299"
    async with pod.run(
        "sh", "-c", script, **own, JOB_COMPLETION_INDEX="2", JOBSET_HOSTFILE=str(file)
    ) as agent:
        await pod.lift(1)
        await pod.at(2)
        assert not file.exists()
        pod.status(deprecatedEpoch=1)
        pod.server.requests.clear()
        pod.status(syncedEpoch=2, inPlaceRestart=seated((0, "u2")))
        await agent.printed("10.0.0.0 slots=1,js-w-0-1.js slots=1")
        assert len(pod.server.requests) == 0
        pod.status(deprecatedEpoch=2)
        await pod.at(3)
        pod.status(syncedEpoch=3, inPlaceRestart=seated((1, "u2")))
        await agent.printed("js-w-0-0.js slots=1,10.0.0.1 slots=1")
        assert [(one.verb, one.resource) for one in pod.server.requests] == [("patch", "pods")]


async def test_a_pod_of_a_spare_job_takes_the_ranks_of_another_job(pod: Pod) -> None:
    """It is parked until the status gives its Job the seats of one that has lost a pod."""
    own = SEATS | {
        "WORKER_JOB": "js-w-2", "WORKER_JOB_INDEX": "2", "WORKER_SEAT_JOBS": "2",
        "WORKER_POD_INDEX": "1", "JOB_COMPLETION_INDEX": "1", "WORKER_WORLD_SIZE": "4",
        "WORKER_HOSTS": "w=2x2x1",
    }  # fmt: skip
    own = {f"JOBSET_AGENT_{k}": v for k, v in (pod.environ | own).items() if k != "PATH"}
    async with pod.run("sh", "-c", PRINTER, **own, JOB_COMPLETION_INDEX="1") as agent:
        await pod.lift(1)
        await pod.at(2)
        assert agent.out == []
        pod.status(deprecatedEpoch=1)
        moved = {"takenJobs": [{"job": "js-w-0", "holder": "js-w-2"}]}
        pod.status(syncedEpoch=2, inPlaceRestart=moved)
        await agent.printed("seat 1 1 js-w-2-0.js")
        pod.status(deprecatedEpoch=2)
        await pod.at(3)
        moved = {"takenJobs": [{"job": "js-w-0", "holder": "js-w-3"}]}
        pod.status(syncedEpoch=3, inPlaceRestart=moved)
        await pod.at(4)
        assert notes(pod)[STATE] == "ready"


async def test_a_holder_whose_seat_is_taken_is_killed_and_parks(pod: Pod) -> None:
    """It was late: another worker has its rank by now."""
    own = SEATS | {"POD_UID": "u1", "WORKER_POD_INDEX": "1"}
    own = {f"JOBSET_AGENT_{k}": v for k, v in (pod.environ | own).items() if k != "PATH"}
    script = "trap '' TERM; echo started; while :; do sleep 0.05; done"
    async with pod.run("sh", "-c", script, **own, JOBSET_AGENT_WORKER_GRACE_SECONDS="99") as agent:
        await pod.lift(1)
        await agent.printed("started")
        pod.status(deprecatedEpoch=1)
        await eventually(lambda: notes(pod).get(STATE) == "saving=99", seconds=10)
        assert pod.epoch == "1"
        pod.status(syncedEpoch=2, inPlaceRestart=seated((1, "u2")))
        await pod.at(3)
        assert notes(pod)[STATE] == "ready"
        pod.status(syncedEpoch=3)
        await pod.at(4)
        assert agent.out == ["started"]


async def test_a_parked_pod_prepares_its_standby_and_says_so(pod: Pod, tmp_path: Path) -> None:
    """Its release has the variables of the seat."""
    program = tmp_path / "train.py"
    program.write_text(
        "import os, time\n"
        "print('seat', *(os.environ[n] for n in ('RANK', 'JOB_COMPLETION_INDEX', 'MASTER_ADDR',"
        " 'JOBSET_EPOCH')), os.environ['MASTER_PORT'], flush=True)\n"
        "time.sleep(299)\n"
    )
    own = SEATS | {"WORKER_PRELOAD": "json", "WORKER_STANDBY_DELAY_SECONDS": "99"}
    own = {f"JOBSET_AGENT_{k}": v for k, v in (pod.environ | own).items() if k != "PATH"}
    command = (sys.executable, "-S", str(program))
    async with pod.run(*command, **own, JOB_COMPLETION_INDEX="2") as agent:
        await pod.at(1)
        await eventually(lambda: notes(pod).get(STATE) == "ready", seconds=20)
        assert agent.logs("standby ready") == 1
        await pod.lift(1)
        await pod.at(2)
        pod.status(syncedEpoch=2, inPlaceRestart=seated((1, "u2")))
        await agent.printed("seat 1 1 js-w-0-0.js 2 29520")
        assert (await agent.logged("worker started"))["standby"] is True


def ringed(pod: Pod, tmp_path: Path) -> tuple[dict[str, str], Ring]:
    """Variables of an agent with a ring of two pods, and its neighbour, which is started."""
    port, uid = free_udp_port(), pod.server.get(JOBSETS, "js")["metadata"]["uid"]
    members = Members((Part("w", 1, 2),))
    other = Ring(
        RingRules(interval_s=0.1, members=members, position=1, node="b", host="{}", port=0),
        jobset_uid=uid,
        log=lambda *_, **__: None,
        motion=WorkerMotion(str(tmp_path / "none"), lambda: False),
        on_report=lambda: None,
        resolve=lambda _host: ("127.0.0.1", port),
        bind="127.0.0.1",
    )
    other.see(1, 0)
    other.start(asyncio.get_running_loop())
    variables = {
        "JOBSET_UID": uid,
        "HEARTBEAT_SECONDS": "0.1",
        "HEARTBEAT_GROUP": "w:1:2",
        "HEARTBEAT_PORT": str(port),
        "NODE_NAME": "a",
        "WORKER_JOB": "js-w-0",
        "WORKER_POD_INDEX": "0",
    }
    return variables, other


async def test_a_neighbour_that_falls_silent_is_in_the_annotation(pod: Pod, tmp_path: Path) -> None:
    """One patch reports it, and the patch of the next epoch but one removes it."""
    variables, other = ringed(pod, tmp_path)

    def unheard() -> str | None:
        annotations = pod.server.get("pods", "p-0")["metadata"].get("annotations", {})
        return annotations.get("jobset.sigs.k8s.io/in-place-restart-unheard")

    async with pod.run("sh", "-c", SLEEPER, **variables) as agent:
        await pod.lift(1)
        await agent.printed("started")
        await eventually(lambda: other.heard_at is not None, seconds=10)
        assert unheard() is None
        other._closed = True  # without a goodbye
        await eventually(lambda: unheard() == "1 unknown w-0-1", seconds=10)
        pod.status(deprecatedEpoch=1)
        await pod.at(2)
        assert unheard() == "1 unknown w-0-1"
        pod.status(syncedEpoch=2)
        await agent.printed("started", 2)
        pod.status(deprecatedEpoch=2)
        await pod.at(3)
        assert unheard() is None


CUT_OFF = "the pod is cut off, and its worker makes no progress: it is killed"


async def test_worker_that_is_cut_off_from_everything_is_killed(pod: Pod, tmp_path: Path) -> None:
    """Not before the API server, the neighbour and its progress have all gone; then it joins."""
    variables, other = ringed(pod, tmp_path)
    stalls = tmp_path / "stalls"
    script = (
        "trap '' TERM; echo started; i=0; while :; do i=$((i+1)); "
        f"[ -e {stalls} ] || echo $i > $JOBSET_PROGRESS_FILE; sleep 0.05; done"
    )
    async with TcpProxy("127.0.0.1", pod.server.port).serving() as network:
        variables["KUBERNETES_SERVICE_PORT"] = str(network.port)
        async with pod.run("sh", "-c", script, **variables) as agent:
            await pod.lift(1)
            await agent.printed("started")
            await eventually(lambda: other.heard_at is not None, seconds=10)
            network.refusing = True
            network.cut()
            stalls.touch()
            await asyncio.sleep(2)  # more than twice the time of the fence
            assert agent.logs(CUT_OFF) == 0
            other._closed = True  # without a goodbye
            await agent.logged(CUT_OFF)
            await eventually(lambda: agent.logs("worker exited") == 1, seconds=10)
            assert not Path(pod.environ["JOBSET_EPOCH_FILE"]).exists()

            network.refusing = False
            await eventually(lambda: pod.epoch == "2", seconds=60)
            cause = notes(pod)["jobset.sigs.k8s.io/in-place-restart-cause"]
            assert cause == "no-progress=1 neither the API server nor a neighbour answers"
            stalls.unlink()
            pod.status(syncedEpoch=2)
            await agent.printed("started", 2)


def parked(pod: Pod, command: str, **settings: str) -> dict[str, str]:
    """Variables of a pod with spares and a health command, which is frequent."""
    given = {"HEALTH_COMMAND": command, "HEALTH_INTERVAL_SECONDS": "0.1", "HEALTH_SECONDS": "0.5"}
    given = pod.environ | SEATS | given | settings
    return {f"JOBSET_AGENT_{name}": value for name, value in given.items() if name != "PATH"}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("echo row remap failed; exit 3", "exit code 3: row remap failed"),
        ("head -c 1000000 /dev/zero; echo; echo row remap failed; exit 3",
         "exit code 3: row remap failed"),
        ("echo row remap failed; exec sleep 296", "it did not end: row remap failed"),
        ("setsid sleep 297 & sleep 298 & exit 3", "exit code 3"),
    ],
    ids=["fails", "prints a megabyte", "hangs", "leaves processes"],
)  # fmt: skip
async def test_a_spare_says_that_it_is_unfit_and_ends(
    pod: Pod, tmp_path: Path, bad: str, reason: str
) -> None:
    """Its command succeeds at first, and fails while the pod waits."""
    broken = tmp_path / "broken"
    own = parked(pod, f"[ ! -e {broken} ] || {{ {bad}; }}")
    async with pod.run("sh", "-c", PRINTER, **own) as agent:
        await pod.lift(1)
        await eventually(lambda: notes(pod).get(STATE) == "ready", seconds=10)
        await pod.at(2)
        broken.touch()
        assert await agent.exit_code() == 85

    assert notes(pod)[STATE] == f"unfit: {reason}"
    assert pod.epoch == "2"
    assert agent.out == []


@pytest.mark.parametrize("command", ["/none/nvidia-smi", "/etc/passwd"])
async def test_a_spare_is_not_checked_again_when_its_command_cannot_be_run(
    pod: Pod, command: str
) -> None:
    """It stays ready, and the log has one line for each epoch, not one for each interval."""
    async with pod.run("sh", "-c", PRINTER, **parked(pod, command)) as agent:
        await pod.lift(1)
        await pod.at(2)
        await asyncio.sleep(0.5)  # in which it would have run some times
        pod.status(deprecatedEpoch=1)
        pod.status(syncedEpoch=2, inPlaceRestart=seated((0, "u2")))
        await agent.printed("seat 0")

    assert agent.logs("the health command cannot be run: this machine is not checked") == 2


async def test_checks_of_a_spare_end_when_it_takes_a_seat(pod: Pod, tmp_path: Path) -> None:
    """Until then one follows the other, and never next to it."""
    ran = tmp_path / "ran"
    command = f"echo begin >>{ran}; sleep 0.15; echo end >>{ran}"
    async with pod.run("sh", "-c", PRINTER, **parked(pod, command)) as agent:
        await pod.lift(1)
        await pod.at(2)
        await eventually(lambda: ran.read_text().count("end") >= 5, seconds=10)
        pod.status(deprecatedEpoch=1)
        pod.status(syncedEpoch=2, inPlaceRestart=seated((0, "u2")))
        await agent.printed("seat 0")
        runs = ran.read_text()
        await asyncio.sleep(0.5)  # in which it would have run some times

        assert ran.read_text() == runs == "begin\nend\n" * runs.count("end")


async def test_a_spare_that_takes_a_seat_waits_for_a_check_that_runs(
    pod: Pod, tmp_path: Path
) -> None:
    """No worker starts on a machine of which it is not known whether it is still fit."""
    hold, begun = tmp_path / "hold", tmp_path / "begun"
    command = f"[ ! -e {hold} ] || {{ touch {begun}; exit 1; }}"
    async with pod.run("sh", "-c", PRINTER, **parked(pod, command, HEALTH_SECONDS="60")) as agent:
        await pod.lift(1)
        await pod.at(2)
        hold.touch()
        await eventually(begun.exists, seconds=10)
        pod.status(deprecatedEpoch=1)
        pod.status(syncedEpoch=2, inPlaceRestart=seated((0, "u2")))
        await asyncio.sleep(0.3)  # in which a worker would have started
        assert agent.out == []
        hold.unlink()
        await agent.printed("seat 0")

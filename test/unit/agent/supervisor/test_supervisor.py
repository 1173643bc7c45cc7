"""The agent as a process, with real workers to supervise, over TLS, against the fake API server."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from jobsetpy.agent.supervisor.heartbeats.ring import Ring
from jobsetpy.agent.supervisor.heartbeats.rules import Members, Motion, Part, RingRules
from support import patience
from support.agents.agent_process import EPOCH, JOBSETS, Pod, free_udp_port
from support.agents.foreign_images import emulated, root_of
from support.faults.tcp_proxy import TcpProxy
from support.patience import eventually

MAP = "js-group-scheduling"
FIRST_PROCESS = ["unshare", "--pid", "--mount-proc", "--kill-child", "--fork"]
SHARED_NAMESPACE = [*FIRST_PROCESS, "sh", "-c", 'sleep 299 & "$@"; exit $?', "pause"]
"""As with ``shareProcessNamespace``: another process is the first one, and has a child of its own."""
WITHOUT_RIGHT_TO_KILL = ["setpriv", "--bounding-set=-kill", "--inh-caps=-kill"]
CAN_UNSHARE = (
    shutil.which("unshare") is not None
    and subprocess.run([*FIRST_PROCESS, "true"], capture_output=True, check=False).returncode == 0
)
SLEEPER = "trap 'echo saved; exit 143' TERM; echo started $$; while :; do sleep 30 & wait $!; done"


async def test_worker_saves_and_starts_again_when_its_epoch_is_deprecated(pod: Pod) -> None:
    """The agent opens one watch and sends one patch for each epoch."""
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


async def test_worker_is_killed_when_another_pod_has_its_place(pod: Pod) -> None:
    """The pod was replaced while its node was cut off: it must not overwrite a newer checkpoint."""
    async with pod.run("sh", "-c", SLEEPER) as agent:
        await agent.started(1)
        pod.server.delete("pods", "p-0")
        pod.status(syncedEpoch=2, deprecatedEpoch=1)
        await agent.logged("the group runs without this pod")
        await agent.logged("epoch not stored")
        pod.status(syncedEpoch=3)  # the epoch that it would have joined
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
    """A checkpoint written within the grace period counts; between epochs there is no file."""
    path = Path(pod.environ["JOBSET_EPOCH_FILE"])
    path.write_text("99")  # of an earlier run of the container
    async with pod.run("sh", "-c", FENCED) as agent:
        await pod.at(1)
        assert not path.exists()
        await agent.started(1, "started epoch 1")
        pod.status(deprecatedEpoch=1)
        await agent.printed("stopping epoch 1")
        await pod.at(2)
        assert not path.exists()
        await agent.started(2, "started epoch 2")
        pod.status(syncedEpoch=3, deprecatedEpoch=2)
        await pod.at(4)
        assert not path.exists()


async def test_epoch_file_is_removed_before_a_hung_worker_gets_a_signal(pod: Pod) -> None:
    """The signal may end a write that hangs, which must not count for a later epoch."""
    script = "echo 1 > $JOBSET_PROGRESS_FILE; " + FENCED
    async with pod.run("sh", "-c", script, HANG_SECONDS="1", HANG_FIRST_SECONDS="1") as agent:
        await agent.started(1, "started epoch 1")
        await agent.printed("hangs epoch")
        assert "hangs epoch" in agent.out


async def test_agent_uses_a_renewed_token_while_its_worker_runs(pod: Pod, tmp_path: Path) -> None:
    """An open watch continues; requests after the old token's end carry the new one."""
    account = Path(pod.environ["SERVICE_ACCOUNT_DIR"])
    for name, token in (("one", "pod-token"), ("two", "renewed")):
        (tmp_path / name).mkdir()
        shutil.copy(account / "ca.crt", tmp_path / name)
        (tmp_path / name / "token").write_text(token)
    (tmp_path / "data").symlink_to("one")
    pod.environ["SERVICE_ACCOUNT_DIR"] = str(tmp_path / "data")
    async with pod.run("sh", "-c", SLEEPER) as agent:
        await agent.started(1)
        (tmp_path / "new").symlink_to("two")
        (tmp_path / "new").rename(tmp_path / "data")
        pod.server.token = "renewed"
        await agent.restarted(2, times=2)
        pod.server.faults.cut(verb="watch", reset=True)
        pod.status(deprecatedEpoch=2)
        await pod.at(3)

    assert pod.server.requests.count("watch", "jobsets") <= 3


async def test_next_epoch_opens_when_a_worker_fails(pod: Pod) -> None:
    """No controller has to deprecate the epoch; the agent keeps running."""
    async with pod.run("sh", "-c", "echo started; exit 1") as agent:
        for epoch in (1, 2, 3):
            await agent.started(epoch, times=epoch)
        await pod.at(4)

    assert agent.process.returncode == -signal.SIGKILL


async def test_pod_ends_when_its_exit_code_is_listed(pod: Pod) -> None:
    """The container has the worker's exit code, with signals counted as shells do."""
    async with pod.run("sh", "-c", "kill -KILL $$", END_POD_EXIT_CODES="3,137") as agent:
        await pod.lift(1)
        assert await agent.exit_code() == 137
        assert pod.epoch == "1"


async def test_children_of_a_shell_are_stopped_gracefully(pod: Pod) -> None:
    """They get the signal too, and the agent waits for them after the shell has ended."""
    inner = "trap 'sleep 0.3; echo saved; exit 0' TERM; echo started; while :; do sleep 0.05; done"
    async with pod.run("sh", "-c", f'sh -c "{inner}"; true') as agent:
        await agent.started(1)
        pod.status(deprecatedEpoch=1)
        await pod.at(2)

    assert agent.out == ["started", "saved"]


async def test_worker_gets_the_containers_environment(pod: Pod, tmp_path: Path) -> None:
    """So are its working directory, arguments and signal dispositions."""
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
    # The C library's own signals, 32 and 33, are ignored in every child of posix_spawn(), perhaps
    # in the parent of these tests already.
    own = ~(3 << 31)
    assert int(ignored, 16) & own == int(expected.split()[-1], 16) & own


async def test_worker_gets_signals_that_the_agent_receives(pod: Pod) -> None:
    """A signal that is not the stop signal reaches the worker and changes nothing else."""
    script = "trap 'echo usr1' USR1; echo started; while :; do sleep 0.05; done"
    async with pod.run("sh", "-c", script) as agent:
        await agent.started(1)
        agent.process.send_signal(signal.SIGUSR1)
        await agent.printed("usr1")
        assert agent.process.returncode is None


async def test_pod_ends_without_success_when_it_gets_sigterm(pod: Pod) -> None:
    """The worker gets the signal, saves and exits with 0; no epoch is opened."""
    script = "trap 'exit 0' TERM; echo started; while :; do sleep 0.05; done"
    async with pod.run("sh", "-c", script) as agent:
        await agent.started(1)
        agent.process.send_signal(signal.SIGTERM)
        assert await agent.exit_code() == 143
        assert pod.epoch == "1"


@pytest.mark.parametrize(
    ("command", "code"), [("no-such-program", 127), ("/etc", 126)], ids=["missing", "a folder"]
)
async def test_log_names_a_command_that_cannot_be_run(pod: Pod, command: str, code: int) -> None:
    """Exit codes as a shell has them may be listed to end the pod."""
    async with pod.run(command, END_POD_EXIT_CODES=str(code)) as agent:
        await pod.lift(1)
        assert await agent.exit_code() == code
    line = await agent.logged("the worker's command cannot be run")

    assert line["command"] == command


async def test_command_that_cannot_be_run_counts_as_a_failure(pod: Pod) -> None:
    """Unless it is listed it opens the next epoch, which the controller's budget limits."""
    async with pod.run("no-such-program"):
        await pod.lift(1)
        await pod.at(2)


def report_of(pod: Pod) -> tuple[str | None, str | None]:
    """Return cause and step that the pod reports of the last run of its worker."""
    cause = pod.annotations.get("jobset.sigs.k8s.io/in-place-restart-cause")
    return cause, pod.annotations.get("jobset.sigs.k8s.io/progress")


async def test_patch_of_the_next_epoch_reports_the_last_run(pod: Pod) -> None:
    """It has exit code and last step; a restart that other pods caused has no cause."""
    script = 'echo 41 >"$JOBSET_PROGRESS_FILE"; echo 42 >"$JOBSET_PROGRESS_FILE"; echo started\n'
    script += "while ! [ -e stop ]; do sleep 0.02; done; rm stop; kill -KILL $$"
    folder = Path(pod.environ["JOBSET_PROGRESS_FILE"]).parent
    async with pod.run("sh", "-c", script, cwd=str(folder)) as agent:
        await agent.started(1)
        assert report_of(pod) == (None, None)
        (folder / "stop").touch()
        await pod.at(2)
        assert report_of(pod) == ("exit-code=137", "42")
        pod.status(syncedEpoch=2)
        await agent.printed("started", 2)
        pod.status(deprecatedEpoch=2)
        await pod.at(3)
        assert report_of(pod) == (None, "42")

    assert pod.server.requests.count("patch", "pods") == 3


async def test_epoch_is_stored_without_the_report_when_a_policy_refuses_it(pod: Pod) -> None:
    """The policy may be older than the agent and allow only the epoch."""
    pod.server.faults.status(422, verb="patch", resource="pods", count=1, skip=1)
    async with pod.run("sh", "-c", "echo started; exit 7") as agent:
        await agent.started(1)
        await pod.at(2)

    assert report_of(pod) == (None, None)


@pytest.mark.parametrize("how", ["stopped", "dumps its stacks and exits with 0"])
async def test_worker_that_hangs_is_killed_and_its_group_restarts(pod: Pod, how: str) -> None:
    """It gets time to dump its stacks."""
    trap = "" if how == "stopped" else "trap 'echo stacks; exit 0' ABRT;"
    script = f"echo 7 >$JOBSET_PROGRESS_FILE; {trap} echo started $$; "
    script += "kill -STOP $$; sleep 300" if how == "stopped" else "while :; do sleep 0.1; done"
    async with pod.run("sh", "-c", script, HANG_SECONDS="1") as agent:
        await agent.started(1)
        line = await agent.logged("no progress: the worker hangs")
        assert (line["step"], line["level"]) == (7, "error")
        await pod.at(2)
        assert report_of(pod) == ("no-progress=1", "7")
        assert ("stacks" in agent.out) is (how != "stopped")
        pod.status(syncedEpoch=2)
        await agent.printed("started", 2)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_program_reports_its_steps_when_it_becomes_another_user(pod: Pod) -> None:
    """Like gosu: in a sticky folder, under any umask, and when it replaces the file."""
    file = Path("/dev/shm", f"jobset-test-{os.getpid()}")
    drop = "setpriv --reuid 65534 --regid 65534 --clear-groups sh -ec"
    script = f"""if [ $JOBSET_EPOCH = 1 ]; then {drop} 'echo 5 >$JOBSET_PROGRESS_FILE'; exit 7; fi
    new=$JOBSET_PROGRESS_FILE.new; {drop} "umask 077; echo 6 >$new"
    mv $new $JOBSET_PROGRESS_FILE; exit 7"""
    umask = ["sh", "-c", 'umask 077; exec "$@"', "sh"]
    given = {"JOBSET_PROGRESS_FILE": str(file), "HANG_SECONDS": "60"}
    try:
        async with pod.run("sh", "-c", script, first=umask, **given) as agent:
            await pod.lift(1)
            await pod.at(2)
            assert report_of(pod) == ("exit-code=7", "5")
            for epoch in (2, 3):
                await pod.lift(epoch)
                await pod.at(epoch + 1)
                assert report_of(pod) == ("exit-code=7", "6")
            assert agent.logs("there is no progress file: steps and hangs of the worker") == 0
            assert not any("progress file" in line["event"] for line in agent.lines)
            agent.process.kill()
    finally:
        file.unlink(missing_ok=True)


async def test_worker_continues_when_its_progress_file_has_no_step(pod: Pod) -> None:
    """Any write to the file shows that the worker is alive; the log has one line about the content."""
    script = "echo started; for n in 1 2 3 4 5 6 7 8 9; do "
    script += 'echo "loss $n" >"$JOBSET_PROGRESS_FILE"; sleep 0.3; done; exit 0'
    async with pod.run("sh", "-c", script, HANG_SECONDS="2") as agent:
        await pod.lift(1)
        assert await agent.exit_code() == 0

    assert agent.logs("the progress file is no step") == 1
    assert agent.logs("no progress: the worker hangs") == 0


async def test_hung_worker_is_killed_when_the_agents_log_is_not_read(pod: Pod) -> None:
    """Standard error is full, as when a container runtime is down."""
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
        assert report_of(pod) == ("no-progress=1", "7")
        process.send_signal(signal.SIGTERM)
        async with patience.timeout(10):
            assert await process.wait() == 143
    finally:
        os.close(reader)  # ends every process that still writes
        os.close(writer)
        with suppress(ProcessLookupError):
            process.kill()
        for pid in pod.left():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await process.wait()


async def test_worker_has_the_containers_streams_when_the_agents_log_is_off(pod: Pod) -> None:
    """Standard input is empty here; standard error has nothing of the agent."""
    async with pod.run("sh", "-c", "cat; echo end; echo only >&2", AGENT_LOG="off") as agent:
        await pod.lift(1)
        assert await agent.exit_code() == 0

    assert (agent.out, agent.lines) == (["end"], [])


async def test_worker_is_killed_when_its_grace_period_is_over(pod: Pod) -> None:
    """The group then restarts as usual; a log of problems has only this line."""
    script = "trap '' TERM; echo started; while :; do sleep 30 & wait $!; done"
    choice = {"AGENT_LOG": "problems", "WORKER_GRACE_SECONDS": "0.1"}
    async with pod.run("sh", "-c", script, **choice) as agent:
        await agent.started(1)
        assert agent.lines == []
        pod.status(deprecatedEpoch=1)
        await agent.logged("the worker did not stop within its grace period")
        await agent.started(2, times=2)

    assert len(agent.lines) == 1


async def test_worker_does_not_get_injected_variables(pod: Pod) -> None:
    """They configure the agent; the worker has its own variables of the same names."""
    own = {"NAMESPACE", "POD_NAME", "JOBSET_NAME", "SERVICE_ACCOUNT_DIR"}
    pod.environ |= {f"JOBSET_AGENT_{name}": pod.environ[name] for name in own}
    pod.environ |= dict.fromkeys(own, "mine") | {"BARRIER_PORT": "no port"}
    async with pod.run("env", JOBSET_AGENT_AGENT_LOG="on") as agent:
        await pod.lift(1)
        assert await agent.exit_code() == 0

    assert {f"{name}=mine" for name in own} <= set(agent.out)
    assert not any(line.startswith("JOBSET_AGENT_") for line in agent.out)


def test_supervisor_without_a_command_exits_with_2() -> None:
    """The message says that the command is missing."""
    done = subprocess.run(
        [sys.executable, "-m", "jobsetpy.agent", "supervise"], capture_output=True, check=False
    )

    assert done.returncode == 2
    assert "COMMAND" in json.loads(done.stderr)["error"]


async def test_sidecar_returns_to_its_epoch_when_it_missed_the_lift(
    pod: Pod, tmp_path: Path
) -> None:
    """It ends with 0 before the lift; once its worker may run, it restarts the pod in place."""
    environ = {"BARRIER_PORT": "0", "BARRIER_BIND_ADDRESS": "127.0.0.1"}
    environ["RESTART_POD_IN_PLACE_EXIT_CODE"] = "77"
    async with pod.run(**environ) as agent:
        await pod.at(1)
        agent.process.send_signal(signal.SIGTERM)
        assert await agent.exit_code() == 0
    pod.status(syncedEpoch=1)
    async with pod.run(**environ) as agent:
        await agent.logged("barrier lifted")
        agent.process.send_signal(signal.SIGINT)
        assert await agent.exit_code() == 77

    assert pod.epoch == "1"
    assert not (tmp_path / "arrival").exists()
    async with pod.run(**environ):
        await pod.at(2)


async def test_sidecar_keeps_its_epoch_when_no_probe_has_seen_the_lift(pod: Pod) -> None:
    """No worker may run before a probe succeeds: the sidecar ends with 0 and returns to its epoch."""
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
async def test_orphans_are_reaped_and_end_with_their_epoch(pod: Pod, first: list[str]) -> None:
    """They do not become zombies; those in a session of their own are killed with the others."""
    # The shell that counts starts no others: a shell's children have its arguments for a moment.
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
        await agent.started(1, "others")
        await agent.restarted(2, "others", 2)

    others = "others 1" if first is SHARED_NAMESPACE else "others 0"
    assert agent.out == ["left 0", "started 1", others] * 2


@pytest.mark.skipif(not CAN_UNSHARE, reason="needs a PID namespace")
@pytest.mark.parametrize("script", ["", "exit 7"], ids=["asked to stop", "failed"])
async def test_processes_started_during_a_kill_are_killed(
    pod: Pod, tmp_path: Path, script: str
) -> None:
    """They leave the worker's session and start others while they are being killed."""
    loop = "while :; do setsid sleep 298 & sleep 0.01; done"
    script = (
        f"setsid sh -c '{loop}' & setsid sh -c '{loop}' & "
        "echo started; sleep 0.3; "
        f"{script or 'exec sleep 60'}"
    )
    counted = f"n=$(ps -eo args= | grep -c '^sleep 298'); echo left $n; {script}"
    async with pod.run("sh", "-c", counted, first=SHARED_NAMESPACE) as agent:
        await agent.started(1)
        if "exit 7" not in script:
            pod.status(deprecatedEpoch=1)
        await agent.started(2, "left", 2)

    assert [line for line in agent.out if line.startswith("left")][:2] == ["left 0", "left 0"]


@pytest.mark.skipif(not CAN_UNSHARE, reason="needs a PID namespace")
@pytest.mark.parametrize("apart", ["", "setsid"], ids=["in the group", "in a session of its own"])
@FIRST_OR_NOT
async def test_container_ends_when_a_process_cannot_be_killed(
    pod: Pod, apart: str, first: list[str]
) -> None:
    """The process belongs to another user; the next epoch must not run next to it."""
    script = f"{apart} setpriv --reuid 65534 --clear-groups sleep 300 & sleep 0.3; exit 7"
    outer, inner = first[: len(FIRST_PROCESS)], first[len(FIRST_PROCESS) :]
    first = [*outer, *WITHOUT_RIGHT_TO_KILL, *inner]
    async with pod.run("sh", "-c", script, first=first) as agent:
        await pod.lift(1)
        assert await agent.exit_code() == 137

    assert pod.epoch == "1"
    assert any("cannot be killed" in line["event"] for line in agent.lines)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may trace")
async def test_killed_process_that_does_not_end_is_reported(pod: Pod) -> None:
    """A tracer holds it here, as the kernel does in state D; the next epoch waits for it."""
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    script = "trap '' TERM; echo started $$; while :; do sleep 0.1; done"
    async with pod.run("sh", "-c", script, WORKER_GRACE_SECONDS="0.1") as agent:
        await agent.started(1)
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
        await agent.started(2, times=2)


RECYCLED = """
import asyncio, signal, subprocess, sys
from pathlib import Path
from jobsetpy.agent.supervisor.worker.processes import Processes

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
def test_process_group_with_a_recycled_number_gets_no_signal() -> None:
    """One of two processes has ended, and a process of another container has its number."""
    done = subprocess.run(
        [*FIRST_PROCESS, sys.executable, "-c", RECYCLED],
        capture_output=True,
        text=True,
        check=False,
        timeout=patience.scaled(20),
    )
    assert done.stdout == "other S\n", done.stderr


BUSY = """
import asyncio
from jobsetpy.agent.supervisor.worker import processes as module

stat = module._visible
module._visible = lambda: {**stat(), 1 << 30: []}  # ended between the two steps of each scan

async def main():
    empty, checked, environ = asyncio.Event(), asyncio.Event(), {b"PATH": b"/usr/bin:/bin"}
    processes = module.Processes(["sh", "-c", "setsid sleep 298 & exec sleep 299"], on_exit=lambda _: None,
                                 on_empty=empty.set, on_unkillable=lambda: None)
    processes.attach(lambda number: None)
    processes.start(environ)
    standby = processes.start_aside(environ, lambda code: print("standby", code))
    empty.clear()  # set while there was no worker yet
    processes.kill_all()
    await empty.wait()
    module.SPARED_FOR_S = 0.0
    processes.start_aside(environ, lambda code: checked.set(), command=["true"])
    await checked.wait()
    await asyncio.sleep(5 * module.POLL_S)
    print("spared", processes.adopt(standby))
    processes.kill_all()
    await asyncio.sleep(0)

asyncio.run(main())
"""


def test_standby_is_spared_while_other_processes_end() -> None:
    """Some of another container end during each scan; a health command ends long after the kill."""
    done = subprocess.run(
        [sys.executable, "-c", BUSY],
        capture_output=True,
        text=True,
        check=False,
        timeout=patience.scaled(20),
    )
    assert done.stdout == "spared True\n", done.stderr


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
    HIDDEN
left = subprocess.run(["ps", "-eo", "args="], capture_output=True, text=True).stdout.splitlines()
print("left", sum(line.startswith("sleep 298") for line in left), child and child.poll(), flush=True)
signal.signal(signal.SIGUSR1, lambda *_: print("usr1", flush=True))
print("started", epoch, os.getpid(), flush=True)
while True:
    signal.pause()
"""
HIDDEN = """subprocess.Popen(
    ["setsid", "sh", "-c", "trap '' TERM; while :; do setsid sleep 298 & sleep 0.01; done"])"""
FORKING = WORKER.replace("HIDDEN", HIDDEN)
"""On a busy machine the kill of this worker may take longer than standbys are spared."""
WORKER = WORKER.replace("HIDDEN", "pass")
STANDBY = {"WORKER_STANDBY": "on", "WORKER_STANDBY_DELAY_SECONDS": "0"}
LATER = str(patience.scaled(1))
"""Delay of a standby process that is to find what its worker has imported."""
PYTHON = (sys.executable, "-c")


def written(folder: Path, text: str) -> Path:
    """Write a Python program; return its path."""
    program = folder / "train.py"
    program.write_text(text)
    return program


async def test_standby_becomes_the_worker_at_the_lift(pod: Pod) -> None:
    """It gets its epoch and is signalled like any worker; without one a worker starts cold."""
    async with pod.run(*PYTHON, WORKER, **STANDBY) as agent:
        await agent.started(1, "started 1")
        ready = await agent.logged("standby ready")
        agent.process.send_signal(signal.SIGUSR1)
        await agent.printed("usr1")
        await agent.restarted(2, "started 2")
        assert f"started 2 {ready['pid']}" in agent.out
        assert agent.out.count("usr1") == 1
        await eventually(lambda: agent.logs("standby ready") > 1, seconds=10)
        os.kill(ready["pid"], signal.SIGKILL)
        await agent.started(3, "started 3")
        agent.process.send_signal(signal.SIGTERM)
        assert await agent.exit_code() == 143
    assert [line for line in agent.out if line.startswith("left")][1:] == ["left 0 None"] * 2


@pytest.mark.skipif(not CAN_UNSHARE, reason="needs a PID namespace")
@FIRST_OR_NOT
async def test_standby_outlives_the_worker_that_is_killed(pod: Pod, first: list[str]) -> None:
    """So do its children, while no process of the old worker is left, wherever it hides."""
    async with pod.run(*PYTHON, FORKING, first=first, **STANDBY) as agent:
        await agent.started(1, "started 1")
        ready = await agent.logged("standby ready")
        await agent.restarted(2, "started 2")

    assert f"started 2 {ready['pid']}" in agent.out
    assert "left 0 None" in agent.out


@pytest.mark.parametrize(
    ("standby", "event"),
    [
        ("sys.exit(3)", "the standby has ended"),
        ("os.write(fd, b'hello\\n'); time.sleep(99)", "no other standby is started"),
        ("time.sleep(99)", "no other standby is started"),
        ("os.write(fd, b'ready\\n'); sys.exit(0)", "the standby has ended"),
        ("os.write(fd, b'ready\\n'); os.close(fd); time.sleep(99)", "the standby has ended"),
    ],
    ids=["dies", "says something else", "never ready", "ends while it waits", "closes and lives"],
)
async def test_worker_starts_cold_when_its_standby_fails(
    pod: Pod, standby: str, event: str
) -> None:
    """The failure is logged and never fails the pod."""
    script = (
        "import os, sys, time; fd = int(os.environ.get('JOBSET_STANDBY_FD', 0))\n"
        f"if fd: {standby}\n"
        "print('started', os.environ['JOBSET_EPOCH'], flush=True); time.sleep(99)"
    )
    limit = 0.5 if standby.startswith("time") else 60  # others have to start within it
    given = STANDBY | {"WORKER_STANDBY_READY_SECONDS": str(patience.scaled(limit))}
    async with pod.run(*PYTHON, script, **given) as agent:
        await agent.started(1, "started 1")
        await agent.logged(event)
        await agent.restarted(2, "started 2")


async def test_program_is_preloaded(pod: Pod, tmp_path: Path) -> None:
    """Its code need not change; the log has a line for a module that cannot be imported."""
    program = written(
        tmp_path,
        "import os, sys, time; print('started', os.environ['JOBSET_EPOCH'], os.getpid(), "
        "'colorsys' in sys.modules, sys.argv, flush=True); time.sleep(99)",
    )
    given = STANDBY | {"WORKER_PRELOAD": "colorsys, no_such_module"}
    async with pod.run(sys.executable, str(program), "--lr", "1", **given) as agent:
        await agent.started(1, "started 1")
        ready = await agent.logged("standby ready")
        await agent.restarted(2, "started 2")

    assert f"started 2 {ready['pid']} True {[str(program), '--lr', '1']}" in agent.out


async def test_standby_imports_the_modules_that_its_worker_imported(
    pod: Pod, tmp_path: Path
) -> None:
    """No list of them is given."""
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "heavy.py").write_text("import json.tool\n")
    program = written(
        tmp_path,
        "import os, sys, time; before = 'heavy' in sys.modules; import heavy; "
        "print('started', os.environ['JOBSET_EPOCH'], os.getpid(), before, flush=True); "
        "time.sleep(99)",
    )
    given = STANDBY | {"WORKER_STANDBY_DELAY_SECONDS": LATER, "PYTHONPATH": str(packages)}
    async with pod.run(sys.executable, str(program), **given) as agent:
        await agent.started(1, "started 1")
        ready = await agent.logged("standby ready")
        await agent.restarted(2, "started 2")

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


async def test_error_of_a_program_is_in_the_cause(pod: Pod, tmp_path: Path) -> None:
    """The cause has the error's first line; handlers of atexit run, and nothing is torn down."""
    program = written(tmp_path, FAILING)
    stop = tmp_path / "stop"
    words = (sys.executable, str(program), str(stop))
    async with pod.run(*words, **STANDBY, WORKER_PRELOAD="json") as agent:
        await pod.lift(1)
        for epoch in (1, 2):  # at a cold start, and as a standby
            await agent.printed(f"started {epoch}")
            await eventually(lambda: agent.logs("standby ready") == epoch, seconds=20)  # noqa: B023
            stop.touch()
            await pod.at(epoch + 1)
            assert report_of(pod)[0] == "exit-code=1 RuntimeError: no [31m luck"
            pod.status(syncedEpoch=epoch + 1)

    assert agent.out.count("cleaned") == 2
    assert "torn down" not in agent.out


async def test_program_is_killed_when_it_raises_and_does_not_end(pod: Pod, tmp_path: Path) -> None:
    """Handlers of atexit get the time of a checkpoint."""
    program = written(
        tmp_path,
        "import atexit, time; atexit.register(time.sleep, 99); print('started', flush=True)\n"
        "raise ValueError('stuck')\n",
    )
    given = {"WORKER_PRELOAD": "json", "WORKER_GRACE_SECONDS": "0.5"}
    async with pod.run(sys.executable, str(program), **given) as agent:
        await pod.lift(1)
        await pod.at(2)

    assert report_of(pod)[0] == "exit-code=1 ValueError: stuck"
    assert agent.logs("worker fails") == 1


async def test_cause_has_the_exit_code_when_a_policy_refuses_the_error(
    pod: Pod, tmp_path: Path
) -> None:
    """The policy may be older than the agent."""
    program = written(tmp_path, "raise ValueError('no')\n")
    pod.server.faults.status(422, verb="patch", resource="pods", count=1, skip=1)
    async with pod.run(sys.executable, str(program), WORKER_PRELOAD="json"):
        await pod.lift(1)
        await pod.at(2)

    assert report_of(pod)[0] == "exit-code=1"


async def test_command_that_is_not_python_runs_without_preloading(pod: Pod) -> None:
    """The log has a line about it."""
    async with pod.run("sh", "-c", "exit 0", WORKER_PRELOAD="torch") as agent:
        await pod.lift(1)
        assert await agent.exit_code() == 0
    line = await agent.logged("nothing can be preloaded, and there is no standby")

    assert "'sh' is not Python" in line["why"]


# ---- the health command


UNHURRIED = {"HEALTH_SECONDS": "600"}
"""Time for a health command that succeeds: it has to end, however busy the machine is."""
LIMIT = str(patience.scaled(1))
"""Time for one that fails, which has to start and to print its reason."""


async def test_worker_starts_when_its_machine_is_fit(pod: Pod, tmp_path: Path) -> None:
    """The command runs before each report with the worker's environment; its output is dropped."""
    ran = tmp_path / "ran"
    check = f"echo $HOME $JOBSET_AGENT_POD_NAME >>{ran}; head -c 1000000 /dev/zero; echo fine"
    given = {"HEALTH_COMMAND": check, "HOME": "/here"} | UNHURRIED
    given = {f"JOBSET_AGENT_{name}": value for name, value in (pod.environ | given).items()}
    script = "echo started $JOBSET_EPOCH; [ $JOBSET_EPOCH = 1 ] && exit 3; exec sleep 99"
    async with pod.run("sh", "-c", script, HOME="/there", **given) as agent:
        await pod.lift(1)
        await agent.started(2, "started 2")
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
async def test_pod_ends_when_its_machine_is_unfit(
    pod: Pod, command: str, found: tuple[str, object]
) -> None:
    """It reports no epoch, so that the barrier is not lifted with it, and the command's last line."""
    given = {"HEALTH_COMMAND": command, "HEALTH_SECONDS": LIMIT}
    async with pod.run("sh", "-c", "echo started", **given) as agent:
        line = await agent.logged(
            "this machine is unfit: the health command did not succeed in time"
        )
        assert await agent.exit_code() == 85

    assert (line["level"], line[found[0]]) == ("error", found[1])
    assert line["said"] == ("" if "KILL" in command else "row remap failed")
    assert pod.epoch is None
    reason = str(found[1]) if found[0] == "why" else f"exit code {found[1]}"
    assert pod.annotations[STATE] == "unfit: " + ": ".join(filter(None, (reason, line["said"])))
    assert agent.out == []


@pytest.mark.parametrize(
    ("command", "output"),
    [("/none/nvidia-smi", "/none/nvidia-smi: not found"), ("/etc/passwd", "Permission denied")],
)
async def test_worker_starts_when_its_health_command_cannot_be_run(
    pod: Pod, command: str, output: str
) -> None:
    """A mistake in the annotation must not end every pod of the group; the log has an error."""
    given = {"HEALTH_COMMAND": command} | UNHURRIED
    async with pod.run("sh", "-c", "echo started; exec sleep 99", **given) as agent:
        await agent.started(1)
        line = await agent.logged("the health command cannot be run: this machine is not checked")

    assert line["level"] == "error"
    assert line["said"].endswith(output)


async def test_processes_that_the_health_command_leaves_are_killed_when_it_ends(pod: Pod) -> None:
    """They have its process group."""
    given = {"HEALTH_COMMAND": "sleep 297 & sleep 298 & exit 0"} | UNHURRIED
    async with pod.run("sh", "-c", "exec sleep 99", **given) as agent:
        await pod.at(1)
        await eventually(lambda: pod.left() == [agent.process.pid], seconds=10)


async def test_an_unfit_pod_ends_when_its_report_is_not_stored(pod: Pod) -> None:
    """The exit code alone makes the manager replace it."""
    pod.server.faults.status(503, verb="patch", resource="pods")
    given = {"HEALTH_COMMAND": "exit 1", "HEALTH_SECONDS": "0.1"}
    async with pod.run("sh", "-c", "exec sleep 99", **given) as agent:
        assert await agent.exit_code() == 85

    assert STATE not in pod.annotations


async def test_standby_is_released_when_the_device_is_free(pod: Pod, tmp_path: Path) -> None:
    """A device's memory is released late: the report, and with it the barrier, waits for it."""
    free, tried = tmp_path / "free", tmp_path / "tried"
    free.touch()
    given = STANDBY | UNHURRIED | {"HEALTH_COMMAND": f"echo >>{tried}; test -e {free}"}
    async with pod.run(*PYTHON, WORKER, **given) as agent:
        await agent.started(1, "started 1")
        ready = await agent.logged("standby ready")
        free.unlink()
        tried.unlink()
        pod.status(deprecatedEpoch=1)
        await eventually(lambda: tried.exists() and len(tried.read_text()) > 3, seconds=10)
        assert pod.epoch == "1"
        free.touch()
        await agent.started(2, "started 2")
        assert f"started 2 {ready['pid']}" in agent.out


async def test_lift_during_a_check_starts_the_worker_after_it(pod: Pod, tmp_path: Path) -> None:
    """A container that the kubelet restarts finds its epoch reported by the one before it."""
    free = tmp_path / "free"
    given = {"HEALTH_COMMAND": f"test -e {free}"} | UNHURRIED
    pod.server.patch("pods", "p-0", {"metadata": {"annotations": {EPOCH: "1"}}})
    async with pod.run("sh", "-c", "echo started; exec sleep 99", **given) as agent:
        await agent.logged("joining")
        pod.status(syncedEpoch=1)
        await asyncio.sleep(0.3)  # long enough for a worker to start
        assert agent.out == []
        free.touch()
        await agent.printed("started")


async def test_health_command_runs_while_the_worker_stops(pod: Pod, tmp_path: Path) -> None:
    """Its time limit begins when the worker has ended; after a success it is not run again."""
    ran, go = tmp_path / "ran", tmp_path / "go"
    script = f"trap 'while [ ! -e {go} ]; do sleep 0.02; done; exit 1' TERM; echo started; "
    script += "while :; do sleep 0.02; done"
    given = {"HEALTH_COMMAND": f"echo >>{ran}", "WORKER_GRACE_SECONDS": "60"} | UNHURRIED
    async with pod.run("sh", "-c", script, **given) as agent:
        await agent.started(1)
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
    ("used", "fit", "output"),
    [("3\n12", True, ""), ("3\n40960", False, "40960 MiB in use"), (None, False, "used: No such")],
)
def test_documented_health_command_checks_the_devices_memory(
    tmp_path: Path, used: str | None, fit: bool, output: str
) -> None:
    """A script stands for nvidia-smi: with memory in use, and with a driver that fails."""
    page = Path(__file__).parents[4].joinpath("docs/how-to/devices.md").read_text()
    block = page.partition("in-place-restart-health-command: |\n")[2].partition("```")[0]
    program = tmp_path / "nvidia-smi"
    program.write_text(NVIDIA_SMI.format(folder=tmp_path))
    program.chmod(0o755)
    if used is not None:
        (tmp_path / "used").write_text(f"{used}\n")
    done = subprocess.run(
        ["sh", "-c", textwrap.dedent(block)],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode == 0) is fit
    assert output in done.stdout + done.stderr


async def test_pod_that_is_stopped_does_not_wait_for_its_health_command(pod: Pod) -> None:
    """The command is killed, and the exit code is that of a pod without a worker."""
    given = {"HEALTH_COMMAND": "exec sleep 296"} | UNHURRIED
    async with pod.run("sh", "-c", "exit 1", **given) as agent:
        await agent.logged("joining")
        agent.process.send_signal(signal.SIGTERM)
        assert await agent.exit_code() == 143

    assert pod.left() == []


# ---- several processes

TWO = {
    "WORKER_PROCESSES": "2", "WORKER_WORLD_SIZE": "8", "WORKER_FIRST_RANK": "2",
    "WORKER_JOB_PODS": "2", "WORKER_POD_INDEX": "1", "MASTER_ADDR": "js-w-0-0.js",
}  # fmt: skip
RANKS = (
    "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT $JOBSET_EPOCH"
)


async def test_pod_succeeds_when_all_its_processes_do(pod: Pod, tmp_path: Path) -> None:
    """If one fails, the group restarts."""
    running = tmp_path / "running"  # by process 0, which is killed with the first to fail
    script = f"{RANKS}; if [ $JOBSET_EPOCH = 1 ] && [ $LOCAL_RANK = 0 ]; then "
    script += f"touch {running}; exec sleep 99; fi; until [ -e {running} ]; do sleep 0.05; done; "
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


async def test_each_process_has_its_own_standby(pod: Pod, tmp_path: Path) -> None:
    """It keeps its rank, and gets the port of the epoch in which it is released."""
    program = written(
        tmp_path,
        "import os, time; print('started', *map(os.environ.get, ['JOBSET_EPOCH', 'MASTER_PORT', "
        "'RANK']), os.getpid(), flush=True); time.sleep(99)",
    )
    given = STANDBY | TWO | {"WORKER_PRELOAD": "json", "MASTER_ADDR": ""}
    async with pod.run(sys.executable, str(program), **given) as agent:
        await pod.lift(1)
        await eventually(lambda: agent.logs("standby ready") == 2, seconds=20)
        # Their successors are ready soon after the restart.
        ready = {
            line["process"]: line["pid"] for line in agent.lines if line["event"] == "standby ready"
        }
        await agent.restarted(2, "started 2", 2)

    assert {f"started 2 29520 {4 + number} {pid}" for number, pid in ready.items()} <= set(
        agent.out
    )


def injected(pod: Pod, more: dict[str, str]) -> dict[str, str]:
    """Return the agent's variables as admission injects them, and more of them."""
    given = pod.environ | more
    return {f"JOBSET_AGENT_{name}": value for name, value in given.items() if name != "PATH"}


AGENT_SWITCHES = ("-s", "-S", "-OO")
"""The interpreter's switches in the Containerfile."""


@pytest.fixture(scope="module")
def arm64(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Root of the agent's image for arm64."""
    return root_of("agent", tmp_path_factory.mktemp("arm64"))


@pytest.mark.foreign
@pytest.mark.timeout(900)
async def test_image_for_arm64_restarts_a_worker(pod: Pod, arm64: Path) -> None:
    """The emulated image prints its help, then supervises a worker against the server over TLS."""
    python = emulated(arm64, *AGENT_SWITCHES)
    app = {"PYTHONPATH": str(arm64 / "app"), "PYTHONDONTWRITEBYTECODE": "1"}
    shown = await asyncio.create_subprocess_exec(
        *(*python, "-m", "jobsetpy.agent", "--help"),
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
        await agent.started(2, times=2)
    assert pod.server.requests.count("patch", "pods") == 2


@pytest.mark.foreign
@pytest.mark.timeout(900)
def test_launcher_for_arm64_starts_the_python_of_its_folder(arm64: Path, tmp_path: Path) -> None:
    """Emulated, with a script for the dynamic linker that prints its arguments and variables."""
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
"""Settings of the pod with index 2 in a Job with two seats."""
PRINTER = "echo seat $RANK $JOB_COMPLETION_INDEX $MASTER_ADDR; exec sleep 299"


def seated(*entries: tuple[int, str]) -> dict[str, Any]:
    """Return the status field that assigns seats to pods."""
    taken = [
        {"job": "js-w-0", "seat": seat, "pod": uid, "podUID": uid, "address": f"10.0.0.{seat}"}
        for seat, uid in entries
    ]
    return {"takenSeats": taken}


async def test_pod_without_a_seat_is_parked_until_it_takes_one(pod: Pod) -> None:
    """It joins each epoch without a worker; its worker then has the seat's rank."""
    own = injected(pod, SEATS)
    async with pod.run("sh", "-c", PRINTER, **own, JOB_COMPLETION_INDEX="2") as agent:
        await pod.lift(1)
        await pod.at(2)
        assert agent.out == []
        assert pod.annotations[STATE] == "ready"
        pod.status(deprecatedEpoch=1)
        pod.status(syncedEpoch=2, inPlaceRestart=seated((0, "u2")))
        await agent.printed("seat 0 0 10.0.0.0")
        pod.status(deprecatedEpoch=2)
        await pod.at(3)
        assert STATE not in pod.annotations
        pod.status(syncedEpoch=3, inPlaceRestart=seated((1, "u2")))
        await agent.printed("seat 1 1 js-w-0-0.js")


async def test_worker_finds_the_hosts_of_its_epoch_in_a_file(pod: Pod, tmp_path: Path) -> None:
    """They are in order of rank, written before it starts, and cost the agent no request."""
    file = tmp_path / "hosts"
    own = injected(pod, SEATS)
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


async def test_pod_of_a_spare_job_takes_the_ranks_of_another_job(pod: Pod) -> None:
    """It is parked until the status gives its Job the seats of one that has lost a pod."""
    own = SEATS | {
        "WORKER_JOB": "js-w-2", "WORKER_JOB_INDEX": "2", "WORKER_SEAT_JOBS": "2",
        "WORKER_POD_INDEX": "1", "JOB_COMPLETION_INDEX": "1", "WORKER_WORLD_SIZE": "4",
        "WORKER_HOSTS": "w=2x2x1",
    }  # fmt: skip
    own = injected(pod, own)
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
        assert pod.annotations[STATE] == "ready"


async def test_holder_is_killed_and_parked_when_its_seat_is_taken(pod: Pod) -> None:
    """It was late to stop: another worker has its rank."""
    own = injected(pod, SEATS | {"POD_UID": "u1", "WORKER_POD_INDEX": "1"})
    script = "trap '' TERM; echo started; while :; do sleep 0.05; done"
    async with pod.run("sh", "-c", script, **own, JOBSET_AGENT_WORKER_GRACE_SECONDS="99") as agent:
        await agent.started(1)
        pod.status(deprecatedEpoch=1)
        await eventually(lambda: pod.annotations.get(STATE) == "saving=99", seconds=10)
        assert pod.epoch == "1"
        pod.status(syncedEpoch=2, inPlaceRestart=seated((1, "u2")))
        await pod.at(3)
        assert pod.annotations[STATE] == "ready"
        pod.status(syncedEpoch=3)
        await pod.at(4)
        assert agent.out == ["started"]


async def test_parked_pod_is_ready_when_its_standby_is(pod: Pod, tmp_path: Path) -> None:
    """At its release the standby gets the variables of the seat."""
    program = written(
        tmp_path,
        "import os, time\n"
        "print('seat', *(os.environ[n] for n in ('RANK', 'JOB_COMPLETION_INDEX', 'MASTER_ADDR',"
        " 'JOBSET_EPOCH')), os.environ['MASTER_PORT'], flush=True)\n"
        "time.sleep(299)\n",
    )
    own = injected(pod, SEATS | {"WORKER_PRELOAD": "json", "WORKER_STANDBY_DELAY_SECONDS": "99"})
    command = (sys.executable, "-S", str(program))
    async with pod.run(*command, **own, JOB_COMPLETION_INDEX="2") as agent:
        await pod.at(1)
        await eventually(lambda: pod.annotations.get(STATE) == "ready", seconds=20)
        assert agent.logs("standby ready") == 1
        await pod.lift(1)
        await pod.at(2)
        pod.status(syncedEpoch=2, inPlaceRestart=seated((1, "u2")))
        await agent.printed("seat 1 1 js-w-0-0.js 2 29520")
        assert (await agent.logged("worker started"))["standby"] is True


async def test_worker_of_a_smaller_group_reports_its_standby(pod: Pod, tmp_path: Path) -> None:
    """The group waits for it before it grows; a group of full size costs no further request."""
    program = written(tmp_path, "import time\ntime.sleep(299)\n")
    own = {"POD_UID": "u0", "WORKER_POD_INDEX": "0", "WORKER_PRELOAD": "json"}
    own = injected(pod, SEATS | own | {"WORKER_STANDBY_DELAY_SECONDS": "0"})
    sizes = [{"job": "js-w-0", "seats": 1, "missing": 1}]
    async with pod.run(sys.executable, "-S", str(program), **own) as agent:
        await pod.lift(1)
        await agent.logged("standby ready")
        pod.status(deprecatedEpoch=1)
        await pod.at(2)
        assert STATE not in pod.annotations
        pod.status(syncedEpoch=2, inPlaceRestart={"jobSizes": sizes})
        await eventually(lambda: pod.annotations.get(STATE) == "prepared", seconds=20)
        assert agent.logs("standby ready") == 2
        pod.status(deprecatedEpoch=2)
        await pod.at(3)
        assert STATE not in pod.annotations
        sent = [
            each.json["metadata"].get("annotations", {})
            for each in pod.server.requests.matching("patch", "pods")
        ]
        # On a busy machine a worker's end takes a while, which a pod with a seat reports.
        told = [
            each[STATE] for each in sent if not (each.get(STATE) or "saving").startswith("saving")
        ]
        assert told == ["prepared"]


@pytest.mark.parametrize(
    ("index", "ready", "lost"), [("0", "prepared", None), ("2", "ready", "parked")]
)
async def test_report_is_withdrawn_when_the_standby_dies(
    pod: Pod, tmp_path: Path, index: str, ready: str, lost: str | None
) -> None:
    """In a smaller group and in a parked pod, until another one is ready."""
    program = written(tmp_path, "import time\ntime.sleep(299)\n")
    own = {"POD_UID": "u0", "WORKER_POD_INDEX": index, "WORKER_PRELOAD": "json"}
    own = injected(pod, SEATS | own | {"WORKER_STANDBY_DELAY_SECONDS": "1"})
    sizes = [{"job": "js-w-0", "seats": 1, "missing": 1}]
    given = {"JOB_COMPLETION_INDEX": index}
    async with pod.run(sys.executable, "-S", str(program), **own, **given) as agent:
        await pod.at(1)
        pod.status(syncedEpoch=1, inPlaceRestart={"jobSizes": sizes})
        await eventually(lambda: pod.annotations.get(STATE) == ready, seconds=20)
        os.kill((await agent.logged("standby ready"))["pid"], signal.SIGKILL)
        await eventually(lambda: pod.annotations.get(STATE) == lost, seconds=20)
        await eventually(lambda: pod.annotations.get(STATE) == ready, seconds=20)
        assert agent.logs("standby ready") == 2


def ringed(pod: Pod) -> tuple[dict[str, str], Ring]:
    """Return the variables of an agent in a ring of two pods, and its running neighbour."""
    port, uid = free_udp_port(), pod.server.get(JOBSETS, "js")["metadata"]["uid"]
    members = Members((Part("w", 1, 2),))
    other = Ring(
        RingRules(interval_s=0.1, members=members, position=1, node="b", host="{}", port=0),
        jobset_uid=uid,
        log=lambda *_, **__: None,
        motion=lambda: Motion.UNKNOWN,
        on_report=lambda: None,
        resolve=lambda _host: ("127.0.0.1", port),
        bind="127.0.0.1",
    )
    other.see(1, 0)
    other.start()
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


async def test_silent_neighbour_is_in_the_annotation(pod: Pod) -> None:
    """One patch reports it, and the patch of the second epoch after it removes it."""
    variables, other = ringed(pod)

    def unheard() -> str | None:
        return pod.annotations.get("jobset.sigs.k8s.io/in-place-restart-unheard")

    async with pod.run("sh", "-c", SLEEPER, **variables) as agent:
        await agent.started(1)
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


def motions_heard(ring: Ring) -> set[Motion]:
    """Return the progress of other workers as a member of the ring has heard it."""
    return {peer.motion for peer in ring._watch._peers.values()}


async def test_worker_that_is_cut_off_from_everything_is_killed(pod: Pod, tmp_path: Path) -> None:
    """The API server, the neighbour and its progress must all be lost; it joins again later."""
    variables, other = ringed(pod)
    stalls = tmp_path / "stalls"
    script = (
        "trap '' TERM; echo started; i=0; while :; do i=$((i+1)); "
        f"[ -e {stalls} ] || echo $i > $JOBSET_PROGRESS_FILE; sleep 0.05; done"
    )
    async with TcpProxy("127.0.0.1", pod.server.port).serving() as network:
        variables["KUBERNETES_SERVICE_PORT"] = str(network.port)
        async with pod.run("sh", "-c", script, **variables) as agent:
            await agent.started(1)
            # It has to be seen to step: a worker without steps is not ended for lack of them.
            await eventually(lambda: Motion.MOVING in motions_heard(other), seconds=10)
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
            cause = pod.annotations["jobset.sigs.k8s.io/in-place-restart-cause"]
            assert cause == "no-progress=1 neither the API server nor a neighbour answers"
            stalls.unlink()
            pod.status(syncedEpoch=2)
            await agent.printed("started", 2)


def parked(pod: Pod, command: str, **settings: str) -> dict[str, str]:
    """Return the variables of a spare with a health command that runs often."""
    given = {"HEALTH_COMMAND": command, "HEALTH_INTERVAL_SECONDS": "0.1", "HEALTH_SECONDS": LIMIT}
    return injected(pod, SEATS | given | settings)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("echo row remap failed; exit 3", "exit code 3: row remap failed"),
        ("sleep 298 & exit 3", "exit code 3"),
    ],
    ids=["fails", "leaves processes"],
)
async def test_spare_ends_when_its_machine_is_unfit(
    pod: Pod, tmp_path: Path, bad: str, reason: str
) -> None:
    """Its command succeeds at first, and fails while the pod is parked; the state has the reason."""
    broken = tmp_path / "broken"
    own = parked(pod, f"[ ! -e {broken} ] || {{ {bad}; }}")
    async with pod.run("sh", "-c", PRINTER, **own) as agent:
        await pod.lift(1)
        await eventually(lambda: pod.annotations.get(STATE) == "ready", seconds=10)
        await pod.at(2)
        broken.touch()
        assert await agent.exit_code() == 85

    assert pod.annotations[STATE] == f"unfit: {reason}"
    assert pod.epoch == "2"
    assert agent.out == []


@pytest.mark.parametrize("command", ["/none/nvidia-smi", "/etc/passwd"])
async def test_spare_is_not_checked_again_when_its_command_cannot_be_run(
    pod: Pod, command: str
) -> None:
    """It stays ready, and the log has one line for each epoch, not for each interval."""
    async with pod.run("sh", "-c", PRINTER, **parked(pod, command)) as agent:
        await pod.lift(1)
        await pod.at(2)
        await asyncio.sleep(0.5)  # several intervals
        pod.status(deprecatedEpoch=1)
        pod.status(syncedEpoch=2, inPlaceRestart=seated((0, "u2")))
        await agent.printed("seat 0")

    assert agent.logs("the health command cannot be run: this machine is not checked") == 2


async def test_checks_of_a_spare_end_when_it_takes_a_seat(pod: Pod, tmp_path: Path) -> None:
    """Until then each check begins after the one before it has ended."""
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
        await asyncio.sleep(0.5)  # several intervals

        assert ran.read_text() == runs == "begin\nend\n" * runs.count("end")


async def test_worker_of_a_spare_starts_when_the_running_check_is_over(
    pod: Pod, tmp_path: Path
) -> None:
    """No worker starts on a machine that may be unfit."""
    hold, begun = tmp_path / "hold", tmp_path / "begun"
    command = f"[ ! -e {hold} ] || {{ touch {begun}; exit 1; }}"
    async with pod.run("sh", "-c", PRINTER, **parked(pod, command, **UNHURRIED)) as agent:
        await pod.lift(1)
        await pod.at(2)
        hold.touch()
        await eventually(begun.exists, seconds=10)
        pod.status(deprecatedEpoch=1)
        pod.status(syncedEpoch=2, inPlaceRestart=seated((0, "u2")))
        await asyncio.sleep(0.3)  # long enough for a worker to start
        assert agent.out == []
        hold.unlink()
        await agent.printed("seat 0")

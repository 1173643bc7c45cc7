"""Rules of standby processes, memory of containers, and command lines of Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobsetpy.agent.protocol.settings import ConfigurationError
from jobsetpy.agent.supervisor.standby.process import (
    Kill,
    Spawn,
    Standby,
    StandbyAction,
    StandbyPhase,
    StandbyRules,
    Wait,
    learned_file,
    load,
    memory,
    with_launcher,
)
from jobsetpy.api.python_command import module_names, split_python

RULES = StandbyRules(delay_s=30.0, ready_s=120.0)
START = ("worker_started", {})
DUE = ("due", {"needed": True})
READY = ("ready", {})
TAKE = ("take", {})
ENDED = ("ended", {})
SPAWN = [Spawn(), Wait(120.0)]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param(
            [START, DUE, READY, TAKE, START],
            [[Wait(30.0)], SPAWN, None, True, [Wait(30.0)]],
            id="it runs at the next lift, and another one follows",
        ),
        pytest.param(
            [START, DUE, TAKE], [[Wait(30.0)], SPAWN, False], id="not ready: a cold start"
        ),
        pytest.param(
            [START, DUE, TAKE, START, READY, TAKE],
            [[Wait(30.0)], SPAWN, False, [], None, True],
            id="one that is not ready is kept for the next lift",
        ),
        pytest.param(
            [("due", {"needed": False}), START], [[], [Wait(30.0)]], id="no worker, or no memory"
        ),
        pytest.param(
            [DUE, ENDED, DUE, ENDED, DUE, READY, ENDED],
            [SPAWN, [Wait(60.0)], SPAWN, [Wait(120.0)], SPAWN, None, [Wait(240.0)]],
            id="one that ends is started again with growing pauses",
        ),
        pytest.param(
            [DUE, DUE, ENDED, START, DUE],
            [SPAWN, [Kill()], [], [], []],
            id="one that does not become ready ignores the contract: not started again",
        ),
        pytest.param(
            [DUE, ("broke_contract", {}), ENDED, TAKE],
            [SPAWN, [Kill()], [], False],
            id="one that breaks the contract",
        ),
    ],
)
def test_events_give_actions(
    events: list[tuple[str, dict[str, bool]]], expected: list[list[StandbyAction] | bool | None]
) -> None:
    """Each event gives exactly the actions of the rules."""
    standby = Standby(RULES)

    assert expected == [getattr(standby, name)(**values) for name, values in events]


def test_preloaded_program_that_is_not_ready_in_time_is_tried_again() -> None:
    """It cannot ignore the contract; its imports are slow."""
    standby = Standby(StandbyRules(modules="torch"))
    standby.due(needed=True)

    assert standby.due(needed=True) == [Kill()]
    assert standby.ended() == [Wait(60.0)]


def test_pauses_have_a_maximum() -> None:
    """Any number of failures does not exceed it."""
    standby = Standby(RULES)
    pauses = [standby.ended()[0] for _ in range(200)]

    assert pauses[-1] == Wait(600.0)


def test_standby_that_closes_its_descriptor_is_not_replaced_before_it_ends() -> None:
    """Its lift has come, and the end of the process will follow."""
    standby = Standby(RULES)
    standby.due(needed=True)
    standby.ready()
    assert standby.take()

    assert standby.closed() == [Wait(1.0)]
    assert standby.worker_started() == []
    assert standby.ended() == [Wait(60.0)]
    assert standby.phase is StandbyPhase.NONE


def test_standby_that_closes_its_descriptor_is_killed_when_it_does_not_end() -> None:
    """It cannot be released, and is replaced like one that has ended."""
    standby = Standby(RULES)
    standby.due(needed=True)
    standby.ready()

    assert standby.closed() == [Wait(1.0)]
    assert standby.take() is False
    assert standby.due(needed=True) == [Kill()]
    assert standby.ended() == [Wait(60.0)]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param(
            {"memory.max": "1000\n", "memory.current": "700\n", "memory.stat": "inactive_file 200"},
            (1000, 500),
            id="limit",
        ),
        pytest.param(
            {"memory.max": "max\n", "memory.current": "700\n", "memory.stat": "x 1"},
            (0, 700),
            id="no limit",
        ),
        pytest.param({}, (0, 0), id="not shown"),
    ],
)
def test_memory_is_read_from_the_control_group(
    tmp_path: Path, files: dict[str, str], expected: tuple[int, int]
) -> None:
    """The container's limit, and its use without files that can be read again."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    assert memory(str(tmp_path)) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("python train.py --lr 1", ("python", "train.py --lr 1")),
        ("/usr/bin/python3.11 -u train.py", ("/usr/bin/python3.11 -u", "train.py")),
        ("python3 -m pkg.train -x", ("python3", "-m pkg.train -x")),
        ("python3 -mpkg -m", ("python3", "-m pkg -m")),
        ("python3 -uBm pkg a", ("python3 -uB", "-m pkg a")),
        ("python -X dev -Wignore -W error t.py", ("python -X dev -Wignore -W error", "t.py")),
        (
            "python --check-hash-based-pycs never t.py",
            ("python --check-hash-based-pycs never", "t.py"),
        ),
    ],
)
def test_command_of_python_is_split(words: str, expected: tuple[str, str]) -> None:
    """The interpreter's options are separated from the program's."""
    parts = split_python(words.split())

    assert not isinstance(parts, str)
    assert (" ".join(parts.interpreter), " ".join(parts.program)) == expected


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("torchrun train.py", "'torchrun' is not Python"),
        ("sh -c python", "'sh' is not Python"),
        ("python -c print()", "a text"),
        ("python -", "standard input"),
        ("python", "no file"),
        ("python -u", "no file"),
        ("python -m", "no module"),
        ("python -i t.py", "'-i' is not known"),
        ("python --help", "'--help' is not known"),
        ("", "is not Python"),
    ],
)
def test_other_commands_have_a_reason_why_they_cannot_be_preloaded(words: str, reason: str) -> None:
    """The launcher is not added to them."""
    parts = split_python(words.split())

    assert isinstance(parts, str)
    assert reason in parts
    assert with_launcher(words.split(), "torch") == parts


def test_list_of_learned_imports_is_in_memory() -> None:
    """Each pod has one, and a command names it only where imports are learned."""
    pod = {"NAMESPACE": "team", "POD_NAME": "p-0"}
    words = with_launcher(["python3", "t.py"], "auto,torch", learned_file(pod))

    assert words[2:] == ["torch@/dev/shm/jobset-imports.team.p-0", "t.py"]
    assert with_launcher(["python3", "t.py"], "torch", learned_file(pod))[2] == "torch"


def test_module_names_are_separated_by_commas() -> None:
    """Other texts are refused."""
    assert module_names("torch, transformers.models") == ["torch", "transformers.models"]
    assert module_names("") is None
    assert module_names("torch;rm") is None
    assert module_names("-m") is None


def test_settings_are_read_and_invalid_ones_refused() -> None:
    """The error names the variable."""
    assert load({"WORKER_STANDBY": "off", "WORKER_PRELOAD": "a"}) is None
    found = load({"WORKER_PRELOAD": "a, b", "WORKER_STANDBY_DELAY_SECONDS": "0.5"})
    assert found == StandbyRules(delay_s=0.5, modules="a,b")
    assert load({"WORKER_STANDBY": "on"}) == StandbyRules(modules="auto", optional=True)
    assert load({"WORKER_STANDBY": "program"}) == StandbyRules()
    for name in ("WORKER_STANDBY", "WORKER_PRELOAD", "WORKER_STANDBY_READY_SECONDS"):
        with pytest.raises(ConfigurationError, match=name):
            load({"WORKER_STANDBY": "on", name: "1 2"})

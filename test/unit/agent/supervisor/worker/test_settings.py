"""The supervisor's settings."""

from __future__ import annotations

import signal
from itertools import pairwise
from pathlib import Path

import pytest

from jobsetpy.agent.protocol.settings import ConfigurationError
from jobsetpy.agent.supervisor.supervisor import Supervisor
from jobsetpy.agent.supervisor.worker.rules import Rules
from jobsetpy.agent.supervisor.worker.settings import (
    chosen_log,
    load_rules,
    master_port,
    memory_file,
    own_environ,
    sets_master_port,
    split_command,
    worker_environs,
    workers_environ,
)
from jobsetpy.api import keys
from support.agents.agent_process import AgentLog


def test_defaults_are_ten_seconds_and_sigterm() -> None:
    """Only success ends the pod."""
    assert load_rules({}) == Rules(stop_signal=15, grace_s=10.0, end_codes=frozenset())


def test_variables_are_read() -> None:
    """Exit codes are separated by commas or spaces."""
    rules = load_rules(
        {
            "WORKER_GRACE_SECONDS": "0.5",
            "END_POD_EXIT_CODES": "3, 137",
            "WORKER_STOP_SIGNAL": "usr1",
        }
    )

    assert rules == Rules(stop_signal=signal.SIGUSR1, grace_s=0.5, end_codes=frozenset({3, 137}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WORKER_GRACE_SECONDS", "-1"),
        ("WORKER_GRACE_SECONDS", "1e3"),
        ("WORKER_GRACE_SECONDS", "nan"),
        ("WORKER_GRACE_SECONDS", "86401"),
        ("WORKER_GRACE_SECONDS", "1."),
        ("END_POD_EXIT_CODES", "0"),
        ("END_POD_EXIT_CODES", "256"),
        ("END_POD_EXIT_CODES", "0003456"),
        ("WORKER_PROCESSES", "0" * 8 + "165"),
        ("WORKER_STOP_SIGNAL", "0151"),
        ("END_POD_EXIT_CODES", "1-3"),
        ("WORKER_STOP_SIGNAL", "KILL"),
        ("WORKER_STOP_SIGNAL", "SIGNOTHING"),
        ("WORKER_STOP_SIGNAL", "0"),
    ],
)
def test_invalid_values_are_refused(name: str, value: str) -> None:
    """The error names the variable."""
    with pytest.raises(ConfigurationError, match=name):
        load_rules({name: value})


def test_log_can_be_switched_off() -> None:
    """One variable has three values."""
    for choice, events in {
        "": ["a", "b"], "on": ["a", "b"], "problems": ["b"], "off": []
    }.items():  # fmt: skip
        log = AgentLog()
        chosen = chosen_log({"AGENT_LOG": choice}, log)
        chosen("a")
        chosen("b", level="warning")
        assert log.events == events
    with pytest.raises(ConfigurationError, match="AGENT_LOG"):
        chosen_log({"AGENT_LOG": "maybe"}, AgentLog())


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "followed by"),
        (["sh"], "not 'sh'"),
        (["--"], "no command"),
        (["--", ""], "no command"),
    ],
)
def test_missing_command_is_explained(argv: list[str], message: str) -> None:
    """The agent cannot know the entry point of an image."""
    with pytest.raises(ConfigurationError, match=message):
        split_command(argv)


def test_command_may_have_dashes() -> None:
    """The first pair of dashes is the agent's."""
    assert split_command(["--", "run", "--", "-x"]) == ["run", "--", "-x"]


def test_agent_reads_only_variables_with_its_prefix() -> None:
    """The worker gets the others, without those of the agent; without any prefix all are read."""
    given = {
        "POD_NAME": "the worker's",
        "AGENT_LOG": "the worker's",
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "JOBSET_AGENT_POD_NAME": "p-0",
        "JOBSET_AGENT_WORKER_GRACE_SECONDS": "3",
    }
    raw = {name.encode(): value.encode() for name, value in given.items()}
    own = own_environ(given)

    assert own == {
        "POD_NAME": "p-0",
        "WORKER_GRACE_SECONDS": "3",
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
    }
    assert load_rules(own).grace_s == 3.0
    assert set(workers_environ(raw)) == {b"POD_NAME", b"AGENT_LOG", b"KUBERNETES_SERVICE_HOST"}
    assert own_environ({"POD_NAME": "p-0"}) == {"POD_NAME": "p-0"}


RANKED = {
    "WORKER_PROCESSES": "2",
    "WORKER_WORLD_SIZE": "12",
    "WORKER_FIRST_RANK": "4",
    "WORKER_JOB_PODS": "2",
}


@pytest.mark.parametrize(
    ("more", "ranks"),
    [
        ({}, [4, 5]),
        ({"WORKER_POD_INDEX": "1"}, [6, 7]),
        ({"WORKER_JOB_INDEX": "1", "WORKER_POD_INDEX": "1"}, [10, 11]),
        ({"WORKER_MASTER_RANK": "4"}, [0, 1]),
        ({"WORKER_MASTER_RANK": "10"}, [6, 7]),
    ],
)
def test_ranks_are_counted_through_all_pods(more: dict[str, str], ranks: list[int]) -> None:
    """The coordinator's pod has the first ones."""
    found = worker_environs({b"A": b"1"}, RANKED | {"MASTER_ADDR": "m"} | more)

    assert [int(each[b"RANK"]) for each in found] == ranks
    assert [int(each[b"LOCAL_RANK"]) for each in found] == [0, 1]
    assert {each[b"MASTER_ADDR"] for each in found} == {b"m"}
    assert not any(b"MASTER_PORT" in each for each in found)
    assert all(each[b"A"] == b"1" for each in found)


def test_address_of_the_container_is_kept() -> None:
    """Without the variable for processes, no variables are added."""
    (first, _) = worker_environs({b"MASTER_PORT": b"5"}, RANKED | {"MASTER_PORT": "6"})

    assert first[b"MASTER_PORT"] == b"5"
    assert worker_environs({b"A": b"1"}, {}) == [{b"A": b"1"}]


def test_each_epoch_has_another_port() -> None:
    """It differs by ten at least from the one before, and returns after a hundred epochs."""
    epochs = range(keys.MAX_EPOCH - 500, keys.MAX_EPOCH + 1)
    ports = [master_port(epoch) for epoch in (*range(1, 500), *epochs)]

    assert (min(ports), max(ports)) == (29500, 30490)
    assert all(abs(one - other) >= 10 for one, other in pairwise(ports))
    assert len(set(ports[:100])) == 100


@pytest.mark.parametrize(
    ("common", "own", "chosen"),
    [
        ({}, RANKED, True),
        ({b"MASTER_PORT": b"5"}, RANKED, False),
        ({}, RANKED | {"MASTER_PORT": "6"}, False),
        ({}, {}, False),
    ],
)
def test_the_agent_chooses_the_port_when_it_numbers_ranks_and_none_is_given(
    common: dict[bytes, bytes], own: dict[str, str], chosen: bool
) -> None:
    """A port that the container or the configuration sets is kept in all epochs."""
    assert sets_master_port(common, own) == chosen


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"HEALTH_SECONDS": "3"}, "HEALTH_SECONDS has no effect without HEALTH_COMMAND"),
        ({"HEALTH_INTERVAL_SECONDS": "3"}, "HEALTH_INTERVAL_SECONDS has no effect without"),
        ({"HEALTH_COMMAND": "true", "HEALTH_INTERVAL_SECONDS": "-1"}, "must be a number"),
        ({"HEALTH_COMMAND": "true", "HEALTH_SECONDS": "0"}, "HEALTH_SECONDS must be more than 0"),
        ({"HEALTH_COMMAND": "true", "HEALTH_SECONDS": "x"}, "HEALTH_SECONDS must be a number"),
    ],
)
def test_invalid_settings_of_the_health_command_are_refused(
    account: Path, variables: dict[str, str], reason: str
) -> None:
    """The error names the variable."""
    pod = {"NAMESPACE": "n", "POD_NAME": "p", "JOBSET_NAME": "js"}
    server = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "SERVICE_ACCOUNT_DIR": str(account)}
    with pytest.raises(ConfigurationError, match=reason):
        Supervisor(["true"], pod | server | variables, log=AgentLog())


@pytest.mark.parametrize(
    "more",
    [
        {"WORKER_POD_INDEX": "2"},
        {"WORKER_JOB_INDEX": "2"},
        {"WORKER_WORLD_SIZE": "x"},
        {"WORKER_FIRST_RANK": "-1"},
        {"WORKER_JOB_PODS": "99999999"},
    ],
)
def test_ranks_that_do_not_fit_are_refused(more: dict[str, str]) -> None:
    """The JobSet was resized, or a value is not a number."""
    with pytest.raises(ConfigurationError, match="WORKER_"):
        worker_environs({}, RANKED | more)


def test_file_is_in_memory_and_named_after_the_pod_by_default() -> None:
    """A variable of the container sets another path."""

    def file(environ: dict[str, str], namespace: str = "n", pod: str = "p") -> str:
        return memory_file(environ, "VARIABLE", "progress", namespace=namespace, pod=pod)

    assert file({"VARIABLE": "/x/y"}) == "/x/y"
    assert file({}) == "/dev/shm/jobset-progress.n.p"
    assert len(file({}, namespace="n" * 63, pod="p" * 253).rpartition("/")[2]) < 255
    with pytest.raises(ConfigurationError, match="VARIABLE must be an absolute path"):
        file({"VARIABLE": "y"})

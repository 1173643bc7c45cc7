"""Nodes whose pods begin restarts repeatedly, and nodes that pods call unfit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.jobset import RestartCause, RestartRecord
from jobsetpy.reconcilers.restart_in_place.failures.bad_nodes import (
    MAX_AVOIDED,
    NodeMemory,
    avoided,
    suspects,
    suspicion,
    unfit_codes,
    unfit_event,
)
from support.jobsets import replicated_job
from support.restarts.epoch_plans import ended, jobset, pod

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
DEFAULT = NodeMemory()


def restart(number, node="bad", minutes=1.0, reason=keys.WORKER_FAILED_REASON, kind="InPlace"):
    """Return the record of a restart, some minutes ago."""
    began = NOW - timedelta(minutes=minutes)
    cause = RestartCause(reason=reason, node=node)
    return RestartRecord(kind=kind, number=number, began_at=began, cause=cause)


def template(of):
    return of.spec.replicated_jobs[0].template["spec"]


def ended_pod(name, code, node, phase="Failed", version=1):
    """Return a pod that has ended with a code."""
    meta = {"resourceVersion": str(version)}
    return pod(name, node=node, phase=phase, containers=[ended(code)], meta=meta)


CASES = {
    "three failures": ([restart(1), restart(2), restart(3)], {"bad": 3}),
    "two failures": ([restart(1), restart(2)], {}),
    "different nodes": ([restart(1), restart(2, "a"), restart(3, "b")], {}),
    "one was before the window": ([restart(1, minutes=61), restart(2), restart(3)], {}),
    "one was a deletion": (
        [restart(1), restart(2), restart(3, reason=keys.POD_DELETED_REASON)], {},
    ),
    "one was an eviction": (
        [restart(1), restart(2), restart(3, reason=keys.POD_LEAVING_REASON)], {},
    ),
    "one was a hang": ([restart(1), restart(2), restart(3, reason=keys.WORKER_HUNG_REASON)], {}),
    "one was a recreation": ([restart(1), restart(2), restart(3, kind="Recreate")], {}),
    "unknown nodes": ([restart(1, ""), restart(2, ""), restart(3, "")], {}),
    "four on one of two": (
        [*(restart(n) for n in range(4)), *(restart(n, "a") for n in range(3))],
        {"bad": 4, "a": 3},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_nodes_are_suspect_or_not_after(case):
    """Only failures count that can be the node's."""
    restarts, expected = CASES[case]

    assert suspects(tuple(restarts), NOW, DEFAULT) == expected


def test_no_node_is_suspect_when_the_limit_is_0():
    """That switches it off."""
    history = tuple(restart(n) for n in range(10))

    assert suspects(history, NOW, NodeMemory(failures=0)) == {}


@pytest.mark.parametrize(
    ("avoid", "expected"),
    [("Prefer", "other nodes where possible"), ("Require", "nodes only"), ("Off", "there again")],
)
def test_restart_that_makes_a_node_suspect_is_reported(avoid, expected):
    """With the consequence for pods that are replaced."""
    history = (restart(1), restart(2), restart(3))
    event = suspicion(history[:2], history, NOW, NodeMemory(avoid=avoid))

    assert (event.type_, event.reason) == ("Warning", "NodeSuspect")
    assert "pods on node 'bad' have begun 3 restarts within 1 h" in event.message
    assert event.message.endswith(expected)


def test_write_without_a_new_restart_reports_nothing():
    """The barrier's lift changes the last record as well."""
    history = (restart(1), restart(2), restart(3))

    assert suspicion(history, history, NOW, DEFAULT) is None
    assert suspicion(history, (*history, restart(4, "other")), NOW, DEFAULT) is None
    assert suspicion((), (), NOW, DEFAULT) is None


def test_codes_are_those_of_the_template_or_else_the_jobset_and_the_agents():
    """The health command's code always counts."""
    name = keys.IN_PLACE_UNFIT_CODES_ANNOTATION
    item = replicated_job("w", pod_metadata={"annotations": {name: "90"}})
    of, own = jobset(notes={name: "81, 82"}), jobset(items=[item], notes={name: "81"})

    assert unfit_codes(of, template(of)) == {81, 82, keys.UNFIT_EXIT_CODE}
    assert unfit_codes(own, template(own)) == {90, keys.UNFIT_EXIT_CODE}


def test_avoided_nodes_are_the_latest_unfit_ones_before_suspects():
    """Their number is limited."""
    of = jobset()
    history = tuple(restart(n) for n in range(3))
    of = evolve(of, status=evolve(of.status, restart_history=history))
    pods = [("p", 85, "n1"), ("q", 1, "n2"), ("r", 85, "n3", "Running")]
    pods = [ended_pod(*each) for each in pods]
    many = [ended_pod(f"p{n}", 85, f"n{n}", version=n) for n in range(20)]

    assert avoided(of, template(of), pods, NOW, DEFAULT) == ["bad", "n1"]
    found = avoided(of, template(of), many, NOW, DEFAULT)
    assert found == sorted(f"n{n}" for n in range(20 - MAX_AVOIDED, 20))
    assert avoided(of, template(of), pods, NOW, NodeMemory(avoid="Off")) == ()


@pytest.mark.parametrize(
    ("state", "avoid", "expected"),
    [
        ("unfit: row remap", "Prefer",
         "unfit for it (row remap): pod 'q' replaces it, on another node if possible"),
        ("", "Require", "unfit for it: pod 'q' replaces it, on another node"),
        ("ready", "Off", "unfit for it: pod 'q' replaces it"),
    ],
)  # fmt: skip
def test_unfit_node_is_reported_with_the_reason_of_the_health_command(state, avoid, expected):
    """An exit code of the program has none."""
    one = pod(node="bad", notes={keys.AGENT_STATE_ANNOTATION: state})
    event = unfit_event(one, "q", NodeMemory(avoid=avoid))

    assert (event.type_, event.reason) == ("Warning", "NodeUnfit")
    assert event.message == f"pod 'p' has ended because node 'bad' is {expected}"

"""Nodes whose pods begin restarts repeatedly, and nodes that pods call unfit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from jobsetpy.api import keys
from jobsetpy.api.jobset import ChildPod, JobSet, RestartCause, RestartRecord
from jobsetpy.reconcilers.restart_in_place.node_memory import (
    MAX_AVOIDED,
    NodeMemory,
    avoided,
    suspects,
    suspicion,
    unfit_codes,
    unfit_event,
)
from jobsetpy.testing.jobsets import decoded, jobset_json, replicated_job

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
DEFAULT = NodeMemory()


def restart(number, node="bad", minutes=1.0, reason=keys.WORKER_FAILED_REASON, kind="InPlace"):
    """One restart, some minutes ago."""
    began = NOW - timedelta(minutes=minutes)
    cause = RestartCause(reason=reason, node=node)
    return RestartRecord(kind=kind, number=number, began_at=began, cause=cause)


def jobset(*restarts, own=None, **annotations):
    """A JobSet with a history; ``own`` are annotations of its pod template."""
    item = replicated_job("w", 1)
    if own:
        item["template"]["spec"]["template"]["metadata"] = {"annotations": own}
    body = jobset_json(item)
    body["metadata"]["annotations"] = annotations
    of = decoded(JobSet, body)
    return of, restarts


def template(of):
    return of.spec.replicated_jobs[0].template["spec"]


def pod(name, code, node, phase="Failed", version=1):
    """A pod that has ended with a code."""
    state = {"terminated": {"exitCode": code}}
    status = {"phase": phase, "containerStatuses": [{"name": "w", "state": state}]}
    meta = {"name": name, "uid": name, "resourceVersion": str(version)}
    return decoded(ChildPod, {"metadata": meta, "spec": {"nodeName": node}, "status": status})


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
def test_nodes_are_suspect_after(case):
    """Only failures count that can be the node's."""
    restarts, expected = CASES[case]

    assert suspects(tuple(restarts), NOW, DEFAULT) == expected


def test_no_node_is_suspect_when_switched_off():
    """Zero is never."""
    history = tuple(restart(n) for n in range(10))

    assert suspects(history, NOW, NodeMemory(failures=0)) == {}


@pytest.mark.parametrize(
    ("avoid", "expected"),
    [("Prefer", "other nodes where possible"), ("Require", "nodes only"), ("Off", "there again")],
)
def test_restart_that_makes_a_node_suspect_is_reported(avoid, expected):
    """With what happens to the pods that are replaced."""
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
    of, _ = jobset(**{name: "81, 82"})
    own, _ = jobset(**{name: "81"}, own={name: "90"})

    assert unfit_codes(of, template(of)) == {81, 82, keys.UNFIT_EXIT_CODE}
    assert unfit_codes(own, template(own)) == {90, keys.UNFIT_EXIT_CODE}


def test_avoided_nodes_are_the_latest_unfit_ones_before_suspects():
    """Their number is limited."""
    of, history = jobset(*(restart(n) for n in range(3)))
    of = decoded(JobSet, {**_json(of), "status": {"restartHistory": [_record(h) for h in history]}})
    pods = [pod("p", 85, "n1"), pod("q", 1, "n2"), pod("r", 85, "n3", phase="Running")]
    many = [pod(f"p{n}", 85, f"n{n}", version=n) for n in range(20)]

    assert avoided(of, template(of), pods, NOW, DEFAULT) == ["bad", "n1"]
    found = avoided(of, template(of), many, NOW, DEFAULT)
    assert found == sorted(f"n{n}" for n in range(20 - MAX_AVOIDED, 20))
    assert avoided(of, template(of), pods, NOW, NodeMemory(avoid="Off")) == ()


def _json(_of):
    return jobset_json(replicated_job("w", 1))


def _record(one):
    return {
        "kind": one.kind, "number": one.number, "beganAt": one.began_at.isoformat(),
        "cause": {"reason": one.cause.reason, "node": one.cause.node},
    }  # fmt: skip


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
    """A program's exit code has none."""
    meta = {"name": "p", "annotations": {keys.AGENT_STATE_ANNOTATION: state}}
    one = decoded(ChildPod, {"metadata": meta, "spec": {"nodeName": "bad"}})
    event = unfit_event(one, "q", NodeMemory(avoid=avoid))

    assert (event.type_, event.reason) == ("Warning", "NodeUnfit")
    assert event.message == f"pod 'p' has ended because node 'bad' is {expected}"

"""Nodes that pods call unfit."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.restart_in_place.failures.unfit_nodes import (
    MAX_AVOIDED,
    avoided,
    unfit_codes,
    unfit_event,
)
from support.jobsets import replicated_job
from support.restarts.epoch_plans import ended, jobset, pod


def template(of):
    return of.spec.replicated_jobs[0].template["spec"]


def ended_pod(name, code, node, phase="Failed", version=1):
    """Return a pod that has ended with a code."""
    meta = {"resourceVersion": str(version)}
    return pod(name, node=node, phase=phase, containers=[ended(code)], meta=meta)


def test_codes_are_those_of_the_template_or_else_the_jobset_and_the_agents():
    """The health command's code always counts."""
    name = keys.IN_PLACE_UNFIT_CODES_ANNOTATION
    item = replicated_job("w", pod_metadata={"annotations": {name: "90"}})
    of, own = jobset(notes={name: "81, 82"}), jobset(items=[item], notes={name: "81"})

    assert unfit_codes(of, template(of)) == {81, 82, keys.UNFIT_EXIT_CODE}
    assert unfit_codes(own, template(own)) == {90, keys.UNFIT_EXIT_CODE}


def test_avoided_nodes_are_the_latest_unfit_ones():
    """Their number is limited."""
    of = jobset()
    pods = [("p", 85, "n1"), ("q", 1, "n2"), ("r", 85, "n3", "Running")]
    pods = [ended_pod(*each) for each in pods]
    many = [ended_pod(f"p{n}", 85, f"n{n}", version=n) for n in range(20)]

    assert avoided(of, template(of), pods) == ["n1"]
    found = avoided(of, template(of), many)
    assert found == sorted(f"n{n}" for n in range(20 - MAX_AVOIDED, 20))


@pytest.mark.parametrize(
    ("state", "expected"), [("unfit: row remap", " (row remap)"), ("", ""), ("ready", "")]
)
def test_unfit_node_is_reported_with_the_reason_of_the_health_command(state, expected):
    """An exit code of the program has none."""
    one = pod(node="bad", notes={keys.AGENT_STATE_ANNOTATION: state})
    event = unfit_event(one, "q")

    assert (event.type_, event.reason) == ("Warning", "NodeUnfit")
    assert event.message == (
        f"pod 'p' has ended because node 'bad' is unfit for it{expected}: "
        "pod 'q' replaces it, on another node if possible"
    )

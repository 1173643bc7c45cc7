"""What validation takes for an agent in the pods of a JobSet that restarts in place."""

import pytest

from jobsetpy.domain.validation.jobs import has_agent

SIDECAR = {
    "name": "agent",
    "restartPolicy": "Always",
    "restartPolicyRules": [
        {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
    ],
}
RESTART = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]


def env(*names: str) -> list[dict]:
    return [{"name": name, "value": "x"} for name in names]


@pytest.mark.parametrize(
    ("pod", "wanted"),
    [
        ({"initContainers": [SIDECAR]}, True),
        ({"initContainers": [{**SIDECAR, "restartPolicyRules": [{"action": "RestartPod"}]}]}, True),
        ({"initContainers": [{"name": "first"}, SIDECAR]}, True),
        ({"initContainers": [{**SIDECAR, "restartPolicyRules": [*RESTART, {"action": "RestartPod"}]}]}, True),
        ({"initContainers": [{**SIDECAR, "restartPolicy": "Never"}]}, False),
        ({"initContainers": [{**SIDECAR, "restartPolicyRules": RESTART}]}, False),
        ({"initContainers": [{**SIDECAR, "restartPolicyRules": None}]}, False),
        ({"containers": [SIDECAR]}, False),
        ({"containers": [{"name": "w", "env": env("POD_NAME", "JOBSET_NAME")}]}, True),
        ({"containers": [{"name": "w", "env": env("JOBSET_AGENT_POD_NAME", "JOBSET_AGENT_JOBSET_NAME")}]}, True),
        ({"containers": [{"name": "w", "env": env("POD_NAME")}]}, False),
        ({"containers": [{"name": "v", "env": env("JOBSET_NAME")}, {"name": "w", "env": env("POD_NAME")}]}, False),
        ({"containers": [{"name": "w"}]}, False),
        ({}, False),
    ],
)  # fmt: skip
def test_what_counts_as_an_agent(pod, wanted):
    """A sidecar by the kubelet's rule, under both of its names; a supervisor by its variables."""
    assert has_agent(pod) is wanted

"""The health checks of the page of GitOps."""

import re
from pathlib import Path

import pytest
import yaml
from lupa.lua54 import LuaRuntime

PAGE = Path(__file__).resolve().parents[4] / "docs/how-to/gitops.md"
BLOCKS = [
    yaml.safe_load(each) for each in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
]
(SCRIPT,) = [
    block["data"]["resource.customizations.health.jobset.x-k8s.io_JobSet"]
    for block in BLOCKS
    if "data" in block
]


@pytest.mark.parametrize(
    ("jobset", "status", "message"),
    [
        ({"spec": {}}, "Progressing", "new"),
        ({"spec": {}, "status": {}}, "Progressing", None),
        ({"spec": {}, "status": {"state": "Restarting"}}, "Progressing", "Restarting"),
        ({"spec": {"suspend": False}, "status": {"state": "Running"}}, "Progressing", "Running"),
        ({"spec": {"suspend": True}}, "Suspended", "suspended"),
        ({"spec": {"suspend": True}, "status": {"state": "Suspended"}}, "Suspended", "suspended"),
        ({"spec": {}, "status": {"terminalState": "Failed"}}, "Degraded", "failed"),
        ({"spec": {}, "status": {"terminalState": "Completed"}}, "Healthy", "completed"),
        ({"spec": {"suspend": True}, "status": {"terminalState": "Failed"}}, "Degraded", "failed"),
    ],
)
def test_argo_cd_sees_the_health_of_a_jobset(jobset, status, message):
    """Argo CD runs the script with the object as the global `obj`."""
    lua = LuaRuntime()
    lua.globals().obj = lua.table_from(jobset, recursive=True)

    found = dict(lua.execute(SCRIPT))
    assert found == {"status": status, "message": message or "new"}

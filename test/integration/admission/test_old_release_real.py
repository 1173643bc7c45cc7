"""An API server that does not know the rule of sidecar agents; run by ``make test-versions`` alone."""

import json
from pathlib import Path

import pytest
import yaml

from jobsetpy.client import HttpRequest
from jobsetpy.errors import InvalidError

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.releases,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("webhooks"),
]

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/in-place-restart/sidecar.yaml"


async def test_a_sidecar_is_refused_where_its_rule_would_be_dropped(shared_client, namespace):
    """The API server takes a Job without a word and without the rule; so the JobSet is refused."""
    body = yaml.safe_load(EXAMPLE.read_text())
    job = body["spec"]["replicatedJobs"][0]["template"]["spec"]

    async def send(path, sent):
        return await shared_client.raw(
            HttpRequest(
                method="POST",
                path=f"/apis/{path}",
                query=(("dryRun", "All"),),
                content_type="application/json",
                body=json.dumps(sent).encode(),
            )
        )

    made = await send(
        f"batch/v1/namespaces/{namespace}/jobs", {"metadata": {"name": "j"}, "spec": job}
    )
    assert b"RestartAllContainers" not in made.body
    with pytest.raises(InvalidError, match=r"no RestartAllContainers: use agents in the mode"):
        await send(f"jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets", body)

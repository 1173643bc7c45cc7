"""Metrics of a manager process, requested with real tokens of a real API server.

The manager runs with its own account and the roles of ``config/rbac``, which have to allow all of
its requests.
"""

import asyncio
import contextlib
import ssl
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
import yaml

from support import patience
from support.cluster.account import token_of
from support.cluster.install import CONFIG, apply_manifest, apply_object, create_namespace
from support.cluster.manager_process import configured, free_port

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(90)]

HOME = "jobset-system"


async def account(client, namespace, name):
    metadata = {"name": name, "namespace": namespace}
    await apply_object(client, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    return await token_of(client, namespace, name)


async def bind_reader(client, namespace, name):
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}
    await apply_object(
        client,
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"{namespace}-reader"},
            "roleRef": {**role, "name": "jobset-metrics-reader"},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        },
    )


async def fetch(port, token):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"https://127.0.0.1:{port}/metrics", ssl=context, headers=headers) as answer,
    ):
        return answer.status, await answer.text()


async def test_manager_leads_and_serves_metrics_with_its_own_roles(
    cluster, client, namespace, tmp_path
):
    """Bound accounts may read the metrics, others get 403, unknown tokens 401."""
    await create_namespace(client, HOME)
    for name in ("service_account", "manager_role", "leader_election_role", "metrics_roles"):
        await apply_manifest(client, CONFIG / "rbac" / f"{name}.yaml")
    config = yaml.safe_load(Path(cluster.kubeconfig).read_text())
    own = await token_of(client, HOME, "jobset-controller-manager")
    config["users"][0]["user"] = {"token": own}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    kubeconfig.chmod(0o600)
    election = {"resourceNamespace": HOME, "resourceName": namespace}
    settings = configured(tmp_path / "configuration.yaml", leaderElection=election)
    allowed = await account(client, namespace, "prometheus")
    other = await account(client, namespace, "other")
    await bind_reader(client, namespace, "prometheus")

    port = free_port()
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "jobsetpy.app.main", "manager", "--kubeconfig", kubeconfig),
            *("--metrics-bind-address", f"127.0.0.1:{port}", "--health-probe-bind-address", "0"),
            *settings,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        leads = f'leader_election_master_status{{name="{namespace}"}} 1.0'

        async def status_of_leader():
            with contextlib.suppress(aiohttp.ClientError):
                status, text = await fetch(port, allowed)
                return status if leads in text else None

        try:
            status = await patience.eventually(status_of_leader, 30, poll_s=0.2)
        except AssertionError:
            pytest.fail(log.read_text()[-3000:])
        assert status == 200
        assert (await fetch(port, other))[0] == 403
        assert (await fetch(port, allowed[:-4] + "AAAA"))[0] == 401
        assert (await fetch(port, None))[0] == 401
    finally:
        process.terminate()
        async with patience.timeout(20):
            await process.wait()

    assert process.returncode == 0
    assert "gave the Lease back" in log.read_text()

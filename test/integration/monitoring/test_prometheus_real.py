"""A real Prometheus scrapes a manager, answers the dashboard's queries, and evaluates the alerts."""

import asyncio
import math

import pytest

from hack.generate import monitoring_dashboard, update_monitoring
from jobsetpy.api.jobset import JobSet
from support.cluster.json_api import StoredJobSet
from support.cluster.manager_process import free_port, manager_process
from support.cluster.objects import in_place_jobset
from support.cluster.prometheus import prometheus
from support.patience import eventually
from support.restarts.epoch_reports import pod_names, report_epoch

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(150)]

COSTS = "What restarts cost"
RATE = "10m"
"""Interval in place of Grafana's: long enough for all samples, on any machine."""


def rows():
    """Return the expressions of each row of the dashboard, by its title."""
    out, title = {}, ""
    for panel in monitoring_dashboard.dashboard()["panels"]:
        if panel["type"] == "row":
            title = panel["title"]
        for target in panel.get("targets", ()):
            query = target["expr"].replace("$__rate_interval", RATE).replace("$job", ".*jobset.*")
            query = query.replace("$namespace", ".*")
            out.setdefault(title, []).append(query)
    return out


def has_data(samples):
    """Return True if a graph would show a value."""
    return any(math.isfinite(float(sample["value"][1])) for sample in samples)


def evaluated(server):
    """Return the alerts once all of them were evaluated."""
    rules = server.rules()
    return all(rule["health"] != "unknown" for rule in rules) and rules


async def report(client, namespace, name, pods, epoch):
    """Report an epoch in place of the pods' agents, and wait until it is synced."""
    await report_epoch(client, namespace, epoch, *pods)
    await StoredJobSet(client, namespace, name).reaches_epoch(epoch, 60)


async def test_queries_and_alerts_are_answered(cluster, client, namespace, tmp_path):
    """All of them are valid; after one restart in place each graph in the row of its costs has data."""
    port = free_port()
    arguments = ("--metrics-bind-address", f"127.0.0.1:{port}", "--metrics-secure=false")
    async with (
        manager_process(cluster.kubeconfig, tmp_path / "log", *arguments),
        prometheus(tmp_path, {"manager": port}, update_monitoring.RULES) as server,
    ):
        await client.create(JobSet, namespace, in_place_jobset("seen", jobs=1, pods=2))
        pods = await pod_names(client, namespace, 2)
        await report(client, namespace, "seen", pods, 1)
        # An increase is visible only between two scrapes.
        known = 'jobset_restarts_total{kind="in_place"}'
        await eventually(lambda: asyncio.to_thread(server.query, known), 30, poll_s=0.2)
        await report(client, namespace, "seen", pods, 2)
        queries = rows()

        def empty():
            return [query for query in queries[COSTS] if not has_data(server.query(query))]

        try:
            await eventually(lambda: not empty(), 30, poll_s=0.5)
        except AssertionError:
            pytest.fail(f"no data: {empty()}")
        for query in (query for row in queries.values() for query in row):
            server.query(query)
        spent = (await client.get(JobSet, namespace, "seen")).status.time_spent
        assert (spent.activity, [each.count for each in spent.restarts]) == ("Running", [1])
        alerts = await eventually(lambda: evaluated(server), 30, poll_s=0.5)
        assert {rule["health"] for rule in alerts} == {"ok"}, alerts
        await client.delete(JobSet, namespace, "seen")

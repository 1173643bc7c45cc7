"""The series that a manager serves, compared with those of alerts, graphs and documentation."""

import re
import urllib.request

import pytest
import yaml

from hack.generate import monitoring_dashboard, update_monitoring
from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.execution.owners import LABELS
from jobsetpy.testing import make_jobset
from support import patience
from support.cluster.manager_process import free_port, manager_process
from support.docs import promql
from support.patience import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(120)]

SAMPLE = re.compile(r"([a-z_:]+)(?:\{(.*)\})? \S+")


def scrape(port):
    with urllib.request.urlopen(
        f"http://127.0.0.1:{port}/metrics", timeout=patience.scaled(10)
    ) as answer:
        return answer.read().decode()


def families(text):
    """Return the names of the families of a scrape."""
    return set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))


def samples(text):
    """Yield series names with the labels of their samples."""
    for line in text.splitlines():
        if found := SAMPLE.fullmatch(line):
            yield found[1], frozenset(re.findall(r'(\w+)="', found[2] or ""))


def expressions():
    groups = yaml.safe_load(update_monitoring.RULES.read_text())["groups"]
    yield from (rule["expr"] for group in groups for rule in group["rules"])
    for panel in monitoring_dashboard.dashboard()["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))


async def test_every_series_that_is_queried_is_served(cluster, client, namespace, tmp_path):
    """After a JobSet has run, all series of queries are served, with their labels."""
    port = free_port()
    arguments = ("--metrics-bind-address", f"127.0.0.1:{port}", "--metrics-secure=false")
    async with manager_process(cluster.kubeconfig, tmp_path / "log", *arguments):
        body = make_jobset("seen", namespace).replicated_job("w", replicas=2).build()
        await client.create(JobSet, namespace, body)

        def reconciled():
            text = scrape(port)
            done = re.search(r'reconcile_total\{controller="jobset",result="success"\} [1-9]', text)
            return done and 'resource="jobs"' in text and text

        text = await eventually(reconciled, 60, poll_s=0.3)
        await client.delete(JobSet, namespace, "seen")

    declared = update_monitoring.series_of()
    owners = frozenset(LABELS.values())  # served only if the configuration names them
    served = families(text)
    for name, labels in samples(text):
        assert labels == declared[name] - owners, name
    for expression in expressions():
        for query in promql.read(expression).asked:
            family = re.sub("_(bucket|sum|count)$", "", query.series)
            if query.series == "up" or family.startswith(update_monitoring.COSCHEDULER):
                continue
            assert family in served, expression

"""A Prometheus server that scrapes ports of the loopback device, and queries with its HTTP API."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from hack.cluster._binaries import Binaries
from hack.cluster._progress import Progress
from support import patience
from support.cluster.manager_process import free_port

CONFIG = """\
global: {{scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
- job_name: {job}
  static_configs: {targets}
"""
JOB = "jobset-metrics"


@attrs.frozen
class Prometheus:
    """A running server.

    Args:
        port: of the loopback device.
    """

    port: int

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the samples of an expression now.

        Raises:
            AssertionError: the server refuses it, with its message.
        """
        words = urllib.parse.urlencode({"query": expression})
        return list(self._get(f"query?{words}")["result"])

    def range(self, expression: str, begin: float, end: float, step: float) -> list[dict[str, Any]]:
        """Return the series of an expression between two times, each with ``values``.

        Args:
            expression: PromQL.
            begin, end: seconds since the epoch.
            step: seconds between two values.
        """
        words = {"query": expression, "start": begin, "end": end, "step": step}
        return list(self._get(f"query_range?{urllib.parse.urlencode(words)}")["result"])

    def rules(self) -> list[dict[str, Any]]:
        """Return alerts with their ``health``, which is ``unknown`` before the first evaluation."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, path: str) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}"
        try:
            with urllib.request.urlopen(url, timeout=patience.scaled(10)) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as refusal:
            with refusal:
                raise AssertionError(f"{path}: {refusal.read().decode()}") from None
        assert not found.get("warnings"), (path, found["warnings"])
        data: dict[str, Any] = found["data"]
        return data

    def ready(self) -> bool:
        """Return whether the server answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5):
                return True
        except OSError:
            return False


@contextlib.asynccontextmanager
async def prometheus(
    folder: Path, ports: Mapping[str, int], rules: Path
) -> AsyncIterator[Prometheus]:
    """Run a server, which is ready on entry and ended on exit.

    Args:
        folder: for its files.
        ports: the ports that it scrapes, by the value of the label ``pod``.
        rules: a file of alerts.
    """
    program = Binaries.find(["prometheus"], Progress())["prometheus"]
    config, log = folder / "prometheus.yaml", folder / "prometheus.log"
    targets = [
        {"targets": [f"127.0.0.1:{port}"], "labels": {"pod": name}} for name, port in ports.items()
    ]
    config.write_text(CONFIG.format(job=JOB, targets=json.dumps(targets), rules=rules))
    port = free_port()
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            program,
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
            stdout=out,
            stderr=out,
            env={**os.environ, "GOMAXPROCS": "1"},
        )
    server = Prometheus(port)
    try:
        try:
            await patience.eventually(lambda: asyncio.to_thread(server.ready), 30, poll_s=0.1)
        except AssertionError:
            raise AssertionError(log.read_text()[-3000:]) from None
        yield server
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()

"""A coscheduler in its own process, and the scheduler's configuration for it.

site = ExtenderSite(folder)                     # a port, certificates of both sides
with Cluster(scheduler_config=site.scheduler_config()) as cluster:
    async with coscheduler_process(cluster.kubeconfig, log, site) as coscheduler:
        ...                                     # .kill(), .start(), .stop(), .scrape()
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from jobsetpy.serving import x509
from support.cluster.install import CONFIG
from support.cluster.manager_process import ManagerProcess, free_port, running

SCHEDULER = "system:kube-scheduler"
HOST = "127.0.0.1"
SERVICE = "jobset-coscheduler.jobset-system.svc"


class ExtenderSite:
    """Address of the extender, and the certificates of both sides.

    Args:
        folder: for the certificates.
        port: of the loopback device; a free one by default.
        plain: True for no TLS.
    """

    def __init__(self, folder: Path, *, port: int | None = None, plain: bool = False) -> None:
        self.folder = folder
        self.port = port or free_port()
        self.plain = plain
        self.authority = x509.new_authority(datetime.now(UTC))
        self.write_server()
        self.write_client()

    def write_server(self, authority: x509.KeyPair | None = None) -> None:
        """Write a certificate of the server, by default of the site's authority."""
        self.folder.mkdir(parents=True, exist_ok=True)
        names = (SERVICE, HOST)
        pair = x509.new_serving(
            authority or self.authority, names, datetime.now(UTC), elliptic=True
        )
        self._write("tls", pair)
        (self.folder / "ca.crt").write_bytes(self.authority.certificate)

    def write_client(
        self, name: str = SCHEDULER, *, file: str = "client", now: datetime | None = None
    ) -> None:
        """Write a certificate of the scheduler, or of a client with another name."""
        self._write(file, x509.new_client(self.authority, name, now or datetime.now(UTC)))

    def _write(self, name: str, pair: x509.KeyPair) -> None:
        (self.folder / f"{name}.crt").write_bytes(pair.certificate)
        (self.folder / f"{name}.key").write_bytes(pair.key)

    @property
    def arguments(self) -> list[str]:
        """Flags of the process."""
        where = ["--bind-address", f"{HOST}:{self.port}"]
        return where + (
            ["--insecure-plain-http"] if self.plain else ["--cert-dir", str(self.folder)]
        )

    def extender(self, folder: str = "cluster-scheduler", **changes: Any) -> dict[str, Any]:
        """Return the entry of the shipped scheduler configuration, for this site.

        Args:
            folder: of ``config/coscheduler``; with ``marked-pods`` only pods with the marker resource are
                sent here.
            changes: fields that replace those of the entry, such as ``httpTimeout``.
        """
        (entry,) = shipped(folder)["extenders"]
        entry["urlPrefix"] = f"{'http' if self.plain else 'https'}://{HOST}:{self.port}/ext"
        if self.plain:
            del entry["enableHTTPS"], entry["tlsConfig"]
        else:
            entry["tlsConfig"] |= {
                "caFile": str(self.folder / "ca.crt"),
                "certFile": str(self.folder / "client.crt"),
                "keyFile": str(self.folder / "client.key"),
            }
        return entry | changes

    def scheduler_config(self, folder: str = "cluster-scheduler", **changes: Any) -> dict[str, Any]:
        """Return the configuration for ``Cluster(scheduler_config=...)``, with an extender."""
        config = shipped(folder)
        for name in ("apiVersion", "kind", "clientConnection", "leaderElection"):
            config.pop(name, None)  # the test's cluster has its own
        return config | {"extenders": [self.extender(folder, **changes)]}


def shipped(folder: str) -> dict[str, Any]:
    """Return the scheduler's configuration of an installation."""
    at = CONFIG / "coscheduler" / folder
    file = at / "kube-scheduler.yaml"
    if not file.exists():
        manifest = yaml.safe_load((at / "scheduler_config.yaml").read_text())
        return dict(yaml.safe_load(manifest["data"]["kube-scheduler.yaml"]))
    return dict(yaml.safe_load(file.read_text()))


class CoschedulerProcess(ManagerProcess):
    """``jobsetpy coscheduler`` for the cluster of a kubeconfig, and for a site's scheduler.

    Args:
        kubeconfig: of the cluster.
        log: file to which its log is appended.
        site: its address and certificates.
        arguments: further flags, such as ``--leader-elect=false`` or ``--config``.
        given: arguments of ``ManagerProcess``.
    """

    COMMAND = "coscheduler"

    def __init__(
        self, kubeconfig: str | Path, log: Path, site: ExtenderSite, *arguments: str, **given: Any
    ) -> None:
        super().__init__(kubeconfig, log, *site.arguments, *arguments, **given)


def coscheduler_process(
    kubeconfig: str | Path, log: Path, site: ExtenderSite, *arguments: str, **given: Any
) -> contextlib.AbstractAsyncContextManager[CoschedulerProcess]:
    """Run a coscheduler, which is ready (and leads) on entry and stopped on exit."""
    return running(CoschedulerProcess(kubeconfig, log, site, *arguments, **given))

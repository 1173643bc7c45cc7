"""Unreachable webhooks and expired certificates: what is refused, and what continues.

A manager process with webhooks behind a proxy, a real API server that calls them, a real Job
controller; kubelets and agents are simulated.
"""

import asyncio
import contextlib
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from cryptography import x509 as crypto
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from jobsetpy.api import keys
from jobsetpy.errors import ApiError
from jobsetpy.serving import x509
from support import patience
from support.admission.admission_kit import served_certificate
from support.cluster.manager_process import ManagerProcess, free_port, running, stopping
from support.cluster.webhooks import apply_webhooks, bundle_of, delete_webhooks, webhook_flags
from support.faults.fault_kit import attempt_of, requests_of
from support.faults.tcp_proxy import TcpProxy
from support.patience import eventually
from support.soak.soak_lives import KINDS

pytestmark = [pytest.mark.cluster, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(300)]

JUST_CUT = ("broken pipe", "EOF", "connection reset", "server closed idle connection")


class Front:
    """The webhooks of one manager behind a proxy, for one namespace."""

    def __init__(self, client, namespace, folder) -> None:
        self.client = client
        self.namespace = namespace
        self.folder = folder
        self.port = free_port()
        self.proxy = None

    def serve(self, authority, *, ends_in: timedelta = x509.SERVING_LIFETIME) -> x509.KeyPair:
        """Replace the certificate's files by others with the same names, as kubelets do."""
        now = datetime.now(UTC) - x509.SERVING_LIFETIME + ends_in
        pair = x509.new_serving(authority, ["127.0.0.1"], now)
        for name, content in (("tls.key", pair.key), ("tls.crt", pair.certificate)):
            (self.folder / f"new-{name}").write_bytes(content)
            (self.folder / f"new-{name}").replace(self.folder / name)
        return pair

    async def trust(self, *authorities) -> None:
        """Set the trusted authorities, as an injector does."""
        bundle = bundle_of(*authorities)
        labels = {"kubernetes.io/metadata.name": self.namespace}
        suffix = f"-{self.namespace}"
        await apply_webhooks(self.client, self.proxy.port, bundle, labels=labels, suffix=suffix)

    async def shown(self) -> bytes:
        """Return the served certificate as PEM."""
        return ssl.DER_cert_to_PEM_cert(await served_certificate(self.port)).encode()

    async def serves(self, pair) -> None:
        async def is_served() -> bool:
            with contextlib.suppress(OSError):
                return await self.shown() == pair.certificate
            return False

        await eventually(is_served, 60, poll_s=0.1)


@contextlib.asynccontextmanager
async def front_of(client, namespace, folder):
    """Yield webhooks with a proxy; their configurations are deleted in the end."""
    front = Front(client, namespace, folder)
    async with TcpProxy("127.0.0.1", front.port).serving() as front.proxy:
        try:
            yield front
        finally:
            await delete_webhooks(client, f"-{namespace}")


def manager_of(front, kubeconfig, tmp_path) -> ManagerProcess:
    flags = webhook_flags(front.port, front.folder)
    return ManagerProcess(kubeconfig, tmp_path / "log", *flags, metrics=True)


def body_of(name: str) -> dict:
    return KINDS["recreate"](name, 2)


async def test_jobsets_run_on_when_webhooks_are_unreachable(cluster, client, namespace, tmp_path):
    """No JobSet or pod of one is created or changed; JobSets still run, restart and end."""
    authority = x509.new_authority(datetime.now(UTC))
    async with front_of(client, namespace, tmp_path) as front:
        front.serve(authority)
        async with running(manager_of(front, cluster.kubeconfig, tmp_path)):
            await front.trust(authority)
            async with attempt_of(client, namespace) as group:
                await group.create("recreate", "in-place", "single")
                front.proxy.refusing = True
                front.proxy.cut()

                with pytest.raises(ApiError, match=r'failed calling webhook "mjobset.kb.io"'):
                    await group.send("POST", group.jobsets, body_of("new"), timeout_s=60)
                with pytest.raises(ApiError, match=r'failed calling webhook "mjobset.kb.io"'):
                    path = f"{group.jobsets}/recreate"
                    await group.send("PATCH", path, {"spec": {"suspend": True}}, timeout_s=60)
                spec = {
                    "containers": [{"name": "c", "image": "i"}],
                    "automountServiceAccountToken": False,
                }
                ordinary = {"metadata": {"name": "ordinary"}, "spec": spec}
                pods = f"/api/v1/namespaces/{namespace}/pods"
                await group.send("POST", pods, {**ordinary, "kind": "Pod", "apiVersion": "v1"})

                await group.fail("in-place")
                await group.running("in-place", epoch=2)
                await group.send("DELETE", f"{group.jobsets}/single")
                await group.world.until(
                    lambda: not group.world.left_of("single"), 60, "a deleted JobSet to go"
                )
                await group.fail("recreate")
                await eventually(lambda: refused_pods_are_reported(group), 60, poll_s=0.2)
                assert group.restarts("recreate") == 1
                await eventually(lambda: attempts_of(group, "recreate") == ["1", "1"], 60)
                assert group.world.pods_of("recreate") == []

                front.proxy.refusing = False
                await group.running("recreate", restarts=1)
                await group.send("POST", group.jobsets, body_of("new"))
                assert group.restarts("recreate") == 1
                assert group.world.violations == []


def attempts_of(group, name: str) -> list[str]:
    """Return the attempts of a JobSet's Jobs."""
    return [
        job.metadata.labels[keys.RESTART_ATTEMPT]
        for job in group.world.jobs.values()
        if job.metadata.labels[keys.JOBSET_NAME] == name
    ]


async def refused_pods_are_reported(group) -> bool:
    """Return True if an event of the Job controller has the reason why a Job has no pods."""
    path = f"/apis/events.k8s.io/v1/namespaces/{group.namespace}/events"
    return any(
        event["regarding"].get("kind") == "Job"
        and event["reason"] == "FailedCreate"
        and 'failed calling webhook "mpod.kb.io"' in event["note"]
        for event in (await group.send("GET", path))["items"]
    )


def administrator(cluster, folder: Path, lasts: timedelta) -> datetime:
    """Write a client certificate of the cluster's authority to files; return its expiration."""
    pki = Path(cluster.folder) / "pki"
    authority = crypto.load_pem_x509_certificate((pki / "ca.crt").read_bytes())
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = [
        crypto.NameAttribute(NameOID.ORGANIZATION_NAME, "system:masters"),
        crypto.NameAttribute(NameOID.COMMON_NAME, "manager"),
    ]
    usage = crypto.ExtendedKeyUsage([crypto.oid.ExtendedKeyUsageOID.CLIENT_AUTH])
    certificate = (
        crypto.CertificateBuilder()
        .subject_name(crypto.Name(subject))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(crypto.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + lasts)
        .add_extension(usage, critical=False)
        .sign(load_pem_private_key((pki / "ca.key").read_bytes(), None), hashes.SHA256())
    )
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for name, content in (
        ("user.key", text),
        ("user.crt", certificate.public_bytes(Encoding.PEM)),
    ):
        (folder / f"new-{name}").write_bytes(content)
        (folder / f"new-{name}").replace(folder / name)
    return certificate.not_valid_after_utc


def with_certificate(cluster, folder: Path) -> Path:
    """A kubeconfig whose user is the certificate in these files."""
    config = yaml.safe_load(Path(cluster.kubeconfig).read_text())
    config["users"][0]["user"] = {
        "client-certificate": str(folder / "user.crt"),
        "client-key": str(folder / "user.key"),
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    path.chmod(0o600)
    return path


async def test_certificates_may_expire(cluster, client, namespace, tmp_path):
    """A replacement in time is not noticed; a late one ends the reported problem.

    The manager's own client certificate expires meanwhile, after it was replaced on disk.
    """
    if cluster.is_existing:
        pytest.skip("needs the cluster's authority")
    first, second = (x509.new_authority(datetime.now(UTC)) for _ in range(2))
    async with front_of(client, namespace, tmp_path) as front:
        front.serve(first)
        ended = administrator(cluster, tmp_path, timedelta(seconds=patience.scaled(12)))
        manager = manager_of(front, with_certificate(cluster, tmp_path), tmp_path)
        async with stopping(manager):
            await manager.start(wait=False)
            await eventually(lambda: responds(manager), 60, poll_s=0.1)  # it has read the old one
            administrator(cluster, tmp_path, timedelta(hours=1))
            await manager.wait_ready()
            await front.trust(first)
            async with attempt_of(client, namespace) as group:
                await group.create("recreate")

                async def create() -> None:
                    await group.send(
                        "POST", group.jobsets, body_of("new"), query=(("dryRun", "All"),)
                    )

                async def accepted() -> None:
                    """Immediately; but a connection that was just cut may be detected by its use."""
                    for _ in range(10):
                        try:
                            return await create()
                        except ApiError as error:
                            if not any(words in str(error) for words in JUST_CUT):
                                raise
                        await asyncio.sleep(0.1)
                    return await create()

                async def refused_as_expired() -> bool:
                    front.proxy.cut()  # open connections would continue
                    await asyncio.sleep(0.2)
                    try:
                        await create()
                    except ApiError as error:
                        return "certificate has expired" in str(error)
                    return False

                # Another authority: both are trusted while the certificate is replaced.
                await front.trust(first, second)
                new = front.serve(second)
                exchanged = asyncio.create_task(front.serves(new))
                while not exchanged.done():
                    await accepted()
                    front.proxy.cut()  # so that connections are new
                    await asyncio.sleep(0.1)
                await exchanged
                await front.trust(second)
                await accepted()

                # The certificate expires.
                ending = front.serve(second, ends_in=timedelta(seconds=patience.scaled(4)))
                await front.serves(ending)
                await eventually(lambda: expiration_is_reported(manager), 60, poll_s=0.2)
                log = tmp_path / "log"
                await eventually(lambda: "the certificate ended at" in log.read_text(), 60)
                await eventually(refused_as_expired, 60, poll_s=0.2)

                last = front.serve(second)
                await front.serves(last)
                await accepted()
                await manager.wait_ready()
                ends = (await asyncio.to_thread(manager.scrape))[
                    'server_certificate_expiration_timestamp_seconds{server="webhooks"}'
                ]
                assert ends == x509.lifetime(last).ends.timestamp()

                # The manager's own client certificate has expired as well.
                await asyncio.sleep(max(0.0, (ended - datetime.now(UTC)).total_seconds() + 1))
                await group.fail("recreate")
                await group.running("recreate", restarts=1)
                refused = requests_of(await asyncio.to_thread(manager.scrape), code="401")
                assert refused <= 20
    log = (tmp_path / "log").read_text()
    assert "Unauthorized" not in log


async def responds(manager) -> bool:
    """Return True if the manager answers, ready or not."""
    return (await asyncio.to_thread(manager.readiness))[0] != 0


async def expiration_is_reported(manager) -> bool:
    """Return True if readiness reports that the certificate has expired."""
    status, text = await asyncio.to_thread(manager.readiness)
    return status == 500 and "webhooks: the certificate ended at" in text

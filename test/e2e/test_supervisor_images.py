"""Supervisor mode in real pods: images without a C library or with another one, exit codes."""

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest

from hack.cluster._requirements import MUSL_PACKAGES, require_programs
from hack.images.archive import Image, Layer
from hack.images.python_root import copy_libraries
from jobsetpy.api.core import Pod
from support import patience
from support.cluster.objects import RESTRICTED_CONTAINER, RESTRICTED_POD, jobset, replicated_job
from support.restarts.scenario import (
    kill_worker,
    pod_log_folders,
    restart_supervised_once,
    run_gang,
    supervised_jobset,
)

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(300)]

SOURCE = Path(__file__).with_name("worker.c")
COMPILERS = {
    "glibc": ["gcc"],
    "musl": ["musl-gcc"],
    "static": ["gcc", "-static"],
}


def image_of(kind: str, folder: Path) -> Path:
    """An image with nothing but the test worker and the C library that it was built with."""
    if kind == "musl":
        require_programs(MUSL_PACKAGES)
    compiler, *switches = COMPILERS[kind]
    root = folder / "root"
    root.mkdir()
    program = root / "worker"
    subprocess.run(
        [compiler, *switches, "-O", "-o", program, SOURCE], check=True, timeout=patience.scaled(60)
    )
    if kind == "musl":
        (library,) = Path("/lib").glob("*-linux-musl/libc.so")
        loader = subprocess.run(
            ["readelf", "-l", program],
            capture_output=True,
            text=True,
            check=True,
            timeout=patience.scaled(60),
        ).stdout.partition("interpreter: ")[2]
        target = root / loader.partition("]")[0].lstrip("/")
        target.parent.mkdir()
        shutil.copy(library, target)
    elif kind == "glibc":
        copy_libraries(root)
    layer = Layer()
    layer.tree(root, "")
    for name in ("proc", "sys", "dev", "tmp", "etc"):
        layer.folder(name)
    path = folder / f"{kind}.tar"
    Image(reference=f"localhost/{kind}-worker:1", layers=[layer], command=["/worker"]).write(path)
    return path


def worker_lines(cluster, timeline, pod: str) -> list[str]:
    """Return the lines that the pod's worker container printed on standard output."""
    uid = timeline.pods[pod].uid
    return [
        line.partition(" stdout F ")[2]
        for folder in pod_log_folders(cluster)
        for path in folder.glob(f"default_{pod}_{uid}/worker/*.log")
        for line in path.read_text().splitlines()
        if " stdout F " in line
    ]


def ordinary(name: str, image: str) -> dict:
    """An ordinary JobSet of two workers, with the annotation for agents."""
    worker = {
        "name": "worker",
        "image": image,
        "command": ["/worker"],
        "env": [
            {"name": "LD_LIBRARY_PATH", "value": "/worker/lib"},
            {"name": "POD_NAME", "value": "mine"},
        ],
        "securityContext": {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True},
    }
    pod = {"securityContext": {**RESTRICTED_POD, "runAsUser": 1000}, "containers": [worker]}
    job = replicated_job(pod, name="workers", parallelism=2)
    notes = {"jobset.sigs.k8s.io/in-place-restart-agent": "supervisor"}
    policy = {"maxRestarts": 3, "restartStrategy": "InPlaceRestart"}
    return jobset(name, job, annotations=notes, failurePolicy=policy)


@pytest.mark.parametrize("kind", COMPILERS)
async def test_supervisor_works_in_any_image(node_cluster, node_client, tmp_path, kind):
    """A glibc, a musl and a static image: non-root, read-only, restricted, environment unchanged.

    The manifests are ordinary ones; the deployed manager's webhook adds the supervisor.
    """
    await asyncio.to_thread(node_cluster.load_images, [image_of(kind, tmp_path)])
    jobset = ordinary(f"sup-{kind}", f"localhost/{kind}-worker:1")
    async with run_gang(node_client, jobset, 2, pod_log_folders(node_cluster)) as timeline:
        await printed(node_cluster, timeline, "worker started", 1)
        restart = await restart_supervised_once(timeline, 2, "worker started", script="/worker")
        pods = (await node_client.list_page(Pod, "default")).items
        (other,) = set(timeline.pods) - {restart.pod}

        facts = "user 1000, root read-only, libraries /worker/lib, pod mine, 0 foreign variables"
        first = [facts, "worker started"]
        assert worker_lines(node_cluster, timeline, restart.pod) == first * 2
        assert worker_lines(node_cluster, timeline, other) == [*first, "saved", *first]
        assert restart.recreated == 0
        assert {s.restart_count for p in pods for s in p.status.container_statuses} == {0}


async def printed(cluster, timeline, text: str, times: int) -> None:
    """Wait until every worker has printed a line this number of times."""
    async with patience.timeout(30):
        while any(  # noqa: ASYNC110 - the kubelet writes the files
            worker_lines(cluster, timeline, pod).count(text) < times for pod in timeline.pods
        ):
            await asyncio.sleep(0.1)


async def test_pod_fails_when_its_worker_exits_with_a_listed_code(node_cluster, node_client):
    """The Job replaces the pod; the new pod joins and the group restarts."""
    jobset = supervised_jobset("sup-end", 2, environ={"END_POD_EXIT_CODES": "137"})
    async with run_gang(node_client, jobset, 2, pod_log_folders(node_cluster)) as timeline:
        await printed(node_cluster, timeline, "worker started", 1)
        before = set(timeline.pods)
        victim = min(before)
        await kill_worker(await node_client.get(Pod, "default", victim), supervised=True)
        await timeline.wait(lambda: 2 in timeline.synced, 120, "the group to run again")

        assert timeline.pods[victim].phase == "Failed"
        assert len(set(timeline.pods) - before) == 1

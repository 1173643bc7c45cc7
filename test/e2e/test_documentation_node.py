"""Commands of the how-to pages work where pods run.

CONTRIBUTING.md explains the marks. The node has the images that were built here under the names of
the manifests, too.
"""

import dataclasses
import os
from pathlib import Path

import attrs
import pytest

from hack.cluster import Cluster
from hack.images.basic import shell_image
from support.cluster.install import AGENT_IMAGE, MANAGER_IMAGE
from support.docs import docs_kit
from support.docs.docs_surroundings import Surroundings, pages

SHELL_IMAGE = "busybox:1.37"
"""Image of pages' manifests; the node gets this machine's busybox under that name."""

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def surroundings(node_cluster, tmp_path_factory):
    """The cluster without a manager, and the images under the names of the manifests."""
    if node_cluster.is_existing:
        pytest.skip("the existing cluster is not ours to install things in")
    folder = tmp_path_factory.mktemp("images")
    built = docs_kit.ROOT / "build/images"
    archives = []
    for image in (MANAGER_IMAGE, AGENT_IMAGE):
        name = image.partition("/")[2].partition(":")[0]
        archives.append(
            docs_kit.renamed(built / f"{name}.tar", f"{name}:latest", folder / f"{name}.tar")
        )
    shell = folder / "shell.tar"
    dataclasses.replace(shell_image(), reference=SHELL_IMAGE).write(shell)
    node_cluster.load_images([*archives, shell])
    env = docs_kit.environment(node_cluster.kubeconfig, "kubectl")
    return Surroundings(env, "default", ready=True)


def keep(page, place, output):
    """Keep what a reader sees for `make recordings`."""
    if folder := os.environ.get("JOBSETPY_SEEN"):
        Path(folder, f"{page.name}.md").write_text(docs_kit.seen(page, place, output))


@pytest.mark.parametrize("page", pages("node"))
def test_commands_of_a_page_work(page, surroundings, node_cluster, tmp_path):
    """All commands of a page run in their order, as a reader would type them."""
    blocks = page.at("node")
    env = docs_kit.environment(node_cluster.kubeconfig, *docs_kit.tools_of(blocks))
    surroundings.prepare(page)
    try:
        keep(page, "node", docs_kit.run(blocks, docs_kit.checkout(tmp_path), env))
    finally:
        surroundings.restore()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", pages("fresh"))
def test_commands_of_a_page_work_from_a_fresh_clone(page, tmp_path, monkeypatch):
    """The tutorial needs nothing that it has not made: no environment, no image, no cluster.

    The README's commands run on its cluster before that ends.
    """
    *first, last = page.at("fresh")
    stays = last.text.replace(
        "make cluster-down", "kubectl wait pods --all --for=delete --timeout=120s"
    )
    env = docs_kit.plain_environment(tmp_path / "state")
    monkeypatch.setenv("JOBSETPY_STATE_DIR", env["JOBSETPY_STATE_DIR"])
    try:
        folder = docs_kit.clone(tmp_path / "clone")
        blocks = (*first, attrs.evolve(last, text=stays))
        keep(page, "fresh", docs_kit.run(blocks, folder, env, timeout_s=600))
        docs_kit.run(docs_kit.read(docs_kit.README).at("fresh"), folder, env, timeout_s=600)
        assert Cluster.names() == []
    finally:
        for name in Cluster.names():
            Cluster(name=name).down()

"""What the how-to pages tell readers to type works: run against a real control plane."""

import docs_kit
import pytest
from docs_surroundings import Surroundings, pages

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def surroundings(own_cluster):
    return Surroundings(docs_kit.environment(own_cluster.kubeconfig, "kubectl"))


@pytest.mark.parametrize("page", pages("cluster"))
def test_commands(page, surroundings, own_cluster, tmp_path):
    """All commands of a page, in their order, as one reader would type them."""
    blocks = page.at("cluster")
    env = docs_kit.environment(own_cluster.kubeconfig, *docs_kit.tools_of(blocks))
    try:
        if page.installed:  # without webhooks: no node runs whoever answers them
            surroundings.install("without-webhooks")
        docs_kit.run(blocks, docs_kit.checkout(tmp_path), env)
    finally:
        surroundings.restore()


@pytest.mark.parametrize("page", pages("shell"))
def test_commands_without_a_cluster(page, tmp_path):
    """Commands that look at files only."""
    blocks = page.at("shell")
    env = docs_kit.environment(None, *docs_kit.tools_of(blocks))
    docs_kit.run(blocks, docs_kit.checkout(tmp_path), env)

"""Commands of the how-to pages work with a real control plane."""

import pytest

from support.docs import docs_kit
from support.docs.docs_surroundings import Surroundings, pages

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def surroundings(own_cluster):
    env = docs_kit.environment(own_cluster.kubeconfig, "kubectl")
    # Without webhooks: there is no node for the manager's pod, which would serve them.
    return Surroundings(env, "without-webhooks", ready=False)


@pytest.mark.parametrize("page", pages("cluster"))
def test_commands_of_a_page_work(page, surroundings, own_cluster, tmp_path):
    """All commands of a page run in their order, as a reader would type them."""
    blocks = page.at("cluster")
    env = docs_kit.environment(own_cluster.kubeconfig, *docs_kit.tools_of(blocks))
    surroundings.prepare(page)
    try:
        docs_kit.run(blocks, docs_kit.checkout(tmp_path), env)
    finally:
        surroundings.restore()


@pytest.mark.parametrize("page", pages("shell"))
def test_commands_of_a_page_work_without_a_cluster(page, tmp_path):
    """Commands that only read files."""
    blocks = page.at("shell")
    env = docs_kit.environment(None, *docs_kit.tools_of(blocks))
    docs_kit.run(blocks, docs_kit.checkout(tmp_path), env)

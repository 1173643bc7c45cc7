"""A real Kubernetes control plane, and real nodes where asked, for tests and for trying things out.

Exists so that every test that needs an API server gets the real one with one line::

    from hack.cluster import Cluster

    with Cluster(controller_manager=False, scheduler=False) as cluster:
        connect(cluster.kubeconfig)

The same thing from a shell: ``python hack/cluster up --name dev``.
"""

from ._cluster import Cluster
from ._errors import ClusterError

__all__ = ["Cluster", "ClusterError"]

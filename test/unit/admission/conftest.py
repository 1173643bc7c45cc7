"""Stores of the pod handlers."""

import pytest

from jobsetpy.admission._handlers import LEADERS
from jobsetpy.api.batch import Job
from jobsetpy.api.core import Node
from jobsetpy.api.jobset import ChildPod
from jobsetpy.informers import StoreWriter


@pytest.fixture
def stores():
    """Writers of empty, synced stores of pods, nodes and Jobs."""
    made = StoreWriter(ChildPod, indexes=[LEADERS]), StoreWriter(Node), StoreWriter(Job)
    for writer in made:
        writer.replace([], "1")
        writer.mark_synced("1")
    return made

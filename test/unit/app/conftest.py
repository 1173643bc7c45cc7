"""Flags and configuration files, read as the commands read them."""

import pytest

from jobsetpy.app import main
from jobsetpy.app.config import flags as f

HEAD = "apiVersion: config.jobset.x-k8s.io/v1alpha1\nkind: Configuration\n"


@pytest.fixture
def parse(tmp_path):
    """Return a function that parses a command's flags, with a file if a text for it is given."""

    def parse(command, *flags, text=None):
        if text is not None:
            path = tmp_path / "configuration.yaml"
            path.write_text(HEAD + text)
            flags = ("--config", str(path), *flags)
        return main._parser().parse_args([command.name, *f.with_double_dashes(list(flags))])

    return parse


@pytest.fixture
def read(parse):
    """Return a function that reads a command's configuration from flags and the text of a file."""
    return lambda command, *flags, text=None: f.read(parse(command, *flags, text=text), command)

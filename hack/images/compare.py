"""``python hack/images/compare.py OURS.tar BUILT.tar``: compare the images in two archives.

For an image of ``build.py`` and one that an engine built from the Containerfile, exported by

    buildah push IMAGE docker-archive:BUILT.tar

Compared are the parts that the Containerfile defines: configuration and the files in ``/app``. The
system below is that of the base image in one, and that of this machine in the other. Bytecode is
compared as code, since its bytes depend on the order in which modules were compiled. If the patch
release of the base image's interpreter differs, pass that interpreter to ``build.py --python``.
"""

from __future__ import annotations

import marshal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

from hack.images.archive import read

APP = "app/"
PYC_HEADER = 16
BASE_ENV = {"PATH", "LANG", "GPG_KEY", "PYTHON_VERSION", "PYTHON_SHA256", "container"}


def app(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the configuration of an archive's image, and its files in ``/app``."""
    config, files = read(path)
    return config["config"], {name: data for name, data in files.items() if name.startswith(APP)}


def differences(ours: Path, built: Path) -> Iterator[str]:
    """Return the differences, one line each."""
    (config, files), (other_config, other_files) = app(ours), app(built)
    for key in ("Entrypoint", "Cmd", "User", "Labels", "Env"):
        here, there = _said(config, key), _said(other_config, key)
        if here != there:
            yield f"{key}: {here} here, {there} there"
    for path in sorted(files.keys() | other_files.keys()):
        if path not in other_files:
            yield f"{path}: only here"
        elif path not in files:
            yield f"{path}: only there"
        elif not _same(path, files[path], other_files[path]):
            yield f"{path}: contents differ"


def _said(config: dict[str, Any], key: str) -> object:
    value = config.get(key) or []
    if key == "Env":
        return sorted(pair for pair in value if pair.partition("=")[0] not in BASE_ENV)
    if key == "Labels":  # engines add their own
        return {k: v for k, v in dict(value).items() if k.startswith("org.opencontainers.")}
    return value


def _same(path: str, here: bytes, there: bytes) -> bool:
    if here == there:
        return True
    if path.endswith(".pyc") and here[:PYC_HEADER] == there[:PYC_HEADER]:
        return _code(here) == _code(there)
    return False


def _code(pyc: bytes) -> CodeType:
    loaded: CodeType = marshal.loads(pyc[PYC_HEADER:])
    return loaded


def main() -> int:
    """Compare the two files of the command line; return the exit status."""
    if len(sys.argv) != 3:
        print("usage: compare.py OURS.tar BUILT.tar", file=sys.stderr)
        return 2
    found = list(differences(Path(sys.argv[1]), Path(sys.argv[2])))
    for line in found:
        print(line)
    print(f"{len(found)} differences")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())

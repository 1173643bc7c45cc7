"""The typed Go client of ``test/clients/typed``, built from the same modules as the servers.

It is cached under the hash of its source and of the modules' versions.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from hack.cluster import _build, _state
from hack.cluster._progress import Progress

SOURCE = Path(__file__).parents[2] / "clients" / "typed" / "main.go"


def typed_client() -> Path:
    """Return the program; building it takes about a minute, once."""
    module = [_build.LOCK / name for name in ("go.mod", "go.sum")]
    content = b"".join(path.read_bytes() for path in (SOURCE, *module))
    cache = _state.cache_dir()
    program = cache / "bin" / f"typed-client-{hashlib.sha256(content).hexdigest()[:16]}"
    cache.joinpath("bin").mkdir(parents=True, exist_ok=True)
    with (cache / "typed-client.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _make(program, module)
    return program


def _make(program: Path, module: list[Path]) -> None:
    go = _build.find_go(_state.cache_dir(), Progress())
    with tempfile.TemporaryDirectory(dir=program.parent, prefix="typed-client-") as place:
        for path in (*module, SOURCE):
            shutil.copy(path, place)
        subprocess.run(
            [go, "build", "-mod=mod", "-o", "out", "."],
            cwd=place,
            check=True,
            env={**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": ""},
        )
        Path(place, "out").replace(program)

"""``python hack/images/build.py manager|agent|basic|all --out DIR``: images as tar files.

No container engine, no registry, no network: an image is what is installed here, copied. Load one
with ``python hack/cluster images load FILE``, ``podman load`` or ``docker load``.
"""

import argparse
import shlex
import sys
import time
from pathlib import Path

from hack.images import basic, project
from hack.images.python_root import Interpreter

BASIC = {"pause": basic.pause_image, "shell": basic.shell_image}


def main() -> int:
    """Build what the command line names; returns the exit status."""
    parser = argparse.ArgumentParser(description="Container images without a container engine.")
    parser.add_argument("which", choices=[*project.NAMES, *BASIC, "all"])
    parser.add_argument("--out", type=Path, required=True, help="the folder for the tar files")
    parser.add_argument("--python", type=Path, help="the interpreter to put in; same minor version")
    parser.add_argument("--entrypoint", help="in place of the Containerfile's, as a shell would")
    arguments = parser.parse_args()
    source = project.Source(
        interpreter=Interpreter.of(arguments.python) if arguments.python else None,
        entrypoint=shlex.split(arguments.entrypoint) if arguments.entrypoint else None,
    )
    names = [*project.NAMES, *BASIC] if arguments.which == "all" else [arguments.which]
    for name in names:
        begun = time.monotonic()
        try:
            if name in BASIC:
                image, path = BASIC[name](), arguments.out / f"{name}.tar"
                image_id = image.write(path).image_id
            else:
                built = project.build(name, arguments.out, source)
                image_id, path = built.image_id, built.path
        except (FileNotFoundError, ValueError) as error:
            print(f"build.py: {error}", file=sys.stderr)
            return 1
        size, took = path.stat().st_size / 1e6, time.monotonic() - begun
        print(f"{path}  {size:6.1f} MB  {took:5.1f} s  {image_id[:19]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""``python hack/images/build.py manager|agent|basic|all --out DIR``: images as tar files.

No container engine, registry or network is needed: images are copies of installed files. Load them
with ``python hack/cluster images load FILE``, ``podman load`` or ``docker load``.
"""

import argparse
import shlex
import sys
import time
from pathlib import Path

from hack.images import basic, project
from hack.images.archive import architecture, join
from hack.images.foreign import MACHINES, Sysroot
from hack.images.python_root import Interpreter

BASIC = {"pause": basic.pause_image, "shell": basic.shell_image}


def main() -> int:
    """Build the images of the command line; return the exit status."""
    parser = argparse.ArgumentParser(description="Container images without a container engine.")
    parser.add_argument("which", choices=[*project.NAMES, *BASIC, "all"])
    parser.add_argument("--out", type=Path, required=True, help="folder for the tar files")
    parser.add_argument("--python", type=Path, help="interpreter to copy; same minor version")
    parser.add_argument(
        "--arch",
        action="append",
        choices=list(MACHINES),
        help="others than this machine's use downloaded packages; several make one archive",
    )
    parser.add_argument("--entrypoint", help="replaces the Containerfile's; split like in a shell")
    arguments = parser.parse_args()
    wanted = arguments.arch or [architecture()]
    if wanted != [architecture()] and arguments.which not in project.NAMES:
        parser.error("--arch needs one image: manager or agent")
    try:
        for arch in wanted:
            _build(arguments, arch, several=len(wanted) > 1)
        if len(wanted) > 1:
            name = f"{project.PACKAGE}-{arguments.which}"
            parts = [arguments.out / f"{name}-{arch}.tar" for arch in wanted]
            print(arguments.out / f"{name}.tar", join(parts, arguments.out / f"{name}.tar"))
    except (FileNotFoundError, ValueError) as error:
        print(f"build.py: {error}", file=sys.stderr)
        return 1
    return 0


def _build(arguments: argparse.Namespace, arch: str, *, several: bool) -> None:
    source = project.Source(
        sysroot=Sysroot.of(arch) if arch != architecture() else None,
        interpreter=Interpreter.of(arguments.python) if arguments.python else None,
        entrypoint=shlex.split(arguments.entrypoint) if arguments.entrypoint else None,
    )
    names = [*project.NAMES, *BASIC] if arguments.which == "all" else [arguments.which]
    for name in names:
        begun = time.monotonic()
        if name in BASIC:
            image, path = BASIC[name](), arguments.out / f"{name}.tar"
            image_id = image.write(path).image_id
        else:
            built = project.build(name, arguments.out, source)
            image_id, path = built.image_id, built.path
            if several:
                path = path.rename(path.with_name(f"{path.stem}-{arch}.tar"))
        size, took = path.stat().st_size / 1e6, time.monotonic() - begun
        print(f"{path}  {size:6.1f} MB  {took:5.1f} s  {image_id[:19]}")


if __name__ == "__main__":
    sys.exit(main())

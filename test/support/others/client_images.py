"""Images of other projects' managers with programs that ``hack/cluster`` builds."""

from __future__ import annotations

from pathlib import Path

from hack.cluster._binaries import Binaries
from hack.cluster._progress import Shown
from hack.images.archive import Image, Layer
from hack.images.basic import USER_ID, base_files
from support.cluster.install import ROOT


def client_image(part: str) -> Path:
    """Return the archive of ``localhost/PART:dev``, which has only a static program ``/manager``."""
    program = Binaries.find([part], Shown())[part]
    layer = Layer()
    base_files(layer)
    layer.file("manager", program, mode=0o755)
    image = Image(
        reference=client_reference(part),
        layers=[layer],
        entrypoint=["/manager"],
        user=f"{USER_ID}:{USER_ID}",
    )
    archive = ROOT / "build" / "images" / f"{part}.tar"
    image.write(archive)
    return archive


def client_reference(part: str) -> str:
    """Return the image's name."""
    return f"localhost/{part}:dev"

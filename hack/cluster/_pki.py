"""Keys and certificates of a cluster, created with the openssl command.

Keys are on elliptic curves, which takes milliseconds; an RSA key would take a tenth of a second.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from ._errors import ClusterError

DAYS = 30


def openssl(*args: str) -> None:
    command = shutil.which("openssl")
    if command is None:
        raise ClusterError(
            "the openssl command is needed to make certificates: apt-get install openssl"
        )
    done = subprocess.run(
        [command, *args], capture_output=True, text=True, timeout=60, umask=0o077, check=False
    )
    if done.returncode:
        raise ClusterError(f"openssl {' '.join(args)}: {done.stderr.strip()}")


def make_key(path: Path) -> None:
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(path))


class Authority:
    """Create the cluster's certificate authority."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self.folder = folder
        self.cert, self.key = folder / "ca.crt", folder / "ca.key"
        make_key(self.key)
        openssl(
            *("req", "-x509", "-new", "-key", str(self.key), "-out", str(self.cert)),
            *("-days", str(DAYS), "-subj", "/CN=jobsetpy-cluster-ca"),
        )

    def issue(
        self, name: str, *, subject: str, alt_names: tuple[str, ...] = (), client: bool = False
    ) -> None:
        """Create ``name.key`` and ``name.crt``; `alt_names` such as ``IP:127.0.0.1``."""
        key, request = self.folder / f"{name}.key", self.folder / f"{name}.csr"
        extensions = self.folder / f"{name}.ext"
        lines = [
            "basicConstraints=critical,CA:FALSE",
            "keyUsage=critical,digitalSignature",
            f"extendedKeyUsage={'clientAuth' if client else 'serverAuth'}",
        ]
        if alt_names:
            lines.append(f"subjectAltName={','.join(alt_names)}")
        extensions.write_text("\n".join(lines) + "\n")
        make_key(key)
        openssl("req", "-new", "-key", str(key), "-subj", subject, "-out", str(request))
        openssl(
            *("x509", "-req", "-in", str(request), "-CA", str(self.cert), "-CAkey", str(self.key)),
            *("-set_serial", str(int.from_bytes(os.urandom(8), "big") >> 1), "-days", str(DAYS)),
            *("-extfile", str(extensions), "-out", str(self.folder / f"{name}.crt")),
        )
        request.unlink()
        extensions.unlink()

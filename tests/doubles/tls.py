"""Certificates of an authority of the test's own, made by the openssl command, for servers that really speak TLS."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """Signs certificates; `file` is what SSL_CERT_FILE names to trust it."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("the openssl command is not installed, so there are no certificates to serve with")
        folder.mkdir()
        self._folder, self.file, self._key = folder, folder / "authority.pem", folder / "authority.key"
        _openssl(*_KEY, "-keyout", self._key, "-out", self.file, "-subj", "/CN=an authority")

    def server(self, *names: str) -> ssl.SSLContext:
        """What a server needs to answer as these names (`DNS:…`, `IP:…`)."""
        key, certificate = self._folder / "server.key", self._folder / "server.pem"
        about = ("-addext", f"subjectAltName={','.join(names)}", "-addext", "basicConstraints=critical,CA:FALSE")
        signed = ("-CA", self.file, "-CAkey", self._key)
        _openssl(*signed, *_KEY, "-keyout", key, "-out", certificate, "-subj", "/CN=a server", *about)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        return context


def _openssl(*arguments: str | Path) -> None:
    command = ["openssl", "req", "-x509", "-days", "2", *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)

"""A certificate authority for one cluster, by the openssl program, which every machine has."""

import subprocess
from collections.abc import Iterable
from pathlib import Path

from cluster.errors import ClusterError

DAYS = "3650"


def openssl(*arguments: str) -> None:
    """Run openssl; ClusterError with its words when it fails."""
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"openssl {arguments[0]} failed: {done.stderr.strip()}")


def make_server_certificate(folder: Path, addresses: Iterable[str], names: Iterable[str]) -> None:
    """ca.crt, server.crt and server.key for those addresses and names, and service-account.key; kept when there."""
    if (folder / "done").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    ca, key = str(folder / "ca.crt"), str(folder / "ca.key")
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", DAYS, "-subj", "/CN=tokenpool-cluster",
            "-addext", "keyUsage=critical,keyCertSign,digitalSignature", "-keyout", key, "-out", ca)  # fmt: skip
    request = str(folder / "server.csr")
    openssl("req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=kube-apiserver",
            "-keyout", str(folder / "server.key"), "-out", request)  # fmt: skip
    alternatives = [*(f"IP:{address}" for address in addresses), *(f"DNS:{name}" for name in names)]
    extensions = folder / "server.ext"
    extensions.write_text(f"subjectAltName={','.join(alternatives)}\nextendedKeyUsage=serverAuth\n")
    openssl("x509", "-req", "-in", request, "-CA", ca, "-CAkey", key, "-CAcreateserial", "-days", DAYS,
            "-extfile", str(extensions), "-out", str(folder / "server.crt"))  # fmt: skip
    openssl("genrsa", "-out", str(folder / "service-account.key"), "2048")
    (folder / "done").touch()

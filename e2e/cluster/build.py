"""Kubernetes' own programs, built from their Go modules once per machine. What runs them is not known here."""

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from cluster.cache import made_once
from cluster.errors import ClusterError
from cluster.helm_kubectl import client_tools
from cluster.progress import Step, step

__all__ = ["PROGRAMS", "client_tools", "kubernetes_binary", "kubernetes_version", "programs"]

SOURCE = Path(__file__).parent / "go"
SOURCES = ("go.mod", "go.sum", "main.go", "pause/main.go")
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
FLAGS = ("-trimpath", "-buildvcs=false")
LAST_WORDS = 40


def programs() -> Path:
    """A folder with PROGRAMS, all links to one binary, and `pause`. Built at the first call: about ten minutes."""
    go = find_go()
    return made_once(f"kubernetes-{source_hash(go_version(go))}", lambda folder: build(go, folder))


def kubernetes_binary() -> Path:
    """The multi-call binary behind all of PROGRAMS."""
    return programs() / "kubernetes"


def kubernetes_version() -> str:
    """The version that go.mod asks for, such as v1.37.2."""
    found = re.search(r"^\s*k8s\.io/kubernetes (v\S+)$", (SOURCE / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise ClusterError(f"{SOURCE / 'go.mod'} requires no k8s.io/kubernetes")
    return found[1]


def find_go() -> str:
    """The go command."""
    found = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin:/usr/lib/go/bin")
    if found is None:
        raise ClusterError(f"building Kubernetes {kubernetes_version()} needs Go 1.26 or newer: no `go` on the PATH")
    return found


def go_version(go: str) -> str:
    """What `go version` says of the toolchain that go.mod selects."""
    return subprocess.run([go, "version"], cwd=SOURCE, check=True, capture_output=True, text=True).stdout.strip()


def source_hash(version: str) -> str:
    """Sixteen hex digits that change with the sources, the toolchain and the flags."""
    digest = hashlib.sha256()
    for part in [
        version.encode(),
        *(flag.encode() for flag in FLAGS),
        *((SOURCE / name).read_bytes() for name in SOURCES),
    ]:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:16]


def build(go: str, folder: Path) -> None:
    """Compile into `folder` and link the names."""
    with step(f"building Kubernetes {kubernetes_version()} from its Go modules (once per machine)") as current:
        compile_package(go, ".", folder / "kubernetes", version_flags(), current)
        compile_package(go, "./pause", folder / "pause", "-s -w", current)
    for name in PROGRAMS:
        (folder / name).symlink_to("kubernetes")


def version_flags() -> str:
    """Linker flags that make the programs say their real version, as an official build does."""
    version = kubernetes_version()
    major, minor, _ = version.removeprefix("v").split(".", 2)
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return "-s -w " + " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in values.items())


def compile_package(go: str, package: str, target: Path, linker_flags: str, current: Step) -> None:
    """One `go build`; the step shows how many packages are done."""
    command = [go, "build", "-v", *FLAGS, "-ldflags", linker_flags, "-o", str(target), package]
    environment = {**os.environ, "CGO_ENABLED": "0"}
    words: list[str] = []
    with subprocess.Popen(command, cwd=SOURCE, env=environment, stderr=subprocess.PIPE, text=True) as running:
        for line in running.stderr or ():
            words.append(line.rstrip())
            current.detail(f"{len(words)} packages so far, {words[-1][-60:]}")
    if running.returncode:
        raise ClusterError("`go build` failed:\n" + "\n".join(words[-LAST_WORDS:]))

"""Which processes are ours to end: never a recycled pid, never a bystander."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cluster import sweep
from cluster.processes import Background, start_time, without_proxies

FOLDER = Path("/var/lib/some-cluster")


def test_a_recycled_pid_is_not_ours(tmp_path: Path) -> None:
    mine = os.getpid()
    (tmp_path / "etcd.pid").write_text(json.dumps({"pid": mine, "start": (start_time(mine) or 0) - 1}))
    background = Background(tmp_path)
    assert background.pid("etcd") is None
    background.stop("etcd", kill=True)  # would end this very test
    assert background.names() == []


@pytest.mark.parametrize("content", ["", "{", '{"pid": 999999999, "start": 1}'])
def test_a_broken_or_stale_pid_file_means_not_running(tmp_path: Path, content: str) -> None:
    (tmp_path / "etcd.pid").write_text(content)
    assert not Background(tmp_path).is_running("etcd")


def test_a_program_is_found_again_and_ended(tmp_path: Path) -> None:
    first = Background(tmp_path)
    first.start("sleeper", [sys.executable, "-c", "import signal; signal.pause()"])
    pid = first.pid("sleeper")
    assert pid is not None
    assert Background(tmp_path).pid("sleeper") == pid
    first.stop("sleeper", kill=True)
    assert start_time(pid) is None


def test_children_that_are_tethered_die_with_a_killed_parent(tmp_path: Path) -> None:
    script = f"""
import pathlib, signal, sys, os
from cluster.processes import Background
background = Background(pathlib.Path({str(tmp_path)!r}), outlive=False)
background.start("child", [sys.executable, "-c", "import signal; signal.pause()"])
print(background.pid("child"), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(sweep.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    child = Path(f"/proc/{int(done.stdout)}")
    fd = os.pidfd_open(int(done.stdout)) if child.exists() else None
    if fd is not None:
        with os.fdopen(fd) as file:
            import select

            assert select.select([file], [], [], 10)[0]
    assert start_time(int(done.stdout)) is None


@pytest.mark.parametrize(
    ("line", "ours"),
    [
        ("/root/.cache/tokenpool/kubernetes-1/etcd --data-dir=/var/lib/some-cluster/etcd", True),
        ("containerd --config /var/lib/some-cluster/node-1/containerd.toml", True),
        ("/usr/bin/containerd-shim-runc-v2 -id 1 -address /var/lib/some-cluster/node-1/containerd.sock", True),
        ("containerd --config /etc/containerd/config.toml", False),
        ("tail -f /var/lib/some-cluster/etcd.log", False),
        ("bash -c make cluster-down; ls /var/lib/some-cluster/", False),
        ("etcd --data-dir=/var/lib/some-cluster-of-another/etcd", False),
    ],
)
def test_only_programs_that_we_started_are_ours(line: str, ours: bool) -> None:
    assert sweep.is_ours(line, FOLDER) is ours


def test_who_called_us_is_an_ancestor() -> None:
    assert os.getppid() in sweep.ancestors(os.getpid())
    assert os.getpid() not in sweep.ancestors(os.getpid())


def test_proxy_settings_do_not_reach_the_cluster() -> None:
    environment = {"HTTPS_PROXY": "http://proxy", "no_proxy": "x", "PATH": "/bin"}
    assert without_proxies(environment) == {"PATH": "/bin"}

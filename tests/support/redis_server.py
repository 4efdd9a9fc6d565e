"""A real redis-server of one test, on a loopback port, ended by its process id. Knows nothing of what it stores."""

import contextlib
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import redis

from cluster.ports import free_ports

START_SECONDS = 10.0


class RedisServer:
    """One server. It comes back on the same port after `kill`, with or without what was in it."""

    def __init__(self, program: Path, folder: Path, *, appendonly: bool = False) -> None:
        self.port = free_ports(1)[0]
        self.password = ""
        self._program = program
        self._folder = folder
        self._appendonly = appendonly
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        settings = {
            "--bind": "127.0.0.1",
            "--port": str(self.port),
            "--dir": str(self._folder),
            "--save": "",
            "--appendonly": "yes" if self._appendonly else "no",
            "--appendfsync": "always",
            "--requirepass": self.password,
        }
        with (self._folder / "redis.log").open("ab") as log:
            command = [str(self._program), *(part for setting in settings.items() for part in setting)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"no redis-server:\n{(self._folder / 'redis.log').read_text()[-2000:]}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.exceptions.ConnectionError:
            return False

    @property
    def url(self) -> str:
        """What the router's file should say."""
        user = f":{quote(self.password, safe='')}@" if self.password else ""
        return f"redis://{user}127.0.0.1:{self.port}/0"

    @contextlib.contextmanager
    def client(self) -> Iterator[Any]:
        """A client of the test's own."""
        client = redis.Redis(port=self.port, password=self.password or None, protocol=2, socket_timeout=5)
        try:
            yield client
        finally:
            client.close()

    def change_password(self, password: str) -> None:
        """From now on new connections need it, and old ones are cut."""
        with self.client() as client:
            client.config_set("requirepass", password)
        self.password = password
        self.cut_connections()

    def cut_connections(self) -> None:
        """Drop everybody."""
        with self.client() as client:
            client.client_kill_filter(_type="normal", skipme=True)

    def kill(self) -> None:
        """SIGKILL, no tidying up."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """SIGSTOP: connections are accepted by the kernel and nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

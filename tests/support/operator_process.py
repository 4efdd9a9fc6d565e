"""The operator as its own process, as a test wants it: quick lease, ports of its own, the log in a file.

Knows the operator's command line and environment, nothing of its modules.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from cluster.ports import free_ports

LEASE_SECONDS = 3.0


@dataclass
class OperatorProcess:
    """One replica. The same `identity` takes the lease back at once after a kill, as a restarted container does."""

    kubeconfig: Path
    log_file: Path
    lease_namespace: str
    watch_namespace: str = ""
    identity: str = "operator-1"
    environment: dict[str, str] = field(default_factory=dict)
    starts: int = 0
    process: subprocess.Popen[bytes] | None = None
    health_port: int = 0
    metrics_port: int = 0

    def start(self) -> None:
        """Start it, or start it again."""
        self.starts += 1
        self.health_port, self.metrics_port = free_ports(2)
        settings = {
            "KUBECONFIG": str(self.kubeconfig),
            "TOKENPOOL_ENGINE_IMAGE": "engine:1",
            "TOKENPOOL_ROUTER_IMAGE": "router:1",
            "TOKENPOOL_WATCH_NAMESPACE": self.watch_namespace,
            "TOKENPOOL_HEALTH_PORT": str(self.health_port),
            "TOKENPOOL_METRICS_PORT": str(self.metrics_port),
            "TOKENPOOL_LEASE_SECONDS": str(LEASE_SECONDS),
            # Scripted pods have addresses that lead nowhere.
            "TOKENPOOL_LOAD_SECONDS": "86400",
            "TOKENPOOL_REPLACE_SECONDS": "0.5",
            "POD_NAME": self.identity,
            "POD_NAMESPACE": self.lease_namespace,
        }
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tokenpool_operator"],
                env={**os.environ, **settings, **self.environment},
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """SIGKILL: it gets no chance to tidy up."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    async def stop(self, within_seconds: float = 15.0) -> int:
        """SIGTERM. Returns the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return await self.exit_code(within_seconds)

    async def exit_code(self, within_seconds: float = 15.0) -> int:
        """Wait until it ends by itself."""
        assert self.process is not None
        return await asyncio.to_thread(self.process.wait, within_seconds)

    @contextlib.asynccontextmanager
    async def kept_running(self) -> AsyncIterator[None]:
        """Start it again whenever it ends, as the kubelet does."""
        task = asyncio.create_task(self._keep_running())
        try:
            yield
        finally:
            task.cancel()

    async def _keep_running(self) -> None:
        while True:
            await asyncio.sleep(0.2)
            if not self.is_running():
                self.start()

    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.process is not None and self.process.poll() is None

    def log(self) -> str:
        """Everything it said so far, over all its starts."""
        return self.log_file.read_text() if self.log_file.exists() else ""

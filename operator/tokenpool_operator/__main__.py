"""Starts and ends the process: connect, check, watch, stand by for the lease, work, stop in order.

Exit codes: 0 after a signal, 1 when something broke, 2 when it cannot start, 3 when the lease was lost.
"""

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import kopf

from tokenpool_api import names
from tokenpool_kube import Cluster, ClusterError, NotFound, kinds
from tokenpool_operator import handlers, settings
from tokenpool_operator.bell import Bells
from tokenpool_operator.cluster import Door
from tokenpool_operator.lease import Leadership
from tokenpool_operator.load import LoadBook
from tokenpool_operator.metrics import Metrics
from tokenpool_operator.reconcile import Reconciler

log = logging.getLogger("tokenpool_operator")

EXIT_BROKEN = 1
EXIT_CANNOT_START = 2
EXIT_LEASE_LOST = 3


class Operator:
    """One replica: everything that lives as long as the process."""

    def __init__(self, api: Cluster, http: aiohttp.ClientSession, options: settings.Settings) -> None:
        self.options = options
        self.metrics = Metrics()
        self.leadership = Leadership(
            api,
            namespace=options.pod_namespace,
            identity=options.pod_name,
            seconds=options.lease_seconds,
            clock=time.monotonic,
        )
        door = Door(api, self.metrics, self.leadership.is_held)
        self.loads = LoadBook(http, self._ring, clock=time.monotonic)
        reconciler = Reconciler(door, options, self.loads, time.time)
        self.bells = Bells(reconciler.run_pass, self.metrics, resync_seconds=options.resync_seconds)
        self._tasks: list[asyncio.Task[None]] = []

    def _ring(self, key: tuple[str, str]) -> None:
        self.bells.ring(key)

    async def run(self) -> None:
        """Until a signal. kopf owns signals and the watches; our own tasks end in its cleanup."""
        self.metrics.serve(self.options.metrics_port)
        self._tasks = [
            asyncio.create_task(self._lead(), name="lease"),
            asyncio.create_task(self.loads.poll_forever(self.options.load_seconds), name="load"),
        ]
        namespace = self.options.watch_namespace
        # kopf's name for us; without it kopf asks for the user's name, which a container's bare UID does not have.
        os.environ.setdefault("POD_ID", self.options.pod_name)
        await kopf.operator(
            registry=handlers.registry(self.bells.ring, self.metrics, alive=self._alive, stop=self._stop),
            settings=handlers.kopf_settings(),
            clusterwide=namespace is None,
            namespaces=[namespace] if namespace else [],
            liveness_endpoint=f"http://0.0.0.0:{self.options.health_port}/healthz",
        )

    async def _lead(self) -> None:
        await self.leadership.acquire()
        self.metrics.leading.set(1)
        self.bells.open()
        await self.leadership.hold()
        # At once and without tidying up: from here on another replica may write.
        os._exit(EXIT_LEASE_LOST)

    def _alive(self) -> Mapping[str, Any]:
        for task in self._tasks:
            if task.done():
                raise RuntimeError(f"task {task.get_name()} ended")
        return {"leading": self.leadership.is_held()}

    async def _stop(self) -> None:
        await self.bells.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(ClusterError):
            await self.leadership.release()


@contextlib.asynccontextmanager
async def connected(options: settings.Settings) -> AsyncIterator[Operator]:
    """An operator whose API server answers and has the CRD."""
    async with await Cluster.connect() as api, aiohttp.ClientSession() as http:
        await check_crd(api, options.watch_namespace)
        yield Operator(api, http, options)


async def check_crd(api: Cluster, namespace: str | None) -> None:
    """Raises NotFound where the CRD is absent: kopf would stay alive and never serve."""
    await api.list(kinds.TOKENPOOL, namespace)


async def run(options: settings.Settings) -> int:
    """The process from connect to exit code."""
    try:
        async with connected(options) as operator:
            await operator.run()
    except NotFound:
        crd = f"{names.PLURAL}.{names.GROUP}"
        log.error("the CustomResourceDefinition %s is not installed; install the chart, then start again", crd)
        return EXIT_CANNOT_START
    except ClusterError as error:
        log.error("the API server is not to be used: %s", error)
        return EXIT_CANNOT_START
    except Exception as error:
        # kopf has told the traceback. A watch that was refused for good ends here: a restart is better than deafness.
        log.error("the watches ended: %s", error)
        return EXIT_BROKEN
    return 0


def main() -> None:
    """Entry point of the image."""
    options = settings.parse(sys.argv[1:], os.environ)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    for chatty in ("kopf", "aiohttp.access"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    sys.exit(asyncio.run(run(options)))


if __name__ == "__main__":
    main()

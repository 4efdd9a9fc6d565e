"""Who we are to the API server: a pod's service account or a kubeconfig, and how its token is kept fresh.

Must not know about requests; the client asks for a fresh token and reports a refused one.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import yaml
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException, load_kube_config
from kubernetes.aio.config.incluster_config import SERVICE_HOST_ENV_NAME, InClusterConfigLoader

log = logging.getLogger(__name__)

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SERVICE_ACCOUNT_RELOAD_SECONDS: Final = 60.0
"""A pod's token is replaced on disk at 80 % of its life, of which the rest is never shorter than two minutes."""
KUBECONFIG_RELOAD_SECONDS: Final = 300.0
"""A kubeconfig may run a login program, so it is read less often."""

Reload = Callable[[Any], Awaitable[None]]

READ_FAILURES: Final = (ConfigException, OSError, ValueError, yaml.YAMLError)


class Credentials:
    """A client configuration and the way to renew it. `configuration` is the client library's own."""

    def __init__(self, reload: Reload, reload_seconds: float) -> None:
        self.configuration = Configuration()
        # The checks of every Go client. Python 3.13 also wants key identifiers, which many clusters' own CAs lack.
        self.configuration.disable_strict_ssl_verification = True
        self._reload = reload
        self._reload_seconds = reload_seconds
        self._fresh_until = 0.0

    async def load(self) -> None:
        """Read everything for the first time. Raises what the source raises."""
        self._fresh_until = asyncio.get_running_loop().time() + self._reload_seconds
        await self._reload(self.configuration)
        # The library calls this before each request.
        self.configuration.refresh_api_key_hook = self._refresh

    def distrust(self) -> None:
        """The server refused the token: read it again before the next request instead of at the next turn."""
        self._fresh_until = 0.0

    async def _refresh(self, _configuration: Any) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._fresh_until:
            return
        self._fresh_until = now + self._reload_seconds
        try:
            await self._reload(self.configuration)
        except READ_FAILURES as error:
            # The old token may well be good still; if not, the server's 401 brings us back here.
            log.warning("could not read the API server's credentials again, keeping the old ones: %s", error)


def _from_service_account(folder: Path) -> Reload:
    async def reload(configuration: Any) -> None:
        loader = InClusterConfigLoader(
            token_filename=str(folder / "token"), cert_filename=str(folder / "ca.crt"), try_refresh_token=False
        )
        loader.load_and_set(configuration)

    return reload


def _from_kubeconfig(path: str | None) -> Reload:
    async def reload(configuration: Any) -> None:
        # Never persist: it would rewrite the user's file.
        await load_kube_config(config_file=path, client_configuration=configuration, persist_config=False)

    return reload


def find_credentials(kubeconfig: str | None, service_account: Path = SERVICE_ACCOUNT) -> Credentials:
    """The named kubeconfig; else the pod's service account; else the file KUBECONFIG names; else ~/.kube/config."""
    in_pod = SERVICE_HOST_ENV_NAME in os.environ and (service_account / "token").exists()
    if kubeconfig is None and in_pod:
        return Credentials(_from_service_account(service_account), SERVICE_ACCOUNT_RELOAD_SECONDS)
    return Credentials(_from_kubeconfig(kubeconfig), KUBECONFIG_RELOAD_SECONDS)

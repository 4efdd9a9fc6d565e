"""TokenPools as kubectl sends them: plain JSON, strict field validation, the status code and body as they come back."""

from typing import Any

import aiohttp

from cluster.controlplane import ControlPlane
from tokenpool_api import names

Raw = dict[str, Any]


def pool(name: str = "pool", **spec: Any) -> Raw:
    """The smallest pool that is valid, and what is given."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name},
        "spec": {"model": {"source": "hf://org/name"}, **spec},
    }


def model(source: str, **fields: Any) -> Raw:
    """A pool with this model."""
    return pool(model={"source": source, **fields})


def shards(**fields: Any) -> Raw:
    """A pool with these shards."""
    return pool(shards=fields)


class Session:
    """Raw requests: what kubectl would send."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self._url, self._token = control_plane.url, control_plane.token
        self._path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.PLURAL}"

    async def send(
        self, method: str, name: str = "", body: Raw | None = None, accept: str = "application/json", **query: str
    ) -> tuple[int, Raw]:
        """`name` is the rest of the path: "", "/pool" or "/pool/scale"."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind, "Accept": accept}
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as http,
            http.request(
                method,
                f"{self._url}{self._path}{name}",
                json=body,
                headers=headers,
                params={"fieldValidation": "Strict", **query},
            ) as answer,
        ):
            return answer.status, await answer.json()

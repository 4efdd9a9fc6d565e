"""As much of the API as making a cluster needs: is it ready, read an object, patch a node's status."""

import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Object = dict[str, Any]


@dataclass(frozen=True)
class Api:
    """One API server by URL, its CA and a bearer token."""

    url: str
    ca_file: Path
    token: str

    def request(
        self, path: str, *, method: str = "GET", body: object = None, content_type: str = "application/json"
    ) -> bytes:
        """The answer's body. Raises OSError (HTTPError is one) when there is none."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content_type}
        request = urllib.request.Request(self.url + path, data=data, method=method, headers=headers)  # noqa: S310
        context = ssl.create_default_context(cafile=str(self.ca_file))
        # The server is on this machine: a proxy of the environment has no business between it and us.
        direct = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        with direct.open(request, timeout=5) as answer:
            content: bytes = answer.read()
        return content

    def get(self, path: str) -> Object:
        """One object or list."""
        found: Object = json.loads(self.request(path))
        return found

    def is_ready(self) -> bool:
        """Whether /readyz says exactly ok; a failing answer also contains the word."""
        try:
            return self.request("/readyz").strip() == b"ok"
        except OSError:
            return False

    def node_is_ready(self, name: str) -> bool:
        """Whether the node's kubelet says Ready."""
        try:
            conditions = self.get(f"/api/v1/nodes/{name}")["status"].get("conditions", [])
        except OSError:
            return False
        return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)


def write_kubeconfig(path: Path, api: Api) -> None:
    """A kubeconfig with the token; readable by its owner only."""
    path.touch(mode=0o600)
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tokenpool", "cluster": {"server": api.url, "certificate-authority": str(api.ca_file)}}],
        "users": [{"name": "admin", "user": {"token": api.token}}],
        "contexts": [{"name": "tokenpool", "context": {"cluster": "tokenpool", "user": "admin"}}],
        "current-context": "tokenpool",
    }
    path.write_text(json.dumps(config))

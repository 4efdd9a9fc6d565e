"""etcd, API server and controller manager: the command lines that every local cluster shares, and the small control
plane on loopback that integration tests use. No kubelet here.
"""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from cluster.api import Api, write_kubeconfig
from cluster.build import programs
from cluster.certificates import make_server_certificate
from cluster.ports import free_ports
from cluster.processes import Background

SERVICE_RANGE = "198.19.0.0/16"
FIRST_SERVICE_ADDRESS = "198.19.0.1"
API_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")
START_SECONDS = 60.0


@dataclass(frozen=True)
class Layout:
    """Where a control plane lives: its folder, the API server's address and the ports."""

    folder: Path
    address: str
    port: int
    etcd_port: int
    etcd_peer_port: int
    controllers_port: int

    @property
    def pki(self) -> Path:
        """Folder of certificates and keys."""
        return self.folder / "pki"

    @property
    def kubeconfig(self) -> Path:
        """Administrator's kubeconfig for programs beside the API server."""
        return self.folder / "admin.kubeconfig"


def prepare(layout: Layout, also_reached_at: Iterable[str] = ()) -> Api:
    """Certificates, the administrator's token and kubeconfig; what exists is kept."""
    make_server_certificate(layout.pki, {layout.address, FIRST_SERVICE_ADDRESS, *also_reached_at}, API_NAMES)
    tokens = layout.folder / "tokens.csv"
    if not tokens.exists():
        tokens.touch(mode=0o600)
        tokens.write_text(f'{secrets.token_hex(16)},admin,admin,"system:masters"\n')
    token = tokens.read_text().split(",", 1)[0]
    api = Api(f"https://{layout.address}:{layout.port}", layout.pki / "ca.crt", token)
    write_kubeconfig(layout.kubeconfig, api)
    return api


def etcd_command(bin_folder: Path, layout: Layout) -> list[str]:
    """etcd without fsync: the data is worth nothing after a crash of the machine."""
    client, peer = f"http://127.0.0.1:{layout.etcd_port}", f"http://127.0.0.1:{layout.etcd_peer_port}"
    return [
        str(bin_folder / "etcd"),
        f"--data-dir={layout.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def apiserver_command(bin_folder: Path, layout: Layout) -> list[str]:
    """The API server with RBAC and Pod Security as every cluster has them."""
    pki = layout.pki
    return [
        str(bin_folder / "kube-apiserver"),
        f"--etcd-servers=http://127.0.0.1:{layout.etcd_port}",
        f"--bind-address={layout.address}",
        f"--advertise-address={layout.address}",
        f"--secure-port={layout.port}",
        f"--tls-cert-file={pki / 'server.crt'}",
        f"--tls-private-key-file={pki / 'server.key'}",
        f"--token-auth-file={layout.folder / 'tokens.csv'}",
        "--authorization-mode=Node,RBAC",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki / 'service-account.key'}",
        f"--service-account-signing-key-file={pki / 'service-account.key'}",
        "--allow-privileged=true",
        # Names of nodes are not in any DNS; exec and logs go by address.
        "--kubelet-preferred-address-types=InternalIP",
        "--enable-bootstrap-token-auth=false",
        # The endpoint of the service `kubernetes` is ours to keep only while we run.
        "--endpoint-reconciler-type=none" if layout.address.startswith("127.") else "--endpoint-reconciler-type=lease",
    ]


def controllers_command(bin_folder: Path, layout: Layout) -> list[str]:
    """The controller manager; node addresses are given out by the network's own configuration."""
    return [
        str(bin_folder / "kube-controller-manager"),
        f"--kubeconfig={layout.kubeconfig}",
        f"--service-account-private-key-file={layout.pki / 'service-account.key'}",
        f"--root-ca-file={layout.pki / 'ca.crt'}",
        "--use-service-account-credentials=false",
        "--leader-elect=false",
        "--controllers=*,-node-ipam-controller",
        "--node-monitor-grace-period=20s",
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.controllers_port}",
    ]


def start(background: Background, layout: Layout, api: Api) -> None:
    """Start all three and wait until the API answers. `api` is the way from here."""
    bin_folder = programs()
    background.start("etcd", etcd_command(bin_folder, layout))
    background.start("kube-apiserver", apiserver_command(bin_folder, layout))
    background.wait("kube-apiserver", api.is_ready, START_SECONDS)
    background.start("kube-controller-manager", controllers_command(bin_folder, layout))


class ControlPlane:
    """A control plane on loopback for as long as the `with` block lasts; it dies with the process that started it."""

    def __init__(self, directory: Path) -> None:
        self._layout = Layout(directory, "127.0.0.1", *free_ports(4))
        self._background = Background(directory, outlive=False)

    def __enter__(self) -> Self:
        self._layout.folder.mkdir(parents=True, exist_ok=True)
        self._api = prepare(self._layout)
        try:
            start(self._background, self._layout, self._api)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for name in ("kube-controller-manager", "kube-apiserver", "etcd"):
            self._background.stop(name, kill=True)

    @property
    def url(self) -> str:
        """The API server's address."""
        return self._api.url

    @property
    def ca_file(self) -> Path:
        """Certificate of its authority."""
        return self._api.ca_file

    @property
    def token(self) -> str:
        """The administrator's bearer token."""
        return self._api.token

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self._layout.kubeconfig

    def stop_apiserver(self) -> None:
        """Kill the API server; its data stays."""
        self._background.stop("kube-apiserver", kill=True)

    def start_apiserver(self) -> None:
        """Start it again and wait until it answers."""
        self._background.start("kube-apiserver", apiserver_command(programs(), self._layout))
        self._background.wait("kube-apiserver", self._api.is_ready, START_SECONDS)

    def restart_apiserver(self) -> None:
        """Kill the API server and start it on the same data."""
        self.stop_apiserver()
        self.start_apiserver()

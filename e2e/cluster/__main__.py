"""`python -m cluster build|up|down|shell|status`."""

import argparse
import sys

from cluster.build import client_tools, programs
from cluster.errors import ClusterError
from cluster.progress import step
from cluster.provider import Provider, choose_provider


def build() -> None:
    """Make what a cluster needs, once per machine. The control plane's programs serve the integration tests too."""
    client_tools()
    programs()


def up(provider: Provider) -> None:
    """Start and say how to use it."""
    with step("cluster"):
        provider.up()
    print(f"export KUBECONFIG={provider.kubeconfig()} PATH={client_tools()}:$PATH")
    print("kubectl get nodes          # make cluster-shell enters its network, make cluster-down ends it")


def status(provider: Provider) -> None:
    """Say whether it runs."""
    print("up" if provider.is_up() else "down")


def main() -> int:
    """Run one command; what a person must put right comes without a traceback."""
    parser = argparse.ArgumentParser(prog="cluster", description=__doc__)
    parser.add_argument("command", choices=["build", "up", "down", "shell", "status"])
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of shell: a command instead of a shell")
    found = parser.parse_args()
    try:
        if found.command == "build":
            build()
            return 0
        provider = choose_provider()
        if found.command == "shell":
            return provider.shell(found.arguments)
        {"up": up, "down": lambda provider: provider.down(), "status": status}[found.command](provider)
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

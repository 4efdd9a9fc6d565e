"""Metrics of one shard, read through the API server's pod proxy: it works with every kind of cluster."""

from stack.kubectl import Kubectl, Object


def shard_metrics(kubectl: Kubectl, pod: Object) -> dict[str, float]:
    """Sample name with labels → value."""
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/{pod['metadata']['name']}:8001/proxy/metrics"
    lines = kubectl.run("get", "--raw", path).splitlines()
    samples = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, value in samples}

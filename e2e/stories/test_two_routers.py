"""Two routers before one pool: each knows what the other has given to the shards, with nothing else installed."""

from collections.abc import Callable

from openai.types.chat import ChatCompletionMessageParam

from stack.kubectl import wait_until
from stack.pool import Pool

QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Count to a hundred."}]
READ = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8081/metrics').read().decode())"


def metric(pool: Pool, router: str, name: str) -> float:
    """One number of a router, as its own admin port tells it."""
    text = pool.kubectl.run("exec", router, "--", "/opt/tokenpool/bin/python", "-c", READ)
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} "))


def test_two_routers_hear_of_each_other(make_pool: Callable[[str], Pool]) -> None:
    pool = make_pool("two-routers")
    pool.apply({"router": {"replicas": 2}})
    pool.wait_ready(shards=1)
    selector = f"tokenpool.dev/pool={pool.name},app.kubernetes.io/component=router"
    routers = [str(pod["metadata"]["name"]) for pod in pool.kubectl.list("pods", selector)]
    assert len(routers) == 2

    def heard() -> list[float]:
        return [metric(pool, router, "tokenpool_router_peers") for router in routers]

    wait_until(heard, lambda found: found == [1.0, 1.0], 60, "each router hears the other one")
    answer = pool.client().chat.completions.create(model="smollm2-135m-instruct", messages=QUESTION, max_tokens=8)
    assert answer.choices[0].finish_reason in ("length", "stop")

    pool.patch({"router": {"replicas": 1}})
    wait_until(lambda: pool.kubectl.list("pods", selector), lambda pods: len(pods) == 1, 90, "one router leaves")
    [left] = [str(pod["metadata"]["name"]) for pod in pool.kubectl.list("pods", selector)]
    wait_until(lambda: metric(pool, left, "tokenpool_router_peers"), lambda found: found == 0, 60, "and is forgotten")

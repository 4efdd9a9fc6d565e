"""The demo, step by step. Everything it does a user could type; it only saves the typing and shows the time."""

import argparse
import sys
import time
from pathlib import Path

from openai import OpenAI

from cluster.build import client_tools
from cluster.progress import step
from cluster.provider import Provider, choose_provider
from images.build import all_images
from models import smollm2_directory
from stack.install import MODEL_CLAIM, ROOT, install_chart, restricted_namespace
from stack.kubectl import Kubectl
from stack.pool import Pool

NAMESPACE = "demo"
POOL = "smollm2"
EXAMPLE = ROOT / "examples" / "smollm2-cpu.yaml"
QUESTION = "What is the capital of France?"


def up() -> None:
    """Cluster, chart, pool, answer; each part that is there already is kept."""
    images = all_images()
    model = smollm2_directory()
    provider = choose_provider()
    with step("cluster"):
        provider.up()
    with step("images into the cluster"):
        provider.load_images([image.archive for image in images.values()])
    kubectl = Kubectl(client_tools(), provider.kubeconfig(), NAMESPACE)
    with step("helm install tokenpool charts/tokenpool"):
        install_chart(kubectl, images)
    with step("kubectl apply -f examples/smollm2-cpu.yaml"):
        prepare_namespace(kubectl, provider, model)
        kubectl.run("apply", "-f", str(EXAMPLE))
    pool = Pool(kubectl, POOL, provider.forward_service)
    with step("waiting until the pool is Ready"):
        pool.wait_ready(seconds=600)
    print(f"\n$ kubectl -n {NAMESPACE} get tokenpool\n{kubectl.run('get', 'tokenpool')}")
    url = pool.url()
    ask(url, QUESTION)
    say_how_to_go_on(provider, url)


def prepare_namespace(kubectl: Kubectl, provider: Provider, model: Path) -> None:
    """A namespace that enforces Pod Security "restricted", with the model on a volume claim."""
    kubectl.apply(restricted_namespace(NAMESPACE))
    provider.make_volume(MODEL_CLAIM, namespace=NAMESPACE, directory=model.parent)


def ask(url: str, question: str) -> None:
    """Stream one answer to the terminal."""
    print(f"$ curl {url}/v1/chat/completions      # {question!r}")
    client = OpenAI(base_url=f"{url}/v1", api_key="none")
    began = time.monotonic()
    stream = client.chat.completions.create(
        model=client.models.list().data[0].id,
        messages=[{"role": "user", "content": question}],
        max_tokens=64,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    for chunk in stream:
        if chunk.choices:
            print(chunk.choices[0].delta.content or "", end="", flush=True)
        if chunk.usage:
            seconds = time.monotonic() - began
            print(f"\n[{chunk.usage.completion_tokens} tokens in {seconds:.1f} s]")


def say_how_to_go_on(provider: Provider, url: str) -> None:
    """The next commands, ready to paste."""
    print(
        f"""
Go on with
  export KUBECONFIG={provider.kubeconfig()} PATH={client_tools()}:$PATH
  kubectl -n {NAMESPACE} get tokenpool,pods
  kubectl -n {NAMESPACE} scale tokenpool/{POOL} --replicas 2
  curl {url}/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{{"model": "smollm2-135m-instruct", "messages": [{{"role": "user", "content": "Hello"}}], "stream": true}}' -N
  make demo-down"""
    )


def down() -> None:
    """Take the cluster away, or on a cluster that is not ours, what the demo put there."""
    choose_provider().down()


def main() -> int:
    """`python -m demo up|down`."""
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("command", choices=["up", "down"])
    {"up": up, "down": down}[parser.parse_args().command]()
    return 0


if __name__ == "__main__":
    sys.exit(main())

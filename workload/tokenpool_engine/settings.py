"""What a shard was started with. Nothing here changes while the process lives."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenpool_api import names


@dataclass(frozen=True)
class Serve:
    """`tokenpool-engine serve`. Times in seconds, sizes in tokens; None means: find out."""

    model: Path
    served_name: str
    token_budget: int | None
    max_sequences: int
    max_model_length: int | None
    kv_cache_tokens: int | None
    dtype: str
    quantization: str | None
    threads: int | None
    drain_seconds: int
    queue_tokens: int
    host: str
    port: int
    admin_port: int
    tensor_parallel: int = 1
    matmul_precision: str | None = None
    cudnn_benchmark: bool = False
    cuda_graphs: bool = True


@dataclass(frozen=True)
class Download:
    """`tokenpool-engine download`."""

    source: str
    revision: str | None
    into: Path


def parse(arguments: Sequence[str]) -> Serve | Download:
    """Command line to settings; argparse tells the user what is wrong."""
    parser = argparse.ArgumentParser(prog="tokenpool-engine", description="One shard of a TokenPool.")
    commands = parser.add_subparsers(dest="command", required=True)
    _add_serve(commands.add_parser("serve", help="load a model and serve the OpenAI API"))
    _add_download(commands.add_parser("download", help="fetch a model from the hub"))
    found = vars(parser.parse_args(arguments))
    return Serve(**found) if found.pop("command") == "serve" else Download(**found)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not at least 1")
    return number


def _add_serve(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", type=Path, required=True, help="folder with config.json, tokenizer and *.safetensors")
    add("--served-name", required=True, help="the model's name in the API")
    add("--token-budget", type=_positive, help="tokens of one step at most (512 on CPU, 1024 on GPU)")
    add("--max-sequences", type=_positive, default=64, help="requests that run at the same time at most")
    add("--max-model-length", type=_positive, help="tokens of prompt and answer together at most")
    add("--kv-cache-tokens", type=_positive, help="tokens in the KV cache (sized from free memory)")
    add("--dtype", choices=["auto", "float32", "bfloat16", "float16"], default="auto", help="number format")
    add("--quantization", choices=["int8"], help="int8 weights, scales per token and per column (faster, less exact)")
    add("--threads", type=_positive, help="CPU threads of a step (the container's quota)")
    add("--tensor-parallel", type=_positive, default=1, help="ranks that share each layer; one GPU each, if any")
    add("--matmul-precision", choices=["highest", "high", "medium"], help="of float32 products (high on GPU)")
    add("--cudnn-benchmark", action="store_true", help="let cuDNN try its kernels and keep the fastest")
    add("--no-cuda-graphs", dest="cuda_graphs", action="store_false", help="launch every step kernel by kernel")
    add("--drain-seconds", type=int, default=120, help="time for running requests after SIGTERM")
    add("--queue-tokens", type=_positive, default=1 << 20, help="outstanding tokens after which requests get 429")
    add("--host", default="0.0.0.0", help="address to listen on")  # noqa: S104 - a pod serves its pod address
    add("--port", type=int, default=names.SHARD_API_PORT, help="port of the API")
    add("--admin-port", type=int, default=names.SHARD_ADMIN_PORT, help="port of health, load and metrics")


def _add_download(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--source", required=True, help="hf://org/name")
    parser.add_argument("--revision", help="commit, tag or branch")
    parser.add_argument("--into", type=Path, required=True, help="folder for the files")

"""The openai package of two major versions: the same script, the same answers."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import support
from clients.older_openai import find_older_openai
from support.shard import Running

SCRIPT = Path(support.__file__).with_name("openai_script.py")


async def run_script(running: Running, *arguments: str) -> tuple[int, dict[str, Any]]:
    """The major version, and what the client got."""
    command = [sys.executable, str(SCRIPT), running.url, *arguments]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    return int(answer["version"].split(".")[0]), answer["found"]


async def test_both_major_versions_get_the_same(running: Running) -> None:
    older = find_older_openai()
    if older is None:
        pytest.skip("the older openai client is not in the cache; `make clients` gets it")
    (new_major, new), (old_major, old) = await run_script(running), await run_script(running, str(older))
    assert (old_major, new_major) == (1, 3)
    assert old == new
    assert new["models"] == [new["model"]] == ["tiny"]
    assert new["streamed"] == [new["chat"], new["chat"], "assistant", len("<user>hi<assistant>"), 2 * new["usage"][1]]
    assert new["logprobs"] == [2] * new["usage"][1]
    assert new["completion"][1:] == [3, 3, 2]
    assert new["structured"] == ["kind"]
    assert new["errors"] == [
        ["NotFoundError", 404, "model", "model_not_found"],
        ["BadRequestError", 400, "temperature", "invalid_value"],
        ["BadRequestError", 400, "response_format", "invalid_value"],
        ["BadRequestError", 400, "max_tokens", "context_length_exceeded"],
    ]

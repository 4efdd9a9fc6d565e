"""Which models are measured, and where are they? In the user's cache, made once.

Each has a copy whose configuration names no end token, for the peer that cannot be told to ignore it: the files are the
same ones, only the two small configurations differ.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from cluster.cache import made_once
from cluster.progress import step
from models.smollm2 import NAME as SMOLLM2
from models.smollm2 import run, smollm2_directory

HERE = Path(__file__).parent
# Part of the cache's key: raise it when a script here writes something else.
FORMAT = 1
QUALITY_SECONDS = 900.0
CONFIGURATIONS = ("config.json", "generation_config.json")


@dataclass(frozen=True)
class Model:
    """`endless` is the copy without an end token; `words` the file that `words.py` writes."""

    title: str
    directory: Path
    endless: Path
    words: Path


def prepare() -> dict[str, Model]:
    """Both models, by the key that the plan uses."""
    small = made_once(f"bench-llama-58m-{FORMAT}", _fill_reference)
    smollm2 = smollm2_directory()
    beside = made_once(f"bench-{smollm2.parent.name}-{FORMAT}", lambda folder: _fill_beside(smollm2, folder))
    return {
        "58m": Model("58 M", small / "model", small / "endless", small / "words.json"),
        "smollm2": Model("SmolLM2", smollm2, beside / "endless", beside / "words.json"),
    }


def _fill_reference(folder: Path) -> None:
    with step("58 M reference model"):
        run([sys.executable, "-P", str(HERE / "reference_model.py"), str(folder / "model")], _offline())
        _fill_beside(folder / "model", folder)


def _fill_beside(model: Path, folder: Path) -> None:
    with step(f"{SMOLLM2 if SMOLLM2 in model.parts else model.name}: word list, and a copy without an end token"):
        write_endless(model, folder / "endless")
        run([sys.executable, "-P", str(HERE / "words.py"), str(model), str(folder / "words.json")], _offline())


def write_endless(model: Path, copy: Path) -> None:
    """A directory of hard links, with configurations of its own that name no end token."""
    copy.mkdir()
    for path in model.iterdir():
        if path.name not in CONFIGURATIONS:
            os.link(path, copy / path.name)
            continue
        configuration = json.loads(path.read_text())
        (copy / path.name).write_text(json.dumps(configuration | {"eos_token_id": None}, indent=1))


def read_through(model: Model) -> None:
    """Bring the weights into the page cache: no server is to wait for the disk in another's stead."""
    for path in model.directory.iterdir():
        with path.open("rb") as file:
            while file.read(1 << 22):
                pass


def quality_of_int8(model: Model) -> dict[str, float] | None:
    """Top-1 agreement and KL of int8 against the full weights, if this build of the engine can tell."""
    command = [sys.executable, "-m", "tokenpool_engine.compute.quality", "--model", str(model.directory)]
    try:
        with step(f"{model.title}: quality of int8"):
            done = subprocess.run(
                command, env=_offline(), capture_output=True, text=True, check=False, timeout=QUALITY_SECONDS
            )
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, IndexError, ValueError):
        return None
    return found


def _offline() -> dict[str, str]:
    return os.environ | {"HF_HUB_OFFLINE": "1"}

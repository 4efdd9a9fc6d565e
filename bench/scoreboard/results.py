"""Where are a benchmark's results? In `bench/results/NAME.json`, which is not committed."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scoreboard.machine import commit, description
from scoreboard.rows import Row

FOLDER = Path(__file__).parents[1] / "results"


def result(rows: Sequence[Row], **more: Any) -> dict[str, Any]:
    """The whole file's content; `more` is what a benchmark adds for its page."""
    return {"machine": description(), "commit": commit(), "rows": [row.as_json() for row in rows], **more}


def write(name: str, content: dict[str, Any]) -> Path:
    """Write or replace the file."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return path


def read(name: str) -> dict[str, Any]:
    """The last results.

    Raises:
        FileNotFoundError: there are none yet.
    """
    content: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return content

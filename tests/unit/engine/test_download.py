"""Whatever the hub's client raises becomes one line that says what to do; only harmless files are asked for."""

from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import errors as hub_errors

from tokenpool_engine.download import download
from tokenpool_engine.failure import StartError
from tokenpool_engine.settings import Download


class FakeHub:
    """The hub's client: notes what it was asked, and fails if told to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, repository: str, **keywords: Any) -> None:
        self.asked.append((repository, keywords))
        if self.error:
            raise self.error


def fake_hub(monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> FakeHub:
    hub = FakeHub(error)
    monkeypatch.setattr("huggingface_hub.snapshot_download", hub)
    return hub


class BrokenTransfer(Exception):
    """Like the errors of HTTP libraries, which are neither OSError nor the hub's own."""


@pytest.mark.parametrize(
    "error",
    [
        BrokenTransfer("the server went away"),
        RuntimeError("Data processing error"),
        hub_errors.LocalEntryNotFoundError("cannot reach the hub"),
        hub_errors.OfflineModeIsEnabled("offline"),
        hub_errors.HFValidationError("bad name"),
        OSError(28, "No space left on device"),
    ],
)
def test_any_failed_transfer_is_a_failed_download(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception
) -> None:
    fake_hub(monkeypatch, error)
    with pytest.raises(StartError) as failed:
        download(Download("hf://org/name", None, tmp_path))
    assert str(failed.value) == f"DownloadFailed: hf://org/name: {type(error).__name__}: {error}"


@pytest.mark.parametrize("revision", [None, "v1"])
def test_what_is_asked_of_the_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, revision: str | None) -> None:
    hub = fake_hub(monkeypatch)
    download(Download("hf://org/name", revision, tmp_path))
    [(repository, keywords)] = hub.asked
    assert repository == "org/name"
    assert (keywords["revision"], keywords["local_dir"]) == (revision, tmp_path)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("model-00001-of-00002.safetensors", True),
        ("model.safetensors.index.json", True),
        ("tokenizer.model", True),
        ("chat_template.jinja", True),
        ("merges.txt", True),
        ("pytorch_model.bin", False),
        ("modeling_own.py", False),
        ("model.gguf", False),
        ("model.pt", False),
    ],
)
def test_neither_pickles_nor_code_are_fetched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, wanted: bool
) -> None:
    hub = fake_hub(monkeypatch)
    download(Download("hf://org/name", None, tmp_path))
    assert any(fnmatch(name, pattern) for pattern in hub.asked[0][1]["allow_patterns"]) == wanted

"""What is refused before any work, and in which words: bodies, lengths, model folders, downloads."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import errors as hub_errors

from tokenpool_engine import download as downloads
from tokenpool_engine.api.admission import fit
from tokenpool_engine.api.errors import ApiError
from tokenpool_engine.api.openai import ChatRequest, CompletionRequest, parse
from tokenpool_engine.compute.loader import read_config
from tokenpool_engine.failure import StartError, give_up
from tokenpool_engine.settings import Download, Serve
from tokenpool_engine.settings import parse as parse_settings

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def chat(**fields: Any) -> ChatRequest:
    return parse(ChatRequest, json.dumps({**CHAT, **fields}).encode())


def test_unknown_fields_are_tolerated_and_text_parts_joined() -> None:
    body = chat(
        user="me",
        metadata={"a": 1},
        messages=[{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
        stop="END",
        stream_options={"include_usage": True, "more": 1},
    )
    assert body.messages[0].as_template() == {"role": "user", "content": "ab"}
    assert (body.stops, body.includes_usage) == (("END",), True)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": 2.5}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"n": 17}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages.0.role"),
        ({"model": None}, "model"),
        ({"tools": [{}]}, "tools"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        chat(**fields)
    assert (refused.value.status, refused.value.param) == (400, param)
    assert refused.value.body()["error"]["message"].startswith(f"{param}: ")


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'"x"', b"\xff\xfe", b'{"model": "\xff"}'])
def test_what_is_no_json_object_is_refused(raw: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        parse(ChatRequest, raw)
    assert refused.value.status == 400


@pytest.mark.parametrize("prompt", ["text", ["text"], [1, 2, 3]])
def test_prompts_of_completions(prompt: Any) -> None:
    assert parse(CompletionRequest, json.dumps({"model": "m", "prompt": prompt}).encode()).prompt == prompt


@pytest.mark.parametrize(
    ("fields", "prompt_tokens", "tokens"),
    [
        ({}, 10, 90),
        ({"max_tokens": 5}, 10, 5),
        ({"max_tokens": 5, "max_completion_tokens": 7}, 10, 7),
        ({"max_tokens": 90}, 10, 90),
    ],
)
def test_max_tokens(fields: dict[str, Any], prompt_tokens: int, tokens: int) -> None:
    assert fit(chat(**fields), prompt_tokens, 100) == tokens


def test_a_completion_without_bound_gets_openais_default() -> None:
    assert fit(parse(CompletionRequest, b'{"model": "m", "prompt": "x"}'), 10, 100) == 16


@pytest.mark.parametrize(
    ("fields", "prompt_tokens", "words", "param"),
    [
        ({}, 100, "the prompt has 100 tokens, but this pool allows 100 with the answer", "messages"),
        ({"max_tokens": 91}, 10, "max_tokens is 91, but after a prompt of 10 tokens this pool allows 90", "max_tokens"),
        ({"max_completion_tokens": 91}, 10, "this pool allows 90", "max_completion_tokens"),
    ],
)
def test_what_is_too_long_is_refused_with_the_numbers(
    fields: dict[str, Any], prompt_tokens: int, words: str, param: str
) -> None:
    with pytest.raises(ApiError) as refused:
        fit(chat(**fields), prompt_tokens, 100)
    assert (refused.value.status, refused.value.code, refused.value.param) == (400, "context_length_exceeded", param)
    assert words in refused.value.message


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("files", "reason", "words"),
    [
        ({}, "ModelNotFound", "no config.json"),
        ({"config__json": "{"}, "ModelInvalid", "not JSON"),
        ({"config__json": "{}"}, "ModelInvalid", r"must hold \*.safetensors weights; found none"),
        ({"config__json": "{}", "model__bin": ""}, "ModelInvalid", "only model.bin, and pickles are never loaded"),
        ({"config__json": '{"auto_map": {}}', "m__safetensors": ""}, "ModelUnsupported", "remote code"),
    ],
)
def test_folders_that_are_not_loaded(tmp_path: Path, files: dict[str, str], reason: str, words: str) -> None:
    with pytest.raises(StartError, match=words) as refused:
        read_config(write(tmp_path, **files))
    assert refused.value.reason == reason
    assert str(refused.value).startswith(f"{reason}: ")


def test_giving_up_tells_the_kubelet_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "termination-log"
    monkeypatch.setenv("TERMINATION_LOG", str(log))
    with pytest.raises(SystemExit) as ended:
        give_up(StartError(downloads.Reason.MODEL_NOT_FOUND, "two\n lines"))
    assert ended.value.code == 2
    assert log.read_text() == "ModelNotFound: two lines\n"
    assert capsys.readouterr().err == "ModelNotFound: two lines\n"


def failing_hub(error: Exception) -> Callable[..., None]:
    """A fake of the hub's client that fails."""

    def snapshot_download(*_arguments: Any, **_keywords: Any) -> None:
        raise error

    return snapshot_download


def hub_error(kind: type[Exception]) -> Exception:
    error = kind.__new__(kind)
    Exception.__init__(error, "no")
    return error


@pytest.mark.parametrize(
    ("error", "reason", "words"),
    [
        (hub_error(hub_errors.RepositoryNotFoundError), "ModelNotFound", "no such model"),
        (hub_error(hub_errors.RevisionNotFoundError), "ModelNotFound", "no such revision"),
        (hub_error(hub_errors.GatedRepoError), "DownloadFailed", "spec.model.credentialsSecret"),
        (OSError("disk full"), "DownloadFailed", "disk full"),
    ],
)
def test_what_the_hub_says_becomes_a_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception, reason: str, words: str
) -> None:
    monkeypatch.setattr("huggingface_hub.snapshot_download", failing_hub(error))
    with pytest.raises(StartError, match=words) as refused:
        downloads.download(Download("hf://org/name", "main", tmp_path))
    assert refused.value.reason == reason
    assert "hf://org/name at main" in str(refused.value)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("", (None, False, True)),
        ("--matmul-precision medium --cudnn-benchmark --no-cuda-graphs", ("medium", True, False)),
    ],
)
def test_what_trades_exactness_or_memory_for_speed(line: str, wanted: tuple[str | None, bool, bool]) -> None:
    settings = parse_settings(["serve", "--model", "/m", "--served-name", "x", *line.split()])
    assert isinstance(settings, Serve)
    assert (settings.matmul_precision, settings.cudnn_benchmark, settings.cuda_graphs) == wanted


@pytest.mark.parametrize(
    "line",
    [
        "serve",
        "serve --model /m --served-name x --threads 0",
        "serve --model /m --served-name x --matmul-precision low",
        "download --source hf://a/b",
    ],
)
def test_command_lines_that_argparse_refuses(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_settings(line.split())
    assert "error:" in capsys.readouterr().err

"""A folder that cannot be served ends the start with a reason; one that can says how long and where it ends."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BloomConfig,
    DeepseekV3Config,
    DiffLlamaConfig,
    GptOssConfig,
    LlamaConfig,
    MambaConfig,
    Phi3Config,
)

from tokenpool_engine import assembly, shard
from tokenpool_engine.compute import loader
from tokenpool_engine.failure import StartError
from tokenpool_engine.settings import Serve

CPU = torch.device("cpu")
CUDA = torch.device("cuda")


def build(folder: Path, kv_cache_tokens: int | None = 512) -> shard.Parts:
    settings = Serve(folder, "m", 32, 8, None, kv_cache_tokens, "float32", None, 1, 5, 4096, "127.0.0.1", 0, 0)
    return assembly.build(settings, shard.Shard("m"))


@pytest.fixture
def folder(tiny_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_model, tmp_path / "model"))


def change_config(**fields: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    return change


def cut_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-500])


def drop_one_weight(folder: Path) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, path, metadata={"format": "pt"})


def drop_tokenizer(folder: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()


def ask_for_code(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": "own.Own"}}')


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (cut_weights, "ModelInvalid: the weights in .* are damaged"),
        (drop_one_weight, r"ModelInvalid: .* lacks 1 weights, among them model\.layers\.1\.mlp\.up_proj\.weight"),
        (lambda folder: (folder / "config.json").write_text("[]"), "ModelInvalid: .* not a JSON object"),
        (lambda folder: (folder / "config.json").write_bytes(b"\xff"), "ModelInvalid: .* not JSON"),
        (change_config(model_type="nonesuch"), "ModelUnsupported: .*nonesuch"),
        (change_config(num_attention_heads=0), "ModelUnsupported: "),
        (change_config(num_hidden_layers="two"), "ModelUnsupported: .*num_hidden_layers"),
        (drop_tokenizer, "ModelUnsupported: "),
        (ask_for_code, r"ModelUnsupported: tokenizer_config.json asks for remote code \(auto_map\)"),
    ],
)
def test_broken_folders(folder: Path, break_it: Callable[[Path], object], words: str) -> None:
    break_it(folder)
    with pytest.raises(StartError, match=words) as refused:
        build(folder)
    assert "\n" not in str(refused.value)


def test_a_cache_that_no_memory_holds(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def zeros(*_arguments: Any, **_keywords: Any) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(torch, "zeros", zeros)
    with pytest.raises(StartError, match=r"OutOfMemory: .*can't allocate memory; lower shards.kvCacheTokens"):
        build(tiny_model)


def test_another_failure_of_torch_is_not_called_a_shortage(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def zeros(*_arguments: Any, **_keywords: Any) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(torch, "zeros", zeros)
    with pytest.raises(RuntimeError, match="device-side assert"):
        build(tiny_model)


def test_a_cache_below_one_page(tiny_model: Path) -> None:
    with pytest.raises(StartError, match="OutOfMemory: no memory is left for the KV cache"):
        build(tiny_model, kv_cache_tokens=31)


@pytest.mark.parametrize(("kv_cache_tokens", "length"), [(100, 96), (4096, 512)])
def test_a_request_is_bounded_by_whole_pages_and_by_the_models_positions(
    tiny_model: Path, kv_cache_tokens: int, length: int
) -> None:
    parts = build(tiny_model, kv_cache_tokens)
    assert (parts.limits.model_length, parts.stop_ids, parts.vocabulary) == (length, {256}, 257)


SMALL: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
UNSUPPORTED = {
    "sinks": (GptOssConfig(**SMALL, head_dim=8, num_key_value_heads=2, num_local_experts=2), "s_aux"),
    "a bias by position": (
        BloomConfig(vocab_size=64, hidden_size=32, n_layer=2, n_head=4, bos_token_id=None, eos_token_id=None),
        "0 of 2 layers use the paged cache",
    ),
    "values of another size": (
        DeepseekV3Config(
            **SMALL,
            kv_lora_rank=16,
            q_lora_rank=16,
            qk_rope_head_dim=8,
            qk_nope_head_dim=8,
            v_head_dim=8,
            first_k_dense_replace=2,
        ),
        "cannot be computed",
    ),
    "two attentions a layer": (DiffLlamaConfig(**SMALL, head_dim=8, num_key_value_heads=2), "attends twice"),
    "no attention": (MambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, state_size=8), "linear_attention"),
}


@pytest.mark.filterwarnings("ignore:.*rope.*:UserWarning")
@pytest.mark.parametrize(("config", "words"), UNSUPPORTED.values(), ids=list(UNSUPPORTED))
def test_attention_that_would_come_out_wrong_ends_the_start(folder: Path, config: Any, words: str) -> None:
    from transformers import AutoModelForCausalLM

    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    with pytest.raises(StartError, match=f"ModelUnsupported: .*{words}"):
        build(folder)


@pytest.mark.parametrize(
    ("wanted", "stored", "device", "quick", "picked"),
    [
        ("float16", "bfloat16", CPU, True, torch.float16),
        ("auto", "bfloat16", CPU, True, torch.bfloat16),
        ("auto", "bfloat16", CPU, False, torch.float32),
        ("auto", "float16", CPU, True, torch.float32),
        ("auto", "float16", CUDA, False, torch.float16),
        ("auto", "float8_e4m3fn", CUDA, True, torch.float32),
    ],
)
def test_number_formats(
    monkeypatch: pytest.MonkeyPatch, wanted: str, stored: str, device: torch.device, quick: bool, picked: torch.dtype
) -> None:
    monkeypatch.setattr(loader, "has_bfloat16", lambda: quick)
    assert loader.pick_dtype(wanted, stored, device) == picked


@pytest.mark.parametrize(
    ("generation", "own", "wanted"), [(5, 7, {5}), ([5, 6], 7, {5, 6}), (None, 7, {7}), (None, None, set())]
)
def test_stop_ids(generation: Any, own: int | None, wanted: set[int]) -> None:
    model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=generation))
    assert loader.stop_ids(model, SimpleNamespace(eos_token_id=own)) == wanted


def test_longrope_is_served_up_to_where_positions_turn_the_same_for_all() -> None:
    rope = {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "short_factor": [1.0] * 4,
        "long_factor": [4.0] * 4,
        "factor": 8.0,
        "original_max_position_embeddings": 32,
    }
    config = Phi3Config(**SMALL, max_position_embeddings=256, original_max_position_embeddings=32, rope_parameters=rope)
    assert loader.max_positions(config) == 32
    assert loader.max_positions(LlamaConfig(**SMALL, max_position_embeddings=256)) == 256


def test_a_gpus_cache_is_what_the_trial_leaves(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = replace(loader.load(tiny_model, "float32"), device=CUDA)
    asked = []

    def step_bytes(_loaded: loader.Loaded, *given: int) -> int:
        asked.append(given)
        return 1 << 20

    monkeypatch.setattr(assembly.memory, "free_bytes", lambda _device: 1 << 30)
    monkeypatch.setattr(assembly.trial, "step_bytes", step_bytes)
    # A token takes 64 numbers in each of two layers: 512 bytes. Eight sequences of 512 tokens have rungs
    # of 1, 2, 4 and 8 rows with 4 and 16 pages.
    left = 2 * (1 << 20) + 8 * assembly.memory.GRAPH_BYTES
    monkeypatch.setattr(
        assembly.memory, "measure", lambda _device, step: assembly.memory.Measured(0, left + 100 * 512, step)
    )
    settings = Serve(tiny_model, "m", 32, 8, None, None, "float32", None, 1, 5, 4096, "127.0.0.1", 0, 0)
    assert assembly._pages(settings, loaded, 32) == 100 // 32
    assert asked == [(32, 8, 512, 32)]

"""Tokenize and detokenize, in vLLM's shapes. They read bodies too, since a long one takes long: call in a thread."""

from typing import Any

from tokenpool_engine.api.admission import chat_ids
from tokenpool_engine.api.errors import ApiError
from tokenpool_engine.api.openai import DetokenizeRequest, TokenizeRequest, parse
from tokenpool_engine.shard import Parts


def tokenize(raw: bytes, parts: Parts) -> dict[str, Any]:
    """Text or chat to ids. Raises ApiError."""
    body = parse(TokenizeRequest, raw)
    if (body.prompt is None) == (body.messages is None):
        raise ApiError(400, "prompt: give either prompt or messages", code="invalid_value", param="prompt")
    if body.messages is not None:
        ids = chat_ids(body.messages, parts.tokenizer, add_generation_prompt=body.add_generation_prompt)
    else:
        ids = parts.tokenizer(body.prompt, add_special_tokens=body.add_special_tokens is not False)["input_ids"]
    words = parts.tokenizer.convert_ids_to_tokens(ids) if body.return_token_strs else None
    return {"count": len(ids), "max_model_len": parts.limits.model_length, "tokens": list(ids), "token_strs": words}


def detokenize(raw: bytes, parts: Parts) -> dict[str, Any]:
    """Ids to text, special tokens included. Raises ApiError."""
    body = parse(DetokenizeRequest, raw)
    if body.tokens and max(body.tokens) >= parts.vocabulary:
        raise ApiError(400, f"tokens: token ids must be below {parts.vocabulary}", param="tokens")
    return {"prompt": parts.tokenizer.decode(body.tokens)}

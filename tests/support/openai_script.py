"""`openai_script.py URL [FOLDER]`: what a user of the openai package does, with the one in FOLDER or the installed one.

Prints what came back as JSON, which must not depend on the version.
"""

import json
import sys
from typing import Any

if __name__ == "__main__" and len(sys.argv) > 2:
    sys.path.insert(0, sys.argv[2])

import openai

SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["cat", "dog"]}},
    "required": ["kind"],
    "additionalProperties": False,
}
CHAT: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "hi"}],
    "temperature": 0,
    "max_tokens": 12,
}


def main(client: Any) -> dict[str, Any]:
    """Every part of the API that the package has words for."""
    found: dict[str, Any] = {
        "models": [model.id for model in client.models.list()],
        "model": client.models.retrieve("tiny").id,
    }
    whole = client.chat.completions.create(**CHAT, logprobs=True, top_logprobs=2)
    found["chat"] = whole.choices[0].message.content
    found["finish"] = whole.choices[0].finish_reason
    found["usage"] = [whole.usage.prompt_tokens, whole.usage.completion_tokens]
    found["logprobs"] = [len(entry.top_logprobs) for entry in whole.choices[0].logprobs.content]
    found["streamed"] = streamed(client)
    found["completion"] = completions(client)
    schema = {"type": "json_schema", "json_schema": {"name": "animal", "schema": SCHEMA, "strict": True}}
    bound = client.chat.completions.create(**{**CHAT, "max_tokens": 100}, response_format=schema)
    found["structured"] = sorted(json.loads(bound.choices[0].message.content))
    found["errors"] = errors(client)
    return found


def streamed(client: Any) -> list[Any]:
    """A streamed chat with two choices and its usage."""
    chunks = list(client.chat.completions.create(**CHAT, n=2, stream=True, stream_options={"include_usage": True}))
    texts = ["", ""]
    for choice in (choice for chunk in chunks for choice in chunk.choices):
        texts[choice.index] += choice.delta.content or ""
    usage = chunks[-1].usage
    return [*texts, chunks[0].choices[0].delta.role, usage.prompt_tokens, usage.completion_tokens]


def completions(client: Any) -> list[Any]:
    """Ids as a prompt, log probabilities, and a field that only the shard knows."""
    extra = {"return_token_ids": True, "ignore_eos": True}
    whole = client.completions.create(
        model="tiny", prompt=[97, 98], max_tokens=3, temperature=0, logprobs=1, extra_body=extra
    )
    choice = whole.choices[0]
    return [choice.text, len(choice.logprobs.tokens), len(choice.model_extra["token_ids"]), whole.usage.prompt_tokens]


def errors(client: Any) -> list[Any]:
    """The class and the field of each refusal."""
    wrong: list[dict[str, Any]] = [
        {"model": "other"},
        {"temperature": 9},
        {"response_format": {"type": "json_schema"}},
        {"max_tokens": 9999},
    ]
    found = []
    for fields in wrong:
        try:
            client.chat.completions.create(**{**CHAT, **fields})
        except openai.APIStatusError as error:
            found.append([type(error).__name__, error.status_code, error.param, error.code])
    return found


if __name__ == "__main__":
    with openai.OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none", max_retries=0) as session:
        print(json.dumps({"version": openai.__version__, "found": main(session)}))

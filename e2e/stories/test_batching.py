"""Three streams at once share the shard's steps, and each still gets exactly the model's words."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from stack import reference
from stack.metrics import shard_metrics
from stack.pool import Pool

PROMPTS = (
    "What is the capital of France?",
    "Write one sentence about the sea.",
    "List three colours.",
)


def test_three_streams_are_batched_and_correct(make_pool: Callable[[str], Pool], model_directory: Path) -> None:
    pool = make_pool("batch")
    pool.apply()
    pool.wait_ready(shards=1)
    client = pool.client()

    def stream(prompt: str) -> str:
        chunks = client.chat.completions.create(
            model="smollm2-135m-instruct",
            messages=[{"role": "user", "content": prompt}],
            max_tokens=48,
            temperature=0,
            stream=True,
        )
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)

    with ThreadPoolExecutor(len(PROMPTS)) as threads:
        answers = list(threads.map(stream, PROMPTS))

    assert answers == [reference.generate(model_directory, prompt, 48) for prompt in PROMPTS]
    [shard] = pool.shards()
    metrics = shard_metrics(pool.kubectl, shard)
    shared = (
        metrics["tokenpool_shard_step_sequences_count"] - metrics['tokenpool_shard_step_sequences_bucket{le="2.0"}']
    )
    assert shared > 0, "no step held three sequences"

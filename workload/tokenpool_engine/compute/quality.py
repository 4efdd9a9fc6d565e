"""What rounding to int8 costs in quality, measured on real text: prose, talk, arithmetic, code, a letter, a recipe.

`python -m tokenpool_engine.compute.quality --model DIR` prints one line of JSON; a shard with int8 logs it, too.
"""

import argparse
import json
import sys
from array import array
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch

from tokenpool_engine.compute.rows import Rows, Span
from tokenpool_engine.compute.runner import Model

SAMPLE: Final = Path(__file__).with_name("quality_sample.txt")
TOKENS: Final = 240
"""Of the sample; more say little more. Pages for them must be free."""
AT_ONCE: Final = 48


@dataclass(frozen=True)
class Quality:
    """Of another way to compute a model, against a reference: over `tokens` positions of the sample."""

    tokens: int
    top1: float
    """Share of positions where both find the same token likeliest."""
    kl: float
    """Mean divergence of its distribution from the reference's, in nats."""

    def __str__(self) -> str:
        return f"top-1 agreement {self.top1:.1%}, KL divergence {self.kl:.3f} over {self.tokens} tokens"


def measure(reference: Model, other: Model, tokenizer: Any, vocabulary: int) -> Quality:
    """Run both over the sample."""
    ids = [token for token in tokenizer(SAMPLE.read_text())["input_ids"] if token < vocabulary][:TOKENS]
    agreed = divergence = 0.0
    for rows in parts(ids, reference.page_tokens):
        theirs, ours = (torch.log_softmax(one.logits(rows).float().cpu(), dim=-1) for one in (reference, other))
        agreed += float((theirs.argmax(-1) == ours.argmax(-1)).sum())
        divergence += float((theirs.exp() * (theirs - ours)).sum())
    return Quality(len(ids), agreed / len(ids), divergence / len(ids))


def parts(ids: list[int], page_tokens: int) -> list[Rows]:
    """The text in steps of some rows, all of which sample: logits of a vocabulary for each token of it are large."""
    pages = array("i", range(-(-len(ids) // page_tokens)))
    found = []
    for start in range(0, len(ids), AT_ONCE):
        own = array("i", ids[start : start + AT_ONCE])
        held = pages[: -(-(start + len(own)) // page_tokens)]
        found.append(Rows(own, (Span(0, len(own), start, 0),), held, array("i", range(len(own)))))
    return found


def main() -> None:
    """Compare int8 with bfloat16, both by the compiled kernel."""
    parser = argparse.ArgumentParser(prog="quality", description="What int8 costs in quality.")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    print(json.dumps(asdict(_compare(given.model, given.threads))))


def _compare(folder: Path, threads: int) -> Quality:
    from tokenpool_engine.compute.llama import NotLlama, read
    from tokenpool_engine.compute.loader import load
    from tokenpool_engine.compute.native import PAGE_TOKENS, Native, Unsuitable
    from tokenpool_engine.failure import StartError

    pages = -(-TOKENS // PAGE_TOKENS)
    try:
        loaded = load(folder, "bfloat16")
        llama = read(loaded.model, {}, TOKENS)
        bfloat16, int8 = (Native(llama, pages, threads, AT_ONCE, int8=quantized) for quantized in (False, True))
    except (StartError, NotLlama, Unsuitable) as error:
        sys.exit(f"quality: {error}")
    return measure(bfloat16, int8, loaded.tokenizer, loaded.model.config.vocab_size)


if __name__ == "__main__":
    main()

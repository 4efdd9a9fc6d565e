"""`words.py MODEL FILE`: which words are one token each? Written as JSON, a list of word (with its space) and token id.

Joined, they are a text with exactly these ids: servers that take ids and servers that take text get the same prompts.
"""

import json
import random
import re
import sys
from pathlib import Path

from tokenizers import Tokenizer

ORDINARY = re.compile(r"[Ġ▁][a-z]{2,}|w\d+")
CHECKED_TOKENS = 1000


def find_words(tokenizer: Tokenizer) -> list[tuple[str, int]]:
    """Ordinary words of the vocabulary, by id.

    Raises:
        ValueError: a text of them would not have their ids.
    """
    entries = sorted(tokenizer.get_vocab().items(), key=lambda entry: entry[1])
    words = [(" " + text.lstrip("Ġ▁"), token) for text, token in entries if ORDINARY.fullmatch(text)]
    sample = random.Random(0).choices(words, k=CHECKED_TOKENS)
    ids = tokenizer.encode("".join(text for text, _ in sample), add_special_tokens=True).ids
    if ids != [token for _, token in sample]:
        raise ValueError("a text of the vocabulary's words does not have their ids")
    return words


if __name__ == "__main__":
    found = find_words(Tokenizer.from_file(str(Path(sys.argv[1]) / "tokenizer.json")))
    Path(sys.argv[2]).write_text(json.dumps(found))

"""Structured output: from a JSON schema to the tokens that may come next. No torch, no HTTP.

A schema is first compiled in a process that may die of it, then here. Both happen off the event loop.
"""

import asyncio
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from llguidance import LLMatcher, LLTokenizer

from tokenpool_engine.schema_proof import CPU_SECONDS, fault_of, grammar_of, matcher_of

SCHEMA_BYTES: Final = 1 << 15
ANY_OBJECT: Final = '{"type":"object"}'
# The process may have to wait for a core before it can use up its seconds.
PROOF_SECONDS: Final = CPU_SECONDS + 8.0
COMPILED_KEPT: Final = 128
WAITING_MAX: Final = 16


class SchemaError(Exception):
    """The schema cannot be used; the text says why, for the client."""


class TooManySchemas(Exception):
    """So many schemas wait to be compiled that another one would wait too long."""


class Grammar:
    """A compiled schema, the same for all requests that have it."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    def guide(self) -> "JsonGuide":
        """One request's own state, at the beginning."""
        return JsonGuide(self._matcher.deep_copy())


class JsonGuide:
    """How far one request's output is in the grammar. It follows any output: what it holds is only a short cut."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher
        self._read: list[int] = []

    def allowed(self, output: Sequence[int]) -> bytes | None:
        """One bit a token, lowest bit first; None when the output does not follow, or it got too complex."""
        size = len(self._read)
        if list(output[:size]) != self._read:
            self._matcher.reset()
            self._read, size = [], 0
        fresh = list(output[size:])
        if fresh and not self._matcher.consume_tokens(fresh):
            return None
        self._read += fresh
        mask = self._matcher.compute_bitmask()
        return None if self._matcher.is_error() else mask


def prove(schema: str) -> str:
    """What is wrong with a schema; empty for one that compiles in time. Blocks."""
    try:
        proof = subprocess.run(
            [sys.executable, "-m", "tokenpool_engine.schema_proof"],
            input=schema,
            capture_output=True,
            text=True,
            timeout=PROOF_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "it takes too long to compile"
    return proof.stdout.strip() if proof.returncode == 0 else "it takes too much to compile"


class Grammars:
    """Compiles schemas and remembers them, bad ones too. `compile` is for the event loop; the rest is in threads."""

    def __init__(
        self, tokenizer: Any, vocabulary: int, stop_ids: frozenset[int], check: Callable[[str], str] = prove
    ) -> None:
        self._tokenizer, self._vocabulary, self._stop_ids, self._check = tokenizer, vocabulary, stop_ids, check
        self._native: LLTokenizer | None = None
        self._known: OrderedDict[str, Grammar | SchemaError] = OrderedDict()
        self._under_way: dict[str, asyncio.Future[Grammar | SchemaError]] = {}
        # One thread: a flood of bad schemas leaves the other cores to the engine.
        self._pool = ThreadPoolExecutor(1, "schema")

    async def compile(self, schema: str) -> Grammar:
        """The grammar of a schema. Raises SchemaError, or TooManySchemas."""
        found = self._known.get(schema)
        if found is None:
            found = await asyncio.shield(self._compile_once(schema))
        else:
            self._known.move_to_end(schema)
        if isinstance(found, SchemaError):
            raise SchemaError(str(found))
        return found

    def close(self) -> None:
        """Let the thread end."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _compile_once(self, schema: str) -> "asyncio.Future[Grammar | SchemaError]":
        running = self._under_way.get(schema)
        if running is None:
            if len(self._under_way) >= WAITING_MAX:
                raise TooManySchemas
            running = asyncio.get_running_loop().run_in_executor(self._pool, self._compile, schema)
            self._under_way[schema] = running
            running.add_done_callback(lambda done: self._keep(schema, done))
        return running

    def _keep(self, schema: str, done: "asyncio.Future[Grammar | SchemaError]") -> None:
        del self._under_way[schema]
        if not done.cancelled() and done.exception() is None:
            self._known[schema] = done.result()
            while len(self._known) > COMPILED_KEPT:
                self._known.popitem(last=False)

    def _compile(self, schema: str) -> Grammar | SchemaError:
        if len(schema.encode(errors="replace")) > SCHEMA_BYTES:
            return SchemaError(f"it is larger than {SCHEMA_BYTES} bytes")
        if not self._stop_ids or not hasattr(self._tokenizer, "backend_tokenizer"):
            return SchemaError("this pool's model cannot be bound to a schema")
        if fault := self._check(schema):
            return SchemaError(fault)
        matcher = matcher_of(self._native_tokenizer(), grammar_of(schema))
        return SchemaError(fault_of(matcher)) if matcher.is_error() else Grammar(matcher)

    def _native_tokenizer(self) -> LLTokenizer:
        if self._native is None:
            # Its whole vocabulary is read, which takes a moment: only who needs it pays.
            text = self._tokenizer.backend_tokenizer.to_str()
            self._native = LLTokenizer(text, n_vocab=self._vocabulary, eos_token=sorted(self._stop_ids))
        return self._native

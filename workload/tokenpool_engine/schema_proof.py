"""`python -m tokenpool_engine.schema_proof` compiles the schema on standard input and says what is wrong with it.

A process of its own, because some schemas take for ever, all memory or a crash: here they cost nothing else. It imports
next to nothing, so that it starts at once.
"""

import resource
import sys

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

CPU_SECONDS = 2
MEMORY_BYTES = 1 << 30
WHITESPACE = r"[\x20\x0A\x0D\x09]{1,32}"


def grammar_of(schema: str) -> str:
    """The grammar of a JSON schema. White space has a bound: a model must not go on with it for ever."""
    return LLMatcher.grammar_from_json_schema(schema, overrides={"whitespace_pattern": WHITESPACE})


def matcher_of(tokenizer: LLTokenizer, grammar: str) -> LLMatcher:
    """A matcher at its beginning; its `get_error` says what is wrong with the grammar."""
    return LLMatcher(tokenizer, grammar, log_level=0, limits=LLParserLimits(verbose_errors=False))


def fault_of(matcher: LLMatcher) -> str:
    """The first line of what a matcher complains of; empty when it has nothing to complain of."""
    return (matcher.get_error().splitlines() or [""])[0] if matcher.is_error() else ""


def main() -> None:
    """Prints the fault; prints nothing when there is none."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        grammar = grammar_of(sys.stdin.read())
    except ValueError:
        print("it is not a JSON object")
        return
    matcher = matcher_of(LLTokenizer("byte"), grammar)
    if not matcher.is_error():
        matcher.compute_bitmask()
    print(fault_of(matcher))


if __name__ == "__main__":
    main()

"""All callers: found by their keys, held to their quotas."""

from collections.abc import Iterable
from hashlib import sha256
from hmac import compare_digest
from typing import Final, final

from tokenpool_router.callers.caller import Caller
from tokenpool_router.callers.quota import Quota
from tokenpool_router.http.refusals import Refusal

BEARER: Final = b"bearer "
# Enough to find a digest by. What is left of it is compared in constant time.
INDEX_BYTES: Final = 4
# A caller with too many requests under way cannot know when one of them ends.
BUSY_SECONDS: Final = 1.0


@final
class Callers:
    """Replaced as a whole when the Secret changes; `now` is the loop's clock."""

    def __init__(self, callers: Iterable[Caller], now: float) -> None:
        self._index: dict[bytes, list[tuple[bytes, Caller]]] = {}
        self._quotas: dict[str, Quota] = {}
        self.replace(callers, now)

    def replace(self, callers: Iterable[Caller], now: float) -> None:
        """Keys that are not in it any more open nothing from here on; who stays keeps what it has used."""
        before, self._quotas, self._index = self._quotas, {}, {}
        for caller in callers:
            quota = before.get(caller.name)
            if quota:
                quota.change(caller)
            self._quotas[caller.name] = quota or Quota(caller, now)
            for text in caller.sha256:
                digest = bytes.fromhex(text)
                self._index.setdefault(digest[:INDEX_BYTES], []).append((digest, caller))

    def find(self, authorization: bytes | None) -> Caller | None:
        """Whose key "Bearer KEY" is."""
        if authorization is None or authorization[:7].lower() != BEARER:
            return None
        digest = sha256(authorization[7:].strip()).digest()
        found = None
        for known, caller in self._index.get(digest[:INDEX_BYTES], ()):
            if compare_digest(known, digest):
                found = caller
        return found

    def begin(self, caller: Caller, tokens: int, now: float) -> Refusal | None:
        """Let a request in, or say when to come back."""
        quota = self._quotas.get(caller.name)
        if quota is None:
            return None
        if quota.is_busy:
            message = f"{caller.name} has {caller.concurrency} requests under way, which is its limit (concurrency)"
            return Refusal(429, message, "concurrency_limit", BUSY_SECONDS)
        seconds = quota.wait_seconds(tokens, now)
        if seconds > 0:
            message = f"{caller.name} has used its {caller.tokens_per_minute} tokens per minute (tokensPerMinute)"
            return Refusal(429, message, "rate_limit_exceeded", seconds)
        quota.begin(tokens)
        return None

    def end(self, caller: Caller, estimated: int, tokens: int) -> None:
        """A request that was let in is over."""
        quota = self._quotas.get(caller.name)
        if quota:
            quota.end(estimated, tokens)

    def used(self, name: str) -> tuple[int, int]:
        """Tokens since ever, and requests under way."""
        quota = self._quotas.get(name)
        return (quota.used, quota.requests) if quota else (0, 0)

    def set_elsewhere(self, name: str, tokens: int, requests: int) -> None:
        """What others gave it."""
        quota = self._quotas.get(name)
        if quota:
            quota.set_elsewhere(tokens, requests)

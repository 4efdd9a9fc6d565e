"""Who may come in and how much each may have: API keys, known by their hashes, and quotas. Only `folder` does I/O."""

from tokenpool_router.callers.caller import Caller, WrongCaller, read_caller
from tokenpool_router.callers.callers import Callers
from tokenpool_router.callers.quota import Quota

__all__ = ["Caller", "Callers", "Quota", "WrongCaller", "read_caller"]

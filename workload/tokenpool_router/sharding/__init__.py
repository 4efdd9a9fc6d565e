"""Which shard gets the next request. Pure: no I/O, time and randomness are arguments.

    sharding = DynamicSharding(max_shards=16)
    sharding.set_shards([Shard("a"), Shard("b", speed=0.5)])
    lease = sharding.assign_shard(tokens=700)      # None: no shard can take it now
    lease.progress(1)                              # one of its tokens is done
    lease.release()                                # exactly once

A shard's load is what is left of all leases on it, so it is known exactly and at once, never polled.
"""

from tokenpool_router.sharding.lease import Lease
from tokenpool_router.sharding.policy import Policy
from tokenpool_router.sharding.shard import Shard, ShardLoad, TooManyShards, UnknownShard
from tokenpool_router.sharding.sharding import DynamicSharding

__all__ = ["DynamicSharding", "Lease", "Policy", "Shard", "ShardLoad", "TooManyShards", "UnknownShard"]

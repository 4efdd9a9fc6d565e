from dataclasses import dataclass
from enum import StrEnum
class UnknownShard(KeyError): ...
class Policy(StrEnum):
    LEAST_TOKENS="LeastTokens"; LEAST_CONNECTIONS="LeastConnections"; ROUND_ROBIN="RoundRobin"; POWER_OF_TWO="PowerOfTwo"; PREFIX_AFFINITY="PrefixAffinity"
@dataclass(frozen=True)
class Shard:
    id: str; address: str=""; weight: float=1.0; speed: float=1.0; draining: bool=False; max_requests: int=0; max_tokens: int=0; revision: str=""
class Seat:
    def __init__(s, shard): s.shard=shard; s.o=0; s.n=0; s.turn=0; s.until=0.; s.fails=0; s.busy=0.
@dataclass
class ShardLoad:
    shard: Shard; outstanding_tokens: int; in_flight: int; ejected: bool
class Lease:
    def __init__(s, seat, tokens): s._seat=seat; s.tokens=tokens; s.is_open=True
    @property
    def shard(s): return s._seat.shard
    def progress(s,t):
        d=min(t,s.tokens) if s.is_open else 0; s.tokens-=d; s._seat.o-=d
    def correct(s,t):
        if s.is_open: s._seat.o+=t-s.tokens; s.tokens=t
    def release(s):
        if not s.is_open: raise RuntimeError
        s.progress(s.tokens); s.is_open=False; s._seat.n-=1; s._seat.busy=0
class DynamicSharding:
    def __init__(s, max_shards=10000, policy=None, *, random=None): s.seats={}; s.turn=0
    def __len__(s): return len(s.seats)
    def set_shards(s, shards):
        k={}
        for m in shards:
            o=s.seats.get(m.id)
            if o and o.shard.address==m.address: o.shard=m; k[m.id]=o
            else: k[m.id]=Seat(m)
        s.seats=k
    def assign_shard(s,tokens,*,now=0.,exclude=(),prefix=()):
        free=[x for x in s.seats.values() if x.shard.id not in exclude and x.busy<=now]
        free=[x for x in free if x.until<=now] or free
        if not free: return None
        x=min(free,key=lambda x:(x.o,x.n,x.turn)); s.turn+=1; x.turn=s.turn; x.o+=tokens; x.n+=1
        return Lease(x,tokens)
    def failed(s,i,*,now):
        x=s.seats.get(i)
        if x: x.until=now+min(30,2**x.fails); x.fails+=1
    def succeeded(s,i):
        x=s.seats.get(i)
        if x: x.until=0; x.fails=0
    def busy(s,i,*,until):
        x=s.seats.get(i)
        if x: x.busy=until
    def set_elsewhere(s,i,t,r): pass
    def load(s,i,*,now):
        if i not in s.seats: raise UnknownShard(i)
        x=s.seats[i]; return ShardLoad(x.shard,x.o,x.n,x.until>now)
    def loads(s,*,now): return [s.load(i,now=now) for i in sorted(s.seats)]
    def changed(s): return []

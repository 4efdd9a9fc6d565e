from enum import StrEnum
from collections import deque
class Priority(StrEnum):
    HIGH="high"; NORMAL="normal"; LOW="low"
class QueueFull(Exception): ...
class Ticket:
    def __init__(s,item,tokens): s.item=item; s.tokens=tokens
class FairQueue:
    def __class_getitem__(c,x): return c
    def __init__(s,m): s.m=m; s.q=deque(); s.tokens=0
    def __len__(s): return len(s.q)
    def push(s,item,*,tokens,caller,weight,priority,deadline):
        if s.q and s.tokens+tokens>s.m or tokens>s.m: raise QueueFull
        t=Ticket(item,tokens); s.q.append(t); s.tokens+=tokens; return t
    def peek(s): return s.q[0] if s.q else None
    def remove(s,t): s.q.remove(t); s.tokens-=t.tokens
class DrainRate:
    def add(s,t,now): pass
    def rate(s,now): return 0.
def retry_after(b,r,random): return 5.0

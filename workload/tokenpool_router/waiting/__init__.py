"""Who is next when there is room, and when the others are to come back. Pure: time and randomness are arguments."""

from tokenpool_router.waiting.drain_rate import DrainRate, retry_after
from tokenpool_router.waiting.fair_queue import FairQueue, Priority, QueueFull, Ticket

__all__ = ["DrainRate", "FairQueue", "Priority", "QueueFull", "Ticket", "retry_after"]

"""What one router knows and is doing; the data plane changes it, the admin port shows it."""

from dataclasses import dataclass, field

from tokenpool_router.admission import WaitingRoom
from tokenpool_router.balancer import Balancer, Member
from tokenpool_router.client import ClientConnection
from tokenpool_router.metrics import Metrics
from tokenpool_router.upstream import Pool


@dataclass
class State:
    """The parts of a running router."""

    balancer: Balancer
    room: WaitingRoom
    pool: Pool
    metrics: Metrics
    connections: set[ClientConnection] = field(default_factory=set)
    knows_members: bool = False
    draining: bool = False

    def set_members(self, members: list[Member]) -> None:
        """The pool's shards as of now."""
        self.knows_members = True
        self.balancer.set_members(members)
        self.pool.keep_only({member.address for member in members})
        self.room.shards_changed()

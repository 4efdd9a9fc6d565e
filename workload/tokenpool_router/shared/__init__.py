"""What the routers of one pool tell each other, through Redis: loads, use of quotas, counts of the vocabulary.

Runs in the control process and never in a request's path: everything here is late, bounded, and may be missing.
A pool without Redis works; each router then knows only itself. Importing this room does not import the redis library
(about 38 MB); making a `SharedState` does.
"""

from tokenpool_router.shared.messages import OwnNumbers
from tokenpool_router.shared.state import State
from tokenpool_router.shared.sums import Sums
from tokenpool_router.shared.together import SharedState

__all__ = ["OwnNumbers", "SharedState", "State", "Sums"]

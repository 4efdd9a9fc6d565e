"""Keeps Python 3.11 from making an event loop that nobody closes.

pytest-asyncio asks for "the current loop" before the first test, and that version makes one where there is none.
"""

import asyncio

asyncio.set_event_loop(None)

"""For all tests: Python 3.11 would make an event loop that nobody closes when a plugin asks for "the current one"."""

import asyncio

import pytest


def pytest_configure(config: pytest.Config) -> None:
    asyncio.set_event_loop(None)

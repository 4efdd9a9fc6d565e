"""A shard with the tiny model that answers on loopback."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.shard import Running, run_shard


@pytest.fixture
async def running(tiny_model: Path) -> AsyncIterator[Running]:
    async with run_shard(tiny_model) as made:
        yield made

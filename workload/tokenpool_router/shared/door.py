"""The one way to Redis: a connection that is opened when needed, a deadline on every call, and errors fit to be shown.

After an error the connection is thrown away and the file with the URL is read again: passwords rotate, servers move,
and an answer that comes late must never be taken for the answer to the next question.
"""

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from redis.asyncio.connection import AbstractConnection

DEADLINE_SECONDS: Final = 1.0
MOST_URL_BYTES: Final = 4096
MOST_ERROR_CHARACTERS: Final = 200


class Unreachable(Exception):
    """Redis did not do it; the text is safe to be shown."""


class Door:
    """One connection, used by one task."""

    def __init__(self, url_file: Path, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        import redis.asyncio  # noqa: F401  half a second and 38 MB: now, before there is anything to hold up

        self._url_file = url_file
        self._deadline_seconds = deadline_seconds
        self._connection: AbstractConnection | None = None
        self._url = ""
        self._version: tuple[int, ...] = ()

    async def run(self, script: str, keys: tuple[str, ...], *arguments: str | bytes | float) -> Any:
        """What the script returns.

        Raises:
            Unreachable: it did not return in time, or Redis answered with an error or with nonsense.
        """
        try:
            async with asyncio.timeout(self._deadline_seconds):
                connection = await self._open()
                await connection.send_command("EVAL", script, len(keys), *keys, *arguments)
                return await connection.read_response()
        except TimeoutError as error:
            await self.close()
            raise Unreachable(f"no answer within {self._deadline_seconds:g} s") from error
        except asyncio.CancelledError:
            await self.close()
            raise
        # The library's parser raises anything at all when a server talks nonsense.
        except Exception as error:
            await self.close()
            raise Unreachable(describe(error, self._url)) from error

    async def close(self) -> None:
        """Throw the connection away, whatever state it is in."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):  # it is gone either way
                await connection.disconnect(nowait=True)

    async def _open(self) -> "AbstractConnection":
        version = file_version(self._url_file)
        if self._connection is not None and version == self._version:
            return self._connection
        await self.close()
        self._url = read_url(self._url_file)
        self._version = version
        self._connection = unconnected(self._url, self._deadline_seconds)
        await self._connection.connect()  # type: ignore[no-untyped-call]
        # Nothing large is sent before an answer came, so tries at a stopped server leave nothing behind that waits.
        # A stranger who sends a script is told of "multibulk length"; to a ping Redis says that it wants a password.
        await self._connection.send_command("PING")
        await self._connection.read_response()
        return self._connection


def unconnected(url: str, deadline_seconds: float) -> "AbstractConnection":
    """A connection that will be tried once and introduce itself to nobody."""
    from redis.asyncio.connection import ConnectionPool
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    # No deadline for reads and writes of the library's own: ours holds for all of a call, and with theirs it writes
    # under asyncio.wait_for, which before Python 3.12 swallows a cancellation now and then.
    settings = {
        "protocol": 2,
        "socket_timeout": None,
        "socket_connect_timeout": deadline_seconds,
        "retry": Retry(NoBackoff(), 0),
        "driver_info": None,
    }
    pool = ConnectionPool.from_url(url, **settings)
    pool.connection_kwargs.update(settings)  # also over what the URL asks for
    connection: AbstractConnection = pool.make_connection()  # type: ignore[no-untyped-call]
    return connection


def file_version(path: Path) -> tuple[int, ...]:
    """Another value when the file has changed, or when a Secret's folder was switched to a new one."""
    try:
        found = path.stat()
    except OSError as error:
        raise Unreachable(f"cannot read {path}: {error.strerror}") from error
    return found.st_ino, found.st_mtime_ns, found.st_size


def read_url(path: Path) -> str:
    """The URL in the file.

    Raises:
        Unreachable: there is none; the text tells nothing of what there is, since it may be a password.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MOST_URL_BYTES + 1).decode().strip()
        parts = urlsplit(text)
        is_good = parts.scheme in ("redis", "rediss") and bool(parts.hostname) and parts.port != 0
    except OSError as error:
        raise Unreachable(f"cannot read {path}: {error.strerror}") from error
    except ValueError:  # no text, or a port that is no number
        is_good = False
    if not is_good or len(text) > MOST_URL_BYTES:
        raise Unreachable(f"{path} holds no URL: redis[s]://user:password@host:6379/0, password percent-encoded")
    return text


def describe(error: Exception, url: str) -> str:
    """What to show of an error: its first line, printable, short, and without the URL or a password."""
    if isinstance(error, Unreachable):
        return str(error)
    text = f"{type(error).__name__}: {error}"
    for secret in secrets_of(url):
        text = text.replace(secret, "…")
    line = text.splitlines()[0]
    return "".join(letter if letter.isprintable() else "?" for letter in line)[:MOST_ERROR_CHARACTERS]


def secrets_of(url: str) -> list[str]:
    """What must not be shown, longest first: the URL, and the password as written and as meant."""
    parts = urlsplit(url)
    password = parts.password or ""
    asked = parse_qs(parts.query).get("password", [])
    return sorted({url, password, unquote(password), *asked} - {""}, key=len, reverse=True)

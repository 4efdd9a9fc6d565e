"""Messages on the wire, events as bytes, and settings."""

import pytest

from tokenpool_router.http.messages import Headers, Request, ResponseHead
from tokenpool_router.journey.events import events_end
from tokenpool_router.settings import parse


def test_what_router_and_shard_tell_each_other_goes_no_further() -> None:
    request = Request(
        b"GET", b"/x", ((b"x-tokenpool-token-ids", b"1"), (b"a", b"1"), (b"authorization", b"k")), b"",
        keep_alive=True, version="1.1", request_id=b"id",
    )  # fmt: skip
    sent = request.to_upstream(b"s:1", b"x-tokenpool-token-ids: 1\r\n", without=b"authorization")
    assert sent == b"GET /x HTTP/1.1\r\nhost: s:1\r\na: 1\r\nx-request-id: id\r\nx-tokenpool-token-ids: 1\r\n\r\n"
    head = ResponseHead(200, b"", ((b"x-tokenpool-seed", b"7"), (b"x-request-id", b"the shard's")), 0)
    assert head.to_client(b"x-request-id: id\r\n", chunked=False, close=False) == (
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx-request-id: id\r\n\r\n"
    )


def test_messages_carry_no_headers_of_one_connection() -> None:
    request = Request(
        b"POST",
        b"/x?y",
        ((b"te", b"x"), (b"host", b"pool"), (b"a", b"1"), (b"content-length", b"9"), (b"expect", b"100-continue")),
        b"{}",
        keep_alive=True,
        version="1.1",
        request_id=b"id",
    )
    assert request.to_upstream(b"shard:1") == (
        b"POST /x?y HTTP/1.1\r\nhost: shard:1\r\na: 1\r\nx-request-id: id\r\ncontent-length: 2\r\n\r\n{}"
    )
    head = ResponseHead(200, b"", ((b"keep-alive", b"5"), (b"b", b"2"), (b"content-length", b"7")), 7)
    assert head.to_client(chunked=False, close=True) == (
        b"HTTP/1.1 200 OK\r\nb: 2\r\ncontent-length: 7\r\nconnection: close\r\n\r\n"
    )
    named = ResponseHead(204, b"", ((b"connection", b"X-Mine , close"), (b"x-mine", b"1"), (b"b", b"2")), 0)
    assert named.to_client(chunked=False, close=False) == b"HTTP/1.1 204 No Content\r\nb: 2\r\n\r\n"


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        (((b"content-type", b"Text/Event-Stream; charset=utf-8"),), True),
        (((b"content-type", b"text/event-stream"), (b"content-encoding", b"gzip")), False),
        (((b"content-type", b"application/json"),), False),
        ((), False),
    ],
)
def test_what_is_an_event_stream(headers: Headers, wanted: bool) -> None:
    assert ResponseHead(200, b"", headers).is_event_stream is wanted


@pytest.mark.parametrize(
    ("held", "end"),
    [
        (b"data: 1\n\n", 9),
        (b"data: 1\r\n\r\n", 11),
        (b"data: 1\n\ndata: 2", 9),
        (b"data: 1\r\n\r\ndata: 2\r\n", 11),
        (b"data: 1\n", 0),
        (b"", 0),
    ],
)
def test_where_the_last_whole_event_ends(held: bytes, end: int) -> None:
    assert events_end(held) == end


def test_settings_need_a_pool_or_shards(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse(["--shards", "a:1, [::1]:2,"]).shards == ("a:1", "[::1]:2")
    assert parse(["--pool", "p", "--namespace", "n"]).queue_seconds == 30
    with pytest.raises(SystemExit):
        parse(["--pool", "p"])
    assert "give --pool and --namespace, or --shards" in capsys.readouterr().err
    for wrong in ("0", "65"):
        with pytest.raises(SystemExit):
            parse(["--shards", "a:1", "--workers", wrong])
        assert "--workers must be from 1 to 64" in capsys.readouterr().err
    for wrong in ("a", ":1", "a:", "a:b", "a:0", "a:65536"):
        with pytest.raises(SystemExit):
            parse(["--shards", wrong])
        assert "not host:port" in capsys.readouterr().err

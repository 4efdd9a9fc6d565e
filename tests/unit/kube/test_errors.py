import json

import pytest

from tokenpool_kube import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
)
from tokenpool_kube.errors import error_from_response, error_from_status, parse_seconds


def status(reason: str, **more: object) -> bytes:
    return json.dumps({"kind": "Status", "reason": reason, "message": "told so", **more}).encode()


@pytest.mark.parametrize(
    ("code", "body", "error_class"),
    [
        (400, status("BadRequest"), Invalid),
        (401, status("Unauthorized"), Unauthorized),
        (403, status("Forbidden"), Forbidden),
        (404, status("NotFound"), NotFound),
        (404, b"404 page not found\n", NotFound),
        (405, status("MethodNotAllowed"), ApiError),
        (409, status("Conflict"), Conflict),
        (409, status("AlreadyExists"), AlreadyExists),
        (410, status("Expired"), Gone),
        (410, b"", Gone),
        (422, status("Invalid"), Invalid),
        (429, b"Too many requests, please try again later.\n", TooManyRequests),
        (500, status("Expired"), Gone),
        (500, status("InternalError"), ServerError),
        (502, b"<html>bad gateway</html>", ServerError),
        (503, b"[1, 2]", ServerError),
        (504, status("Timeout"), ServerError),
    ],
)
def test_classes(code: int, body: bytes, error_class: type[ApiError]) -> None:
    error = error_from_response(code, {}, body)
    assert type(error) is error_class
    assert error.status == code


def test_the_message_is_the_servers_own() -> None:
    error = error_from_response(403, {}, status("Forbidden", message='pods is forbidden: User "x" cannot list'))
    assert str(error) == '403 Forbidden: pods is forbidden: User "x" cannot list'


def test_plain_text_is_kept_but_bounded() -> None:
    error = error_from_response(429, {"Retry-After": "1"}, b"slow down " * 1000)
    assert (error.message[:9], len(error.message), error.retry_after) == ("slow down", 499, 1.0)


@pytest.mark.parametrize(
    ("headers", "details", "seconds"),
    [
        ({}, {}, None),
        ({"Retry-After": "3"}, {}, 3.0),
        ({}, {"retryAfterSeconds": 4}, 4.0),
        ({"Retry-After": "3"}, {"retryAfterSeconds": 4}, 3.0),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, {}, None),
    ],
)
def test_retry_after(headers: dict[str, str], details: dict[str, int], seconds: float | None) -> None:
    assert error_from_response(503, headers, status("ServiceUnavailable", details=details)).retry_after == seconds


@pytest.mark.parametrize("value", [None, "", "soon", "-1", "0", "nan", "inf"])
def test_nonsense_is_no_delay(value: object) -> None:
    assert parse_seconds(value) is None


def test_an_error_event_without_a_code_is_the_servers_fault() -> None:
    assert type(error_from_status({"message": "etcd is unwell"})) is ServerError

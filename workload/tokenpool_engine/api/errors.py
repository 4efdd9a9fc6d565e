"""Refusals in OpenAI's form."""

from typing import Any


class ApiError(Exception):
    """A refusal that the client is to see. `param` names the field; `retry_after` is in seconds, 0 for none."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str = "invalid_request",
        param: str | None = None,
        retry_after: int = 0,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param
        self.retry_after = retry_after

    def body(self) -> dict[str, Any]:
        """The error envelope."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        if self.status == 429:
            kind = "rate_limit_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


class GenerationFailed(Exception):
    """The engine could not finish a request; the text is for the client."""


def bug() -> ApiError:
    """What a client hears of an error that is the shard's own; the log has the rest."""
    return ApiError(500, "the shard has a bug; its log tells more", code="internal_error")

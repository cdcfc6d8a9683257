"""Errors as the OpenAI protocol writes them."""

from __future__ import annotations

from typing import Any


class ApiError(Exception):
    """Becomes the answer `{"error": {...}}` with an HTTP status. `message` is one sentence for the client."""

    def __init__(
        self, message: str, status: int = 400, *, param: str | None = None, code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.message, self.status, self.param, self.code = message, status, param, code
        self.headers = headers or {}

    @property
    def body(self) -> dict[str, Any]:
        """The answer's JSON."""
        kind = {401: "authentication_error", 429: "rate_limit_error"}.get(
            self.status, "invalid_request_error" if self.status < 500 else "server_error"
        )
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

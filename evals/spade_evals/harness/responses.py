"""What a model answered to the harness' requests, on disk as soon as it is there."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spade.errors import InputError
from spade.files import plain
from spade.types import content_id, from_json
from spade_evals.lines import LineFile


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to one request: a text, or the log-likelihood of a given one."""

    request: str
    """Hash of the request; see `Numbering`."""
    text: str = ""
    end: str = "stop"
    """`stop`, `length` or `context`."""
    tokens: int = 0
    """Sampled ones."""
    logprob: float = 0.0
    greedy: bool = False
    """Whether the given text is what the model would have said."""


class Numbering:
    """Hashes of requests; of equal ones (samples of one question) the second has another hash, and so on."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def __call__(self, *content: Any) -> str:
        """32 hex digits."""
        whole = content_id(json.dumps(content, ensure_ascii=False))
        self._seen[whole] += 1
        number = self._seen[whole]
        return whole[:32] if number == 1 else content_id(f"{whole} {number}")[:32]


class ResponseLog:
    """The responses of one checkpoint under one setup. One process at a time; use it in a `with` block."""

    def __init__(self, path: Path, who: Sequence[str]) -> None:
        self.path = path
        self.key = content_id("\n".join(who))[:16]
        self.known: dict[str, Response] = {}
        self._file = LineFile(path, lambda key: key == self.key)

    def __enter__(self) -> ResponseLog:
        """Lock the file and read what is there. Raises InputError when another process writes to it."""
        rows = self._file.open()
        try:
            for row in rows:
                response = from_json(Response, row)
                self.known[response.request] = response
        except (KeyError, TypeError, ValueError) as error:
            self._file.close()
            raise InputError(
                f"{self.path} is not of this version ({error!r}); move it away or use another --out"
            ) from error
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, response: Response) -> None:
        """Write one response; one that is there already is left as it is."""
        if response.request not in self.known:
            self._file.add({"key": self.key, **plain(response)})
            self.known[response.request] = response

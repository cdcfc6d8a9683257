"""Ctrl-C once: stop at the next safe point. Ctrl-C twice: stop now."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any


class StopFlag:
    """Context manager that turns the first SIGINT or SIGTERM into `requested = True`.

    The second one raises KeyboardInterrupt at once. Outside the main thread it only carries the flag, since
    Python delivers signals to the main thread alone.
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopFlag:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    def request(self) -> None:
        """Ask for a stop from code (a budget, a test)."""
        self.requested = True

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        print("stopping after the current step; once more to stop now", file=sys.stderr, flush=True)

"""Runs one environment program: reads batches of operations from descriptor 3, answers in order.

Executed in a forked, confined process (standard library only, `host.py` and `answers.py` included). Frames
are a 4-byte big-endian length and JSON, in UTF-8 towards the worker, in ASCII towards the parent. A request
is a list of operations, an answer `{"r": [result, ...]}` for the next operations in order, with `"v": [...]`
when the program tried something forbidden. One request may be answered in several frames: long answers are
split, and slow operations are reported as they finish, so the parent can time each of them. A request that
ends with the number 1 asks the worker to wait for the next one awake, for a moment.

Operations: `["l", code]` load, `["r", i, seed]` reset, `["s", i, action]` step, answered
`[observation, reward, end]` with end = terminated + 2 * truncated, `["S", [i, ...], [action, ...]]` steps in
a row, answered in columns, `{"s": observations, "w": rewards unless all are 0, "e": ends as digits}`,
`["o", i]` solution, `["h", i]` hint, `["d", i]` drop, `["t", i]` tools, `["c", i]` results of the last
turn's calls, `["q", i]` tool-use criteria, `["p", i, seed, actions, turns, brief, after]` play: reset, then
the actions (over and over up to `turns`) until the episode ends, then the actions `after`. A failed
operation answers `{"f": code, "d": detail}`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from json.encoder import encode_basestring_ascii as _quote
from typing import Any

from spade.envs.answers import CHANNEL, Answers, Channel, clock
from spade.envs.host import CUT, MODULE, Host, checked_step, describe, fault_of

# Handed on: whoever serves a channel in the same way needs one import only.
__all__ = ["CHANNEL", "MODULE", "Answers", "Channel", "Host", "describe", "main", "row", "watch"]

STEP_CHARS = 40  # what a step takes beside its text
AWAKE = 1
"""Last element of a request after which the next one is waited for awake."""

_FORBIDDEN_TEXT = (
    "os.scandir os.mkdir os.rmdir os.remove os.rename os.link os.symlink os.truncate "
    "os.chmod os.chown os.chdir os.walk os.system os.exec os.fork os.forkpty os.posix_spawn "
    "os.spawn os.kill os.killpg os.utime subprocess.Popen signal.pthread_kill socket.__new__ "
    "socket.connect socket.bind socket.sendto socket.getaddrinfo socket.gethostname "
    "ctypes.dlopen _thread.start_new_thread resource.setrlimit resource.prlimit mmap.__new__ "
    "fcntl.ioctl"
)
FORBIDDEN = frozenset(_FORBIDDEN_TEXT.split())
"""Audit events of attempts no game makes. They fail anyway; noted, so that the parent can refuse."""


def watch(stdlib: str) -> list[str]:
    """Note forbidden attempts of this process from now on; returns the growing list (at most 8 entries)."""
    noted: list[str] = []
    harmless = (stdlib, "/proc/self/", f"<{MODULE}>")

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if len(noted) >= 8:
            return
        if event == "open" or event == "os.listdir":
            path = args[0]
            if not (type(path) is str and path.startswith(harmless)):  # imports look into the library
                noted.append(f"{event} {path!r}"[:80] if type(path) in (str, bytes, int) else event)
        elif event in FORBIDDEN:
            noted.append(event)

    sys.addaudithook(hook)
    return noted


def row(host: Host, answers: Answers, numbers: list[int], actions: list[str]) -> None:
    """Steps in a row, answered as columns. The usual result is judged here, any other by `checked_step`."""
    held_by, current, now = host.instances.get, host.current, clock
    for number, action in zip(numbers, actions, strict=True):
        try:
            held = held_by(number)
            if held is None:
                instance = host.instance(number)
            else:
                instance, current[0] = held
            result = instance.step(action)
            if type(result) is not tuple or len(result) != 5:
                checked_step(result)  # says what is wrong
            text, reward, terminated, truncated, info = result
            if (
                type(text) is str
                and type(reward) is float
                and type(terminated) is bool
                and type(truncated) is bool
                and type(info) is dict
                and reward - reward == 0.0
                and len(text) <= CUT
            ):
                if truncated:
                    end = "3" if terminated else "2"
                else:
                    end = "1" if terminated else "0"
            else:
                text, reward, number_of_end = checked_step(result)
                end = str(number_of_end)
        except BaseException as error:
            answers.add(fault_of(error, False))
            continue
        answers.room -= len(text) + STEP_CHARS
        if answers.room < 0:
            answers.flush()
            answers.room -= len(text) + STEP_CHARS
        answers.texts.append(text)
        answers.rewards.append(reward)
        answers.ends.append(end)
        if now() > answers.due:
            answers.flush()


def serve(host: Host, answers: Answers, request: list[Any]) -> None:
    """Perform one request and send what it answers."""
    if len(request) == 1 and request[0][0] == "s":  # the usual case in play, written by hand
        result = host.perform(request[0])
        if type(result) is list and not answers.noted:
            text, reward, end = result
            answers.channel.send(f'{{"r":[[{_quote(text)},{reward!r},{end}]]}}')
            return
        answers.add(result)
    else:
        answers.start()
        for operation in request:
            if operation[0] == "S":
                row(host, answers, *operation[1:])
            else:
                answers.add(host.perform(operation))
    answers.flush()


def main(extras: dict[str, Any], streams: tuple[list[Any], Callable[[], Any]], stdlib: str) -> None:
    """Serve requests until the parent closes the socket."""
    host, channel, noted = Host(extras, streams), Channel(), watch(stdlib)
    answers = Answers(channel, noted)
    while (request := channel.receive()) is not None:
        awake = request[-1] == AWAKE
        if awake:
            request.pop()
        serve(host, answers, request)
        if awake:
            channel.stay_awake()

"""Clocks and randomness as programs see them: replaced once in the zygote, before any program runs.

Runs inside the sandbox processes (standard library only).

* The module-level functions of `random` act on a generator that belongs to the current instance and is seeded
  before each reset, so that two instances in one process do not share a stream.
* `random.Random()` without a seed, `SystemRandom`, `os.urandom` and the clocks count up within one process:
  no program can observe the host's time or entropy. A program whose task depends on them still differs from
  one reset to the next, and the validator refuses it.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import random
import time
from collections.abc import Callable
from typing import Any

EPOCH = 1_700_000_000.0
"""What every worker believes to be its start (14 November 2023)."""
TICK = 0.001
"""Seconds a clock advances each time it is read."""

_MODULE_FUNCTIONS = (
    "betavariate",
    "binomialvariate",
    "choice",
    "choices",
    "expovariate",
    "gammavariate",
    "gauss",
    "getrandbits",
    "getstate",
    "lognormvariate",
    "normalvariate",
    "paretovariate",
    "randbytes",
    "randint",
    "random",
    "randrange",
    "sample",
    "seed",
    "setstate",
    "shuffle",
    "triangular",
    "uniform",
    "vonmisesvariate",
    "weibullvariate",
)


class Counter:
    """A source that counts: the n-th reading is the same in every process."""

    def __init__(self) -> None:
        self.readings = 0

    def next(self) -> int:
        """One more reading."""
        self.readings += 1
        return self.readings

    def entropy(self, count: int) -> bytes:
        """`count` bytes, standing in for the system's."""
        out = b""
        while len(out) < count:
            out += hashlib.sha256(b"entropy %d" % self.next()).digest()
        return out[:count]

    def seconds(self) -> float:
        """The time, standing in for every clock."""
        return EPOCH + TICK * self.next()


_counter = Counter()
_Random = random.Random


class SeededRandom(_Random):
    """`random.Random` whose missing seed is a counter instead of the system's entropy."""

    def seed(self, a: Any = None, version: int = 2) -> None:
        """As `random.Random.seed`; None means the next number of the process's counter."""
        super().seed(_counter.next() if a is None else a, version)


class Stream:
    """The generator behind `random.random()` and friends for one instance; built when first used."""

    __slots__ = ("_generator", "first_seed", "numpy")

    def __init__(self) -> None:
        self.first_seed: int | None = 0
        self._generator: random.Random | None = None
        self.numpy: Any = None
        """The instance's `numpy.random.RandomState`, made by `numpy_entropy` when first used."""

    def restart(self, seed: int | None) -> None:
        """Forget the past; the next use starts from `seed`."""
        self.first_seed, self._generator, self.numpy = seed, None, None

    def generator(self) -> random.Random:
        """The generator itself."""
        if self._generator is None:
            self._generator = SeededRandom(0 if self.first_seed is None else self.first_seed)
        return self._generator


current: list[Stream] = [Stream()]
"""One element: the stream of the instance being called. The worker swaps it before each call."""


def _forward(name: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(current[0].generator(), name)(*args, **kwargs)

    call.__name__ = call.__qualname__ = name
    call.__module__ = "random"
    return call


def _clock(scale: int | None) -> Callable[[], Any]:
    if scale is None:
        return lambda: _counter.seconds()
    return lambda: int(_counter.seconds() * scale)


def _calendar(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda seconds=None: function(_counter.seconds() if seconds is None else seconds)


_Datetime = datetime.datetime


class FixedDatetime(_Datetime):
    """`datetime.datetime` whose present is the counter's."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> FixedDatetime:
        """The counter's time."""
        return cls.fromtimestamp(_counter.seconds(), tz)

    @classmethod
    def utcnow(cls) -> FixedDatetime:
        """The counter's time; the sandbox's zone is UTC."""
        return cls.fromtimestamp(_counter.seconds())

    @classmethod
    def today(cls) -> FixedDatetime:
        """The counter's time."""
        return cls.fromtimestamp(_counter.seconds())


_Date = datetime.date


class _AnyDate(type):
    """Dates the C library made are dates too."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, _Date) if cls is FixedDate else type.__instancecheck__(cls, value)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, _Date) if cls is FixedDate else type.__subclasscheck__(cls, kind)


class FixedDate(_Date, metaclass=_AnyDate):
    """`datetime.date` whose today is the counter's."""

    @classmethod
    def today(cls) -> FixedDate:
        """The counter's day."""
        return cls.fromtimestamp(_counter.seconds())


def install() -> None:
    """Replace the sources in this process. Called once, after all modules are loaded."""
    for kind, name in ((FixedDatetime, "datetime"), (FixedDate, "date"), (SeededRandom, "Random")):
        kind.__name__ = kind.__qualname__ = name
        kind.__module__ = "random" if kind is SeededRandom else "datetime"
    replaced: list[tuple[Any, str, Any]] = [
        (datetime, "datetime", FixedDatetime),
        (datetime, "date", FixedDate),
        (random, "Random", SeededRandom),
        (random, "_urandom", _counter.entropy),
        (os, "urandom", _counter.entropy),
        (os, "getrandom", lambda size, flags=0: _counter.entropy(size)),
    ]
    for clock in ("time", "monotonic", "perf_counter", "process_time", "thread_time"):
        replaced += [(time, clock, _clock(None)), (time, f"{clock}_ns", _clock(10**9))]
    replaced += [(time, "clock_gettime", lambda _id: _counter.seconds())]
    replaced += [(time, name, _calendar(getattr(time, name))) for name in ("localtime", "gmtime", "ctime")]
    strftime = time.strftime
    replaced += [(time, "strftime", lambda text, when=None: strftime(text, when or time.gmtime()))]
    replaced += [(random, name, _forward(name)) for name in _MODULE_FUNCTIONS if hasattr(random, name)]
    for module, name, value in replaced:
        setattr(module, name, value)

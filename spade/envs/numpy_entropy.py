"""`numpy.random` as programs see it: seeded per instance, blind to the system's entropy.

Runs inside the sandbox processes, after `entropy.install`, where numpy is allowed. The functions of the
module act on a generator of the current instance, as those of `random` do. Generators made without a seed
(`default_rng()`, `RandomState()`, `SeedSequence()`) take it from `secrets`, hence from the counter that
`entropy` has put in the place of the system's entropy.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Any

from spade.envs import entropy

PRELOADED = (
    "random",
    "linalg",
    "fft",
    "polynomial",
    "ma",
    "lib.stride_tricks",
    "char",
    "strings",
    "rec",
    "exceptions",
    "typing",
)
"""Parts of numpy that it would load when first used, which a confined worker could not."""
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
_WARM_UP = 64
"""Rows of the matrix inverted once before any fork: the work buffers of the linear algebra library then
belong to the zygote, and no worker with little memory left dies for them."""


def load(folder: str) -> Any:
    """numpy and what it loads late, from `folder`, which is not importable afterwards."""
    for name in _ONE_THREAD:  # a process with threads cannot be forked safely
        os.environ[name] = "1"
    sys.path.insert(0, folder)
    try:
        numpy = importlib.import_module("numpy")
        for part in PRELOADED:
            if importlib.util.find_spec(f"numpy.{part}") is not None:
                importlib.import_module(f"numpy.{part}")
    finally:
        sys.path.remove(folder)
        for name in _ONE_THREAD:
            del os.environ[name]
    numpy.linalg.inv(numpy.eye(_WARM_UP))
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "numpy" and hasattr(module, "__path__"):
            module.__path__ = []  # what is not loaded by now is not there
    return numpy


def install(numpy: Any) -> None:
    """Let the functions of `numpy.random` act on the generator of the current instance."""
    hidden = numpy.random.mtrand._rand

    def legacy() -> Any:
        stream = entropy.current[0]
        if stream.numpy is None:
            stream.numpy = numpy.random.RandomState((stream.first_seed or 0) % 2**32)
        return stream.numpy

    def seed(seed: Any = None) -> None:
        legacy().seed(seed)

    def get_bit_generator() -> Any:
        return legacy()._bit_generator

    def set_bit_generator(bit_generator: Any) -> None:
        entropy.current[0].numpy = numpy.random.RandomState(bit_generator)

    special: dict[str, Callable[..., Any]] = {
        "seed": seed,
        "ranf": lambda size=None: legacy().random_sample(size),
        "sample": lambda size=None: legacy().random_sample(size),
        "get_bit_generator": get_bit_generator,
        "set_bit_generator": set_bit_generator,
    }
    for name in dir(numpy.random):
        if getattr(getattr(numpy.random, name), "__self__", None) is hidden:
            special[name] = _forward(legacy, name)
    for name, function in special.items():
        function.__name__ = function.__qualname__ = name
        function.__module__ = "numpy.random"
        setattr(numpy.random, name, function)


def _forward(legacy: Callable[[], Any], name: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(legacy(), name)(*args, **kwargs)

    return call

"""What several areas share: the shipped embedded model, or a stand-in while it is being built."""

from __future__ import annotations

import os
import signal
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import spade

# How long an example takes says how busy the machine is, and nothing else.
settings.register_profile("spade", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("spade")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell without job control starts background commands deaf to Ctrl-C; the tests send it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

SHIPPED = Path(spade.__file__).parent / "embedded" / "model"


@pytest.fixture(scope="session")
def shipped_model() -> Path:
    """Folder of the embedded model; `SPADE_TEST_MODEL` names another one. Skips, with a warning, without."""
    folder = Path(os.environ.get("SPADE_TEST_MODEL") or SHIPPED)
    if not (folder / "config.json").is_file():
        text = f"no embedded model in {folder}: run `spade embedded build` or set SPADE_TEST_MODEL"
        warnings.warn(f"tests of the shipped model DID NOT RUN: {text}", stacklevel=1)
        pytest.skip(text)
    return folder.resolve()

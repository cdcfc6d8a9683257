"""Dividing conversations among engines, without a cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade.config import SandboxConfig, ServingConfig
from spade.envs.nodes import start_sandbox
from spade.errors import InputError
from spade.serving.launch import open_chat
from spade.serving.policy import Completion, SamplingParams
from spade.serving.shards import Homes, _ended
from spade.types import StopReason

PROMPTS = st.lists(st.integers(0, 5), min_size=1, max_size=8).map(tuple)


@given(st.dictionaries(PROMPTS, st.integers(0, 3), max_size=6), PROMPTS)
def test_a_sequence_goes_where_its_longest_known_beginning_is(
    kept: dict[tuple[int, ...], int], asked: tuple[int, ...]
) -> None:
    homes = Homes()
    for prompt, number in kept.items():
        homes.keep(prompt, number)
    known = [asked[:n] for n in range(1, len(asked) + 1) if asked[:n] in kept]
    assert homes.find(asked) == (kept[known[-1]] if known else -1)


def test_a_row_is_cut_where_it_would_have_ended() -> None:
    completion = Completion((5, 6, 7, 8), (-1.0, -2.0, -3.0, -4.0), StopReason.LENGTH, 3)
    plain = SamplingParams()
    assert _ended(completion, plain) is completion
    cut = _ended(completion, replace(plain, stop_when=lambda ids: ids[-1] == 7))
    assert (cut.token_ids, cut.logprobs_T, cut.stop) == ((5, 6, 7), (-1.0, -2.0, -3.0), StopReason.STOP)
    assert cut.weight_version == 3
    assert _ended(completion, replace(plain, stop_when=lambda ids: False)) == completion


async def test_without_ray_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    for asked, start in (
        ("sandbox.nodes=ray", lambda: start_sandbox(SandboxConfig(nodes="ray"))),
        ("serving.shards=2", lambda: open_chat("embedded", ServingConfig(shards=2))),
    ):
        with pytest.raises(InputError, match=rf"{asked} needs the extra ray: pip install 'spade-rl\[ray\]'"):
            await start()  # type: ignore[operator]

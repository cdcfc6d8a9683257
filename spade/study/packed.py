"""Groups of responses that share a prompt: sampling with a cache, and scoring in one packed pass.

A prompt is computed once for all `G` responses of its group. Responses are letter indices (B, G, L);
log-probabilities are those of decoding restricted to the alphabet, at the given temperature.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from spade.study.lm import Attend, TinyLM


def sample_groups(
    model: TinyLM, ids_BP: Tensor, alphabet: Sequence[int], length: int, group: int, temperature: float,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Draw `group` responses a prompt; returns letters and log-probabilities, both (B, G, L)."""
    batch, prompt = ids_BP.shape
    letters = torch.tensor(list(alphabet))
    cache: dict[int, list[tuple[Tensor, Tensor]]] = {}
    chosen, logprobs = [], []
    with torch.inference_mode():
        positions = torch.arange(prompt).repeat(batch)
        hidden = model.hidden(ids_BP.reshape(-1), positions, _remember(batch, prompt, cache))
        hidden = hidden.view(batch, prompt, -1)[:, -1].repeat_interleave(group, 0)
        for place in range(length):
            logp = torch.log_softmax(model.letter_logits(hidden, letters) / temperature, -1)
            total = logp.exp().cumsum(-1)
            point = torch.rand(len(logp), 1, generator=generator) * total[:, -1:]
            pick = torch.searchsorted(total, point, right=True).clamp(max=len(letters) - 1)
            chosen.append(pick[:, 0])
            logprobs.append(logp.gather(1, pick)[:, 0])
            if place + 1 < length:
                at = torch.full((batch * group,), prompt + place)
                hidden = model.hidden(letters[pick[:, 0]], at, _continue(batch, group, cache))
    shape = (batch, group, length)
    return torch.stack(chosen, -1).view(shape).clone(), torch.stack(logprobs, -1).view(shape).clone()


def group_logprobs(
    model: TinyLM, ids_BP: Tensor, responses_BGL: Tensor, alphabet: Sequence[int], temperature: float
) -> Tensor:
    """Log-probabilities of all letters at every place of every response, (B, G, L, M), with gradient."""
    batch, prompt = ids_BP.shape
    group, length = responses_BGL.shape[1:]
    letters = torch.tensor(list(alphabet))
    inputs = letters[responses_BGL[..., :-1]].reshape(batch, -1)
    mask, positions = _group_layout(prompt, group, length - 1)
    hidden = model(torch.cat([ids_BP, inputs], 1), mask, positions)
    first = hidden[:, prompt - 1 : prompt, None].expand(-1, group, 1, -1)
    rest = hidden[:, prompt:].view(batch, group, length - 1, -1)
    logits = model.letter_logits(torch.cat([first, rest], 2), letters)
    return torch.log_softmax(logits / temperature, -1)


@lru_cache
def _group_layout(prompt: int, group: int, steps: int) -> tuple[Tensor, Tensor]:
    """Mask and positions of one row. True where a token sees another: prompt causal; a response sees the
    prompt and its own past."""
    with torch.inference_mode(False):  # what is kept must be of use to autograd as well
        owner = torch.cat([torch.full((prompt,), -1), torch.arange(group).repeat_interleave(steps)])
        order = torch.arange(len(owner))
        shared = (owner[:, None] == owner) | (owner == -1)
        positions = torch.cat([torch.arange(prompt), prompt + torch.arange(steps).repeat(group)])
        return shared & (order[:, None] >= order), positions


def _remember(batch: int, prompt: int, cache: dict[int, list[tuple[Tensor, Tensor]]]) -> Attend:
    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (x.view(batch, prompt, *x.shape[1:]).transpose(1, 2) for x in (q, k, v))
        cache[layer] = [(k, v)]
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return mixed.transpose(1, 2).reshape(batch * prompt, -1)

    return attend


def _continue(batch: int, group: int, cache: dict[int, list[tuple[Tensor, Tensor]]]) -> Attend:
    """One more token for every response: it sees the shared prompt and its own earlier tokens."""

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        heads, dim = q.shape[1:]
        q, k, v = (x.view(batch, group, heads, dim).transpose(1, 2) for x in (q, k, v))
        (prompt_k, prompt_v), *own = [*cache[layer], (k, v)]
        cache[layer].append((k, v))
        q = q * dim**-0.5
        scores = [q @ prompt_k.transpose(2, 3), *((q * key).sum(-1, keepdim=True) for key, _ in own)]
        weights = torch.softmax(torch.cat(scores, -1), -1)
        count = prompt_k.shape[2]
        mixed = weights[..., :count] @ prompt_v
        for number, (_, value) in enumerate(own):
            mixed = mixed + weights[..., count + number, None] * value
        return mixed.transpose(1, 2).reshape(batch * group, -1)

    return attend

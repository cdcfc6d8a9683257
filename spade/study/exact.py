"""The whole output distribution of a prompt, from one packed forward pass over the prefix tree.

The prompt and all proper prefixes of all responses are one sequence (7 + 584 tokens for 8 letters and 4
places); a token sees the prompt and its own ancestors, and its position is its depth. Logits at the inner
nodes are every conditional there is, and sums down the tree give the log-probability of each response.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from spade.errors import InputError
from spade.study.lm import Attend, TinyLM
from spade.study.tasks import Floats, Ints

LEAF_LIMIT = 1 << 16
"""Most responses that are enumerated; beyond, use the estimators of `spade.learn.entropy`."""
CHUNK_TOKENS = 1 << 12
"""Tree tokens in one pass: few enough for the processor's cache."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """Distribution over all responses of `B` prompts, in nats.

    `logprobs_BY` (B, M^L) sums to one in each row. `place_entropy_BL` is the exact conditional entropy at
    each place, so that its sum over places is the entropy of the whole response. `off_grammar_B` is the mass
    the unrestricted model puts on responses that leave the alphabet somewhere.
    """

    logprobs_BY: Floats
    place_entropy_BL: Floats
    off_grammar_B: Floats
    letters: int


def tree_attention(batch: int, prompt: int, letters: int, depth: int) -> Attend:
    """Rows of `prompt` tokens followed by the levels 1 .. `depth` - 1 of the tree, in breadth-first order.

    The prompt is causal; a node sees the whole prompt, its ancestors and itself. No mask is built: the
    ancestors of level l at level j are every node of level j, each repeated letters^(l - j) times.
    """
    sizes = [letters**level for level in range(1, depth)]

    def attend(_: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        heads, dim = q.shape[1:]
        q, k, v = (x.view(batch, -1, heads, dim).transpose(1, 2) for x in (q, k, v))
        split = [prompt, *sizes]
        qs, ks, vs = (torch.split(x, split, 2) for x in (q, k, v))
        out = [torch.nn.functional.scaled_dot_product_attention(qs[0], ks[0], vs[0], is_causal=True)]
        scale = dim**-0.5
        for level in range(1, depth):
            here = qs[level] * scale
            scores = [here @ ks[0].transpose(2, 3)]
            for above in range(1, level + 1):
                folded = here.view(batch, heads, sizes[above - 1], -1, dim)
                scores.append((folded * ks[above].unsqueeze(3)).sum(-1).flatten(2).unsqueeze(-1))
            weights = torch.softmax(torch.cat(scores, -1), -1)
            mixed = weights[..., :prompt] @ vs[0]
            for above in range(1, level + 1):
                share = weights[..., prompt + above - 1].view(batch, heads, sizes[above - 1], -1, 1)
                mixed = mixed + (share * vs[above].unsqueeze(3)).flatten(2, 3)
            out.append(mixed)
        return torch.cat(out, 2).transpose(1, 2).reshape(-1, heads * dim)

    return attend


def tree_tokens(alphabet: Sequence[int], depth: int) -> tuple[Tensor, Tensor]:
    """Token ids and depths (from 1) of the levels 1 .. depth - 1, breadth first."""
    letters = torch.tensor(alphabet)
    ids = [letters.repeat(len(alphabet) ** (level - 1)) for level in range(1, depth)]
    depths = [torch.full_like(tokens, level) for level, tokens in enumerate(ids, 1)]
    empty = letters[:0]
    return torch.cat(ids) if ids else empty, torch.cat(depths) if depths else empty


def conditionals(model: TinyLM, ids_BP: Tensor, alphabet: Sequence[int], length: int) -> list[Tensor]:
    """Raw logits (B, M^l, vocab) at every node of the levels l = 0 .. length - 1."""
    batch, prompt = ids_BP.shape
    tree, depths = tree_tokens(alphabet, length)
    ids = torch.cat([ids_BP, tree.expand(batch, -1)], 1)
    positions = torch.cat([torch.arange(prompt), prompt - 1 + depths])
    attend = tree_attention(batch, prompt, len(alphabet), length)
    hidden = model.hidden(ids.reshape(-1), positions.repeat(batch), attend).view(batch, ids.shape[1], -1)
    logits = model.logits(hidden[:, prompt - 1 :])
    return list(torch.split(logits, [len(alphabet) ** level for level in range(length)], 1))


def enumerate_outputs(
    model: TinyLM, ids_BP: Ints, alphabet: Sequence[int], length: int, temperature: float = 1.0
) -> Outputs:
    """Exact distribution over all `len(alphabet) ** length` responses, decoding restricted to `alphabet`.

    `temperature` divides the logits before they are restricted; `off_grammar_B` is always at temperature 1.
    Raises `InputError` above `LEAF_LIMIT` responses.
    """
    letters = len(alphabet)
    if letters**length > LEAF_LIMIT:
        raise InputError(
            f"{letters}^{length} responses are more than the {LEAF_LIMIT} that are enumerated; estimate from "
            "samples instead (spade study entropy)."
        )
    per_prompt = ids_BP.shape[1] + sum(letters**level for level in range(1, length))
    rows = max(1, CHUNK_TOKENS // per_prompt)
    parts = []
    with torch.inference_mode():
        for start in range(0, len(ids_BP), rows):
            ids = torch.from_numpy(ids_BP[start : start + rows])
            parts.append(_distribution(conditionals(model, ids, alphabet, length), alphabet, temperature))
    logprobs, entropies, off = (np.concatenate(x) for x in zip(*parts, strict=True))
    return Outputs(logprobs, entropies, off, letters)


def _distribution(
    levels: Sequence[Tensor], alphabet: Sequence[int], temperature: float
) -> tuple[Floats, Floats, Floats]:
    letters = torch.tensor(list(alphabet))
    total = torch.zeros(levels[0].shape[0], 1, dtype=torch.float64)
    inside = torch.zeros_like(total)
    entropies = []
    for logits in levels:
        raw = logits.double()
        within = torch.log_softmax(raw[..., letters] / temperature, -1)
        entropies.append((total.exp() * -(within.exp() * within).sum(-1)).sum(-1))
        total = (total[..., None] + within).flatten(1)
        inside = (inside[..., None] + torch.log_softmax(raw, -1)[..., letters]).flatten(1)
    off = (1.0 - torch.logsumexp(inside, -1).exp()).clamp(min=0.0)
    return total.numpy(), torch.stack(entropies, -1).numpy(), off.numpy()


def response_logprobs(
    model: TinyLM, ids_BP: Ints, responses_BL: Ints, alphabet: Sequence[int], temperature: float = 1.0
) -> Floats:
    """Log-probability of one response a prompt by plain scoring, shape (B,); for any number of leaves."""
    letters = np.asarray(alphabet)
    prompt, length = ids_BP.shape[1], responses_BL.shape[1]
    parts = []
    with torch.inference_mode():
        for start in range(0, len(ids_BP), 1024):
            cut = slice(start, start + 1024)
            ids = np.concatenate([ids_BP[cut], letters[responses_BL[cut, :-1]]], 1)
            hidden = model(torch.from_numpy(ids))[:, prompt - 1 :]
            logits = model.logits(hidden).double()[..., torch.from_numpy(letters)] / temperature
            chosen = torch.from_numpy(responses_BL[cut, :length])[..., None]
            parts.append(torch.log_softmax(logits, -1).gather(-1, chosen)[..., 0].sum(-1).numpy())
    return np.concatenate(parts)

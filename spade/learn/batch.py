"""Neutral samples to padded micro-batches. Pure functions over arrays; axes: `_B` rows, `_T` tokens.

Rows are padded on the right. `mask_BT` marks the sampled tokens themselves; the position that predicts the
token at t is t - 1.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spade.errors import ConfigError
from spade.types import Sample

LOSSES = ("grpo", "dapo", "dr_grpo", "gspo", "reinforce")
"""Names `token_weights` knows."""

DR_GRPO_LENGTH = 128.0
"""Tokens that stand for one full-length answer in `dr_grpo` and `reinforce`. Only fixes the unit of the
loss."""


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """One micro-batch. `old_logprobs_BT` are those reported when sampling, 0.0 where `mask_BT` is False."""

    ids_BT: npt.NDArray[np.int64]
    mask_BT: npt.NDArray[np.bool_]
    old_logprobs_BT: npt.NDArray[np.float32]
    advantages_B: npt.NDArray[np.float64]
    weights_B: npt.NDArray[np.float64]
    roles: tuple[str, ...]
    rows: tuple[int, ...]
    """Index of each row in the list of samples that was packed."""
    lengths_B: npt.NDArray[np.int64]
    starts_B: npt.NDArray[np.int64]
    """Where the completion of each row begins."""
    episode_tokens_B: npt.NDArray[np.int64]
    """Sampled tokens of the whole episode a row belongs to, its other rows included."""

    def align(self, per_completion: Sequence[npt.ArrayLike]) -> npt.NDArray[np.float32]:
        """Spread one array per packed sample (one entry a completion token) over the batch: (B, T)."""
        out_BT = np.zeros(self.ids_BT.shape, np.float32)
        for row, index in enumerate(self.rows):
            values = np.asarray(per_completion[index], np.float32)
            start, end = self.starts_B[row], self.lengths_B[row]
            if values.shape != (end - start,):
                raise ValueError(f"sample {index}: {values.shape[0]} values for {end - start} tokens")
            out_BT[row, start:end] = values
        return out_BT


def informative(samples: Sequence[Sample], with_reference: bool = False) -> list[int]:
    """Indices of the samples that move the weights: advantage and weight not 0, something was sampled.

    `with_reference`: a divergence term also pulls on samples of zero advantage, so these stay. The caller
    counts the rest as dropped; they still count in the loss's denominators, so that dropping them saves time
    and changes nothing.
    """
    return [
        i
        for i, s in enumerate(samples)
        if (with_reference or s.advantage != 0.0) and s.weight != 0.0 and any(s.mask)
    ]


def check_sample(sample: Sample, index: int = 0) -> None:
    """Raise ValueError naming the sample if its token stream is not consistent.

    Completion ids, mask and log-probs have one length; the mask is 0 or 1; sampled tokens have a predecessor
    to be predicted from; log-probs are finite, <= 0 where sampled and 0.0 elsewhere; advantage and weight
    are finite.
    """
    where = f"sample {index} ({sample.role}{', ' + sample.group if sample.group else ''})"
    n = len(sample.completion_ids)
    if len(sample.mask) != n or len(sample.logprobs) != n:
        raise ValueError(
            f"{where}: {n} ids, {len(sample.mask)} mask entries, {len(sample.logprobs)} log-probs"
        )
    mask = np.asarray(sample.mask, np.int64)
    logprobs = np.asarray(sample.logprobs, np.float64)
    if not np.isin(mask, (0, 1)).all():
        raise ValueError(f"{where}: the mask has entries other than 0 and 1")
    if not sample.prompt_ids and n and mask[0]:
        raise ValueError(f"{where}: the first token of the stream cannot be a sampled one")
    if not np.isfinite(logprobs).all() or (logprobs > 1e-4).any():
        raise ValueError(f"{where}: log-probs must be finite and not positive")
    if (logprobs[mask == 0] != 0.0).any():
        raise ValueError(f"{where}: a token that was not sampled carries a log-prob")
    if not np.isfinite([sample.advantage, sample.weight]).all():
        raise ValueError(f"{where}: advantage and weight must be finite")


def episodes_of(samples: Sequence[Sample]) -> list[list[int]]:
    """Indices of the samples of each episode, in order of first appearance; a sample without id is one."""
    found: dict[str | int, list[int]] = {}
    for i, sample in enumerate(samples):
        found.setdefault(sample.episode or i, []).append(i)
    return list(found.values())


def by_role(samples: Sequence[Sample], rows: Sequence[int]) -> dict[str, list[int]]:
    """The sample indices `rows` by role, names sorted so that the order of samples does not matter."""
    found: dict[str, list[int]] = {}
    for i in rows:
        found.setdefault(samples[i].role, []).append(i)
    return dict(sorted(found.items()))


def count_episodes(samples: Sequence[Sample]) -> int:
    """Episodes with at least one sampled token: what losses that average over plays divide by."""
    return sum(any(any(samples[i].mask) for i in rows) for rows in episodes_of(samples))


def count_groups(samples: Sequence[Sample]) -> tuple[int, int]:
    """(groups, groups in which no sample has an advantage). A sample without a group is one."""
    groups: dict[str | int, bool] = {}
    for i, sample in enumerate(samples):
        groups[sample.group or i] = groups.get(sample.group or i, False) or sample.advantage != 0.0
    return len(groups), sum(not informative for informative in groups.values())


def mini_batches(samples: Sequence[Sample], count: int, rng: random.Random) -> list[list[int]]:
    """Sample indices shuffled into at most `count` parts of near-equal numbers of episodes, for each role.

    Episodes stay whole, every part has its share of every role, and no part is empty. One part keeps the
    order.
    """
    if count == 1:
        return [list(range(len(samples)))]
    parts: list[list[int]] = [[] for _ in range(count)]
    by_role: dict[str, list[list[int]]] = {}
    for rows in episodes_of(samples):
        by_role.setdefault(samples[rows[0]].role, []).append(rows)
    for _, episodes in sorted(by_role.items()):
        rng.shuffle(episodes)
        for k, part in enumerate(parts):
            low, high = (len(episodes) * (k + end) // count for end in (0, 1))
            part.extend(i for rows in episodes[low:high] for i in rows)
    return [sorted(part) for part in parts if part]


def micro_batches(
    samples: Sequence[Sample], max_tokens: int, pad_id: int, processes: int = 1
) -> list[PackedBatch]:
    """Sort by length (ties by position) and cut so that rows x longest row <= `max_tokens`.

    A sample longer than the budget gets a batch of its own. Same samples, same batches. Give all samples of
    an episode in one call. With several `processes` the batches are made smaller until each process gets as
    many and about as much. Raises ValueError on an inconsistent sample (see `check_sample`).
    """
    lengths, episode_tokens = _measured(samples)
    cuts = _cuts(lengths, max_tokens)
    if processes > 1 and cuts:
        cuts = _even_cuts(lengths, max_tokens, -(-len(cuts) // processes) * processes)
    return [_pack(samples, rows, pad_id, episode_tokens[rows]) for rows in cuts]


def dealt_batches(
    samples: Sequence[Sample], max_tokens: int, pad_id: int, rank: int, processes: int
) -> list[tuple[PackedBatch | None, int]]:
    """The batches of one of several processes, and the number of rows each must be filled up to.

    Sorted by length, rows are cut into rounds and dealt out one by one, so that in each round every process
    has as many rows (fewer only in the last: None or one row short) of about the same length, and at most
    `max_tokens` of them, padding included. Raises ValueError on an inconsistent sample (see `check_sample`).
    """
    lengths, episode_tokens = _measured(samples)
    order = sorted(range(len(samples)), key=lambda i: (lengths[i], i))
    rounds: list[list[int]] = []
    for start in range(0, len(order), processes):
        hand = order[start : start + processes]
        rows = 1 + (len(rounds[-1]) // processes if rounds else 0)
        if rounds and rows * lengths[hand[-1]] <= max_tokens:
            rounds[-1].extend(hand)
        else:
            rounds.append(hand)
    out: list[tuple[PackedBatch | None, int]] = []
    for one in rounds:
        mine = one[rank::processes]
        packed = _pack(samples, mine, pad_id, episode_tokens[mine]) if mine else None
        out.append((packed, -(-len(one) // processes)))
    return out


def _measured(samples: Sequence[Sample]) -> tuple[list[int], npt.NDArray[np.int64]]:
    """Lengths of the samples, and the sampled tokens of the episode each belongs to; all are checked."""
    for index, sample in enumerate(samples):
        check_sample(sample, index)
    episode_tokens = np.zeros(len(samples), np.int64)
    for rows in episodes_of(samples):
        episode_tokens[rows] = sum(sum(samples[i].mask) for i in rows)
    return [len(s.prompt_ids) + len(s.completion_ids) for s in samples], episode_tokens


def _cuts(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Positions in order of length, cut greedily into runs of at most `max_tokens` padded tokens."""
    cuts: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if cuts and (len(cuts[-1]) + 1) * lengths[i] <= max_tokens:
            cuts[-1].append(i)
        else:
            cuts.append([i])
    return cuts


def _even_cuts(lengths: Sequence[int], max_tokens: int, wanted: int) -> list[list[int]]:
    """`_cuts` with the smallest budget that needs no more than `wanted` runs."""
    low, high = 1, max_tokens
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if len(_cuts(lengths, middle)) <= wanted else (middle + 1, high)
    return _cuts(lengths, low)


def _pack(
    samples: Sequence[Sample], rows: list[int], pad_id: int, episode_tokens_B: npt.NDArray[np.int64]
) -> PackedBatch:
    chosen = [samples[i] for i in rows]
    starts_B = np.array([len(s.prompt_ids) for s in chosen], np.int64)
    lengths_B = starts_B + np.array([len(s.completion_ids) for s in chosen], np.int64)
    shape = (len(rows), int(lengths_B.max()))
    ids_BT = np.full(shape, pad_id, np.int64)
    mask_BT = np.zeros(shape, np.bool_)
    old_BT = np.zeros(shape, np.float32)
    for b, sample in enumerate(chosen):
        start, end = starts_B[b], lengths_B[b]
        ids_BT[b, :start] = sample.prompt_ids
        ids_BT[b, start:end] = sample.completion_ids
        mask_BT[b, start:end] = sample.mask
        old_BT[b, start:end] = sample.logprobs
    return PackedBatch(
        ids_BT=ids_BT,
        mask_BT=mask_BT,
        old_logprobs_BT=old_BT,
        advantages_B=np.array([s.advantage for s in chosen], np.float64),
        weights_B=np.array([s.weight for s in chosen], np.float64),
        roles=tuple(s.role for s in chosen),
        rows=tuple(rows),
        lengths_B=lengths_B,
        starts_B=starts_B,
        episode_tokens_B=episode_tokens_B,
    )


def token_weights(batch: PackedBatch, kind: str, n_episodes: int, n_tokens: int) -> npt.NDArray[np.float64]:
    """Weight of every sampled token in the loss, shape (B,): the loss is the weighted SUM over tokens.

    With w_i the sample's weight and n_i the sampled tokens of its episode (usually one sample; several where
    the chat template drops earlier thoughts), over ALL `n_episodes` episodes of the step, which hold
    `n_tokens` sampled tokens (those without advantage included):

    * grpo:      w_i / (n_i * n_episodes)             mean over tokens, then over episodes (Shao et al. 2024)
    * dapo:      w_i / n_tokens                       mean over tokens (Yu et al. 2025)
    * dr_grpo:   w_i / (DR_GRPO_LENGTH * n_episodes)  no division by the length (Liu et al. 2025)
    * gspo:      as grpo; the ratio is one number a sequence (Zheng et al. 2025)
    * reinforce: as dr_grpo: the log-probability of a whole episode, mean over episodes (Williams 1992)

    What is divided by are episodes really played: nothing is padded or duplicated to fill a batch. Raises
    `ConfigError` for an unknown kind.
    """
    if kind in ("grpo", "gspo"):
        tokens_B = np.maximum(batch.episode_tokens_B, 1)
        return np.asarray(batch.weights_B / (tokens_B * n_episodes), dtype=np.float64)
    if kind == "dapo":
        return np.asarray(batch.weights_B / n_tokens, dtype=np.float64)
    if kind in ("dr_grpo", "reinforce"):
        return np.asarray(batch.weights_B / (DR_GRPO_LENGTH * n_episodes), dtype=np.float64)
    raise ConfigError(f"learner.loss '{kind}' is unknown; choose one of {', '.join(LOSSES)}.")

"""The committed recipe of the embedded default model: corpus, tokenizer, pretraining, SFT, all from one seed.

`build(out)` takes about half an hour on one thread. Phase one trains on every token (documents,
programs, prompts and replies), the others on the assistant's tokens only. Until the last phase most episodes
are skilled, so that skill is learned early; the last phase shows the mixture that unhinted play is to have.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spade.embedded.mechanics import registry, sample_program, tool_registry
from spade.embedded.players import play
from spade.embedded.samples import Encoded, SampleMaker
from spade.embedded.tokenizer import CONTEXT, VOCABULARY, save_tokenizer, train_tokenizer


@dataclass(frozen=True)
class Recipe:
    """Every number of the build. Changing one changes the model card."""

    seed: int = 20
    hidden: int = 128
    layers: int = 5
    heads: int = 4
    feed_forward: int = 320
    pretrain_tokens: int = 1_000_000
    skill_tokens: int = 7_000_000
    sft_tokens: int = 5_000_000
    skill_expert: float = 0.75
    """Least share of expert episodes until the last phase, which sets how often skill is shown unasked."""
    batch_tokens: int = 1600
    lr: float = 2.5e-3
    lr_end: float = 0.03
    """Final learning rate as a share of `lr`."""
    warmup: int = 100
    sharpen: float = 1.25
    """Factor on the trained logits: sampling at temperature 0.8 made part of the weights."""
    vocabulary: int = VOCABULARY


def fast_bf16() -> bool:
    """Whether this processor multiplies bfloat16 in hardware (AVX512-BF16 or AMX)."""
    import torch

    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


Log = Callable[[str], None]
Keep = Callable[[str], None]
"""Told the name of every phase that ends: pretrain, skill, sft."""

NUMBER_COPIES = 300
"""Copies of each number in the tokenizer's texts: enough for 0 to 99 to become single tokens."""


def tokenizer_texts(rng: random.Random, documents: Sequence[str]) -> list[str]:
    """Texts the BPE is trained on: programs weigh most, so that their lines become single tokens."""
    texts = [str(i) for i in range(100) for _ in range(NUMBER_COPIES)] + list(documents) * 2
    for _ in range(6000):
        tools = rng.random() < 0.3
        sampled = sample_program(rng, tools=tools)
        texts.append(f"```python\n{sampled.code}```")
        for _ in range(3):
            game = play(sampled, rng, 0.5)
            texts += [game.first, *sampled.mechanic.hints]
            for action, reply in game.moves:
                texts += [action if tools else f"\\boxed{{{action}}}", reply]
    return texts


def new_model(recipe: Recipe) -> Any:
    """A randomly initialised Llama-architecture model of the recipe's shape (one key-value head)."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from spade.learn.attention import register

    torch.manual_seed(recipe.seed)
    config = LlamaConfig(
        vocab_size=recipe.vocabulary,
        hidden_size=recipe.hidden,
        intermediate_size=recipe.feed_forward,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=1,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    config._attn_implementation = register()
    return LlamaForCausalLM(config)


def batches(maker: SampleMaker, rng: random.Random, tokens: int, batch_tokens: int) -> Any:
    """Batches of similar length of about `batch_tokens`, until `tokens` have been drawn."""
    drawn = 0
    while drawn < tokens:
        pool = sorted((maker.draw() for _ in range(256)), key=lambda e: len(e.ids))
        groups: list[list[Encoded]] = [[]]
        for sample in pool:
            if groups[-1] and len(sample.ids) * (len(groups[-1]) + 1) > batch_tokens:
                groups.append([])
            groups[-1].append(sample)
        rng.shuffle(groups)
        for group in groups:
            drawn += sum(len(s.ids) for s in group)
            yield group, drawn


def loss_of(model: Any, group: Sequence[Encoded], every_token: bool) -> Any:
    """Mean cross-entropy of next tokens: all of them, or the masked ones only."""
    import torch
    from torch.nn import functional

    width = max(len(s.ids) for s in group)
    ids = torch.zeros(len(group), width, dtype=torch.long)
    mask = torch.zeros(len(group), width, dtype=torch.bool)
    for i, s in enumerate(group):
        ids[i, : len(s.ids)] = torch.tensor(s.ids)
        mask[i, : len(s.ids)] = True if every_token else torch.tensor(s.mask, dtype=torch.bool)
    mask[:, 0] = False
    hidden = model.model(input_ids=ids).last_hidden_state[:, :-1][mask[:, 1:]]
    return functional.cross_entropy(model.lm_head(hidden).float(), ids[:, 1:][mask[:, 1:]])


def train(model: Any, maker: SampleMaker, recipe: Recipe, log: Log, keep: Keep | None = None) -> None:
    """All phases under one optimiser and one schedule (warm-up, then linear decay over all tokens)."""
    import torch

    skilled = recipe.pretrain_tokens + recipe.skill_tokens
    total = skilled + recipe.sft_tokens
    ends = [("pretrain", recipe.pretrain_tokens), ("skill", skilled)]
    rng = random.Random(recipe.seed + 1)
    optimiser = torch.optim.AdamW(model.parameters(), lr=recipe.lr, betas=(0.9, 0.95), weight_decay=0.01)
    started, mean = time.time(), 0.0
    for step, (group, drawn) in enumerate(batches(maker, rng, total, recipe.batch_tokens), 1):
        while ends and drawn >= ends[0][1]:  # this batch is the first of the next phase
            name, _ = ends.pop(0)
            if keep is not None:
                keep(name)
        fraction = min(1.0, drawn / total)
        scale = min(1.0, step / recipe.warmup) * (1 - (1 - recipe.lr_end) * fraction)
        for row in optimiser.param_groups:
            row["lr"] = recipe.lr * scale
        maker.least_expert = recipe.skill_expert if drawn < skilled else 0.0
        with torch.autocast("cpu", torch.bfloat16, enabled=fast_bf16()):
            loss = loss_of(model, group, every_token=drawn < recipe.pretrain_tokens)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        mean = 0.98 * mean + 0.02 * float(loss.detach()) if step > 1 else float(loss.detach())
        if step % 200 == 0:
            rest = (time.time() - started) * (1 - fraction) / max(fraction, 1e-6)
            done = f"{drawn / 1e6:.2f}M of {total / 1e6:.1f}M tokens"
            log(f"step {step}  {done}  loss {mean:.3f}  left {rest / 60:.1f} min")
    if keep is not None:
        keep("sft")


def sharpen(model: Any, factor: float) -> None:
    """Multiply all logits by `factor` through the weight of the last norm.

    So small a model leaves a few per cent of its probability to tokens that make no sense, most of all where
    one of many lines may follow, and one of them spoils a program. What is sampled at temperature 1 (and
    trained on-policy there) loses that tail.
    """
    import torch

    with torch.no_grad():
        model.model.norm.weight.mul_(factor)


def builtin_documents() -> list[str]:
    """The shipped corpus texts."""
    from spade.design.corpus import Corpus

    return [d.text for d in Corpus.load("builtin").documents]


def build(
    out: Path, recipe: Recipe | None = None, log: Log = print, stages: Path | None = None
) -> dict[str, Any]:
    """Make the embedded model in `out` (a Hugging Face folder plus `recipe.json`); returns a summary.

    `stages`: keep the model as it was at the end of each phase, before `sharpen`, in `stages`/pretrain, skill
    and sft, for instance to look at them with `spade study entropy`.
    """
    import torch

    recipe = recipe or Recipe()
    torch.set_num_threads(1)
    started = time.time()
    documents = builtin_documents()
    tokenizer = train_tokenizer(tokenizer_texts(random.Random(recipe.seed), documents), recipe.vocabulary)
    model = new_model(recipe)
    mechanics = len(registry()) + len(tool_registry())
    log(f"{sum(p.numel() for p in model.parameters()):,} parameters, {mechanics} mechanics")

    def write(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        model.float().save_pretrained(str(folder), safe_serialization=True)
        save_tokenizer(tokenizer, folder)

    keep = None if stages is None else lambda name: write(stages / name)
    train(model, SampleMaker(tokenizer, documents, recipe.seed), recipe, log, keep)
    sharpen(model, recipe.sharpen)
    write(out)
    summary = {"recipe": asdict(recipe), "minutes": (time.time() - started) / 60}
    (out / "recipe.json").write_text(json.dumps(summary, indent=1) + "\n")
    return summary

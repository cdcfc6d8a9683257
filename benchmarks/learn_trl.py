"""One update by TRL's GRPOTrainer as its users write it: the loop `benchmarks/learn.py` compares with.

`GRPOTrainer` with only the method overridden that would generate and score. All rows of a step are padded to
the longest prompt and the longest completion of the step, shuffled, and cut into micro-batches of a fixed
number of rows, which is what the trainer does by itself. Everything else is TRL's default but for gradient
checkpointing, which is off, as in the other learner, since it costs a third more time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from trl import GRPOConfig, GRPOTrainer

from spade.types import Sample

PAD = 2


def batch_of(samples: Sequence[Sample]) -> dict[str, Any]:
    """What `_generate_and_score_completions` returns for these rows."""
    prompts = max(len(s.prompt_ids) for s in samples)
    completions = max(len(s.completion_ids) for s in samples)
    found: dict[str, Any] = {
        "prompt_ids": torch.full((len(samples), prompts), PAD),
        "prompt_mask": torch.zeros(len(samples), prompts, dtype=torch.long),
        "completion_ids": torch.full((len(samples), completions), PAD),
        "completion_mask": torch.zeros(len(samples), completions, dtype=torch.long),
        "tool_mask": torch.zeros(len(samples), completions),
    }
    for b, s in enumerate(samples):
        p, c = len(s.prompt_ids), len(s.completion_ids)
        found["prompt_ids"][b, prompts - p :] = torch.tensor(s.prompt_ids)
        found["prompt_mask"][b, prompts - p :] = 1
        found["completion_ids"][b, :c] = torch.tensor(s.completion_ids)
        found["completion_mask"][b, :c] = 1
        found["tool_mask"][b, :c] = torch.tensor(s.mask, dtype=torch.float32)
    found["advantages"] = torch.tensor([s.advantage for s in samples])
    found["num_items_in_batch"] = found["tool_mask"].sum()
    return found


class PlainTrainer(GRPOTrainer):  # type: ignore[misc]
    """Trains on the same samples in every step; notes wall and CPU seconds of each."""

    samples: Sequence[Sample]

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        self.began = time.perf_counter(), time.process_time()
        return batch_of(self.samples)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        began = getattr(self, "began", None)
        if began is not None and "grad_norm" in logs:
            self.spent.append((time.perf_counter() - began[0], time.process_time() - began[1]))
        self._metrics["train"].clear()

    def _send_telemetry(self) -> None:
        """A benchmark tells nobody."""


def trl_seconds(
    folder: Path, samples: Sequence[Sample], steps: int, bf16: bool, rows: int
) -> tuple[float, float]:
    """Least wall and CPU seconds of one of `steps` updates, from the batch to the optimiser's step."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, PrinterCallback

    from spade.learn.trl_open import quiet

    cuts = len(samples) // rows
    args = GRPOConfig(
        output_dir=str(folder / "trl"),
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=cuts,
        num_generations=rows,
        max_steps=steps,
        learning_rate=3e-4,
        lr_scheduler_type="constant",
        bf16=bf16,
        use_cpu=True,
        gradient_checkpointing=False,
        dataloader_pin_memory=False,
        report_to="none",
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
    )
    with quiet():
        trainer = PlainTrainer(
            model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
            reward_funcs=[reward],
            args=args,
            train_dataset=Dataset.from_dict({"prompt": ["-"] * (cuts * steps)}),
            processing_class=tokenizer(),
        )
        trainer.samples, trainer.spent = samples[: cuts * rows], []
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return min(wall for wall, _ in trainer.spent), min(cpu for _, cpu in trainer.spent)


def reward(**kwargs: Any) -> list[float]:
    raise AssertionError("samples come with their advantage")


def tokenizer() -> Any:
    """TRL wants one; it is asked for its padding token only."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(8)}, unk_token="t0"))
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token="t1", pad_token="t2")

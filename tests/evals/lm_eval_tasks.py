"""Task definitions for lm-evaluation-harness with data of their own, one of each kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

WORDS = [
    "a", "guess", "lamp", "door", "number", "grid", "reach", "move", "left", "right", "up", "down", "seed",
    "box", "try", "one", "two", "three",
]  # fmt: skip


def write_tasks(folder: Path, count: int = 6) -> Path:
    """`t_sums` (generated text), `t_choice`, `t_last` (log-likelihoods), `t_text` (perplexity) and a group of
    the first two, `t_all`. The data is cached below `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    sums = [{"q": f"Add {i} and {i + 1}.", "a": str(2 * i + 1)} for i in range(count)]
    pick = [{"q": f"Is {i} even?", "options": ["yes", "no", "a lamp"], "right": i % 2} for i in range(count)]
    words = [" ".join(WORDS[(i * k) % len(WORDS)] for k in range(3 + 40 * i)) for i in range(count)]
    _task(
        folder, "t_sums", sums, output_type="generate_until", doc_to_text="{{q}}", doc_to_target="{{a}}",
        generation_kwargs={"until": ["\n\n"], "max_gen_toks": 12, "do_sample": False},
        filter_list=[
            {
                "name": "boxed",
                "filter": [
                    {"function": "regex", "regex_pattern": r"\\boxed\{(-?\d+)\}", "group_select": -1},
                    {"function": "take_first"},
                ],
            }
        ],
        metric_list=[{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    )  # fmt: skip
    _task(
        folder, "t_choice", pick, output_type="multiple_choice", doc_to_text="{{q}}",
        doc_to_target="{{right}}", doc_to_choice="{{options}}", num_fewshot=1, fewshot_split="test",
        metric_list=[{"metric": "acc"}, {"metric": "acc_norm"}],
    )  # fmt: skip
    _task(
        folder, "t_last", [{"q": text, "a": "box"} for text in words[:3]], output_type="loglikelihood",
        doc_to_text="{{q}}", doc_to_target=" {{a}}",
        metric_list=[{"metric": "perplexity"}, {"metric": "acc"}],
    )  # fmt: skip
    _task(
        folder, "t_text", [{"q": text} for text in words], output_type="loglikelihood_rolling",
        doc_to_text="", doc_to_target="{{q}}", metric_list=[{"metric": "word_perplexity"}],
    )  # fmt: skip
    (folder / "t_all.yaml").write_text("group: t_all\ntask: [t_sums, t_choice]\n")
    return folder


def _task(folder: Path, name: str, rows: list[dict[str, Any]], **definition: Any) -> None:
    data = folder / f"{name}.json"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tree = {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}, "cache_dir": str(folder / "cache")},
        "test_split": "test",
        "metadata": {"version": 1},
        **definition,
    }
    (folder / f"{name}.yaml").write_text(json.dumps(tree))  # JSON is YAML

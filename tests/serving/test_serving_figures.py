"""The benchmarks of the serving layer: what they ask, what they compare with, and that they run."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from benchmarks import gpu, idle, scaling, serving, serving_limits, serving_work

from . import tiny


class Counting:
    """Answers with the ids 100, 101, ... and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[list[int]], list[int]]] = []

    def generate(self, prompts: Sequence[list[int]], counts: Sequence[int]) -> list[list[int]]:
        self.asked.append((list(prompts), list(counts)))
        return [list(range(100, 100 + n)) for n in counts]


def test_episodes_are_conversations_that_grow() -> None:
    engine = Counting()
    work = {"kind": "episodes", "environments": 2, "turns": 8, "prompt": 40, "vocab": 300}
    got = serving_work.timed(engine, work, 5)
    assert len(engine.asked) == 8 and all(len(prompts) == 32 for prompts, _ in engine.asked)
    assert got["tokens"] == sum(sum(counts) for _, counts in engine.asked)
    first = engine.asked[0][0]
    assert all(p[:40] == first[0][:40] for p in first[:16]) and first[16][:40] != first[0][:40]
    assert len({tuple(p) for p in first}) == 32
    for (before, counts), (after, _) in zip(engine.asked, engine.asked[1:], strict=False):
        for old, n, new in zip(before, counts, after, strict=True):
            assert new[: len(old) + n] == [*old, *range(100, 100 + n)] and len(new) == len(old) + n + 16
    again = Counting()
    serving_work.timed(again, work, 5)
    assert again.asked == engine.asked


def test_limits_know_the_model(llama: tuple[Path, Any]) -> None:
    folder, model = llama
    shape = serving_limits.shape_of(folder)
    norms = sum(p.numel() for n, p in model.named_parameters() if "norm" in n)
    assert shape.weights == sum(p.numel() for p in model.parameters()) - norms
    limits = serving_limits.Limits(shape, 4, 1e9, 1e9)
    read_bound, compute_bound = limits.pass_seconds(1, 0, 1), limits.pass_seconds(64, 0, 64)
    assert read_bound == pytest.approx(4 * shape.weights / 1e9)
    assert compute_bound == pytest.approx(128 * shape.weights / 1e9)
    batch = {"kind": "batch", "rows": 2, "prompt": 8, "new": 3}
    assert limits.seconds(batch) > 3 * read_bound
    assert limits.seconds({"kind": "episodes"}) is None


def test_the_gguf_file_is_the_model(llama: tuple[Path, Any], tmp_path: Path) -> None:
    """Query and key rows are interleaved; nothing else changes."""
    import gguf

    folder, model = llama
    tensors = {
        t.name: t for t in gguf.GGUFReader(serving_limits.write_gguf(folder, tmp_path, "float32")).tensors
    }
    state = model.state_dict()
    assert len(tensors) == 2 + 9 * model.config.num_hidden_layers
    head = model.config.hidden_size // model.config.num_attention_heads
    query = np.asarray(tensors["blk.1.attn_q.weight"].data)
    want = state["model.layers.1.self_attn.q_proj.weight"].numpy()
    for row in range(head // 2):  # llama.cpp turns neighbours, the checkpoint turns halves
        assert (query[2 * row] == want[row]).all() and (query[2 * row + 1] == want[row + head // 2]).all()
    down = np.asarray(tensors["blk.0.ffn_down.weight"].data)
    assert (down == state["model.layers.0.mlp.down_proj.weight"].numpy()).all()


def test_idle_time_is_what_no_span_covers() -> None:
    class Work:
        def do(self, seconds: float) -> None:
            time.sleep(seconds)

    spans = idle.Spans()
    spans.watch(Work, "do", "work")
    Work().do(0.01)
    assert len(spans.spans) == 1 and spans.wall["work"] >= 0.01
    spans.spans = [(5.0, 6.0), (0.0, 2.0), (1.0, 3.0), (1.5, 1.6)]
    assert spans.whole() == pytest.approx(6.0)
    assert spans.gaps() == [(3.0, 5.0, "between")]
    # design [1, 4) holds hints [3.5, 3.75): the stage that began last is what an idle second is put down to
    spans.stages = [(3.5, 3.75, "hints"), (1.0, 4.0, "design")]
    told = idle.idleness(spans)
    assert told["idle_by_stage"] == {"between": 1.0, "design": 0.75, "hints": 0.25}
    assert told["idle_share"] == pytest.approx(2 / 6, abs=1e-4)
    assert told["longest_gaps"][0] == {"at": 4.0, "seconds": 1.0, "stage": "between"}
    assert sum(gap["seconds"] for gap in told["longest_gaps"]) == pytest.approx(2.0)


def test_stages_are_noted_with_their_names() -> None:
    class Ledger:
        @contextmanager
        def phase(self, name: str) -> Iterator[str]:
            yield name

    spans = idle.Spans()
    spans.watch_stages(Ledger)
    with pytest.raises(KeyError), Ledger().phase("design"), Ledger().phase("hints"):
        raise KeyError
    assert [name for _, _, name in spans.stages] == ["hints", "design"]
    (inner, inner_end, _), (outer, outer_end, _) = spans.stages
    assert outer <= inner <= inner_end <= outer_end


def test_the_cost_curves_are_measured(tmp_path: Path) -> None:
    tiny.write_model(tmp_path, max_position_embeddings=2048)
    bench = scaling.Bench(tmp_path, 32, 1)
    points = [bench.point(series, n) for series in ("rows", "turns", "environments") for n in (1, 2)]
    sampled = [p.sampled for p in points]
    assert sampled == [32, 64, 16 * 8, 2 * 16 * 8, 4 * 16 * 8, 2 * 4 * 16 * 8]
    scaling.linearity(points)
    assert [p.linear for p in points[::2]] == [1.0, 1.0, 1.0]
    # Sixteen episodes compute their common beginning once, and no turn computes what was seen before.
    assert points[2].prefilled == 100 + 16 * 12
    assert points[3].prefilled == points[2].prefilled + 16 * (1 + 16)
    scaling.plot(points, tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").stat().st_size > 1000
    assert len(scaling.table(points).splitlines()) == 2 + len(points)


def test_the_gpu_script_runs_at_a_tiny_shape() -> None:
    bench = gpu.Bench("tiny", "cpu", time.perf_counter() + 60)
    bench.run()
    what = [row["what"] for row in bench.rows]
    assert what == ["matrix product", "rollout, 8 rows", "update, 2 rows"]
    assert all(row["value"] > 0 for row in bench.rows) and bench.rows[2]["mfu"] > 0
    late = gpu.Bench("tiny", "cpu", time.perf_counter() - 1)
    late.run()
    assert [row["what"] for row in late.rows] == ["matrix product"]  # nothing begins after the limit


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here: the script would measure")
def test_without_a_gpu_the_script_says_what_it_would_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu.py"])
    assert gpu.main() == 0
    assert "No CUDA device" in capsys.readouterr().out


def test_the_report_marks_bars() -> None:
    good = serving.Figure("vllm", "batch 32", tokens=100, cpu=2.0, wall=2.0, bar=0.9, ratio=0.95)
    bad = serving.Figure("llama.cpp", "batch 32", tokens=100, cpu=1.0, wall=2.0, bar=1.0, ratio=0.5)
    lost = serving.Figure("transformers", "batch 32", error="RuntimeError: no")
    lines = serving.markdown([good, bad, lost]).splitlines()
    assert ">= 0.9 met" in lines[2] and ">= 1.0 missed" in lines[3] and "failed: RuntimeError" in lines[4]

"""Experiment R1 on a generated Hugging Face checkpoint: targets by brute force, training, resume, report."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spade.cli.main import main
from spade.errors import BackendError, InputError
from spade.files import read_json, read_jsonl
from spade.study import real_cells
from spade.study.quotes import QUOTES, Candidate, candidates, pick_targets, read_quotes
from spade.study.real import BUDGET, RealCell, cell_key, real_from
from spade.study.report import verify
from spade.study.verdicts import NOT, OPEN, REPRODUCED, Run, judge

WORDS = [f"w{i}" for i in range(40)]
PROMPT = "w1 w2 w3"
TEMPLATE = (
    "{% for m in messages %}<s> {{ m.content }} <e> {% endfor %}{% if add_generation_prompt %}<s> {% endif %}"
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of a few thousand weights with a tokenizer of one token a word."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("real") / "tiny-llama"
    names = ["<pad>", "<s>", "<e>", *WORDS]
    core = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<pad>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<e>", pad_token="<pad>", additional_special_tokens=["<s>"]
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=len(names), hidden_size=32, intermediate_size=48, num_hidden_layers=2, pad_token_id=0,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.15,
        bos_token_id=1, eos_token_id=2, tie_word_embeddings=True,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def quotes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty texts of seven words."""
    rng = np.random.default_rng(5)
    lines = [" ".join(rng.choice(WORDS, 7)) for _ in range(20)]
    path = tmp_path_factory.mktemp("quotes") / "quotes.txt"
    path.write_text("\n".join(["", *lines, lines[0], ""]))
    return path


def study(*words: object) -> int:
    return main(["study", *map(str, words)])


def slow_priors(folder: Path, prompt: str, texts: list[str], heat: float) -> dict[str, float]:
    """Prior of every opening of two words and more, one plain forward pass each."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    before = tokenizer(prompt)["input_ids"]
    found: dict[str, float] = {}
    for text in texts:
        for count in range(2, len(text.split()) + 1):
            opening = " ".join(text.split()[:count])
            after = tokenizer(opening)["input_ids"]
            with torch.no_grad():
                logits = model(torch.tensor([[*before, *after]])).logits[0].double()
            logp = torch.log_softmax(logits / heat, -1)
            places = range(len(before) - 1, len(before) + len(after) - 1)
            found[opening] = math.exp(sum(float(logp[i, t]) for i, t in zip(places, after, strict=True)))
    return found


@pytest.mark.parametrize("heat", [1.0, 0.7])
def test_preflight_chooses_the_targets_that_brute_force_finds(
    heat: float, checkpoint: Path, quotes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("preflight", "--ckpt", checkpoint, "--task", "quote", "--quotes", quotes, "--prompt", PROMPT)
    assert study(*words, "--temperature", heat, "--budget", 4096, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    texts = list(dict.fromkeys(quotes.read_text().split("\n")))
    slow = slow_priors(checkpoint, PROMPT, [t for t in texts if t], heat)
    assert found["candidates"] == len(slow)
    for name, (low, high) in {"seen": (1e-3, 1e-1), "unseen": (0.0, 1e-6)}.items():
        target = found["targets"][name]
        assert target["p0"] == pytest.approx(slow[target["text"]], rel=1e-4)
        assert low <= target["p0"] <= high and target["tokens"] == len(target["text"].split())
        assert found["lambda"][name] == pytest.approx(4096 * target["p0"])
    size = {text: len(text.split()) for text in slow}
    longest = max(size[t] for t, p in slow.items() if 1e-3 <= p <= 1e-1)
    assert size[found["targets"]["seen"]["text"]] == longest
    nearest = min(abs(size[t] - longest) for t, p in slow.items() if p < 1e-6)
    likeliest = max(p for t, p in slow.items() if p < 1e-6 and abs(size[t] - longest) == nearest)
    assert found["targets"]["unseen"]["p0"] == pytest.approx(likeliest, rel=1e-4)


def test_two_steps_run_are_recorded_and_not_run_again(
    checkpoint: Path, quotes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    options = ("--ckpt", checkpoint, "--quotes", quotes, "--prompt", PROMPT, "--out", out, "--lr", 1e-3)
    words = ("run", "R1", "--preset", "smoke", "--rollouts", 32, "--group", 16, *options, "--json")
    assert study(*words, "--keep-weights") == 0
    value = json.loads(capsys.readouterr().out)
    assert value["cells"] == value["finished"] == 4 and value["already"] == 0
    assert value["verdicts"]["R1"]["verdict"] == OPEN, "64 rollouts decide nothing"
    records = [read_json(p, "cell") for p in sorted(out.glob("cells/*/cell.json"))]
    by_arm = {(r["cell"]["prior"], r["cell"]["reward"]): r for r in records}
    assert len(by_arm) == 4
    for record in records:
        summary, cell = record["summary"], record["cell"]
        rows = read_jsonl(out / "cells" / record["key"] / "log.jsonl")
        assert [r["step"] for r in rows] == [0, 1, 2] and cell["model"] == "tiny-llama"
        assert rows[0]["KL"] == 0 and rows[0]["mass"] == pytest.approx(summary["p0"])
        assert rows[-1]["groups"] == 4 and summary["lambda"] == pytest.approx(64 * summary["p0"])
        assert all(0 < r["H_seq"] < len(cell["target"].split()) * math.log(43) for r in rows)
        places = [rows[0][f"H_tok/{i + 1}"] for i in range(len(cell["target"].split()))]
        assert sum(places) == pytest.approx(rows[0]["H_seq"], rel=1e-4)
    silent = by_arm["unseen", "exact"]["summary"]
    assert silent["hits"] == silent["end"]["KL"] == 0 and silent["silent_groups"] == 4
    graded = by_arm["unseen", "partial"]["summary"]
    assert graded["end"]["KL"] > 0 and graded["end"]["mass"] > graded["start"]["mass"]
    final = out / "cells" / by_arm["unseen", "partial"]["key"] / "model"
    target = by_arm["unseen", "partial"]["cell"]["target"]
    assert slow_priors_of(final, target) == pytest.approx(graded["end"]["mass"], rel=1e-3)
    before = {p: p.stat().st_mtime_ns for p in out.glob("cells/*/cell.json")}
    assert study(*words, "--resume") == 0
    assert '"already": 4' in capsys.readouterr().out
    assert before == {p: p.stat().st_mtime_ns for p in out.glob("cells/*/cell.json")}
    assert verify(out) == []
    assert all((out / "figures" / f"R1-real.{kind}").is_file() for kind in ("png", "svg"))
    report = (out / "report.md").read_text()
    assert all(t in report for t in ("T1 on a real model", "T3 on a real model", "Entropy and divergence"))
    changed = sorted(out.glob("cells/*/log.jsonl"))[0]
    changed.write_text(changed.read_text() + "{}\n")
    assert len(verify(out)) == 1


def slow_priors_of(folder: Path, text: str) -> float:
    """As `slow_priors`, of one text; a trained folder holds no tokenizer, so words are numbered here."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    before, after = ([3 + WORDS.index(w) for w in t.split()] for t in (PROMPT, text))
    with torch.no_grad():
        logp = torch.log_softmax(model(torch.tensor([[*before, *after]])).logits[0].double(), -1)
    return math.exp(sum(float(logp[len(before) - 1 + i, t]) for i, t in enumerate(after)))


def test_the_same_cell_repeats_bit_for_bit(checkpoint: Path, quotes: Path, tmp_path: Path) -> None:
    options = ("--ckpt", checkpoint, "--quotes", quotes, "--prompt", PROMPT, "--lr", 1e-3, "--no-report")
    logs = []
    for name in ("a", "b"):
        assert study("run", "R1", "--preset", "smoke", *options, "--out", tmp_path / name) == 0
        rows = [read_jsonl(p) for p in sorted((tmp_path / name).glob("cells/*/log.jsonl"))]
        logs.append([[{k: v for k, v in r.items() if k != "seconds"} for r in log] for log in rows])
    assert logs[0] == logs[1] and len(logs[0]) == 4


def test_a_cell_that_fails_leaves_the_others_and_is_made_later(
    checkpoint: Path,
    quotes: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = real_cells.run_real_cell

    def failing(world: Any, cell: RealCell, *rest: Any) -> dict[str, Any]:
        if (cell.prior, cell.reward) == ("unseen", "partial"):
            raise BackendError("no memory left")
        return whole(world, cell, *rest)

    options = ("--ckpt", checkpoint, "--quotes", quotes, "--prompt", PROMPT, "--out", tmp_path / "out")
    words = ("run", "R1", "--preset", "smoke", *options, "--no-report", "--json")
    monkeypatch.setattr(real_cells, "run_real_cell", failing)
    assert study(*words) != 0
    said = (
        "1 of 4 cells of R1 failed, the first with: unseen, partial, seed 0: no memory left; 3 are finished"
    )
    assert said in capsys.readouterr().err
    monkeypatch.undo()
    assert study(*words) == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["already"], value["finished"]) == (3, 4)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--quotes {few}", "none of 2 candidate quotations has a prior"),
        ("--quotes {none}", "cannot be read"),
        ("--group 5", "cannot be compared in groups of 5"),
        ("--rollouts 1", "cannot be compared in groups of 1"),
        ("--lr -1", "a learning rate of -1"),
        ("--temperature 0", "a temperature of 0"),
        ("--preset huge", "R1 has no preset 'huge'"),
        ("--resume", "no study to resume"),
        ("E1", "R1 runs by itself"),
        ("--prompt {long}", "more than the context of 64"),
    ],
)
def test_what_cannot_be_run_is_said_in_one_sentence(
    words: str, said: str, checkpoint: Path, quotes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = tmp_path / "few.txt"
    few.write_text("w5 w6 w7\n")
    filled = [w.format(few=few, none=tmp_path / "none", long="LONG") for w in words.split()]
    given = ["w1 " * 62 if w == "LONG" else w for w in filled]
    usual = ["--quotes", str(quotes)] if "--quotes" not in given else []
    prompt = ["--prompt", PROMPT] if "--prompt" not in given else []
    out = tmp_path / "out"
    assert study("run", "R1", "--ckpt", checkpoint, "--out", out, *usual, *prompt, *given) == 2
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error and not out.exists()


def test_r1_and_a_checkpoint_belong_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert study("run", "R1") == 2 and "R1 needs a checkpoint" in capsys.readouterr().err
    assert study("run", "E1", "--ckpt", "embedded") == 2 and "--ckpt belongs to R1" in capsys.readouterr().err
    assert study("run", "E1", "--steps", 3) == 2 and "--steps belongs to R1" in capsys.readouterr().err


def test_openings_that_tokenise_otherwise_are_left_out() -> None:
    def encode(text: str) -> list[int]:  # "a b" alone is another token than at the beginning of a text
        return [99] if text == "a b" else [ord(c) for c in text if c != " "]

    def score(rows: Any) -> list[np.ndarray]:
        return [np.log(np.full(len(row), 0.1)) for row in rows]

    found = {c.text: c for c in candidates(["a b c", "d", "d", "a b d"], encode, score)}
    assert set(found) == {"a b c", "d", "a b d"}
    assert found["a b c"].prior == pytest.approx(1e-3) and found["d"].ids == (100,)


def test_of_candidates_the_longest_seen_and_the_nearest_unseen_are_taken() -> None:
    made = [
        Candidate("short", (1, 2), 1e-2), Candidate("long", (1, 2, 3), 1.5e-3),
        Candidate("mid", (4, 5, 6), 5e-3), Candidate("rare", (7, 8), 9e-7),
        Candidate("rarer", (7, 8, 9), 1e-9), Candidate("rarest", (7, 8, 1), 1e-12),
        Candidate("never", (1, 1, 1), 0.0), Candidate("common", (1, 1, 1, 1), 0.5),
    ]  # fmt: skip
    assert {k: c.text for k, c in pick_targets(made).items()} == {"seen": "mid", "unseen": "rarer"}
    with pytest.raises(InputError, match=r"prior from 0.001 to 0.1 under this model"):
        pick_targets(made[3:])
    with pytest.raises(InputError, match=r"below 1e-06"):
        pick_targets(made[:3])


def test_the_shipped_quotations_differ() -> None:
    assert len(QUOTES) == len(set(QUOTES)) >= 50 and read_quotes(None) == QUOTES
    assert all(len(q.split()) >= 3 and q == " ".join(q.split()) for q in QUOTES)


def test_a_cell_is_named_by_all_settings_but_the_models_name() -> None:
    cell = RealCell("name", "0" * 12, "prompt", False, "seen", "text")
    settings = {f: getattr(cell, f) for f in RealCell.__slots__}
    assert real_from(settings) == cell and cell_key(settings) == cell.key
    assert real_from({**settings, "model": "other"}).key == cell.key
    for name, value in {"weights": "1", "target": "t", "reward": "lev", "seed": 1, "lr": 1e-4}.items():
        assert real_from({**settings, name: value}).key != cell.key
    with pytest.raises(InputError, match="no reward 'step'"):
        real_from({**settings, "reward": "step"})
    with pytest.raises(InputError, match="no setting of R1"):
        real_from({**settings, "colour": "red"})


def run_of(prior: str, reward: str, mass: float, **more: Any) -> Run:
    summary: dict[str, Any] = {
        "success": mass >= 0.5, "p0": 1e-8 if prior == "unseen" else 5e-3, "rewarded": 0, "budget": BUDGET,
        "end": {"mass": mass, "KL": 0.0}, **more,
    }  # fmt: skip
    return Run({"prior": prior, "reward": reward}, 0, 0, summary, "finished")


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (lambda arms: arms, REPRODUCED),
        (lambda arms: {**arms, "seen exact": {"mass": 0.1}}, NOT),
        (lambda arms: {**arms, "unseen exact": {"mass": 0.9}}, NOT),
        (lambda arms: {**arms, "unseen exact": {"mass": 0.0, "end": {"mass": 0.0, "KL": 0.1}}}, NOT),
        (lambda arms: {**arms, "unseen partial": {"mass": 0.2}}, NOT),
        (lambda arms: {k: v for k, v in arms.items() if k != "unseen partial"}, OPEN),
        (lambda arms: {**arms, "seen partial": {"mass": 0.9, "budget": 64}}, OPEN),
        (lambda arms: {**arms, "unseen partial": {"mass": 0.7, "p0": 2e-6}}, OPEN),
    ],
)
def test_the_rule_of_r1(change: Callable[[dict[str, Any]], dict[str, Any]], verdict: str) -> None:
    arms: dict[str, Any] = {
        "unseen exact": {"mass": 0.0}, "seen exact": {"mass": 0.9}, "unseen partial": {"mass": 0.7},
        "seen partial": {"mass": 0.9},
    }  # fmt: skip
    runs = [run_of(name.split()[0], name.split()[1], **given) for name, given in change(arms).items()]
    found = judge("R1", runs, len(runs))
    assert found is not None and found.verdict == verdict

"""The verbs, as a user types them; the smoke preset is the main one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from spade.cli.main import main
from spade.files import read_json
from spade.study.families import open_family
from spade.study.lm import load_lm
from spade.study.measure import right_mass
from spade.study.report import verify
from spade.study.stages import FIXTURE

PRIORS = ("1e-5", "1e-4", "1e-3", "1e-2", "3e-2")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(["study", *words])
    return code, capsys.readouterr().out


@pytest.mark.slow
def test_the_smoke_preset_runs_reports_and_verifies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "study"
    code, text = run(capsys, "run", "--preset", "smoke", "--out", str(out), "--jobs", "1", "--json")
    assert code == 0
    value = json.loads(text)
    assert value["cells"] == value["finished"] == 5 and set(value["verdicts"]) == {"E1", "E3", "E5", "E13"}
    cells = [read_json(path, "cell") for path in out.glob("cells/*/cell.json")]
    sparse = [c for c in cells if (c["cell"]["kind"], c["cell"]["reward"]) == ("rl", "exact")]
    records = {tuple(c["cell"]["chain"]): c["summary"] for c in sparse}
    assert records[()]["hits"] == 0 and records[()]["end"]["KL"] == 0
    assert records[()]["silent_groups"] == records[()]["groups"]
    assert records[("dial=1e-2",)]["hits"] > 0 and records[("dial=1e-2",)]["end"]["KL"] > 0
    assert verify(out) == []
    published = tmp_path / "published"
    (published / "other").mkdir(parents=True)
    words = ("run", "--preset", "smoke", "--out", str(out), "--jobs", "1", "--publish", str(published))
    value = json.loads(run(capsys, *words, "--resume", "--json")[1])
    assert value["already"] == value["published"] == 5
    assert run(capsys, "verify", str(out))[0] == 0 == len(verify(published))
    assert (published / "report.md").read_text().count("Verdict:") == 4
    assert run(capsys, *words)[0] == 2  # it holds a study now


def test_a_dry_run_prints_minutes_and_runs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "study"
    code, text = run(capsys, "run", "E1", "E12", "--preset", "quick", "--out", str(out), "--dry-run")
    assert code == 0 and "E1: 25 cells, about" in text and "E12: 9 cells" in text and not out.exists()
    assert main(["study", "run", "E1", "--out", str(out), "--resume"]) == 2
    assert main(["study", "run", "--preset", "huge", "--out", str(out)]) == 2


def test_list_names_every_experiment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(capsys, "list", "--out", str(tmp_path))
    assert code == 0 and all(f"E{i} " in text for i in range(1, 14)) and "quick*" in text
    assert "R1 " in text and "full 20 cells; needs --ckpt" in text


@pytest.mark.parametrize(("prior", "advice"), [("never", "no signal"), ("1e-2", "go")])
def test_preflight_on_shipped_priors(prior: str, advice: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(capsys, "preflight", "--ckpt", prior, "--task", "rules", "--json")
    found = json.loads(text)
    assert code == 0 and found["advice"] == advice
    assert found["by_temperature"]["0.4"] < found["p0"] == found["by_temperature"]["1"]
    low, high = 0.5 * found["p0"] * found["sampled"], 2 * found["p0"] * found["sampled"] + 3
    assert low - 3 <= found["sampled_hits"] <= high


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("preflight --ckpt 1e-2 --task rules --temperature 0", "a temperature of 0 cannot be sampled at"),
        ("preflight --ckpt 1e-2 --task rules --n -1", "--n -1 samples"),
        ("preflight --ckpt 1e-2 --task rules:some", "no task family 'rules:some'"),
        ("preflight --ckpt 1e-2 --task strategy:x", "each 0 to 1"),
        ("preflight --ckpt 7e-2 --task rules", "no study model '7e-2'"),
        ("prior --ckpt 1e-2 --target none.jsonl --temperature 1,-1", "a temperature of -1"),
        ("entropy --ckpt 1e-2 --temperature nan", "a temperature of nan"),
        ("dial --ckpt trunk --method raw --rho 0.5 --out {out}", "no number of steps"),
        ("dial --ckpt trunk --rho 2 --out {out}", "no share"),
        ("verify {out}", "no study plan"),
        ("report --run {out}", "no rows of the lens"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(
    words: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", *words.format(out=tmp_path / "none").split()]) == 2
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error


def test_lambda_predicts_the_hits_of_the_first_batches(shipped: Callable[..., Path]) -> None:
    from dataclasses import replace

    from spade.study.rl import RLRun
    from spade.study.settings import RLSettings

    settings = RLSettings(lr=0.0, steps=12, batch=64)
    model = load_lm(shipped("dial=1e-2"))
    training = RLRun(model, open_family("rules"), replace(settings))
    expected = training.expected_hits()
    seen = sum(training.step().hits for _ in range(settings.steps))
    assert expected / 2 < seen < expected * 2


def test_the_fixture_is_one_trunk_and_five_dialled_priors(shipped: Callable[..., Path]) -> None:
    assert len(list(FIXTURE.glob("*/config.json"))) == 1 + len(PRIORS)
    assert sum(f.stat().st_size for f in FIXTURE.rglob("*") if f.is_file()) < 6_000_000
    trunk = read_json(shipped() / "stage.json", "stage")["measured"]
    assert trunk["domains_min"] >= 0.995 and trunk["mass"] < 1e-5
    family, last = open_family("rules"), 0.0
    pool = family.prompts("?", "train", 1000)
    for prior in PRIORS:
        folder = shipped(f"dial={prior}")
        measured = read_json(folder / "stage.json", "stage")["measured"]
        # dialled on training prompts, over which lambda is summed; held-out prompts have a heavier tail
        assert float(right_mass(load_lm(folder), family, pool, 1.0).mean()) == pytest.approx(
            float(prior), rel=0.05
        )
        assert float(prior) / 1.5 < measured["mass"] < float(prior) * 6
        assert measured["domains_min"] >= 0.995 and measured["outside"] < 0.1
        assert measured["off_grammar"] < 1e-3 and measured["mass"] > last
        last = measured["mass"]


def test_prior_of_a_study_model_equals_enumeration_at_every_temperature(
    tmp_path: Path, shipped: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    import numpy as np

    from spade.study.exact import response_logprobs
    from spade.study.hf import _study_prompts
    from spade.study.measure import Probes
    from spade.study.vocabulary import VOCAB, encode

    folder, prompts = shipped("dial=1e-2"), _study_prompts()
    target = tmp_path / "targets.jsonl"
    target.write_text("".join(json.dumps({"prompt": p.text, "targets": p.targets}) + "\n" for p in prompts))
    words = ("prior", "--ckpt", str(folder), "--target", str(target), "--temperature", "1.0,0.7")
    code, text = run(capsys, *words, "--json")
    assert code == 0
    model, probes = load_lm(folder), Probes.of(open_family("rules"), 64)
    ids, letters = np.array([p.ids for p in prompts]), np.array([encode(p.targets[0]) for p in prompts])
    assert (ids == probes.prompts.ids_BP).all()
    for row in json.loads(text):
        whole = np.exp(response_logprobs(model, ids, letters, tuple(range(VOCAB)), row["temperature"]))
        assert row["mean"] == pytest.approx(float(whole.mean()), rel=1e-4)
        # decoding restricted to the digits differs by what lies outside them: less than a thousandth
        enumerated = float(probes.mass(probes.outputs(model, row["temperature"])).mean())
        assert row["mean"] == pytest.approx(enumerated, rel=2e-3)


def test_entropy_of_study_models_equals_the_exact_one(
    tmp_path: Path, shipped: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    from spade.study.measure import Probes, distribution_metrics

    folders = [shipped(), shipped("dial=1e-2")]
    code, text = run(
        capsys,
        "entropy",
        *(w for f in folders for w in ("--ckpt", str(f))),
        "--n",
        "16",
        "--out",
        str(tmp_path),
        "--json",
    )
    rows = json.loads(text)
    assert code == 0 and len(rows) == 2
    probes = Probes.of(open_family("rules"), 64)
    for folder, row in zip(folders, rows, strict=True):
        model = load_lm(folder)
        exact = distribution_metrics(probes, probes.outputs(model))["H_seq"]
        assert row["H_seq"] == pytest.approx(exact, abs=0.08)
        assert row["length"] == 4 and row["H_tok (T=1)"] == pytest.approx(row["H_seq"] / 4, rel=1e-4)
    assert "KL(now || first)" in rows[1] and "KL(now || first)" not in rows[0]
    for name in ("entropy.md", "entropy.csv", "entropy.png", "entropy.svg", "entropy.json"):
        assert (tmp_path / name).stat().st_size > 100


def test_entropy_of_the_embedded_model_and_a_file_of_prompts(
    tmp_path: Path, shipped_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = run(
        capsys, "entropy", "--ckpt", str(shipped_model), "--n", "2", "--max-tokens", "16", "--json"
    )
    (row,) = json.loads(text)
    assert code == 0 and row["prompts"] == 32 and row["H_seq"] > 0 and row["ended"] > 0.5
    target = tmp_path / "targets.jsonl"
    target.write_text(
        json.dumps({"prompt": "guess a number from 1 to 8", "targets": ["\\boxed{1}", "\\boxed{2}"]}) + "\n"
    )
    code, text = run(
        capsys, "preflight", "--ckpt", str(shipped_model), "--task", str(target), "--n", "2", "--json"
    )
    assert code == 0 and json.loads(text)["sampled"] == 2
    assert main(["study", "prior", "--ckpt", str(shipped_model), "--target", str(tmp_path / "none")]) == 2
    assert main(["study", "entropy", "--ckpt", "scripted:echo"]) == 2


def test_dial_writes_a_model_that_can_be_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from spade.study.lm import SIZES, TinyLM
    from spade.study.vocabulary import VOCAB

    TinyLM(SIZES["XS"], VOCAB, 0).save(tmp_path / "start")
    out = tmp_path / "dialled"
    words = ("dial", "--ckpt", str(tmp_path / "start"), "--rho", "0.01", "--out", str(out))
    code, text = run(capsys, *words, "--json")
    assert (
        code == 0 and json.loads(text)["mass"] == read_json(out / "stage.json", "stage")["measured"]["mass"]
    )
    assert main(["study", *words]) == 2  # the folder is there already
    assert main(["study", "dial", "--ckpt", "nowhere", "--rho", "0.1", "--out", str(tmp_path / "x")]) == 2


def test_the_lens_of_a_run_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {
            "step": s,
            **{f"lens/{r}/{k}": 1.0 / s for r in ("agent", "designer") for k in ("sequence_entropy", "kl")},
        }
        for s in (1, 10, 20)
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    code, _ = run(capsys, "report", "--run", str(tmp_path))
    assert code == 0 and (tmp_path / "lens.png").stat().st_size > 1000 and (tmp_path / "lens.svg").is_file()
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    assert main(["study", "report", "--run", str(tmp_path)]) == 2

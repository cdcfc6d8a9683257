"""Pools of the fixed-pool source: the shipped one, folders and hub repositories, judged before use."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from spade.config import Config, SandboxConfig, ValidateConfig
from spade.config_load import load_config
from spade.envs.diversity import diversity
from spade.envs.fingerprint import skeleton
from spade.envs.hintcheck import check_hint, hint_facts
from spade.envs.pool import Pool, read_pool, write_pool
from spade.envs.pool_hub import hub_pool, parse_ref
from spade.envs.sandbox import Sandbox
from spade.envs.validate import validate_many
from spade.errors import InputError
from spade.types import EnvProgram
from spade_baselines.pool_refs import SHIPPED, check_ref, judged_pool, pool_of, shipped_pools
from tests.train.scripted_world import guess_program, rows, small_config, train

SAMPLE = slice(3, None, 18)
"""Programs of the shipped pool that are judged again here: five of 84."""
BROKEN = "class BrokenEnv:\n    pass\n"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPADE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def starter() -> Pool:
    return pool_of("starter")


# --- the shipped pool ------------------------------------------------------------------------------------


def test_the_shipped_pool_is_whole_and_varied(starter: Pool) -> None:
    assert shipped_pools() == ["starter"]
    programs = starter.programs
    assert len(programs) == len({p.id for p in programs}) == 84
    assert Counter(p.game_type for p in programs) == {"multi_turn": 42, "single_turn": 27, "tool_use": 15}
    assert all(starter.provenance[p.id].verdict.accepted for p in programs)  # type: ignore[union-attr]
    assert all(p.hint for p in programs) and len({p.skill for p in programs}) == 11
    assert starter.origin["licence"] == "MIT" and starter.tokens == 0
    assert len({skeleton(p.code) for p in programs}) >= 28
    measured = diversity([p.code for p in programs])
    assert measured.vendi > 25 and measured.mean_cosine < 0.1
    assert sum(f.stat().st_size for f in SHIPPED.rglob("*") if f.is_file()) < 900_000


def test_the_shipped_pool_holds_nothing_that_is_evaluated(starter: Pool) -> None:
    """Compared line by line; the command that makes the pool compares canonical texts and behaviour too."""
    import spade_evals
    from spade_evals.suites.heldout import new_mechanics, new_parameters

    held = [h.program.code for h in (*new_mechanics(), *new_parameters(), *new_parameters(validation=True))]
    games = Path(spade_evals.__file__).parent / "suites" / "games_programs"
    held += [file.read_text(encoding="utf-8") for file in sorted(games.rglob("*.py"))]
    assert len(held) > 150

    def lines(code: str) -> frozenset[str]:
        return frozenset(line.strip() for line in code.splitlines() if len(line.strip()) > 12)

    theirs = [lines(code) for code in held]
    for program in starter.programs:
        mine = lines(program.code)
        assert max(len(mine & other) / len(mine | other) for other in theirs) < 0.3, program.code[:300]


async def test_the_shipped_pool_is_accepted_again(starter: Pool) -> None:
    chosen = starter.programs[SAMPLE]
    async with await Sandbox.start(SandboxConfig()) as sandbox:
        verdicts = await validate_many(chosen, sandbox, ValidateConfig(floor_max=0.05))
        assert [v.code for v in verdicts] == ["accepted"] * len(chosen)
        for program in chosen:
            found = check_hint(program.hint or "", await hint_facts(program, sandbox), max_words=40)
            # A word that only `hint` itself holds counts as the code's, so that verdict says nothing here.
            assert found.code in ("ok", "hint_leaks_code"), (program.code[:200], found)


def test_the_recorded_command_makes_the_shipped_programs(starter: Pool) -> None:
    import runpy

    make = Path(__file__).resolve().parents[2] / "baselines" / "starter" / "make.py"
    made = runpy.run_path(str(make))["programs"]()
    assert {p.id for p in made} == {p.id for p in starter.programs}
    assert {p.hint for p in made} == {p.hint for p in starter.programs}


def test_it_is_the_default_and_a_run_plays_it(tmp_path: Path) -> None:
    assert Config().train.pool == "starter"
    assert load_config("demo-fixed-pool").train.pool is None
    _, folder, _ = train(small_config(tmp_path / "run", train__source="fixed_pool", train__steps=2))
    played = {e["program"] for e in rows(folder, "episodes.jsonl")}
    assert len(played) == 6 and played <= {p.id for p in pool_of("starter").programs}
    assert folder.record.ledger["tokens_pool_design"] == 0


# --- references ------------------------------------------------------------------------------------------


def test_wrong_references_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no pool at startr; did you mean 'starter'"):
        check_ref("startr")
    for ref, words in (
        ("hub:owner/name", "name the commit"),
        ("hub:owner/name@main", "name the commit"),
        ("hub:nothing", "write hub:owner/name@COMMIT"),
    ):
        with pytest.raises(InputError, match=words):
            parse_ref(ref)
    with pytest.raises(InputError, match="there is no folder"):
        hub_pool(f"hub:{tmp_path / 'nowhere'}")


async def test_a_pool_is_judged_before_use_and_what_is_refused_is_left_out(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pool(tmp_path / "pool", Pool(tuple(EnvProgram.of(c) for c in (guess_program(16, 4), BROKEN))))
    cfg = ValidateConfig(floor_max=0.34)
    async with await Sandbox.start(SandboxConfig()) as sandbox:
        kept = await judged_pool(str(tmp_path / "pool"), sandbox, cfg)
        assert [p.code for p in kept.programs] == [guess_program(16, 4)]
        assert kept.provenance[kept.programs[0].id].verdict is not None
        assert "1 of 2 programs are refused (missing_method 1)" in capsys.readouterr().err
        monkeypatch.setattr("spade_baselines.pool_refs.revalidate", None)  # the second time nothing is judged
        assert await judged_pool(str(tmp_path / "pool"), sandbox, cfg) == kept
        monkeypatch.undo()
        monkeypatch.setenv("SPADE_CACHE", str(cache))
        write_pool(tmp_path / "bad", Pool((EnvProgram.of(BROKEN),)))
        with pytest.raises(InputError, match=r"no program of .* is accepted here"):
            await judged_pool(str(tmp_path / "bad"), sandbox, cfg)


# --- the hub ---------------------------------------------------------------------------------------------


def repository(folder: Path, *, sums: str = "checksums.sha256") -> dict[str, str]:
    """A data set of programs in folders by skill, with a list of hashes as `sha256sum` writes it."""
    files = {f"causal_inference/game_{top}.py": guess_program(top, 4) for top in (16, 20, 24)}
    lines = []
    for name, code in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
        lines.append(f"{sha256(code.encode()).hexdigest()}  {name}\n")
    (folder / "README.md").write_text("a card")
    lines.append(f"{sha256(b'a card').hexdigest()}  README.md\n")
    (folder / sums).write_text("".join(lines))
    return files


def test_a_folder_with_checksums(tmp_path: Path) -> None:
    files = repository(tmp_path / "set")
    pool = hub_pool(f"hub:{tmp_path / 'set'}")
    assert [p.code for p in pool.programs] == list(files.values())
    assert {p.skill for p in pool.programs} == {"Causal Inference"}
    assert (
        pool.origin["checksums"] == sha256((tmp_path / "set" / "checksums.sha256").read_bytes()).hexdigest()
    )


def test_a_file_altered_missing_unlisted_or_outside_is_refused(tmp_path: Path) -> None:
    base = tmp_path / "set"
    files = repository(base)
    first = next(iter(files))

    def refused(name: str, words: str, spoil: Any) -> None:
        folder = tmp_path / name
        shutil.copytree(base, folder)
        spoil(folder)
        with pytest.raises(InputError, match=words):
            hub_pool(f"hub:{folder}")

    refused("a", "missing or does not match", lambda f: (f / first).write_text("x = 1"))
    refused("b", "missing or does not match", lambda f: (f / first).unlink())
    refused("c", "is not listed in", lambda f: (f / "more.py").write_text("x = 1"))
    refused("d", "no line of sha256sum", lambda f: (f / "checksums.sha256").write_text("hello\n"))
    outside = f"{sha256(b'').hexdigest()}  ../outside.py\n"
    refused("e", "outside.py", lambda f: (f / "checksums.sha256").write_text(outside))
    refused("f", "neither manifest.json nor", lambda f: (f / "checksums.sha256").unlink())


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_rows_with_hashes(kind: str, tmp_path: Path) -> None:
    found = [
        {"code": code, "skill": "S", "sha256": sha256(code.encode()).hexdigest(), "hint": "h"}
        for code in (guess_program(8, 4), guess_program(9, 4))
    ]

    def write(folder: Path, table: list[dict[str, Any]]) -> str:
        folder.mkdir()
        if kind == "jsonl":
            (folder / "train.jsonl").write_text("\n".join(map(json.dumps, table)))
        else:
            import pyarrow
            from pyarrow import parquet

            parquet.write_table(pyarrow.Table.from_pylist(table), folder / "train.parquet")
        return f"hub:{folder}"

    pool = hub_pool(write(tmp_path / "good", found))
    assert [(p.code, p.skill, p.hint) for p in pool.programs] == [(r["code"], "S", "h") for r in found]
    with pytest.raises(InputError, match="has no sha256"):
        hub_pool(write(tmp_path / "none", [{"code": found[0]["code"], "sha256": None}]))
    with pytest.raises(InputError, match="does not match its sha256"):
        hub_pool(write(tmp_path / "wrong", [found[0], {**found[1], "sha256": found[0]["sha256"]}]))


def test_a_pinned_repository_is_asked_for_at_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def download(repo: str, **fields: Any) -> str:
        asked.update(fields, repo=repo)
        repository(Path(fields["local_dir"]) / "games", sums="SHA256SUMS")
        return str(fields["local_dir"])

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    commit = "0123456789abcdef" * 2 + "01234567"
    pool = hub_pool(f"hub:someone/static-pool@{commit}:games")
    assert len(pool.programs) == 3
    assert (asked["repo"], asked["revision"], asked["repo_type"]) == (
        "someone/static-pool",
        commit,
        "dataset",
    )
    assert "games/*.py" in asked["allow_patterns"]
    assert pool.origin["revision"] == commit

    def away(repo: str, **fields: Any) -> str:
        raise OSError("no network\nat all")

    monkeypatch.setattr("huggingface_hub.snapshot_download", away)
    with pytest.raises(InputError, match=r"cannot be had \(no network\); check name, commit and network"):
        hub_pool(f"hub:someone/static-pool@{commit}")


def test_a_run_on_a_hub_pool_says_where_it_comes_from(tmp_path: Path) -> None:
    repository(tmp_path / "set")
    ref = f"hub:{tmp_path / 'set'}"
    cfg = small_config(tmp_path / "run", train__source="fixed_pool", train__pool=ref, train__steps=2)
    _, folder, _ = train(cfg)
    kept = read_pool(folder.path / "pool")
    assert kept.origin["hub"] == str(tmp_path / "set") and len(kept.programs) == 3
    assert all(kept.provenance[p.id].verdict.accepted for p in kept.programs)  # type: ignore[union-attr]
    assert {e["program"] for e in rows(folder, "episodes.jsonl")} == {p.id for p in kept.programs}

"""Configuration: what is read, what is refused, and in which words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import spade
from spade.config import Config
from spade.config_load import (
    config_digest,
    config_from_dict,
    config_names,
    diff_configs,
    dump_yaml,
    flatten,
    json_schema,
    load_config,
    with_overrides,
)
from spade.errors import ConfigError


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def refused(name: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(name, overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", config_names())
def test_every_shipped_config_loads_and_survives_a_round_trip(name: str, tmp_path: Path) -> None:
    cfg = load_config(name)
    assert cfg.name == Path(name).name
    again = load_config(write(tmp_path, "again.yaml", dump_yaml(cfg)))
    assert again == cfg
    assert config_digest(again) == config_digest(cfg)


def test_the_four_shipped_configs_are_there() -> None:
    assert {"demo", "demo-fixed-pool", "smoke", "smollm2"} <= set(config_names())
    assert load_config("demo-fixed-pool").train.source == "fixed_pool"
    changed = {key for key, _, _ in diff_configs(load_config("demo"), load_config("demo-fixed-pool"))}
    assert {"name", "train.source"} <= changed


def test_yaml_text_and_yaml_booleans_become_what_the_schema_means(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "a.yaml",
        "learner: {lr: 1e-6, autocast: off}\nhints: {train: false}\nbudget: {total_tokens: 1_000}\n",
    )
    cfg = load_config(path)
    assert cfg.learner.lr == 1e-6
    assert cfg.learner.autocast == "off"
    assert cfg.hints.train == "false"
    assert cfg.budget.total_tokens == 1000


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("budget.total_tokens=null", "budget.total_tokens", None),
        ("serving.deterministic=true", "serving.deterministic", True),
        ("design.skills=[a, b]", "design.skills", ["a", "b"]),
        ("validator.stages={novelty: false}", "validator.stages.novelty", False),
        ("learner.lr=2e-4", "learner.lr", 2e-4),
        ("model=openai:m@http://h/v1?a=b", "model", "openai:m@http://h/v1?a=b"),
        ("design.memory={enabled: true}", "design.memory.enabled", True),
    ],
)
def test_overrides_are_yaml_values(override: str, key: str, value: object) -> None:
    assert flatten(load_config("demo", [override]))[key] == value


def test_extends_merges_deeply_and_the_file_wins(tmp_path: Path) -> None:
    write(tmp_path, "base.yaml", "play: {plays: 3, top_k: 5}\nseed: 7\n")
    write(tmp_path, "sub/mid.yaml", "extends: ../base.yaml\nplay: {plays: 4}\n")
    path = write(tmp_path, "top.yaml", "extends: [demo, sub/mid]\nlearner: {kl: 0.1}\n")
    cfg = load_config(path, ["play.max_turns=2"])
    assert (cfg.name, cfg.seed, cfg.play.plays, cfg.play.top_k, cfg.play.max_turns) == ("top", 7, 4, 5, 2)
    assert cfg.learner.kl == 0.1


def test_extends_cycle_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", "extends: b\n")
    path = write(tmp_path, "b.yaml", "extends: a\n")
    assert "b.yaml -> a.yaml -> b.yaml" in refused(path)


def test_extends_of_a_missing_file_names_both(tmp_path: Path) -> None:
    message = refused(write(tmp_path, "a.yaml", "extends: demoo\n"))
    assert "a.yaml extends 'demoo'" in message
    assert "did you mean 'demo'?" in message


def test_unknown_key_names_file_path_and_closest_key(tmp_path: Path) -> None:
    path = write(tmp_path, "typo.yaml", "learner: {lrr: 1e-3}\n")
    assert refused(path) == f"unknown key 'learner.lrr' in {path}; did you mean 'learner.lr'?"
    assert "did you mean 'learner'?" in refused("demo", "learnr.lr=1")
    assert "'design.memory.enabledd' in the command line" in refused("demo", "design.memory.enabledd=true")


def test_unknown_key_of_a_parent_is_blamed_on_the_parent(tmp_path: Path) -> None:
    base = write(tmp_path, "base.yaml", "play: {playz: 3}\n")
    top = write(tmp_path, "top.yaml", "extends: base\nplay: {plays: 4}\n")
    assert f"in {base};" in refused(top)


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("learner.lr=fast", ["'learner.lr'", "'fast'", "number"]),
        ("play.plays=0", ["'play.plays'", "0", "greater than or equal to 1"]),
        ("play.plays=1.5", ["'play.plays'", "1.5", "integer"]),
        ("play.plays=true", ["'play.plays'", "True is not a number"]),
        ("learner.lr=.nan", ["'learner.lr'", "nan", "finite"]),
        ("reward.type=belnd", ["'reward.type'", "'belnd'", "'blend'"]),
        ("learner=3", ["'learner'", "3", "a section"]),
        ("design.skills=one", ["'design.skills'", "'one'", "a list"]),
        ("learner.betas=[0.9]", ["'learner.betas'", "too few values"]),
        ("reward.band_low=0.9", ["'reward'", "band_low 0.9 is above band_high 0.75"]),
        ("name=a/b", ["'name'", "'a/b'"]),
    ],
)
def test_wrong_values_say_key_value_and_expectation(override: str, parts: list[str]) -> None:
    message = refused("demo", override)
    assert all(part in message for part in parts), message
    assert "the command line" in message


@pytest.mark.parametrize("override", ["seed", "=3", "a..b=3", "seed=[1"])
def test_malformed_overrides(override: str) -> None:
    assert f"override '{override}'" in refused("demo", override)


def test_bad_yaml_names_file_and_line(tmp_path: Path) -> None:
    assert "bad.yaml line 2 is not valid YAML" in refused(write(tmp_path, "bad.yaml", "seed: 1\nplay: [1}\n"))
    assert "line 3" in refused(write(tmp_path, "twice.yaml", "seed: 1\nmodel: x\nseed: 2\n"))
    assert "key: value" in refused(write(tmp_path, "list.yaml", "- 1\n- 2\n"))
    assert "not text" in refused(write(tmp_path, "int.yaml", "play: {3: 4}\n"))
    (tmp_path / "bytes.yaml").write_bytes(b"seed: \xff\xfe\n")
    assert "UTF-8" in refused(str(tmp_path / "bytes.yaml"))


def test_yaml_cannot_build_python_objects(tmp_path: Path) -> None:
    path = write(tmp_path, "evil.yaml", "model: !!python/object/apply:os.getcwd []\n")
    assert "not valid YAML" in refused(path)


def test_unknown_config_name_suggests() -> None:
    assert "did you mean 'smoke'?" in refused("smok")


def test_a_path_wins_over_a_shipped_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "demo.yaml", "seed: 42\n")
    monkeypatch.chdir(tmp_path)
    assert load_config("demo").seed == 42


def test_digest_ignores_out_and_key_order_and_spelling(tmp_path: Path) -> None:
    one = write(tmp_path, "x.yaml", "seed: 1\nlearner: {lr: 1e-3, kl: 0}\n")
    digest = config_digest(load_config(one))
    write(tmp_path, "x.yaml", "learner: {kl: 0.0, lr: 0.001}\nout: elsewhere\nseed: 1\n")
    assert config_digest(load_config(one)) == digest
    assert config_digest(load_config(one, ["seed=2"])) != digest


def test_diff_lists_dotted_keys() -> None:
    a, b = load_config("demo"), load_config("demo", ["learner.lr=1", "validator.stages={x: false}"])
    assert diff_configs(a, a) == []
    rows = {key: (left, right) for key, left, right in diff_configs(a, b)}
    assert rows["learner.lr"] == (3e-4, 1.0)
    assert rows["validator.stages.x"] == (None, False)


def test_config_is_frozen_and_every_field_is_documented() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Config().seed = 3  # type: ignore[misc]
    schema = json_schema()
    sections = [schema, *schema["$defs"].values()]
    bare = [
        f"{part.get('title')}.{name}"
        for part in sections
        for name, field in part["properties"].items()
        if "description" not in field and "$ref" not in field
    ]
    assert bare == []


def test_every_key_is_read_by_some_code() -> None:
    """An option that is accepted and then has no effect is worse than none."""
    root = Path(spade.__file__).parent.parent
    files = [p for top in ("spade", "evals", "baselines") for p in (root / top).rglob("*.py")]
    text = "\n".join(p.read_text(encoding="utf-8") for p in files if p != root / "spade" / "config.py")
    unread = [key for key in flatten(Config()) if not re.search(rf"\.{key.rpartition('.')[2]}\b", text)]
    assert unread == []


def test_overrides_on_a_config_and_dicts_from_records() -> None:
    cfg = with_overrides(Config(), ["serving.threads=2"])
    assert cfg.serving.threads == 2
    assert config_from_dict(yaml.safe_load(dump_yaml(cfg)), "run.json") == cfg
    with pytest.raises(ConfigError, match=r"unknown key 'sed' in run.json; did you mean 'seed'"):
        config_from_dict({"sed": 1}, "run.json")

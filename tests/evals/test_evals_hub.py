"""Fetching data from a hub, through the real clients: pinned revision and bytes, splits, gated data."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hub_fake import Hub, serving

from spade.errors import InputError
from spade_evals.data import DataFile, Source, load_rows

PINNED, LATER = "1" * 40, "2" * 40

FETCH = """
import json, sys
from pathlib import Path
from spade.errors import InputError
from spade_evals.data import DataFile, Source
from spade_evals.fetching import fetch

tree = json.loads(sys.argv[1])
files = tuple(DataFile(**file) for file in tree.pop("files"))
try:
    print(json.dumps([str(path) for path in fetch(Source(files, **tree), "quiz", Path(sys.argv[2]))]))
except InputError as error:
    print(json.dumps(str(error)))
"""


def rows(shift: int) -> list[dict[str, object]]:
    return [{"question": f"{i} + {shift}?", "answer": i + shift} for i in range(4)]


def folder(root: Path, shift: int) -> Path:
    """A data set as it lies on the hub: one file of JSON lines and one of another format, with a card."""
    from pyarrow import Table, parquet  # type: ignore[import-untyped,unused-ignore]

    (root / "data").mkdir(parents=True)
    (root / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows(shift)))
    parquet.write_table(Table.from_pylist(rows(shift)), root / "data/train-00000-of-00001.parquet")
    config = (
        "configs:\n- config_name: sums\n  data_files:\n  - split: train\n    path: data/train-*.parquet\n"
    )
    (root / "README.md").write_text(f"---\n{config}---\n# Sums\n")
    return root


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Hub:
    root = tmp_path_factory.mktemp("hub")
    pinned, later = folder(root / "pinned", 1), folder(root / "later", 2)
    known = {("org/sums", PINNED): pinned, ("org/sums", LATER): later, ("org/sums", "main"): later}
    return Hub(known | {("org/gated", PINNED): pinned}, frozenset({"org/gated"}))


def fetched(hub: Hub, source: Source, root: Path, token: str = "") -> list[str] | str:
    """What `fetch` says in a process of its own, whose hub is ours and whose caches are empty."""
    home = root / "home"
    quiet = {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_OFFLINE": "0"}
    tree = {
        "files": [
            {"path": f.path, "sha256": f.sha256, "hub": f.hub, "split": f.split, "config": f.config}
            for f in source.files
        ],
        "source": source.source, "revision": source.revision, "licence": "MIT", "hub": source.hub,
        "access": source.access,
    }  # fmt: skip
    with serving(hub) as address:
        environment = os.environ | quiet | {"HF_ENDPOINT": address, "HF_HOME": str(home), "NO_PROXY": "*"}
        environment |= {"HF_TOKEN": token} if token else {}
        done = subprocess.run(
            [sys.executable, "-c", FETCH, json.dumps(tree), str(root / "data")],
            env=environment, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said: list[str] | str = json.loads(done.stdout.splitlines()[-1])
    return said


def source_of(repo: str, revision: str, *files: DataFile, access: str = "") -> Source:
    return Source(files, repo, revision, "MIT", hub=repo, access=access)


def test_a_file_comes_at_the_pinned_revision(hub: Hub, tmp_path: Path) -> None:
    pinned = hub.folders[("org/sums", PINNED)] / "test.jsonl"
    file = DataFile("quiz/test.jsonl", hashlib.sha256(pinned.read_bytes()).hexdigest(), hub="test.jsonl")
    source = source_of("org/sums", PINNED, file)
    hub.asked.clear()
    assert fetched(hub, source, tmp_path) == [str(tmp_path / "data/quiz/test.jsonl")]
    assert load_rows(source, "quiz", tmp_path / "data").rows == rows(1)
    assert any(f"/resolve/{PINNED}/test.jsonl" in path for path in hub.asked)
    assert not any("/main" in path or LATER in path for path in hub.asked)


def test_other_bytes_than_the_pinned_ones_are_never_written(hub: Hub, tmp_path: Path) -> None:
    pinned = hub.folders[("org/sums", PINNED)] / "test.jsonl"
    file = DataFile("quiz/test.jsonl", hashlib.sha256(pinned.read_bytes()).hexdigest(), hub="test.jsonl")
    said = fetched(hub, source_of("org/sums", LATER, file), tmp_path)
    assert "is not the pinned data of quiz" in said
    assert not (tmp_path / "data/quiz/test.jsonl").exists()


def test_a_revision_or_file_that_is_gone_is_one_sentence(hub: Hub, tmp_path: Path) -> None:
    said = fetched(hub, source_of("org/sums", "3" * 40, DataFile("a.jsonl", hub="test.jsonl")), tmp_path)
    assert said == (
        "cannot get test.jsonl of the hub dataset org/sums (RevisionNotFoundError); check the network and "
        f"your access, or place the file at {tmp_path}/data/a.jsonl"
    )
    said = fetched(hub, source_of("org/sums", PINNED, DataFile("a.jsonl", hub="none.jsonl")), tmp_path)
    assert "cannot get none.jsonl of the hub dataset org/sums (" in said


def test_gated_data_names_the_way_in_and_comes_with_a_token(hub: Hub, tmp_path: Path) -> None:
    from spade_evals.tasks.science import GPQA

    file = DataFile("gpqa/test.jsonl", hub="test.jsonl")
    source = source_of("org/gated", PINNED, file, access=GPQA.access)
    said = fetched(hub, source, tmp_path)
    assert "cannot get test.jsonl of the hub dataset org/gated (GatedRepoError)" in said
    assert "accept the terms at https://huggingface.co/datasets/Idavidrein/gpqa" in said
    assert fetched(hub, source, tmp_path, token="hf_secret") == [str(tmp_path / "data/gpqa/test.jsonl")]


def test_a_split_is_loaded_by_the_datasets_library_at_the_pinned_revision(hub: Hub, tmp_path: Path) -> None:
    file = DataFile("quiz/train.jsonl", split="train", config="sums")
    hub.asked.clear()
    assert fetched(hub, source_of("org/sums", PINNED, file), tmp_path) == [
        str(tmp_path / "data/quiz/train.jsonl")
    ]
    assert load_rows(source_of("org/sums", PINNED, file), "quiz", tmp_path / "data").rows == rows(1)
    assert any(f"{PINNED}/data/train-00000-of-00001.parquet" in path for path in hub.asked)


def test_a_folder_in_the_hub_s_layout_is_read_as_it_lies(hub: Hub) -> None:
    """The parquet file of a clone, by way of the datasets library, hash checked."""
    root = hub.folders[("org/sums", PINNED)]
    name = "data/train-00000-of-00001.parquet"
    digest = hashlib.sha256((root / name).read_bytes()).hexdigest()
    assert load_rows(source_of("org/sums", PINNED, DataFile(name, digest)), "quiz", root).rows == rows(1)
    with pytest.raises(InputError, match="is not the pinned data of quiz"):
        load_rows(source_of("org/sums", PINNED, DataFile(name, "0" * 64)), "quiz", root)

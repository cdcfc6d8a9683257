"""numpy inside the sandbox: refused by default, and with `sandbox.numpy` confined and reproducible."""

from __future__ import annotations

import pytest

from spade.config import SandboxConfig
from spade.envs import launch
from spade.envs.contract import ALLOWED_MODULES, allowed_modules
from spade.envs.sandbox import Sandbox
from spade.errors import FaultCode, ProgramFault, SandboxError

PROGRAM = """
import numpy as np

class ArrayEnv:
    def reset(self, seed=None):
        return repr(np.random.rand(3).tolist()), {}
    def step(self, action):
        try:
            text = repr(eval(action, {"np": np}))
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
        return text, 0.0, False, False, {}
"""
ORDINARY = {
    "np.linalg.inv(np.eye(3) * 2)[0, 0].item()": "0.5",
    "np.linalg.svd(np.eye(2))[1].tolist()": "[1.0, 1.0]",
    "np.linalg.solve(np.eye(2), np.ones(2)).tolist()": "[1.0, 1.0]",
    "(np.ones((300, 300)) @ np.ones((300, 300))).sum().item()": "27000000.0",
    "np.fft.fft(np.ones(4)).real.tolist()": "[4.0, 0.0, 0.0, 0.0]",
    "np.polynomial.Polynomial([1, 2])(3).item()": "7.0",
    "np.ma.masked_array([1, 2], [0, 1]).sum().item()": "1",
    "np.einsum('ij,jk->ik', np.eye(2), np.eye(2)).tolist()": "[[1.0, 0.0], [0.0, 1.0]]",
    "np.lib.stride_tricks.sliding_window_view(np.arange(3), 2).tolist()": "[[0, 1], [1, 2]]",
    "np.char.upper(['a']).tolist()": "['A']",
    "np.median([3, 1, 2]).item()": "2.0",
    "np.array2string(np.arange(3) / 4)": "'[0.   0.25 0.5 ]'",
    "str(np.datetime64('2020-01-01'))": "'2020-01-01'",
    "np.random.default_rng(3).integers(100, size=3).tolist()": "[81, 8, 17]",
}
ENTROPY = (
    "np.random.default_rng().random()",
    "np.random.RandomState().rand()",
    "np.random.SeedSequence().entropy",
    "np.random.Generator(np.random.PCG64()).random()",
    "np.random.bytes(4)",
    "(np.random.seed(), np.random.rand())",
)


async def start(level: str, **changes: object) -> Sandbox:
    try:
        return await Sandbox.start(
            SandboxConfig.model_validate({"force_level": level, "numpy": True, **changes})
        )
    except SandboxError as error:
        pytest.skip(str(error))


def test_one_function_says_which_modules_are_allowed() -> None:
    assert allowed_modules(False) == ALLOWED_MODULES and "numpy" not in ALLOWED_MODULES
    assert allowed_modules(True) == (*ALLOWED_MODULES, "numpy")


async def test_it_is_refused_by_default() -> None:
    async with await Sandbox.start(SandboxConfig()) as sandbox:
        with pytest.raises(ProgramFault) as caught:
            await sandbox.open(PROGRAM)
    assert caught.value.code is FaultCode.IMPORT_REFUSED and "numpy" in caught.value.detail


@pytest.mark.parametrize("level", ["L3", "L2", "L2s"])
async def test_ordinary_use_works_confined(level: str) -> None:
    async with await start(level, memory_mb=64) as sandbox:
        worker = await sandbox.open(PROGRAM)
        await worker.reset(0, 1)
        got = {expression: (await worker.step(0, expression)).observation for expression in ORDINARY}
        assert got == ORDINARY
        assert worker.violations == []
        big = (await worker.step(0, "np.ones(1 << 28)")).observation
        assert "MemoryError" in big
        assert "ModuleNotFoundError" in (await worker.step(0, "np.testing")).observation
        read = await sandbox.open(PROGRAM, strict=False)
        await read.reset(0, 1)
        assert "PermissionError" in (await read.step(0, "np.fromfile('/etc/passwd')")).observation


async def test_numbers_come_from_the_seed_alone() -> None:
    async with await start("L2s") as sandbox:
        first, other = await sandbox.open(PROGRAM), await sandbox.open(PROGRAM, replay=True)
        alone = await first.reset(0, 5)
        assert alone == repr([0.22199317108973948, 0.8707323061773764, 0.20671915533942642])  # numpy's for 5
        assert await other.reset(0, 5) == alone
        mixed = [await first.reset(1, 5), await first.reset(2, 6), await first.reset(1, 5)]
        assert mixed[0] == mixed[2] == alone != mixed[1]
        one = (await first.step(1, "np.random.rand()")).observation
        await first.step(2, "np.random.rand()")
        two = (await first.step(1, "np.random.permutation(9).tolist()")).observation
        await other.reset(0, 5)
        assert (await other.step(0, "np.random.rand()")).observation == one
        assert (await other.step(0, "np.random.permutation(9).tolist()")).observation == two


async def test_nobody_sees_the_systems_entropy() -> None:
    async with await start("L2s") as sandbox:
        seen = []
        for again in (False, False, True):
            worker = await sandbox.open(PROGRAM, replay=again)
            await worker.reset(0, 1)
            seen.append([(await worker.step(0, expression)).observation for expression in ENTROPY])
        assert seen[0] == seen[1] == seen[2]
        assert not any("Error" in text for text in seen[0])
        assert (await worker.step(0, ENTROPY[0])).observation != seen[0][0]  # counts on: no constant


async def test_the_hidden_generator_can_be_taken_and_put_back() -> None:
    async with await start("L2s") as sandbox:
        worker = await sandbox.open(PROGRAM)
        await worker.reset(0, 2)
        state = "np.random.get_state()"
        text = f"[s := {state}, np.random.rand(), np.random.set_state(s), np.random.rand()][1::2]"
        once, again = eval((await worker.step(0, text)).observation)
        assert once == again
        text = "(np.random.set_bit_generator(np.random.MT19937(3)), np.random.rand())[1]"
        assert (await worker.step(0, text)).observation != repr(once)
        assert "MT19937" in (await worker.step(0, "str(np.random.get_bit_generator())")).observation


async def test_without_numpy_installed_the_message_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SandboxError, match=r"sandbox\.numpy is true, but numpy is not installed"):
        await Sandbox.start(SandboxConfig(numpy=True))

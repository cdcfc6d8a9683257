"""The edge of a fault: no memory left to tell of it, numbers nobody can write, dates that never pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from envs_programs import game, reply

from spade.cli.main import main
from spade.config import SandboxConfig
from spade.envs import host
from spade.envs.calls import call_text, other_arguments, sample_calls
from spade.envs.sandbox import Sandbox


def caught(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as found:
        return found


@pytest.mark.parametrize("error", [MemoryError(), ValueError("x")])
def test_a_fault_is_told_where_no_memory_is_left(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broke(error: BaseException) -> str:
        raise MemoryError

    monkeypatch.setattr(host, "describe", broke)
    found = caught(error)
    assert host.fault_of(found, False) == {"f": "memory", "d": "MemoryError"}
    assert found.__traceback__ is None  # what the program's frames hold is free again
    assert [len(part) for part in host._reserve] == [host.RESERVE]


@pytest.mark.parametrize("number", [10**5000, -(1 << 10**6)], ids=["long", "huge"])
def test_an_exception_about_a_number_too_long_to_write(number: int) -> None:
    assert host.fault_of(caught(ValueError(number)), False) == {"f": "exception", "d": "ValueError"}
    assert host.fault_of(caught(KeyError(17)), False) == {"f": "exception", "d": "KeyError: 17"}


@pytest.mark.parametrize("tools", [[{"parameters": int}], [float("nan")], ["x" * 70_000]])
def test_tools_that_cannot_be_sent_break_the_contract(tools: list[Any]) -> None:
    with pytest.raises(host.ContractError, match="the tools"):
        host.checked_tools(tools)


async def test_the_date_is_the_workers_own_by_whatever_name() -> None:
    parts = (
        "getattr(datetime.date, 'today')()",
        "isinstance(datetime.datetime(2024, 1, 1), datetime.date)",
        "isinstance(datetime.datetime(2024, 1, 1).date(), datetime.date)",
        "isinstance(5, datetime.date)",
        "issubclass(datetime.datetime, datetime.date)",
        "datetime.date(2024, 1, 31) + datetime.timedelta(1)",
    )
    async with await Sandbox.start(SandboxConfig()) as sandbox:
        worker = await sandbox.open(reply(observation=f"' '.join(map(str, ({', '.join(parts)})))"))
        await worker.reset(0, 1)
        seen = (await worker.step(0, "go")).observation
    assert seen == "2023-11-14 True True False True 2024-02-01"


def test_a_program_without_a_verdict_in_time_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "slow.py"
    file.write_text(game())
    assert main(["envs", "validate", str(file), "validator.seconds=0.0001", "--json"]) == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["accepted"], row["code"]) == (False, "deadline")
    assert "validator.seconds" in row["reason"] and row["reason"].endswith(".")


def test_made_up_calls_fit_their_schema_and_differ_from_a_solutions() -> None:
    parameters = {
        "type": "object",
        "properties": {
            "thing": {"type": "string"},
            "n": {"type": "integer"},
            "how": {"type": "string", "enum": ["fast", "slow"]},
        },
    }
    tool = {"type": "function", "function": {"name": "go", "parameters": parameters}}
    calls = sample_calls([tool, {}, {"function": None}])
    assert calls == [call_text("go", {"thing": "zq", "n": 1, "how": "fast"})]
    given = {"thing": "tea", "n": 4, "how": "fast"}
    assert other_arguments(parameters, given, 7) == {"thing": "zq", "n": 11, "how": "slow"}
    assert other_arguments(parameters, given, -7)["n"] == -3

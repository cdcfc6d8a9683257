"""A stand-in for a vLLM server: the same routes, and a language model that is a formula.

    python vllm_standin.py --uds SOCKET [--helper PIDFILE]

The next token is a function of the two tokens before it and of the weights' first number, so that new weights
change everything. Log-probs are those of a distribution over `VOCAB` tokens, at the sampling temperature.
`--helper` starts a process that ignores SIGTERM, as a worker that hangs would.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import math
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

VOCAB = 356
LENGTH = 400


class Model:
    """Logits from a formula; `salt` is the first number of the weights."""

    def __init__(self, salt: float = 1.0) -> None:
        self.salt = salt

    def logprobs(self, ids: list[int], temperature: float = 1.0) -> list[float]:
        """Log-probs of all next tokens."""
        return list(_logprobs((*ids[-2:], self.salt), temperature or 1.0))

    def sample(self, ids: list[int], temperature: float, seed: int, step: int) -> tuple[int, list[float]]:
        """A token and the log-probs it was drawn by."""
        logprobs = self.logprobs(ids, temperature)
        if temperature <= 0:
            return logprobs.index(max(logprobs)), logprobs
        point = random.Random(f"{seed}/{step}").random()
        for token, value in enumerate(logprobs):
            point -= math.exp(value)
            if point < 0:
                return token, logprobs
        return VOCAB - 1, logprobs


@functools.lru_cache(4096)
def _logprobs(state: tuple[float, ...], temperature: float) -> tuple[float, ...]:
    rng = random.Random(str(state))
    # What begins a turn or a text is for templates to write, and what ends a turn is rare.
    less = {0: 60.0, 1: 60.0, 2: 3.0}
    logits = [(rng.uniform(-4, 4) - less.get(token, 0.0)) / temperature for token in range(VOCAB)]
    total = math.log(sum(map(math.exp, logits)))
    return tuple(x - total for x in logits)


def best(logprobs: list[float], count: int) -> list[int]:
    return sorted(range(VOCAB), key=lambda t: -logprobs[t])[:count]


def make_app(state: dict[str, Any]) -> Any:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, StreamingResponse
    from starlette.routing import Route

    state.setdefault("model", Model())
    state.setdefault("calls", [])
    state.setdefault("open", 0)

    async def tokens(body: dict[str, Any]) -> AsyncIterator[tuple[int, dict[str, Any], str | None]]:
        """Token, its log-probs as vLLM writes them, and the finish reason once there is one."""
        ids = list(body["prompt"])
        for step in range(body["max_tokens"]):
            token, logprobs = state["model"].sample(ids, body["temperature"], body["seed"] or 0, step)
            ids.append(token)
            shown = {
                f"token_id:{t}": logprobs[t] for t in [token, *best(logprobs, body.get("logprobs") or 0)]
            }
            told = {
                "token_logprobs": [logprobs[token]],
                "top_logprobs": [shown],
                "tokens": [f"token_id:{token}"],
            }
            stopped = token in (body.get("stop_token_ids") or ())
            yield token, told, "stop" if stopped else "length" if step + 1 == body["max_tokens"] else None
            if stopped:
                return
            await asyncio.sleep(0)

    async def completions(request: Request) -> Any:
        body = await request.json()
        state["calls"].append(body)
        if state.get("broken"):
            return JSONResponse({"error": {"message": "broken"}}, 400)
        if len(body["prompt"]) + body["max_tokens"] > LENGTH:
            return JSONResponse({"error": {"message": "maximum context length"}}, 400)
        usage = {"prompt_tokens": len(body["prompt"]), "prompt_tokens_details": {"cached_tokens": 2}}
        if body.get("stream"):
            return StreamingResponse(stream(body, usage), media_type="text/event-stream")
        choice: dict[str, Any] = {"index": 0, "text": "", "token_ids": [], "finish_reason": "length"}
        told: dict[str, list[Any]] = {"token_logprobs": [], "top_logprobs": [], "tokens": []}
        if body.get("prompt_logprobs"):
            choice["prompt_logprobs"] = scores(body)
        else:
            async for token, one, finish in tokens(body):
                choice["token_ids"].append(token)
                choice["finish_reason"] = finish
                for key, value in one.items():
                    told[key] += value
        return JSONResponse({"choices": [choice | {"logprobs": told}], "usage": usage})

    def scores(body: dict[str, Any]) -> list[Any]:
        out: list[Any] = [None]
        for at in range(1, len(body["prompt"])):
            logprobs = state["model"].logprobs(body["prompt"][:at])
            shown = [body["prompt"][at], *best(logprobs, body["prompt_logprobs"])]
            out.append({str(t): {"logprob": logprobs[t], "rank": 1, "decoded_token": "x"} for t in shown})
        return out

    async def stream(body: dict[str, Any], usage: dict[str, Any]) -> AsyncIterator[str]:
        state["open"] += 1
        try:
            async for token, told, finish in tokens(body):
                choice = {
                    "index": 0,
                    "text": "",
                    "token_ids": [token],
                    "logprobs": told,
                    "finish_reason": finish,
                }
                yield f"data: {json.dumps({'choices': [choice]})}\n\n"
                await asyncio.sleep(0.002)
            yield f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n"
            yield "data: [DONE]\n\n"
        finally:
            state["open"] -= 1

    async def rpc(request: Request) -> Any:
        body = await request.json()
        if body["method"] == "spade_whole_logprobs":
            return JSONResponse({"results": ["True"]})
        assert body["method"] == "reload_weights", body
        from safetensors.numpy import load_file

        files = sorted(Path(body["kwargs"]["weights_path"]).glob("*.safetensors"))
        weights = {name: tensor for file in files for name, tensor in load_file(file).items()}
        state["loaded"] = {name: (str(t.dtype), list(t.shape)) for name, t in weights.items()}
        state["model"] = Model(float(weights["salt"].flat[0]))
        state["stale"] = True
        return JSONResponse({"results": [None]})

    async def reset(request: Request) -> Any:
        state["stale"] = False
        return JSONResponse({"success": not state.get("stuck", False)})

    async def models(request: Request) -> Any:
        return JSONResponse({"data": [{"id": "formula", "max_model_len": LENGTH}]})

    async def health(request: Request) -> Any:
        return JSONResponse({})

    posts = {"/v1/completions": completions, "/collective_rpc": rpc, "/reset_prefix_cache": reset}
    routes = [Route(path, to, methods=["POST"]) for path, to in posts.items() if path != state.get("without")]
    return Starlette(routes=[*routes, Route("/v1/models", models), Route("/health", health)])


def main() -> None:
    import uvicorn

    parser = argparse.ArgumentParser()
    parser.add_argument("--uds", required=True)
    parser.add_argument("--helper")
    args = parser.parse_args()
    if args.helper:
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        helper = subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=True)
        Path(args.helper).write_text(str(helper.pid))
    uvicorn.run(make_app({}), uds=args.uds, log_level="warning")


if __name__ == "__main__":
    main()

"""Runs upstream's own BFCL checkers, untouched, in a process of their own; for tests and benchmarks.

    python benchmarks/bfcl_upstream.py PACKAGE < requests > verdicts

PACKAGE is the wheel of bfcl-eval or the folder that holds `bfcl_eval`. A request is one line of JSON:

    {"kind": "multi_turn", "item": {...}, "turns": [...], "truth": [...]}
    {"kind": "ast", "functions": [...], "calls": [{"f": {"a": 1}}], "truth": [...], "language": "python",
     "category": "multiple"}
    {"kind": "prompt", "functions": [...], "category": "multiple"}

The first two are answered by `{"valid": ..., "error_type": ...}`, the third by what upstream shows a model,
`{"functions": ..., "system": ..., "tools": ...}`. The last line is `{"seconds": ...}`, processor time inside
the checkers. Upstream hands call texts to `eval`: give it references and changed references, never a model's
text.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import time
import types
from typing import Any

Stub = dict[str, Any]
STUBS: dict[str, Stub] = {
    "tenacity": dict.fromkeys(
        ("retry", "retry_if_exception_message", "retry_if_exception_type", "wait_random_exponential")
    ),
    "bfcl_eval.model_handler.parser.java_parser": {"parse_java_function_call": None},
    "bfcl_eval.model_handler.parser.js_parser": {"parse_javascript_function_call": None},
}
"""Modules that upstream imports beside its prompts, with what it takes from them."""


class _AnyModel(dict[str, Any]):
    """In place of upstream's table of models, which imports the client of every vendor."""

    def __missing__(self, name: str) -> Any:
        return types.SimpleNamespace(underscore_to_dot=False)


_MODELS: Stub = {"MODEL_CONFIG_MAPPING": _AnyModel()}


def prompt(functions: list[dict[str, Any]], category: str) -> dict[str, Any]:
    """What upstream shows a model of these functions."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("BFCL_PROJECT_ROOT", folder)  # upstream makes folders when imported
        utils: Any = importlib.import_module("bfcl_eval.utils")
        shown: Any = importlib.import_module("bfcl_eval.model_handler.utils")
    texts: Any = importlib.import_module("bfcl_eval.constants.default_prompts")
    mapping: Any = importlib.import_module("bfcl_eval.constants.type_mappings").GORILLA_TO_OPENAPI
    style: Any = importlib.import_module("bfcl_eval.constants.enums").ModelStyle.OPENAI_COMPLETIONS
    docs = utils._func_doc_language_specific_pre_processing(functions, category)
    system = shown.formulate_system_prompt(texts.DEFAULT_SYSTEM_PROMPT_FORMAT, docs)
    return {"functions": docs, "system": system, "tools": shown.convert_to_tool(docs, mapping, style)}


def main() -> None:
    """Answer every line of standard input."""
    sys.path.insert(0, sys.argv[1])
    for name, names in {**STUBS, "bfcl_eval.constants.model_config": _MODELS}.items():
        stub = types.ModuleType(name)
        stub.__dict__.update(names)
        sys.modules[name] = stub
    multi: Any = importlib.import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker")
    single: Any = importlib.import_module("bfcl_eval.eval_checker.ast_eval.ast_checker")
    languages: Any = importlib.import_module("bfcl_eval.constants.enums").Language
    spent = 0.0
    for number, line in enumerate(sys.stdin):
        request = json.loads(line)
        if request["kind"] == "prompt":
            sys.stdout.write(json.dumps(prompt(request["functions"], request["category"])) + "\n")
            continue
        started = time.process_time()
        try:
            if request["kind"] == "multi_turn":
                item = request["item"]
                category = item["id"].rsplit("_", 1)[0]
                # Instances live in globals under this name and are never removed: one name a request.
                found = multi.multi_turn_checker(
                    request["turns"], request["truth"], item, category, f"m{number}"
                )
            else:
                found = single.ast_checker(
                    request["functions"], request["calls"], request["truth"],
                    languages[request["language"].upper()], request["category"], "m",
                )  # fmt: skip
            answer = {"valid": found["valid"], "error_type": "" if found["valid"] else found["error_type"]}
        except Exception as error:  # a checker that trips over an answer rejects it
            answer = {"valid": False, "error_type": f"raised {type(error).__name__}"}
        spent += time.process_time() - started
        sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.write(json.dumps({"seconds": spent}) + "\n")


if __name__ == "__main__":
    main()

"""The list of configuration keys in docs/configuration.md, made from the models of `spade.config`.

.venv/bin/python tests/package/config_table.py --write      put the current list into the page
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from spade.config import Config

PAGE = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"
BEGIN, END = "<!-- keys: begin -->", "<!-- keys: end -->"


def choices(annotation: Any) -> list[str]:
    """Allowed words of a `Literal`, also inside an optional or annotated type."""
    if get_origin(annotation) is Literal:
        return [str(word) for word in get_args(annotation)]
    return [word for part in get_args(annotation) for word in choices(part)]


def row(key: str, field: FieldInfo) -> str:
    """One table line: key, default, meaning with the allowed words."""
    default = json.dumps(field.get_default(call_default_factory=True), default=list)
    meaning = " ".join((field.description or "").split()).replace("|", "\\|")
    words = choices(field.annotation)
    allowed = f" One of: {', '.join(f'`{w}`' for w in words)}." if words else ""
    return f"| `{key}` | `{default}` | {meaning}{allowed} |"


def tables(model: type[BaseModel] = Config, prefix: str = "") -> list[str]:
    """Lines of one table for the plain fields of `model`, then one table for each section in it."""
    plain, sections = [], []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            sections.append((f"{prefix}{name}", kind))
        else:
            plain.append(row(f"{prefix}{name}", field))
    lines = ["| key | default | meaning |", "|---|---|---|", *plain, ""]
    for name, kind in sections:
        about = " ".join((kind.__doc__ or "").split())
        lines += [f"### {name}", "", about, "", *tables(kind, f"{name}.")]
    return lines


def page_with_current_keys(text: str) -> str:
    """`text` with everything between the two markers replaced by the current list."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n" + "\n".join(tables()) + f"\n{END}{tail}"


if __name__ == "__main__":
    new = page_with_current_keys(PAGE.read_text(encoding="utf-8"))
    if "--write" in sys.argv:
        PAGE.write_text(new, encoding="utf-8")
    else:
        print(new)

"""What every part of the configuration is built of: the base class and the kinds of numbers."""

from __future__ import annotations

from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """Base of every part of the configuration: frozen, closed, documented by its own source."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False, validate_default=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _no_bool_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Python counts True as 1; a config that says `plays: true` is a mistake."""
        kind = cls.model_fields[info.field_name or ""].annotation
        kinds = {kind, *get_args(kind)}
        if isinstance(value, bool) and kinds & {int, float} and bool not in kinds:
            raise ValueError(f"{value} is not a number")
        return value

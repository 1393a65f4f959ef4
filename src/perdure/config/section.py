"""What every group of settings is made of: a frozen model, and the kinds of value that come back again and again."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, le=1)]
Dollars = Annotated[float, Field(gt=0)]
Price = Annotated[float, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0)]
Text = Annotated[str, Field(min_length=1)]


class Section(BaseModel):
    """A frozen group of keys that refuses what it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, str_strip_whitespace=True)

    @field_validator("*", mode="before")
    @classmethod
    def _keep_bool_apart(cls, value: Any, info: ValidationInfo) -> Any:
        # A stray `true` would quietly become the number 1.
        if isinstance(value, bool) and cls.model_fields[info.field_name or ""].annotation is not bool:
            raise ValueError("true and false are no numbers")
        return value

"""`handrail.adapters.pydantic_ai.models`: a model for one run."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import pytest
from pydantic_ai import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel
from typing_extensions import override

from handrail.adapters.pydantic_ai.models import open_model

pytestmark = pytest.mark.anyio


class Watched(FunctionModel):
    """A model that notes who enters it."""

    entered = 0

    @override
    async def __aenter__(self) -> Self:
        self.entered += 1
        return self

    @override
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.entered -= 1


def silent(*_: Any) -> ModelResponse:
    """Say nothing."""
    return ModelResponse([TextPart("")])


async def test_a_model_is_used_as_it_is() -> None:
    """Its owner opens and closes it."""
    model = Watched(silent)
    async with open_model(model) as opened:
        assert opened is model
        assert model.entered == 0


async def test_a_name_is_a_new_model_each_time() -> None:
    """Its connections belong to the loop of the run."""
    async with open_model("test") as first, open_model("test") as second:
        assert isinstance(first, TestModel)
        assert first is not second

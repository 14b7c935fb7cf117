"""The model of one run, open for as long as the run."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from pydantic_ai.models import Model, infer_model


@asynccontextmanager
async def open_model(model: Model | str) -> AsyncGenerator[Model]:
    """A model as it is, or one of that name made anew: its connections belong to one event loop, and are closed."""
    if isinstance(model, Model):
        yield model
    else:
        async with infer_model(model) as made:
            yield made

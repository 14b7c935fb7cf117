"""A provider that cannot be reached: a port of this machine on which nothing listens, and the real client of OpenAI."""

from __future__ import annotations

import socket
from collections.abc import Generator
from contextlib import contextmanager

from openai import AsyncOpenAI
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider


@contextmanager
def closed_port() -> Generator[int]:
    """A port that is taken, so that nobody else listens on it, and on which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def openai_at(port: int) -> OpenAIResponsesModel:
    """A model of OpenAI whose client asks this machine, once."""
    client = AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0)
    return OpenAIResponsesModel("gpt-5", provider=OpenAIProvider(openai_client=client))

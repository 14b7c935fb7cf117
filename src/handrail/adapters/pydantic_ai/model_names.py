"""Checks whether PydanticAI supports a model name, without a request, package or key.

A name is `provider:model`. The list of providers is fixed, that of their models is not: new ones appear every week.
"""

from __future__ import annotations

import re
from collections import Counter
from difflib import get_close_matches
from pkgutil import iter_modules
from typing import get_args

import pydantic_ai.providers
from pydantic_ai import UserError
from pydantic_ai.models import KnownModelName
from pydantic_ai.providers import infer_provider_class

from handrail.errors import UnknownModelError
from handrail.serde.formatting import shorten

_FOR_TESTS = "test"
_LONGEST_SHOWN = 100


def check_model_name(name: str, *, source: str = "") -> None:
    """Check the name of a model.

    Args:
        name: the name.
        source: where it was given, for the message: `--model`, or `the agent file`.

    Raises:
        UnknownModelError: the provider before the colon is unknown, or one of the two parts is missing.
    """
    if name == _FOR_TESTS:
        return
    provider, _, model = name.partition(":")
    known = _is_provider(provider)
    if known and model.strip():
        return
    because = "" if known or ":" not in name else f", because there is no provider {_shown(provider)!r}"
    near = _nearest(name, provider, model)
    hint = "" if near is None else f". Did you mean {_shown(near)}?"
    named = f"the model {_shown(name)} ({source})" if source else f"the model {_shown(name)}"
    raise UnknownModelError(
        f"{named} cannot be used: no such model is known{because}; a name is provider:model, such as "
        f"openai:gpt-5.2{hint}",
        name=name,
        nearest=near,
    )


def _is_provider(name: str) -> bool:
    try:
        infer_provider_class(name)
    except ImportError:
        return True  # its package is missing, which is reported elsewhere
    except (ValueError, UserError):
        return False
    return True


def _nearest(name: str, provider: str, model: str) -> str | None:
    """The name that was probably meant; `None` if none is similar."""
    if model.strip():
        near = get_close_matches(provider[:_LONGEST_SHOWN], _providers())
        found = next((each for each in near if _is_provider(each)), None)
        return None if found is None else f"{found}:{model}"
    # Gateways write `openai/gpt-5.2`; the slash is the only fault of such a name.
    before, slash, after = name.partition("/")
    if slash and after.strip() and _is_provider(before):
        return f"{before}:{after}"
    maker = None if ":" in name else _provider_of(name)
    return None if maker is None else f"{maker}:{name}"


def _provider_of(model: str) -> str | None:
    """The most frequent provider of listed models whose names start with the same word, such as `gpt` or `claude`."""
    word = re.match(r"[a-z]{3,}", model)
    if word is None:
        return None
    listed = (each.partition(":") for each in get_args(KnownModelName.__value__) if not each.startswith("gateway/"))
    counts = Counter(provider for provider, _, known in listed if known.startswith(word[0]))
    # Sorted first, so that of two providers with the same count the message always names the same one.
    return max(sorted(counts), key=counts.__getitem__, default=None)


def _providers() -> list[str]:
    """The known provider names: those of PydanticAI's modules, and of the models that it lists."""
    modules = (module.name.replace("_", "-") for module in iter_modules(pydantic_ai.providers.__path__))
    listed = (each.partition(":")[0] for each in get_args(KnownModelName.__value__))
    return sorted({*modules, *listed} - {_FOR_TESTS})


def _shown(name: str) -> str:
    return shorten(name, _LONGEST_SHOWN)

"""`handrail.testing`: what it offers, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from handrail import testing
from handrail.testing.scripted_model import ScriptedModel
from tests.wording import Wording


def test_everything_that_is_named_is_there() -> None:
    """`ScriptedModel` is imported when it is asked for."""
    assert all(hasattr(testing, name) for name in testing.__all__)
    assert testing.ScriptedModel is ScriptedModel


def test_what_is_not_there_is_no_attribute(wording: Wording) -> None:
    """As for any module."""
    with pytest.raises(AttributeError) as raised:
        _ = getattr(testing, "ScriptedModels")  # noqa: B009 - no checker knows the name
    assert str(raised.value) == wording


def test_importing_the_fakes_loads_no_extra() -> None:
    """Pydantic is enough for all but the scripted model."""
    code = "import sys, handrail.testing; print({'pydantic_ai', 'ruamel.yaml'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, encoding="utf-8")
    assert done.stdout.strip() == "set()"

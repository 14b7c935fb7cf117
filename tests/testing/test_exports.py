"""`handrail.testing`: what it offers, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

from handrail import testing
from handrail.testing.scripted_model import ScriptedModel


def test_everything_that_is_named_is_there() -> None:
    """`ScriptedModel` is imported when it is asked for."""
    assert all(hasattr(testing, name) for name in testing.__all__)
    assert testing.ScriptedModel is ScriptedModel


def test_importing_the_fakes_loads_no_extra() -> None:
    """Pydantic is enough for all but the scripted model."""
    code = "import sys, handrail.testing; print({'pydantic_ai', 'ruamel.yaml'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, encoding="utf-8")
    assert done.stdout.strip() == "set()"

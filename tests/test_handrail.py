"""What can be imported from the package itself."""

from __future__ import annotations

import subprocess
import sys

import handrail
from handrail import prompt


def test_the_decorator_is_a_name_of_the_package() -> None:
    """The very same as that of `handrail.prompt`."""
    assert handrail.tool is prompt.tool


def test_importing_the_package_imports_nothing_else() -> None:
    """The command line prints its version without pydantic."""
    program = "import sys, handrail\nassert 'pydantic' not in sys.modules\nassert 'tool' in handrail.__all__\n"
    subprocess.run([sys.executable, "-c", program], check=True)

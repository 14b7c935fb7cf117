"""`python -m handrail`, as the command `handrail`."""

from __future__ import annotations

import sys

from handrail.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""Ready rules for programs that fix and check code, and that end with another exit code than 0 though all went well.

Such a program ends with 1 if it has found something, also when it has fixed something else. `commit_on` lets the call
succeed then: the fixes stay, and so do the caches that make the next run quick. Ended otherwise (a usage error, a
crash, a signal, the timeout), the call fails and its changes are rolled back.

================  =================  ===================================================================================
program           `commit_on`        the exit codes
================  =================  ===================================================================================
`ruff check`      0, 1               1: findings are left; 2: an error
`ruff format`     0, 1               1: files would change (`--check`, `--diff`); 2: an error
`pre-commit run`  0, 1               1: a hook failed, or has changed files; 3: an error
`eslint`          0, 1               1: findings are left; 2: an error
`pytest`          0, 1, 5            1: tests failed; 5: no test was found; 2, 3, 4: interrupted, an error
`mypy`            0, 1               1: findings; 2: an error
================  =================  ===================================================================================

Options are allowed by name. Left out are those that write elsewhere than in the files that are checked, name another
configuration, install something, or never end. `pre-commit`, `eslint`, `pytest` and plugins of `mypy` run code of the
project: a model that can write files can write that.
"""

from __future__ import annotations

from handrail.contrib.tools.shell.rules import ShellRule

_RUFF_CHECK = (
    "--fix --no-fix --fix-only --unsafe-fixes --no-unsafe-fixes --show-fixes --diff --select --extend-select --ignore "
    "--extend-ignore --exclude --extend-exclude --statistics --output-format --preview --no-preview --target-version "
    "--no-cache --exit-zero --exit-non-zero-on-fix --quiet -q -n -e"
)
_RUFF_FORMAT = (
    "--check --diff --range --line-length --exclude --extend-exclude --preview --no-preview --target-version "
    "--no-cache --quiet -q -n"
)
_PRE_COMMIT = "--all-files -a --files --from-ref --to-ref --hook-stage --show-diff-on-failure --verbose -v"
_ESLINT = "--fix --fix-type --fix-dry-run --ext --quiet --max-warnings --rule --format -f --no-color --no-inline-config"
_PYTEST = (
    "-q -v -x -s -k -m -l -r -rA -rf -n --quiet --verbose --exitfirst --maxfail --tb --lf --last-failed --ff "
    "--failed-first --nf --new-first --sw --stepwise --durations --co --collect-only --no-header --no-summary "
    "--showlocals --deselect --ignore --strict-markers"
)
_MYPY = (
    "-p -m --package --module --strict --pretty --no-error-summary --show-error-codes --show-error-context "
    "--python-version --platform --ignore-missing-imports --follow-imports --warn-unused-ignores --warn-unreachable "
    "--explicit-package-bases --namespace-packages --exclude --no-incremental"
)


def _preset(*prefix: str, options: str, commit_on: tuple[int, ...] = (0, 1)) -> ShellRule:
    return ShellRule(prefix, options=tuple(options.split()), commit_on=commit_on)


FIXING: tuple[ShellRule, ...] = (
    _preset("ruff", "check", options=_RUFF_CHECK),
    _preset("ruff", "format", options=_RUFF_FORMAT),
    _preset("pre-commit", "run", options=_PRE_COMMIT),
    _preset("eslint", options=_ESLINT),
)
"""Programs that fix and format code; what they have fixed stays, also if findings are left."""

CHECKING: tuple[ShellRule, ...] = (
    _preset("pytest", options=_PYTEST, commit_on=(0, 1, 5)),
    _preset("mypy", options=_MYPY),
)
"""Programs that check code; their caches stay, also if they find something, and so does whatever tests write."""

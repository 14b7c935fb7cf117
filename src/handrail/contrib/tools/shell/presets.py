"""Ready rules: for programs that only read, and for programs that fix and check code.

Options are allowed by name, so that one that a later version of a program adds is refused. Left out are options that
write elsewhere than in the files that are named (`find -delete`, `sort -o`), start programs (`find -exec`, `rg --pre`),
follow links in folders (`grep -R`, `find -L`), read names of files from a file (`wc --files0-from`), name another
configuration, install something, or never end (`tail -f`).

A program that fixes or checks code ends with 1 if it has found something, also when it has fixed something else.
`commit_on` lets the call succeed then: the fixes stay, and so do the caches that make the next run quick. Ended
otherwise (a usage error, a crash, a signal, the timeout), the call fails and its changes are rolled back.

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

`pre-commit`, `eslint`, `pytest` and plugins of `mypy` run code of the project: a model that can write files can write
that.
"""

from __future__ import annotations

import os

from handrail.contrib.tools.shell.rules import ShellRule

_FIND = (
    "-name -iname -path -ipath -regex -iregex -regextype -type -size -empty -newer -mtime -mmin -maxdepth -mindepth "
    "-not -o -or -a -and -prune -depth -print -printf -ls -quit -true -false -samefile -links -xdev -[0-9]*"
)

_GREP = (
    "-r -n -i -v -w -x -c -l -L -o -h -H -E -F -G -P -e -m -A -B -C -a -I -s -q --recursive --line-number "
    "--ignore-case --include --exclude --exclude-dir --max-count --count --files-with-matches --files-without-match "
    "--only-matching --word-regexp --invert-match --fixed-strings --extended-regexp --context --after-context "
    "--before-context"
)

_RG = (
    "-n -N -i -s -S -v -w -x -c -l -o -F -P -e -m -A -B -C -g -t -T -U --files --hidden --no-ignore --glob --iglob "
    "--type --type-not --type-list --line-number --ignore-case --smart-case --fixed-strings --max-count --count "
    "--count-matches --files-with-matches --files-without-match --only-matching --word-regexp --invert-match "
    "--multiline --context --after-context --before-context --max-depth --sort --stats --json"
)

_GIT_HISTORY = (
    "-n -p -s -w -b -M -C -U -S -G -i -E -F --oneline --stat --shortstat --numstat --name-only --name-status --summary "
    "--patch --no-patch --graph --all --branches --tags --since --until --after --before --author --committer --grep "
    "--merges --no-merges --first-parent --follow --reverse --max-count --skip --format --pretty --date --decorate "
    "--no-decorate --abbrev-commit --diff-filter --find-renames --unified --ignore-all-space --ignore-space-change "
    "--word-diff --cached --staged --merge-base --color --no-color"
)

_GIT_STATUS = "-s -b -u --short --branch --porcelain --long --untracked-files --ignored --no-renames"

_GIT_SETTINGS = (
    ("core.fsmonitor", "false"),
    ("core.hooksPath", os.devnull),
    ("core.attributesFile", os.devnull),
    ("core.pager", "cat"),
    ("log.showSignature", "false"),
    ("protocol.allow", "never"),
    ("submodule.recurse", "false"),
    ("status.submoduleSummary", "false"),
)

# Given on the command line, which overrides the configuration of the repository: a model that can write files may have
# written that.
_GIT = ("git", "--no-pager", *(part for key, value in _GIT_SETTINGS for part in ("-c", f"{key}={value}")))

# External diffs and text conversions are programs that a repository's configuration names.
_PLAIN_DIFF = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=all")

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


def _looking(
    *prefix: str,
    options: str,
    forbid: tuple[str, ...] = (),
    runs: tuple[str, ...] = (),
    beyond: tuple[str, ...] | None = None,
) -> ShellRule:
    return ShellRule(
        prefix, options=tuple(options.split()), forbid=forbid, reads=True, runs=runs, reads_beyond_with=beyond
    )


READING: tuple[ShellRule, ...] = (
    _looking("ls", options="-l -a -A -R -h -t -S -r -1 -d -F -i -p -n --all --almost-all --recursive --reverse --sort"),
    _looking("cat", options="-n -b -s -A -E -T -v --number --show-all", beyond=()),
    _looking("head", options="-n -c -q -v --lines --bytes", beyond=()),
    _looking("tail", options="-n -c -q -v --lines --bytes", beyond=()),
    _looking("wc", options="-l -w -c -m -L --lines --words --bytes --chars", beyond=()),
    _looking("grep", options=_GREP, beyond=("-r", "--recursive")),
    _looking("rg", options=_RG),
    _looking("find", options=_FIND),
)
"""Programs that show and find files, without git; see `GIT_READING`."""


GIT_READING: tuple[ShellRule, ...] = (
    _looking("git", "status", options=_GIT_STATUS, runs=(*_GIT, "status", "--ignore-submodules=all")),
    *(
        # `%G` in a format checks signatures, which starts the program that the configuration names for it.
        _looking("git", what, options=_GIT_HISTORY, forbid=("*%G*",), runs=(*_GIT, what, *_PLAIN_DIFF))
        for what in ("log", "diff", "show")
    ),
)
"""`git status`, `log`, `diff` and `show`, without pager, hooks, external diffs and signatures.

Only for repositories whose `.git` is written only by trusted users, and never by the model: a repository's own
configuration can name programs as filters, which git starts when it compares files; these rules cannot prevent it.
"""

"""Rules to start from: programs that only look, with the options that cannot make them do anything else.

Options are listed and not forbidden, so that one that a later version of a program brings along is refused. Left out is
whatever writes (`find -delete`, `sort -o`), starts programs (`find -exec`, `rg --pre`), follows links in folders
(`grep -R`, `find -L`), takes names of files from a file (`wc --files0-from`), or never ends (`tail -f`).
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
"""Programs that show files and find them. Git is not among them; see `GIT_READING`."""

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
_GIT = ("git", "--no-pager", *(part for key, value in _GIT_SETTINGS for part in ("-c", f"{key}={value}")))
_PLAIN_DIFF = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=all")

GIT_READING: tuple[ShellRule, ...] = (
    _looking("git", "status", options=_GIT_STATUS, runs=(*_GIT, "status", "--ignore-submodules=all")),
    *(
        _looking("git", what, options=_GIT_HISTORY, forbid=("*%G*",), runs=(*_GIT, what, *_PLAIN_DIFF))
        for what in ("log", "diff", "show")
    ),
)
"""`git status`, `log`, `diff` and `show`, without pager, hooks, external diffs and signatures.

Only for repositories whose `.git` nobody writes to but whom you trust, least of all the model: a repository's own
configuration can name programs as filters, which git starts when it compares files, and these rules cannot prevent it.
"""

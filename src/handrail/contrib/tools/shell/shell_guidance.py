"""What the model is told about running programs."""

from __future__ import annotations

from handrail.contrib.tools.shell.rules import ShellRule

_TEXT = """\
Run programs with `shell_run`, one program a call. There is no shell: give the name of the program and each argument as
a string of its own. Quotes, `*`, `$`, `|` and `>` mean nothing but what the program itself makes of them.

**What may be run**

{allowed}

**Rules**

- A program starts in `folder`, and paths are relative to it.{confined}
- Give the value of an option as the next string: `"-n", "5"`. Where an option is refused, the message lists the others.
- A program that ends with another exit code than 0 has failed; some say so that they have found nothing.
- A program may take {seconds:g} s. Whatever it leaves running is killed. Of a long output the middle is left out.
{undoing}"""

_CONFINED = " Absolute paths, `..` and links that lead out are refused."

_UNDONE = """\
- What a program that fails has changed in the folder is undone, but for what it has done in `.git`. What it does
  outside is not undone."""

_NOT_UNDONE = "- Nothing that a program does is undone, also if it fails: look before you run it again."

_NOTHING = "- Nothing: every program is refused. Do without."

_ONLY_READS = "- Nothing is ever changed here: these programs only look."


def guidance(rules: tuple[ShellRule, ...], *, seconds: float, undoes: bool) -> str:
    """The text of the shell section, as Markdown.

    Args:
        rules: what may be run.
        seconds: how long a program may take.
        undoes: whether what a program changes is undone when it fails.
    """
    allowed = "\n".join(f"- {rule.described}" for rule in rules) or _NOTHING
    undoing = _ONLY_READS if all(rule.reads for rule in rules) else _UNDONE if undoes else _NOT_UNDONE
    confined = _CONFINED if any(rule.confined for rule in rules) else ""
    return _TEXT.format(allowed=allowed, confined=confined, seconds=seconds, undoing=undoing)

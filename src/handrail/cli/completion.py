"""`handrail completion`: what a shell needs to complete commands, options and files."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import App, Parameter

from handrail.cli.debugging import Debug
from handrail.cli.screen import Screen

Shell = Literal["bash", "zsh", "fish"]
"""The shells that a script can be printed for."""

_HELP = """Print the script with which a shell completes the commands and options of `handrail`.

Install it once, and again after an upgrade:

* bash: `handrail completion bash > ~/.local/share/bash-completion/completions/handrail`
* zsh: `handrail completion zsh > ~/.zfunc/_handrail`, with `fpath+=~/.zfunc` before `compinit` in `~/.zshrc`
* fish: `handrail completion fish > ~/.config/fish/completions/handrail.fish`

Then start a new shell.
"""


def add_completion(app: App) -> None:
    """Give an application the command `completion`, which knows all its commands."""

    def completion(
        shell: Annotated[Shell, Parameter(metavar="SHELL", help="The shell: bash, zsh or fish.")],
        /,
        *,
        debug: Debug = False,  # noqa: ARG001 - for the help; it is taken out before the command line is parsed
    ) -> int:
        Screen().raw(app.generate_completion(prog_name="handrail", shell=shell).rstrip("\n"))
        return 0

    app.command(completion, name="completion", help=_HELP, sort_key=6)

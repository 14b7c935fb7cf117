"""The template of a prompt that a command line names, as `module:attribute`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from cyclopts import CycloptsError

from handrail.errors import PromptValidationError
from handrail.prompt import Prompt, PromptTemplate
from handrail.serde.formatting import nearest


def named_template(name: str) -> PromptTemplate[Any]:
    """Import the template of a prompt; of a `Prompt`, its own.

    The current folder is searched first, as by `python -m`. What the module prints goes to standard error.

    Raises:
        CycloptsError: `name` is not `module:attribute`, or the module or attribute does not exist.
        PromptValidationError: the attribute is not a template or a prompt, or the module cannot be imported.
    """
    module, colon, attribute = name.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module.split("."), *attribute.split("."))):
        raise CycloptsError(msg=f"{name!r} is not a prompt; write MODULE:ATTRIBUTE, such as desk.prompts:TEMPLATE")
    found = _attribute(_imported(module), module, attribute)
    is_prompt = isinstance(found, Prompt)
    if not is_prompt and not isinstance(found, PromptTemplate):
        raise PromptValidationError(
            f"{name} is of type {type(found).__name__}; it must be a PromptTemplate or a Prompt."
        )
    if not is_prompt:
        return cast("PromptTemplate[Any]", found)
    prompt = cast("Prompt[Any]", found)
    if prompt.overrides is not None and prompt.overrides.applied:
        raise PromptValidationError(
            f"{name} is a prompt with overrides already; name its template, so that the texts of the code are read."
        )
    return prompt.template


def _imported(module: str) -> object:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        # Standard output is for the findings alone; a module may print at its import.
        with redirect_stdout(sys.stderr):
            return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise PromptValidationError(f"the module {module} cannot be imported: {error}") from error
        raise CycloptsError(
            msg=f"the module {module} does not exist; check the name, and the current folder"
        ) from error
    except SystemExit as error:
        # Not the exit code of this command, which has meanings of its own.
        raise PromptValidationError(f"the module {module} ends the process at its import; it must not") from error
    except Exception as error:
        message = f"the module {module} cannot be imported: {type(error).__name__}: {error}"
        raise PromptValidationError(message) from error


def _attribute(module: object, name: str, attribute: str) -> object:
    found = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            kinds = (PromptTemplate, Prompt)
            known = [key for key, value in vars(module).items() if isinstance(value, kinds)]
            near = nearest(attribute, known)
            hint = f" Did you mean {name}:{near}?" if near else f" Its prompts: {', '.join(known) or 'none'}."
            raise CycloptsError(msg=f"the module {name} has no attribute {attribute!r}.{hint}")
        found = getattr(found, part)
    return found

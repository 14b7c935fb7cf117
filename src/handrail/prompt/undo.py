"""The declaration of how the effect of a call is undone after its commit; `handrail.undo` does it.

    @tool(effect="external", undo=refund, capture=read_balance)
    def pay(order: str, cents: int) -> Receipt: ...

    def refund(params: Any, result: ToolResult[Receipt], before: int, *, context: ToolContext) -> None: ...

| callable | is called as | when |
|---|---|---|
| `undo` | `undo(params, result, before)` | a plan that has the call is applied |
| `capture` | `capture(params)` | before the effect is claimed; it may only read |
| `preview` | `preview(params)` | in a dry run, in place of the handler; it returns a `ToolResult`, as that would |

Each may be `async`, and may take `context`. The parameters and the result are those of the call, loaded from its
record, and `before` is what `capture` returned then, loaded by its annotation; it is stored before the effect. What
`undo` returns is a success, unless it is a failed `ToolResult`. An undo of an external effect is a second effect: the
world sees both, and its own outcome may be in doubt, too.

A `preview` shows in a dry run what a call would return, so that the run can continue from there:

    @tool(effect="external", undo=refund, preview=lambda params: ToolResult.ok(Receipt(params.order, "preview")))
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from handrail.errors import PromptValidationError
from handrail.prompt.idempotency import External
from handrail.prompt.signature import AnyCallable, make_union, returned_members, returned_type
from handrail.serde import Codec, stored_codec


@dataclass(frozen=True, slots=True)
class Undo:
    """How the effect of a call is undone, and how the outcome of the undo is determined.

    Attributes:
        run: undoes the effect. What it raises counts as what the handler of an external tool raises.
        effect: the declaration of the effect of `run`. Its `reconcile(params, key)` gets the parameters of the call
            that is undone, and the key of the undo, which `run` reads as `context.idempotency_key`.
        obstacle: returns why `run` cannot undo a call with these parameters and this result, or `None`; a plan of an
            undo asks it.

    Raises:
        PromptValidationError: `run` cannot be called, or `effect` is not an `External`, or has `apply`.
    """

    run: AnyCallable
    effect: External = field(default_factory=External)
    obstacle: AnyCallable | None = None

    def __post_init__(self) -> None:
        run: Any = self.run  # whatever is given
        effect: Any = self.effect
        if not callable(run):
            raise PromptValidationError(f"Undo: run is {run!r}; give the function that undoes the effect.")
        if not isinstance(effect, External) or effect.apply is not None:
            raise PromptValidationError(f"Undo: effect is {effect!r:.80}; write External(...), without apply.")


def _leave(_params: object, _result: object, _before: object) -> None: ...


FILES_ALONE: Final = Undo(_leave)
"""The undo of a tool that runs programs: files and state are restored, and what a program did elsewhere stays."""


def captured_codec(capture: AnyCallable | None) -> Codec[Any]:
    """The codec of what `capture` returns, `None` without one; raises `SchemaError` if JSON cannot say it."""
    kind: Any = None if capture is None else make_union(returned_members(returned_type(capture)))
    return stored_codec(kind, unambiguous=False)

"""In what the class sketches of document 000 differ from the real classes; each difference has a name.

A name is written as one would write the thing in the sketch: `Tool.handler`, `ResourceRegistry.get(default=)`. What the
real class has beyond its sketch is no difference, as long as whoever follows the sketch does not notice it.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

Method = ast.FunctionDef


def classes_in(code: str) -> dict[str, ast.ClassDef]:
    """The classes that a block sketches, by name."""
    return {node.name: node for node in ast.parse(code).body if isinstance(node, ast.ClassDef)}


def differences(sketch: ast.ClassDef, real: type[Any]) -> Iterator[str]:
    """In what a real class differs from its sketch."""
    if issubclass(real, Enum):
        return
    parameters = _parameters(real)
    yield from _differences_of_decorator(sketch, real)
    yield from _differences_of_fields(sketch, real, parameters)
    if any(parameter.kind is inspect.Parameter.KEYWORD_ONLY for parameter in parameters.values()):
        yield f"{sketch.name}({next(iter(parameters))}, ...)"
    for method in _methods(sketch):
        yield from _differences_of_method(sketch.name, method, real)


def _differences_of_decorator(sketch: ast.ClassDef, real: type[Any]) -> Iterator[str]:
    frozen = any("frozen=True" in ast.unparse(decorator) for decorator in sketch.decorator_list)
    parameters: Any = getattr(real, "__dataclass_params__", None)
    if parameters is not None and parameters.frozen and not frozen:
        yield f"@dataclass class {sketch.name}"


def _differences_of_fields(
    sketch: ast.ClassDef, real: type[Any], parameters: Mapping[str, inspect.Parameter]
) -> Iterator[str]:
    sketched = {ast.unparse(node.target): node.value for node in sketch.body if isinstance(node, ast.AnnAssign)}
    computed = [name for name in sketched if name not in parameters and hasattr(real, name)]
    if computed:
        yield f"{sketch.name}({', '.join(computed)})"
    for name, value in sketched.items():
        default = None if value is None else ast.unparse(value)
        if name not in parameters and name not in computed:
            yield f"{sketch.name}.{name}"
        elif name in parameters and default != _default(parameters[name]):
            yield f"{sketch.name}.{name}" if default is None else f"{sketch.name}.{name} = {default}"
    demanded = [name for name, one in parameters.items() if name not in sketched and _default(one) is None]
    if demanded and not computed:
        yield f"{sketch.name} without {', '.join(demanded)}"


def _differences_of_method(class_name: str, method: Method, real: type[Any]) -> Iterator[str]:
    found = inspect.getattr_static(real, method.name, None)
    if found is None:
        yield f"{class_name}.{method.name}"
    elif _is_property(method) != isinstance(found, property):
        yield f"{class_name}.{method.name}()"
    elif not _is_property(method) and not method.name.startswith("__"):
        taken = inspect.signature(getattr(real, method.name)).parameters.values()
        by_name = {one.name for one in taken if one.kind is not inspect.Parameter.POSITIONAL_ONLY}
        for argument in (*method.args.args, *method.args.kwonlyargs):
            if argument.arg != "self" and argument.arg not in by_name:
                yield f"{class_name}.{method.name}({argument.arg}=)"


def _methods(sketch: ast.ClassDef) -> list[Method]:
    return [node for node in sketch.body if isinstance(node, Method)]


def _is_property(method: Method) -> bool:
    return any(ast.unparse(decorator) == "property" for decorator in method.decorator_list)


def _parameters(real: type[Any]) -> Mapping[str, inspect.Parameter]:
    """What an object of the class is made from."""
    return inspect.signature(real).parameters


def _default(parameter: inspect.Parameter) -> str | None:
    """A default as one would write it; `None` if there is none."""
    return None if parameter.default is inspect.Parameter.empty else repr(parameter.default)

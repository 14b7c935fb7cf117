"""The modules of a project: imported once each, unseen by other projects of the process, and their exports.

- The modules of a folder live under a package of their own, `handrail_project_<folder>_<digest of its path>`; so
  `tools/money.py` is `handrail_project_desk_1f0c3a….tools.money`. By that name they are in `sys.modules`, and by no
  other, so they shadow neither another project's `tools` nor an installed module.
- In the modules of a project, `import helpers` and `from tools.money import rate` mean the files of its folder, as they
  do for a script that lies there, also in a function that is called later. The rule is in the `__import__` of their own
  `__builtins__`, so it holds for them alone. `importlib.import_module("helpers")` does not see it; relative imports
  work as ever.
- A file of the folder wins over an installed module of its name, and so does a folder with Python files.
- `tools.py` beside `tools/`: the folder's modules are imported as `tools.<name>`, and `tools` itself is the file. With
  an `__init__.py` in the folder, that is an error.
- The target of a symbolic link out of the folder is not executed: a right to write links there is not a right to run
  code. No bytecode is kept, so the file itself runs.
- If an import fails, everything that was imported along with it leaves again, and the next one starts afresh. With a
  module, the names that `stored_as` gave to its classes are forgotten.

| the module has | its tools | its toolsets |
|---|---|---|
| `TOOLS`: a list, tuple or dict | those in it; `__all__` does not count | |
| no `TOOLS`, but `__all__` | all that it names; each must be a tool | |
| `TOOLSETS`: a list, tuple or dict | | those in it |
| none of them | none | none |

`TOOLS = []` exports none, while `TOOLS = None` is an error. In `__all__` the names `TOOLS` and `TOOLSETS` are passed
over. `__init__.py` and `__main__.py` export nothing.
"""

from __future__ import annotations

import builtins
import hashlib
import importlib
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import FileFinder, ModuleSpec, SourceFileLoader
from pathlib import Path
from threading import RLock
from traceback import walk_tb
from types import ModuleType
from typing import cast

from handrail.agents.registry import (
    Entry,
    ExportFault,
    check_exports,
    collect_entries,
    collect_items,
)
from handrail.errors import DiscoveryError
from handrail.session.persistence.stored_types import PROJECT_PACKAGE, forget_types

_INIT = "__init__.py"
_LIBRARIES = frozenset({"site-packages", "dist-packages"})
# Of the process, as `sys.modules` is: what an import has added is what was not there before.
_ONE_AT_A_TIME = RLock()


def import_modules(folder: Path, files: Iterable[Path]) -> tuple[dict[str, ModuleType], list[DiscoveryError]]:
    """Imports files of a project folder, given from there; files that were imported before are not executed again.

    Returns the modules that could be imported, by their files and in the order of these, and why others could not. If
    there is such a problem, no module that was imported now stays in `sys.modules`.
    """
    with _ONE_AT_A_TIME:
        package = _prepare_package(folder.resolve())
        before = set(_names_below(package))
        modules: dict[str, ModuleType] = {}
        problems: list[DiscoveryError] = []
        is_sound = False
        try:
            for where in dict.fromkeys(file.as_posix() for file in files):
                try:
                    modules[where] = _import(folder.resolve(), package, where)
                except DiscoveryError as problem:
                    problems.append(problem)
            is_sound = not problems
        # Also after Ctrl-C: a half imported module would otherwise be taken for a complete one the next time.
        finally:
            if not is_sound:
                _drop(package, (name for name in _names_below(package) if name not in before))
        return modules, problems


def forget_modules(folder: Path) -> None:
    """Forgets all modules of a project folder, so that the next import executes their files again.

    Modules, and objects of them, that are still referenced stay usable.
    """
    package = package_name(folder)
    _drop(package, _names_below(package))


def package_name(folder: Path) -> str:
    """The name of the package under which the modules of a project folder live."""
    path = folder.resolve()
    # The digest keeps two folders of the same name apart; twelve hexadecimal digits are 48 bits.
    digest = hashlib.sha256(str(path).encode(errors="surrogateescape")).hexdigest()[:12]
    return f"{PROJECT_PACKAGE}{re.sub(r'[^A-Za-z0-9]+', '_', path.name).strip('_')}_{digest}"


def _prepare_package(folder: Path) -> str:
    package = package_name(folder)
    if package not in sys.modules:
        module = ModuleType(package, "The modules of one project folder.")
        module.__path__ = [str(folder)]
        module.__spec__ = ModuleSpec(package, None, is_package=True)
        sys.modules[package] = module
    # One finder for all projects, and first, so that no other finder can claim their names.
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    return package


def _import(folder: Path, package: str, where: str) -> ModuleType:
    name, dot_py = where.removesuffix(".py"), where.endswith(".py")
    if not dot_py or "." in name or (folder / name / _INIT).is_file():
        raise DiscoveryError(
            f"{where} cannot be imported: a module is a file that ends in .py, without another dot in its path, and "
            f"without {Path(name).name}/{_INIT} beside it",
            module=where,
        )
    try:
        return importlib.import_module(".".join((package, *Path(name).parts)))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may raise `SystemExit`, which must not end the process
        place = error_location(error, folder)
        # Without the path of the module from which something could not be imported.
        text = str(error).replace(f"{package}.", "").replace(f" ({getattr(error, 'path', None)})", "")
        raise DiscoveryError(
            f"{where} cannot be imported: {type(error).__name__}: {text}{f' ({place})' if place else ''}", module=where
        ) from error


def _names_below(package: str) -> tuple[str, ...]:
    return tuple(name for name in list(sys.modules) if name.startswith(f"{package}."))


def _drop(package: str, names: Iterable[str]) -> None:
    # From every place where an import looks: the cache, and the package that has them. A module that failed is in
    # neither any more; the classes that it named are forgotten, too.
    for name in names:
        module = sys.modules.pop(name, None)
        parent, _, tail = name.rpartition(".")
        # Removed only if it is that module: the package may have set another value of that name.
        holder = vars(sys.modules[parent]) if parent in sys.modules else {}
        if module is not None and holder.get(tail) is module:
            del holder[tail]
    # The predicate is evaluated after the loop, when the dropped modules have left `sys.modules`.
    forget_types(lambda module: module.startswith(f"{package}.") and module not in sys.modules)


class _Finder(MetaPathFinder):
    # Finds the modules of all project folders; the package that the name begins with has the folder.
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del target
        package, _, inside = fullname.partition(".")
        if not package.startswith(PROJECT_PACKAGE) or not inside or path is None:
            return None
        # Python's own finder for the files of a folder, made anew, because files may have come since.
        specs = (FileFinder(folder, (_Loader, [".py"])).find_spec(fullname) for folder in path)
        return next(filter(None, specs), None)


class _Loader(SourceFileLoader):
    # Executes a module of a project, with the imports of its folder.
    def path_stats(self, path: str) -> Mapping[str, float]:
        # `SourceFileLoader` compiles the source if the stats cannot be read, and writes no bytecode then.
        raise OSError(f"no bytecode is kept for {path}")

    def exec_module(self, module: ModuleType) -> None:
        package = module.__name__.partition(".")[0]
        folder = Path(sys.modules[package].__path__[0])
        file = Path(self.path)
        if not file.resolve().is_relative_to(folder):
            raise ImportError(
                f"{file.relative_to(folder).as_posix()} is a link out of the project, to {file.resolve()}, and was not "
                "executed; copy the file into the project, or install it as a package"
            )
        beside = file.with_suffix("")
        if file.name != _INIT and beside.is_dir():
            module.__path__ = [str(beside)]
        # A copy for each module: changing the shared `builtins` would affect the imports of all code.
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": _Importer(package, folder)}
        super().exec_module(module)


@dataclass(frozen=True, slots=True)
class _Importer:
    # Called by the `import` statements of a module of a project.
    package: str
    folder: Path

    def __call__(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        head = name.partition(".")[0]
        here = self.folder / head
        is_own = here.with_name(f"{head}.py").is_file() or any(here.glob("*.py"))
        # Relative imports name the package already, so Python's own rule is the right one.
        if level or not is_own or head in sys.builtin_module_names:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        module = builtins.__import__(f"{self.package}.{name}", globals, locals, fromlist or (), 0)
        # Without a `fromlist`, an import statement binds the first part of the name.
        return module if fromlist else sys.modules[f"{self.package}.{head}"]


_LISTS = ("TOOLS", "TOOLSETS")
_HINT = "\n__all__ counts because there is no TOOLS; define TOOLS to choose tools, TOOLS = [] for none"


def discover(modules: Mapping[str, ModuleType]) -> tuple[list[Entry], list[DiscoveryError]]:
    """The tools and toolsets of all modules, and a problem for each one with exports that cannot be registered.

    A module with a fault hides no other, and its error lists all of its faults.
    """
    entries: list[Entry] = []
    problems: list[DiscoveryError] = []
    for where, module in modules.items():
        try:
            entries += exports(module, where=where)
        except DiscoveryError as problem:
            problems.append(problem)
    return entries, problems


def exports(module: ModuleType, *, where: str) -> list[Entry]:
    """The tools and toolsets of one module, in its order; its objects are neither called nor changed.

    `where` is its file. A `DiscoveryError` lists all exports that cannot be registered.
    """
    names = vars(module)
    faults: list[ExportFault] = []
    # `TOOLS` replaces `__all__` as a whole, so that a module can export names to Python without offering them to
    # agents.
    if "TOOLS" in names:
        entries = collect_entries("tool", names["TOOLS"], where, faults)
    else:
        entries = _collect_all(module, where, faults) if "__all__" in names else []
    hint = _HINT if faults and "TOOLS" not in names else ""
    if "TOOLSETS" in names:
        entries += collect_entries("toolset", names["TOOLSETS"], where, faults)
    check_exports(f"{where} exports what cannot be registered", faults, module=where, hint=hint)
    return entries


def _collect_all(module: ModuleType, origin: str, faults: list[ExportFault]) -> list[Entry]:
    names: object = vars(module)["__all__"]
    if not isinstance(names, list | tuple):
        kind = "None" if names is None else f"of type {type(names).__name__}"
        faults.append(ExportFault("__all__", f"is {kind}, but must be a list or tuple of names"))
        return []
    items = [str(name) for name in cast("Sequence[object]", names)]
    there = vars(module)
    faults += [ExportFault(name, "is in __all__, but not in the module") for name in items if name not in there]
    pairs = [(name, there[name]) for name in items if name in there and name not in _LISTS]
    return collect_items("tool", pairs, origin, faults)


def error_location(error: BaseException, folder: Path) -> str:
    """The innermost line in the resolved folder of a project that raised an error: `tools.py:12`; empty without one."""
    lines = [(Path(frame.f_code.co_filename), line) for frame, line in walk_tb(error.__traceback__)]
    inside = [
        f"{path.relative_to(folder).as_posix()}:{line}"
        for path, line in lines
        if path.is_relative_to(folder) and _LIBRARIES.isdisjoint(path.parts)  # an environment may lie in the folder
    ]
    return inside[-1] if inside else ""

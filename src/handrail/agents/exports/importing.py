"""Imports the modules of a project, each file once, so that projects in one process do not see each other's modules.

- The modules of a folder live under a package of their own, `handrail_project_<folder>_<digest of its path>`; so
  `tools/money.py` is `handrail_project_desk_1f0c3a….tools.money`. By that name they are in `sys.modules`, and by no
  other, so they shadow nothing: not another project's `tools`, and no installed module.
- In the modules of a project, `import helpers` and `from tools.money import rate` mean the files of its folder, as they
  do for a script that lies there, also in a function that is called later. This holds for the modules of the folder and
  for no others: the rule is in the `__import__` that their own `__builtins__` have, which is where an `import`
  statement looks for it. `importlib.import_module("helpers")` does not see it; relative imports work as ever.
- A file of the folder wins over an installed module of its name, and so does a folder with Python files.
- `tools.py` beside `tools/`: the folder's modules are imported as `tools.<name>`, and `tools` itself is the file. With
  an `__init__.py` in the folder it would be ambiguous which of the two `tools` is, so that is an error.
- What a symbolic link out of the folder leads to is not executed: a right to write links there is not a right to run
  code. No bytecode is kept, so what runs is what stands there.
- If an import fails, everything that was imported along with it leaves again, and the next one starts afresh. With a
  module, the names that `stored_as` gave to its classes are forgotten.
"""

from __future__ import annotations

import builtins
import hashlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from threading import RLock
from types import ModuleType

from handrail.agents.error_text import error_location, error_message
from handrail.errors import DiscoveryError
from handrail.session.persistence.stored_types import PROJECT_PACKAGE, forget_types

_INIT = "__init__.py"
_ONE_AT_A_TIME = RLock()  # what an import has added is what was not there before


@dataclass(frozen=True, slots=True)
class ProjectModule:
    """An imported module of a project.

    Attributes:
        where: its file from the project folder, e.g. `tools/money.py`.
        module: the module, the very one that other modules of the project import.
    """

    where: str
    module: ModuleType


def import_modules(folder: Path, files: Iterable[Path]) -> tuple[list[ProjectModule], list[DiscoveryError]]:
    """Import files of a project folder; what was imported before is not executed again.

    Returns the modules that could be imported, in the order of their files, and why others could not. If there is such
    a problem, no module that was imported now stays in `sys.modules`.

    Args:
        folder: the project folder.
        files: paths from the folder.
    """
    with _ONE_AT_A_TIME:
        package = _prepared(folder.resolve())
        # Compared afterwards with what is there, to find what this import has added.
        before = set(_names_below(package))
        modules: list[ProjectModule] = []
        problems: list[DiscoveryError] = []
        is_sound = False
        try:
            for where in dict.fromkeys(file.as_posix() for file in files):
                try:
                    modules.append(ProjectModule(where, _import(folder.resolve(), package, where)))
                except DiscoveryError as problem:
                    problems.append(problem)
            is_sound = not problems
        # Also after Ctrl-C: a half imported module would otherwise be taken for a complete one the next time.
        finally:
            if not is_sound:
                _drop(package, (name for name in _names_below(package) if name not in before))
        return modules, problems


def forget_modules(folder: Path) -> None:
    """Forget all modules of a project folder, so that the next import executes their files again.

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


def _prepared(folder: Path) -> str:
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
        text = error_message(error).replace(f"{package}.", "").replace(f" ({getattr(error, 'path', None)})", "")
        raise DiscoveryError(
            f"{where} cannot be imported: {type(error).__name__}: {text}{f' ({place})' if place else ''}", module=where
        ) from error


def _names_below(package: str) -> tuple[str, ...]:
    return tuple(name for name in list(sys.modules) if name.startswith(f"{package}."))


def _drop(package: str, names: Iterable[str]) -> None:
    """Take modules out of every place where an import finds them: the cache, and the package that has them.

    A module that failed is in neither any more; the classes that it named are forgotten, too.
    """
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
    """Finds the modules of all project folders; which folder it is, the package knows that the name begins with."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del target
        package, _, inside = fullname.partition(".")
        if not package.startswith(PROJECT_PACKAGE) or not inside or path is None:
            return None
        tail = fullname.rpartition(".")[2]
        for folder in map(Path, path):
            init, file = folder / tail / _INIT, folder / f"{tail}.py"
            # The same order as in Python: a package precedes a module of its name.
            if init.is_file():
                return _spec(fullname, init, [str(folder / tail)])
            if file.is_file():
                return _spec(fullname, file, None)
        return None  # Python's own finder makes a package of a folder without `__init__.py`


def _spec(name: str, file: Path, search: list[str] | None) -> ModuleSpec | None:
    return importlib.util.spec_from_file_location(
        name, file, loader=_Loader(name, str(file)), submodule_search_locations=search
    )


class _Loader(SourceFileLoader):
    """Executes a module of a project, with the imports of its folder."""

    def path_stats(self, path: str) -> Mapping[str, float]:
        """Says that nothing is known of the file, so that no bytecode is read or written for it."""
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
    """What an `import` statement calls in a module of a project."""

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
        found = builtins.__import__(f"{self.package}.{name}", globals, locals, fromlist or (), 0)
        # Without a `fromlist`, an import statement binds the first part of the name.
        return found if fromlist else sys.modules[f"{self.package}.{head}"]

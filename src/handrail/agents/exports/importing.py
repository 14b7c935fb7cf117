"""Imports the modules of a project, each file once, so that projects in one process do not see each other's modules.

- The modules of a folder live under a package of their own, `handrail_project_<folder>_<digest of its path>`; so
  `tools/money.py` is `handrail_project_desk_1f0c3a….tools.money`. By that name they are in `sys.modules`, and by no
  other, so they shadow nothing: not another project's `tools`, and no installed module.
- In the modules of a project, `import helpers` and `from tools.money import rate` mean the files of its folder, as they
  do for a script that lies there, also in a function that is called later. This holds for the modules of the folder and
  for no others: the rule is in the `__import__` that their own `__builtins__` have, which is where an `import`
  statement looks for it. `importlib.import_module("helpers")` does not see it; relative imports work as ever.
- A file of the folder wins over an installed module of its name, as it does for a script; a module that is compiled
  into Python wins over the file, as it does there; a mere folder stands back behind any module.
- `tools.py` beside `tools/`: the folder's modules are imported as `tools.<name>`, and `tools` itself is the file. With
  an `__init__.py` in the folder it would be ambiguous which of the two `tools` is, so that is an error.
- A symbolic link to a file of the folder is that file. What a link out of the folder leads to is not executed, neither
  as a listed file nor by an import: a right to write links there is not a right to run code.
- No bytecode is kept, so the folder stays as it is, and what runs is what stands there.
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

from handrail.agents.error_text import error_location, error_message, without_library_path
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


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of importing the modules of a project.

    Attributes:
        modules: those that could be imported, in the order of their files.
        problems: why others could not; then no module that was imported now stays in `sys.modules`.
    """

    modules: tuple[ProjectModule, ...] = ()
    problems: tuple[DiscoveryError, ...] = ()


def import_modules(folder: Path, files: Iterable[Path]) -> Imported:
    """Import files of a project folder; what was imported before is not executed again.

    Args:
        folder: the project folder.
        files: paths from the folder; a file that is listed twice, also by a symbolic link, is imported once.
    """
    with _ONE_AT_A_TIME:
        return _import_modules(folder.resolve(), files)


def _import_modules(folder: Path, files: Iterable[Path]) -> Imported:
    package = _prepared(folder)
    # Compared afterwards with what is there, to find what this import has added.
    before = set(_names_below(package))
    modules: list[ProjectModule] = []
    problems: dict[str, DiscoveryError] = {}
    sound = False
    try:
        for name, where in _named(folder, package, files).items():
            try:
                modules.append(ProjectModule(where, _import(folder, name, where)))
            except DiscoveryError as problem:
                problems.setdefault(str(problem), problem)
        sound = not problems
    # Also after Ctrl-C: a half imported module would otherwise be taken for a complete one the next time.
    finally:
        if not sound:
            _drop(package, (name for name in _names_below(package) if name not in before))
    return Imported(tuple(modules), tuple(problems.values()))


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


def _named(folder: Path, package: str, files: Iterable[Path]) -> Mapping[str, str]:
    """The files by the names of their modules, each file once."""
    named: dict[str, str] = {}
    for file in files:
        path = folder / file
        inside = _inside(folder, path)
        # By the resolved path, so that a link and its target are one module.
        named.setdefault(_module_name(package, inside), inside.as_posix())
    return named


def _inside(folder: Path, path: Path) -> Path:
    """A file's path from the folder: that of what it links to, unless that lies elsewhere and will be refused."""
    real = path.resolve()
    return real.relative_to(folder) if real.is_relative_to(folder) else path.relative_to(folder)


def _module_name(package: str, inside: Path) -> str:
    parts = inside.parent.parts if inside.name == _INIT else inside.with_suffix("").parts
    return ".".join((package, *parts))


def _import(folder: Path, name: str, where: str) -> ModuleType:
    file = folder / where
    if not where.endswith(".py") or "." in where.removesuffix(".py"):
        raise DiscoveryError(
            f"{where} cannot be imported: a module is a file that ends in .py, without another dot in its path",
            module=where,
        )
    if (file.with_suffix("") / _INIT).is_file():
        raise DiscoveryError(
            f"{where} cannot be imported: {where.removesuffix('.py')}/{_INIT} is the same module to Python; move the "
            "content of one into the other",
            module=where,
        )
    outside = _outside(folder, file)
    if outside is not None:
        raise DiscoveryError(f"{where} was not executed: it {outside}", module=where)
    try:
        return importlib.import_module(name)
    except SystemExit as error:
        raise DiscoveryError(f"{where} exits when it is imported{_place(folder, error)}", module=where) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        text = without_library_path(error, error_message(error).replace(f"{package_name(folder)}.", ""), folder)
        raise DiscoveryError(
            f"{where} cannot be imported: {type(error).__name__}: {text}{_place(folder, error)}", module=where
        ) from error


def _outside(folder: Path, file: Path) -> str | None:
    """Why a file of a project folder must not be executed; `None` unless it is a link out of the folder."""
    real = file.resolve()
    if real.is_relative_to(folder):
        return None
    return f"is a link out of the project, to {real}; copy the file into the project, or install it as a package"


def _place(folder: Path, error: BaseException) -> str:
    """Where in the project an error arose, for the end of a message."""
    if isinstance(error, SyntaxError) and error.filename is not None and Path(error.filename).is_relative_to(folder):
        return ""  # the message has file and line
    place = error_location(error, folder)
    return f" ({place})" if place else ""


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
        # Checked here too: imports within the project do not pass `_import`.
        outside = _outside(folder, file)
        if outside is not None:
            raise ImportError(f"{file.relative_to(folder).as_posix()} {outside}")
        itself = _module_name(package, _inside(folder, file))
        # A link imports its target under the target's name, so that both names are one module.
        if itself != module.__name__:
            sys.modules[module.__name__] = importlib.import_module(itself)
            return
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
        # Relative imports name the package already, so Python's own rule is the right one.
        if level or not self._has(head):
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        found = builtins.__import__(f"{self.package}.{name}", globals, locals, fromlist or (), 0)
        # Without a `fromlist`, an import statement binds the first part of the name.
        return found if fromlist else sys.modules[f"{self.package}.{head}"]

    def _has(self, head: str) -> bool:
        if head in sys.builtin_module_names:
            return False
        if (self.folder / f"{head}.py").is_file() or (self.folder / head / _INIT).is_file():
            return True
        # A folder without `__init__.py` must not hide an installed module, as in a script's own folder.
        return (self.folder / head).is_dir() and not _is_installed(head)


def _is_installed(head: str) -> bool:
    """Whether there is a module of that name, and not just a folder."""
    try:
        spec = importlib.util.find_spec(head)
    except ValueError:  # it was made by hand, and is there
        return True
    return spec is not None and spec.origin is not None

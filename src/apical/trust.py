"""Which code named by a file may be imported: what the user allowed, and nothing else.

A study file, a trial's folder or a saved conversion may name code: modules in `imports`, a network or an activation as
`package.module:name`. Such a name is imported only where the user allowed its module: on the command line, by `allow`,
by `trust=True`, or by the answer to a question that is asked once and remembered with the file's checksum. What is
allowed holds for this process; a driver hands it on to its workers. docs/security.md is the page about it.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal

from apical import files, imports
from apical.errors import InvalidArgumentError, UntrustedError, visible

ALL: Final = "*"
"""Stands for every module: `--trust`."""
ANSWERS: Final = "trusted.json"
_PLACE: Final = re.compile(r"(?<![\w.])[^\W\d][\w.]*:[^\W\d][\w.]*")
_allowed: set[str] = set()

Trust = bool | Literal["ask"]
"""`trust=`: True allows what a file names, "ask" asks on a terminal where a study file names modules beside it."""


def allow(*modules: str) -> None:
    """Import modules of yours, and let files name code in them, and in the modules of their packages."""
    for name in modules:
        imports.of_user(name)
    _allowed.update(modules)


def grant(*names: str) -> None:
    """Let files name these modules, or these `package.module:name`; nothing is imported now. "*" stands for all."""
    _allowed.update(names)


def allowed() -> tuple[str, ...]:
    """What was allowed in this process."""
    return tuple(sorted(_allowed))


def named(*texts: str) -> tuple[str, ...]:
    """Each `package.module:name` in texts such as `pyramidal(basal=gelu,apical=mine:Bump)`."""
    return tuple(dict.fromkeys(name for text in texts for name in _PLACE.findall(str(text))))


def permits(name: str) -> bool:
    """True where the user allowed this module or `package.module:name`, its module, or a package that it is in."""
    module = name.partition(":")[0]
    return bool({ALL, name} & _allowed) or any(f"{module}.".startswith(f"{each}.") for each in _allowed)


def require(what: str, name: str) -> None:
    """Refuse the code `package.module:name` that the user did not allow; importing what is not there says so itself."""
    module = name.partition(":")[0]
    if not permits(name) and _origin(module) is not None:
        raise refusal(f"{what} {name!r}", [module])


def refusal(what: str, modules: Iterable[str]) -> UntrustedError:
    """The sentence for code that nobody allowed."""
    names = list(modules)
    calls = ", ".join(repr(name) for name in names)
    return UntrustedError(
        f"{what} names code in {' and '.join(names)}, which would run as a program: if you trust it, allow it with "
        f"--import {','.join(names)} or --trust (in Python: apical.trust.allow({calls}) or trust=True)"
    )


# --- what `package.module:name` points at ---------------------------------------------------------------------------


def factory(path: str, what: str) -> Callable[..., Any]:
    """The function or class that `package.module:name` points at, defined in that package; its module is imported."""
    module, _, name = path.partition(":")
    require(what, path)
    if module.partition(".")[0] in sys.stdlib_module_names:
        raise InvalidArgumentError(
            f"{what} {path!r} is in Python's standard library, which is not imported for this: name a module of yours"
        )
    try:
        thing: Any = import_module(module)
    except ImportError as error:
        raise InvalidArgumentError(
            f"{what} {path!r} cannot be imported ({error}): write package.module:factory, with the package installed "
            "or in a folder on PYTHONPATH"
        ) from error
    for part in name.split("."):
        thing = getattr(thing, part, None)
    if not (inspect.isclass(thing) or inspect.isfunction(inspect.unwrap(thing) if callable(thing) else None)):
        raise InvalidArgumentError(f"{what} {path!r} cannot be made: module {module} has no function or class {name!r}")
    home = str(thing.__module__)
    if home.partition(".")[0] != module.partition(".")[0]:
        raise InvalidArgumentError(f"{what} {path!r} is not defined there but in {home}: name it as {home}:{name}")
    return thing  # type: ignore[no-any-return]


# --- the decision about a file --------------------------------------------------------------------------------------


def decide(path: Path, modules: Iterable[str], *, trust: Trust = False) -> None:
    """Allow the modules that a file names, or refuse them, all in one sentence; they are not imported here.

    A module that does not exist passes: the import itself reports it.
    """
    wanted = [name for name in modules if not permits(name) and _origin(name) is not None]
    if not wanted:
        return
    if trust is True or recall(path, wanted) or (trust == "ask" and _ask(path, wanted)):
        grant(*wanted)
        return
    raise refusal(str(path), wanted)


def remember(path: Path, modules: Iterable[str], *, yes: bool = True) -> None:
    """Keep a decision about a file as it is now, with where its modules lie; nothing where it names none."""
    origins = _origins(modules)
    if origins:
        known = _answers()
        known[str(path.resolve())] = {"sha256": files.sha256(path), "modules": origins, "allowed": yes}
        files.home().mkdir(parents=True, exist_ok=True)
        files.write_json(files.home() / ANSWERS, known, durable=False)


def recall(path: Path, modules: Iterable[str]) -> bool:
    """True where these modules, lying where they do now, were allowed to this very file before."""
    answer = _answer(path)
    return bool(answer.get("allowed")) and _origins(modules).items() <= answer["modules"].items()


def _answer(path: Path) -> dict[str, Any]:
    """What was answered about a file with this path and these bytes; nothing where it was not asked about."""
    answer = _answers().get(str(path.resolve()))
    if not isinstance(answer, dict) or not isinstance(answer.get("modules"), dict):
        return {}
    try:
        return answer if answer.get("sha256") == files.sha256(path) else {}
    except OSError:
        return {}


def _answers() -> dict[str, Any]:
    """All answers; none where the home cannot be read."""
    try:
        return files.read_json(files.home() / ANSWERS) or {}
    except OSError:
        return {}


def _ask(path: Path, modules: list[str]) -> bool:
    """Ask on a terminal about a study file of the working directory whose modules lie beside it, once."""
    here, origins = Path.cwd().resolve(), _origins(modules)
    beside = all(_folder(origin) == here for origin in origins.values())
    if path.resolve().parent != here or not beside or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    if _answer(path).get("modules") == origins:
        return False  # it was answered with no
    print(f"{visible(path.name)} names code that would run as a program:", file=sys.stderr)
    for name, origin in origins.items():
        print(visible(f"  {name}: {origin}"), file=sys.stderr)
    print("Allow it, now and as long as the study file stays as it is? [y/N] ", end="", file=sys.stderr, flush=True)
    yes = sys.stdin.readline().strip().lower() in ("y", "yes")
    remember(path, modules, yes=yes)
    return yes


def _origins(modules: Iterable[str]) -> dict[str, str | None]:
    return {name: _origin(name) for name in modules}


def _origin(module: str) -> str | None:
    """The file of a module's outermost package, which is not imported for it; None where there is none."""
    outermost = module.partition(".")[0]
    try:
        spec = find_spec(outermost) if outermost else None
    except ImportError:
        return None
    except ValueError:  # a module without a file, such as __main__
        return ""
    if spec is None:
        return None
    return spec.origin or next(iter(spec.submodule_search_locations or ()), None)


def _folder(origin: str | None) -> Path | None:
    """The folder that a module, or package, lies in."""
    if origin is None:
        return None
    path = Path(origin).resolve()
    return path.parent.parent if path.name == "__init__.py" or path.is_dir() else path.parent

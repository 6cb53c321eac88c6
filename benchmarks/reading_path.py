"""How many modules a reader opens who follows `apical study run table-fashion-mlp` from the command to the page.

    python benchmarks/reading_path.py [--list]

Runs the quick variant of the study (300 images of each split, one epoch, one worker) and `apical report` on it, every
process under a profiler that notes which functions of apical are called. Preparing the data (Fashion-MNIST) comes
before and is counted apart. Two counts:

called    modules of which a function or method ran, in the driver, in the worker or in the report. What runs only
          while modules are imported (decorators, registration) does not count
read      those, and the modules that define what the called functions name: constants, dataclasses, exceptions,
          functions behind a branch that was not taken. The reader looks these up; names that a package's __init__
          only passes on are followed to the module that defines them

Modules that are merely imported, or named in annotations alone, are in neither.
"""

import argparse
import ast
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from functools import cache
from importlib.util import find_spec
from pathlib import Path

STUDY = "table-fashion-mlp"
QUICK = ["--quick", "--set", "quick.samples=300", "--set", "quick.training.epochs=1", "--workers", "1"]
PROFILER = """
import os, sys, threading

CALLED, ROOT = os.environ["READING_PATH_CALLED"], os.environ["READING_PATH_ROOT"]
seen = set()

def note(frame, event, _):
    code = frame.f_code
    if event != "call" or code in seen or not code.co_filename.startswith(ROOT):
        return
    if not code.co_filename.endswith(".py"):  # a template
        return
    if code.co_name.startswith("<") or not code.co_flags & 1:  # comprehensions, modules and class bodies
        return
    outer = frame.f_back
    while outer is not None:
        if outer.f_code.co_name == "<module>" and outer.f_code.co_filename.startswith(ROOT):
            if not outer.f_code.co_filename.endswith("__main__.py"):
                return
        outer = outer.f_back
    seen.add(code)
    with open(f"{CALLED}/{os.getpid()}", "a") as file:
        file.write(f"{code.co_filename}\\t{code.co_firstlineno}\\t{code.co_name}\\n")

threading.setprofile(note)
sys.setprofile(note)
"""
"""The text of sitecustomize.py, which every Python process of the run imports at its start, workers too."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name every module")
    listed = parser.parse_args().list
    package = find_spec("apical")
    assert package is not None
    assert package.origin is not None
    root = Path(package.origin).parent
    with tempfile.TemporaryDirectory() as folder:
        prepared = followed(root, Path(folder), ["data", "prepare", "fashion-mnist"])
        run = followed(root, Path(folder), ["study", "run", STUDY, "-d", "study", *QUICK])
        page = followed(root, Path(folder), ["report", "study", "-o", "report"])
    everything = {module_of(path, root) for path in root.rglob("*.py")}
    called, read = set(run) | set(page), mentioned(run, root) | mentioned(page, root)
    table(everything, called, read)
    print(f"study run: {len(run)} called; report: {len(page)} called; preparing the data: {len(prepared)} called, "
          f"{len(set(prepared) - read)} of them in neither count above")  # fmt: skip
    if listed:
        for name in sorted(read):
            print("called" if name in called else "read  ", name)


# --- what was called -----------------------------------------------------------------------------------------------

Called = dict[str, set[int]]
"""By module, the first lines of the functions that were called."""


def followed(root: Path, folder: Path, arguments: list[str]) -> Called:
    """The functions that one command called, in all its processes."""
    notes = Path(tempfile.mkdtemp(dir=folder))
    (folder / "sitecustomize.py").write_text(PROFILER)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), str(root.parent)]),
        "APICAL_HOME": str(folder / "home"),
        "READING_PATH_CALLED": str(notes),
        "READING_PATH_ROOT": f"{root}{os.sep}",
    }
    subprocess.run([sys.executable, "-m", "apical", *arguments], cwd=folder, env=environment, check=True, stdout=2)
    called: Called = defaultdict(set)
    for path in notes.iterdir():
        for line in path.read_text().splitlines():
            file, first, _ = line.split("\t")
            called[module_of(Path(file), root)].add(int(first))
    return called


def module_of(path: Path, root: Path) -> str:
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


# --- what the called functions name ----------------------------------------------------------------------------------


def mentioned(called: Called, root: Path) -> set[str]:
    """The modules of the called functions, and those that define the names in their bodies."""
    modules = set(called)
    for module, lines in called.items():
        tree, imports = parsed(module, root)
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and lines & first_lines(function):
                own = imports | imported(function)
                modules |= {
                    definition(own[name], attribute, root) for name, attribute in names_in(function) if name in own
                }
    return modules - {""}


def first_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[int]:
    """The line of `def`, and that of the first decorator, where code objects begin."""
    return {function.lineno, *(decorator.lineno for decorator in function.decorator_list)}


def names_in(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[tuple[str, str]]:
    """The names that a body uses, each with the attribute taken of it; annotations are left out."""
    nodes = [node for statement in function.body for node in ast.walk(without_annotations(statement))]
    taken = [(n.value.id, n.attr) for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)]
    return taken + [(node.id, "") for node in nodes if isinstance(node, ast.Name)]


def without_annotations(node: ast.AST) -> ast.AST:
    for inner in ast.walk(node):
        for field in ("annotation", "returns"):
            if getattr(inner, field, None) is not None:
                setattr(inner, field, ast.Constant(value=None))
    return node


@cache
def parsed(module: str, root: Path) -> tuple[ast.Module, dict[str, tuple[str, str]]]:
    """The tree of a module, and where the names come from that it imports of apical."""
    tree = ast.parse((file_of(module, root) or Path(os.devnull)).read_text(encoding="utf-8"))
    top = ast.Module([n for n in tree.body if not isinstance(n, ast.FunctionDef | ast.ClassDef)], [])
    return tree, imported(top)


def imported(tree: ast.AST) -> dict[str, tuple[str, str]]:
    """Of each imported name the module, and the name in it ("" for the module itself)."""
    names: dict[str, tuple[str, str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "apical":
            names |= {alias.asname or alias.name: (str(node.module), alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            own = [alias for alias in node.names if alias.name.split(".")[0] == "apical"]
            names |= {a.asname or "apical": (a.name if a.asname else "apical", "") for a in own}
    return names


def definition(source: tuple[str, str], attribute: str, root: Path) -> str:
    """The module that defines an imported name, or the attribute of an imported module; packages pass names on."""
    module, name = source
    if name and not file_of(f"{module}.{name}", root):
        passed_on = parsed(module, root)[1].get(name)
        return definition(passed_on, attribute, root) if passed_on else module
    if not attribute:
        return ""  # the module as such: what is taken of it counts
    return definition((f"{module}.{name}" if name else module, attribute), "", root)


@cache
def file_of(module: str, root: Path) -> Path | None:
    """The file of a module; of the stub where there is one, which names what is loaded lazily."""
    base = root.parent.joinpath(*module.split("."))
    candidates = (base / "__init__.pyi", base / "__init__.py", base.with_suffix(".py"))
    return next((path for path in candidates if path.is_file()), None)


# --- the table -------------------------------------------------------------------------------------------------------


def table(everything: set[str], called: set[str], read: set[str]) -> None:
    """Counts by package."""
    counts = [Counter(map(package_of, modules)) for modules in (everything, called, read)]
    print("| package | modules | called | read |\n|---|---:|---:|---:|")
    for name in sorted(counts[0]):
        print(f"| {name} | {' | '.join(str(count[name]) for count in counts)} |")
    print(f"| all | {len(everything)} | {len(called)} | {len(read)} |\n")


def package_of(module: str) -> str:
    return ".".join(module.split(".")[:2]) if module.count(".") > 1 else "apical" if "." not in module else module


if __name__ == "__main__":
    main()

"""Runs Python programs in forks of this process, which has imported torch: a start takes milliseconds, not seconds.

The fixture `forked` of conftest.py sends a request a line: the arguments of the interpreter (`-W`, then `-c`, `-m` or a
file), the folder, the environment and the files for what the program prints. The answer is the exit code.
A program has its own `__main__`, `sys.argv` and `sys.path`, and imports apical itself. Only what torch reads from the
environment when it is imported is as it was here: one thread.
"""

import gc
import json
import os
import runpy
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import scipy.stats  # noqa: F401
import torch._dynamo  # noqa: F401 - the first optimizer of a process imports it


def request() -> dict[str, Any]:
    """The next request, in a fork that is to answer it; this process waits for each, and ends with its input."""
    for line in sys.stdin:
        if (child := os.fork()) == 0:
            return json.loads(line)  # type: ignore[no-any-return]
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    sys.exit()


def become(folder: str, environment: dict[str, str], files: list[str]) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, name in enumerate([os.devnull, *files]):
        file = os.open(name, os.O_RDWR | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)


def execute(kind: str, *arguments: str) -> None:
    """What the interpreter does with these arguments."""
    if kind == "-W":
        sys.warnoptions.append(arguments[0])
        warnings._setoption(arguments[0])  # type: ignore[attr-defined]
        execute(*arguments[1:])
    elif kind == "-c":
        sys.argv, sys.path[0] = ["-c", *arguments[1:]], ""
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(arguments[0], "<string>", "exec", dont_inherit=True), main.__dict__)
    elif kind == "-m":
        sys.argv, sys.path[0] = list(arguments), str(Path.cwd())
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = [kind, *arguments], str(Path(kind).parent)
        runpy.run_path(kind, run_name="__main__")


gc.freeze()
asked = request()
become(asked["folder"], asked["environment"], asked["files"])
execute(*asked["arguments"])

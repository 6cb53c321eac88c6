"""The data sets by name: those of apical, then the registered ones."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numpy.typing import ArrayLike

from apical import imports
from apical.data.recipe import Recipe, Task
from apical.data.sets import (
    coordinates,
    crema_d,
    digits,
    fashion_mnist,
    imagenet,
    moroco,
    tabular,
    tiny_imagenet,
    toy,
    utkface,
)
from apical.errors import InvalidArgumentError, unknown

RECIPES = {
    recipe.name: recipe
    for recipe in (
        fashion_mnist.RECIPE,
        moroco.RECIPE,
        utkface.GENDER,
        utkface.AGE,
        crema_d.RECIPE,
        tiny_imagenet.RECIPE,
        imagenet.RECIPE,
        digits.RECIPE,
        *toy.RECIPES,
        *coordinates.RECIPES,
        *tabular.RECIPES,
    )
}
TASKS = ("classification", "regression")


def names() -> list[str]:
    """The names that `load` knows."""
    return [*RECIPES]


def get(name: str) -> Recipe:
    """The recipe of a data set, or an error with the names there are."""
    if name in RECIPES:
        return RECIPES[name]
    more = (
        "a folder of class folders, a .csv, an .npz or a .wav of your own is loaded by its path, and "
        + imports.adding("apical.data.register")
    )
    raise InvalidArgumentError(unknown("data set", name, RECIPES, more))


def register(
    name: str,
    make: Callable[[], Mapping[str, ArrayLike]],
    *,
    shape: Sequence[int],
    task: Task = "classification",
    class_names: Sequence[str] | None = None,
    classes: int | None = None,
    description: str = "",
    licence: str = "not given",
    citation: str = "not given",
) -> None:
    """Add a data set of your own: `make()` gives its arrays, the same ones whenever it is called.

    The arrays are `x` and `y`, split 70/15/15, or `x_train`, `y_train`, `x_test` and `y_test`, with `x_validation` and
    `y_validation` if there are any. uint8 arrays (n, height, width[, channels]) are images: they are divided by 255
    and lose their training mean; everything else is used as it is, in float32. `shape` is that of one input as a
    network sees it, (channels, height, width) for images. For classification, `y` numbers the classes from 0.

    Put the call into a module and name the module in the `imports` of a study file to use the data set there.
    """
    if not (isinstance(name, str) and re.fullmatch(r"\w[\w-]*", name)):
        raise InvalidArgumentError(f"{name!r} cannot name a data set: use letters, digits, '-' and '_'")
    if name in RECIPES:
        raise InvalidArgumentError(f"there is a data set {name!r} already: register yours under another name")
    if not callable(make):
        raise InvalidArgumentError(f"data set {name!r}: make is {make!r}, but must be a function without arguments")
    if task not in TASKS:
        raise InvalidArgumentError(unknown("task", task, TASKS))
    sizes = tuple(shape) if isinstance(shape, Sequence) else ()
    if not sizes or any(not isinstance(n, int) or n < 1 for n in sizes):
        raise InvalidArgumentError(f"data set {name!r}: shape is {shape!r}, but must be like (2,) or (3, 32, 32)")
    if task == "regression" and (class_names or classes):
        raise InvalidArgumentError(f"data set {name!r}: a regression task has no classes")
    facts: dict[str, Any] = {"description": description or f"your own {name}", "licence": licence, "citation": citation}
    RECIPES[name] = Recipe(
        name=name,
        store=name,
        kind="numbers",
        task=task,
        shape=sizes,
        classes=classes,
        class_names=tuple(class_names) if class_names else None,
        make=lambda _: make(),  # type: ignore[arg-type, return-value]
        **facts,
    )

"""The data sets by name."""

import difflib

from apical.data.recipe import Recipe
from apical.data.sets import crema_d, digits, fashion_mnist, imagenet, moroco, tiny_imagenet, toy, utkface
from apical.errors import InvalidArgumentError

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
    )
}


def names() -> list[str]:
    """The names that `load` knows."""
    return [*RECIPES]


def get(name: str) -> Recipe:
    """The recipe of a data set, or the names there are."""
    if name in RECIPES:
        return RECIPES[name]
    near = difflib.get_close_matches(name.lower(), RECIPES, n=1)
    hint = f"did you mean {near[0]!r}? T" if near else "t"
    raise InvalidArgumentError(
        f"there is no data set {name!r}: {hint}here are {', '.join(RECIPES)}, and a folder of class folders, a .csv or "
        "an .npz of your own, by its path"
    )

"""All comparisons of the studies of a report, made once and adjusted together, study by study."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from apical.report.answers import AnswerBook
from apical.report.comparison import Comparison, adjusted, compare
from apical.study.results import RowResults, StudyResults

Ref = tuple[str, str]
"""The name of a study within the report, and the key of a row."""
Pair = tuple[Ref, Ref, str]
"""Row, row, metric."""


class Evidence:
    """The tests of a report: ask for pairs with `make`, then look them up with `get`."""

    def __init__(self, studies: Sequence[StudyResults]) -> None:
        self.book = AnswerBook()
        self.studies: dict[str, StudyResults] = _named(studies)
        self._rows = {(name, found.row.key): found for name, r in self.studies.items() for found in r.rows}
        self._found: dict[Pair, Comparison] = {}

    def row(self, ref: Ref) -> RowResults | None:
        """The row, or None where this report does not have it."""
        return self._rows.get(ref)

    def make(self, pairs: Iterable[Pair]) -> None:
        """Compare these pairs; Holm's adjustment is over all pairs of the first row's study."""
        families: dict[str, dict[Pair, Comparison]] = defaultdict(dict)
        for pair in pairs:
            a, b, metric = pair
            first, second = self._rows.get(a), self._rows.get(b)
            if pair in families[a[0]] or first is None or second is None:
                continue
            found = compare(first, second, metric, self.book)
            if found is not None:
                families[a[0]][pair] = found
        self._found = {}
        for family in families.values():
            self._found |= dict(zip(family, adjusted(family.values()), strict=True))

    def get(self, a: Ref, b: Ref, metric: str) -> Comparison | None:
        """The comparison of a pair that was asked for, whichever way round; None where it could not be made."""
        found = self._found.get((a, b, metric))
        if found is None and (b, a, metric) in self._found:
            return turned(self._found[b, a, metric])
        return found

    def of(self, study: str) -> list[Comparison]:
        """Every comparison that was made for a study."""
        return [found for (a, _, _), found in self._found.items() if a[0] == study]


def turned(found: Comparison) -> Comparison:
    """The same comparison with its two rows exchanged."""
    over = found.over_trials
    return replace(
        found, a=found.b, b=found.a, trials=found.trials[::-1], difference=-found.difference, low=-found.high,
        high=-found.low, effect=-found.effect, only_a=found.only_b, only_b=found.only_a,
        over_trials=replace(over, mean=-over.mean, low=-over.high, high=-over.low),
    )  # fmt: skip


def _named(studies: Sequence[StudyResults]) -> dict[str, StudyResults]:
    """Each under its study's name, in the order given. Of several copies of one study, the first that can carry
    verdicts (neither quick nor partial) has the plain name, by which claims find it; the others bear a number.
    """
    names: dict[int, str] = {}
    for place in sorted(range(len(studies)), key=lambda k: _lesser(studies[k])):
        study = studies[place].study
        names[place] = _free(study.base or study.name, names.values())
    return {names[place]: results for place, results in enumerate(studies)}


def _lesser(results: StudyResults) -> bool:
    return results.study.quick or any(part.partial for part in results.study.parts)


def _free(name: str, taken: Iterable[str]) -> str:
    """The name, with a number where another study of the report bears it."""
    count = sum(other == name or other.startswith(f"{name} (") for other in taken)
    return name if not count else f"{name} ({count + 1})"

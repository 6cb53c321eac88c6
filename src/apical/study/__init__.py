"""Studies: every table and figure as one command. The public names, loaded when first used."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from apical.study.claim import Claim as Claim
    from apical.study.claim import claims as claims
    from apical.study.file import Group as Group
    from apical.study.file import PaperNumber as PaperNumber
    from apical.study.file import Part as Part
    from apical.study.file import Row as Row
    from apical.study.file import Study as Study
    from apical.study.loading import load as load
    from apical.study.loading import names as names
    from apical.study.plan import Plan as Plan
    from apical.study.plan import Planned as Planned
    from apical.study.written import schema as schema

_HOME = {
    "Claim": "claim.Claim",
    "Group": "file.Group",
    "PaperNumber": "file.PaperNumber",
    "Part": "file.Part",
    "Plan": "plan.Plan",
    "Planned": "plan.Planned",
    "Row": "file.Row",
    "Study": "file.Study",
    "claims": "claim.claims",
    "load": "loading.load",
    "names": "loading.names",
    "schema": "written.schema",
}

__all__ = [*_HOME]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'apical.study' has no attribute {name!r}; it has {', '.join(__all__)}")
    module, attribute = _HOME[name].split(".")
    value = getattr(importlib.import_module(f"apical.study.{module}"), attribute)
    globals()[name] = value
    return value

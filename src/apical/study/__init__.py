"""Studies: every table and figure as one command. The public names, loaded when first used."""

from typing import TYPE_CHECKING

from apical import imports

if TYPE_CHECKING:
    from apical.study.claim import Claim as Claim
    from apical.study.claim import claims as claims
    from apical.study.config.loading import load as load
    from apical.study.config.loading import names as names
    from apical.study.config.schema import schema as schema
    from apical.study.driver import run as run
    from apical.study.engines.base import Options as Options
    from apical.study.engines.base import register_engine as register_engine
    from apical.study.listing import Entry as Entry
    from apical.study.listing import catalogue as catalogue
    from apical.study.maintenance import export as export
    from apical.study.maintenance import merge as merge
    from apical.study.maintenance import retry as retry
    from apical.study.model import Group as Group
    from apical.study.model import PaperNumber as PaperNumber
    from apical.study.model import Part as Part
    from apical.study.model import Row as Row
    from apical.study.model import Study as Study
    from apical.study.plan import Plan as Plan
    from apical.study.plan import Planned as Planned
    from apical.study.results import RowResults as RowResults
    from apical.study.results import SettingResults as SettingResults
    from apical.study.results import StudyResults as StudyResults
    from apical.study.results import TrialRecord as TrialRecord
    from apical.study.results import frozen as frozen
    from apical.study.results import read as read
    from apical.study.results import status as status
    from apical.study.state import Progress as Progress

_HOME = {
    "Claim": "claim.Claim",
    "Entry": "listing.Entry",
    "Group": "model.Group",
    "Options": "engines.base.Options",
    "PaperNumber": "model.PaperNumber",
    "Part": "model.Part",
    "Plan": "plan.Plan",
    "Planned": "plan.Planned",
    "Progress": "state.Progress",
    "Row": "model.Row",
    "RowResults": "results.RowResults",
    "SettingResults": "results.SettingResults",
    "Study": "model.Study",
    "StudyResults": "results.StudyResults",
    "TrialRecord": "results.TrialRecord",
    "catalogue": "listing.catalogue",
    "claims": "claim.claims",
    "export": "maintenance.export",
    "frozen": "results.frozen",
    "load": "config.loading.load",
    "merge": "maintenance.merge",
    "names": "config.loading.names",
    "read": "results.read",
    "register_engine": "engines.base.register_engine",
    "retry": "maintenance.retry",
    "run": "driver.run",
    "schema": "config.schema.schema",
    "status": "results.status",
}

__all__ = [*_HOME]  # noqa: PLE0604
__getattr__ = imports.lazy(__name__, _HOME)

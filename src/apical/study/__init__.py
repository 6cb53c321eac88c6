"""Studies: every table and figure as one command. The public names, loaded when first used."""

from typing import TYPE_CHECKING

from apical import lazy

if TYPE_CHECKING:
    from apical.study.claim import Claim as Claim
    from apical.study.claim import claims as claims
    from apical.study.driver import run as run
    from apical.study.engines.base import Options as Options
    from apical.study.exporting import export as export
    from apical.study.file import Group as Group
    from apical.study.file import PaperNumber as PaperNumber
    from apical.study.file import Part as Part
    from apical.study.file import Row as Row
    from apical.study.file import Study as Study
    from apical.study.listing import Entry as Entry
    from apical.study.listing import catalogue as catalogue
    from apical.study.loading import load as load
    from apical.study.loading import names as names
    from apical.study.merging import merge as merge
    from apical.study.plan import Plan as Plan
    from apical.study.plan import Planned as Planned
    from apical.study.progress import Progress as Progress
    from apical.study.reading import frozen as frozen
    from apical.study.reading import read as read
    from apical.study.reading import status as status
    from apical.study.results import RowResults as RowResults
    from apical.study.results import SettingResults as SettingResults
    from apical.study.results import StudyResults as StudyResults
    from apical.study.results import TrialRecord as TrialRecord
    from apical.study.retrying import retry as retry
    from apical.study.written import schema as schema

_HOME = {
    "Claim": "claim.Claim",
    "Entry": "listing.Entry",
    "Group": "file.Group",
    "Options": "engines.base.Options",
    "PaperNumber": "file.PaperNumber",
    "Part": "file.Part",
    "Plan": "plan.Plan",
    "Planned": "plan.Planned",
    "Progress": "progress.Progress",
    "Row": "file.Row",
    "RowResults": "results.RowResults",
    "SettingResults": "results.SettingResults",
    "Study": "file.Study",
    "StudyResults": "results.StudyResults",
    "TrialRecord": "results.TrialRecord",
    "catalogue": "listing.catalogue",
    "claims": "claim.claims",
    "export": "exporting.export",
    "frozen": "reading.frozen",
    "load": "loading.load",
    "merge": "merging.merge",
    "names": "loading.names",
    "read": "reading.read",
    "retry": "retrying.retry",
    "run": "driver.run",
    "schema": "written.schema",
    "status": "reading.status",
}

__all__ = [*_HOME]  # noqa: PLE0604
__getattr__ = lazy.loader(__name__, _HOME)

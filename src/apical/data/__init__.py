"""Data sets: prepared once, read fast, hard to get wrong. The public names, loaded when first used."""

from typing import TYPE_CHECKING

from apical import imports

if TYPE_CHECKING:
    from apical.data.corruptions import Few as Few
    from apical.data.corruptions import Imbalance as Imbalance
    from apical.data.corruptions import InputNoise as InputNoise
    from apical.data.corruptions import LabelNoise as LabelNoise
    from apical.data.corruptions import Resplit as Resplit
    from apical.data.corruptions import Subset as Subset
    from apical.data.corruptions import corrupt as corrupt
    from apical.data.dataset import Batch as Batch
    from apical.data.dataset import Batches as Batches
    from apical.data.dataset import Corruption as Corruption
    from apical.data.dataset import DataSet as DataSet
    from apical.data.dataset import Split as Split
    from apical.data.loading import describe as describe
    from apical.data.loading import load as load
    from apical.data.preparation import prepare as prepare
    from apical.data.preparation import statuses as statuses
    from apical.data.preparation import verify as verify
    from apical.data.registry import names as list  # noqa: A004, F401
    from apical.data.registry import register as register
    from apical.files import home as home

_HOME = {
    "Batch": "dataset.Batch",
    "Batches": "dataset.Batches",
    "Corruption": "dataset.Corruption",
    "DataSet": "dataset.DataSet",
    "Few": "corruptions.Few",
    "Imbalance": "corruptions.Imbalance",
    "InputNoise": "corruptions.InputNoise",
    "LabelNoise": "corruptions.LabelNoise",
    "Resplit": "corruptions.Resplit",
    "Split": "dataset.Split",
    "Subset": "corruptions.Subset",
    "corrupt": "corruptions.corrupt",
    "describe": "loading.describe",
    "home": "store.home",
    "list": "registry.names",
    "load": "loading.load",
    "prepare": "preparation.prepare",
    "register": "registry.register",
    "statuses": "preparation.statuses",
    "verify": "preparation.verify",
}

__all__ = [*_HOME]  # noqa: PLE0604
__getattr__ = imports.lazy(__name__, _HOME)

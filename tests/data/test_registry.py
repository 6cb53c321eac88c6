"""Being registered is being tested: every data set, from fabricated files in its official layout."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

import apical
from apical import data
from apical.data import registry
from apical.errors import DataError, InvalidArgumentError, MissingDataError

NAMES = data.list()
ON_DISK = [n for n in NAMES if registry.get(n).make is None]


def load(name, fabricate, **how):
    if name in ON_DISK:
        return data.load(name, fabricate.by_name(name), partial=True, **how)
    return data.load(name, **how)


def test_the_names_are_those_of_the_design():
    expected = (
        "fashion-mnist moroco utkface-gender utkface-age crema-d tiny-imagenet imagenet digits xor and or "
        "parity-3 parity-4 parity-5 sin sinc china-64 flower-64 portrait-64 china-128 flower-128 portrait-128 "
        "tones tones-other voice voice-other iris wine breast-cancer diabetes"
    )
    assert expected.split() == NAMES
    assert apical.data is data


def test_the_public_names_are_frozen():
    assert sorted(data.__all__) == [
        "Batch",
        "Batches",
        "Corruption",
        "DataSet",
        "Few",
        "Imbalance",
        "InputNoise",
        "LabelNoise",
        "Resplit",
        "Split",
        "Subset",
        "corrupt",
        "describe",
        "home",
        "list",
        "load",
        "prepare",
        "register",
        "statuses",
        "verify",
    ]
    assert all(getattr(data, name) is not None for name in data.__all__)
    with pytest.raises(AttributeError, match="no attribute 'download'"):
        data.download  # noqa: B018


@pytest.mark.parametrize("name", NAMES)
def test_every_data_set_has_three_splits_of_known_samples(name, home, fabricate):
    loaded = load(name, fabricate)
    assert loaded.description
    assert loaded.licence
    assert loaded.citation
    recipe = registry.get(name)
    assert (loaded.shape, loaded.task) == (recipe.shape, recipe.task)
    assert recipe.class_count == (None if loaded.class_names is None else len(loaded.class_names))
    for part in loaded.splits.values():
        assert len(part) == len(part.ids) == len(part.labels) > 0
        assert len(set(part.ids)) == len(part)
        sample = part[len(part) - 1]
        assert sample.input.shape == part.shape == loaded.shape
        assert sample.id == part.ids[-1]
        assert torch.isfinite(sample.input.double()).all()
        if loaded.task == "classification":
            assert part.labels.dtype == np.int64
            assert part.labels.max() < len(loaded.class_names)
        else:
            assert loaded.class_names is None
            assert part.labels.dtype == np.float32


@pytest.mark.parametrize("name", ON_DISK)
def test_splits_of_prepared_sets_do_not_overlap_and_cover_all_rows(name, home, fabricate):
    loaded = load(name, fabricate)
    ids = [i for part in loaded.splits.values() for i in part.ids]
    assert len(set(ids)) == len(ids)
    n, of = (int(s.replace(",", "")) for s in loaded.partial.removeprefix("partial (").rstrip(")").split(" of "))
    assert n == len(ids)
    assert of == sum(registry.get(name).counts)


@pytest.mark.parametrize("name", NAMES)
def test_loading_twice_gives_the_same_bytes_and_identity(name, home, fabricate):
    first = load(name, fabricate)
    root = None if name not in ON_DISK else next(fabricate.root.iterdir())
    again = data.load(name, root, partial=name in ON_DISK)
    assert first.identity == again.identity
    for one, two in zip(first.splits.values(), again.splits.values(), strict=True):
        assert list(one.ids) == list(two.ids)
        assert torch.equal(one.inputs([0, len(one) - 1]), two.inputs([0, len(two) - 1]))


@pytest.mark.parametrize("name", NAMES)
def test_a_split_survives_pickling(name, home, fabricate):
    part = load(name, fabricate).train
    copy = pickle.loads(pickle.dumps(part))
    assert list(copy.ids) == list(part.ids)
    assert torch.equal(copy.inputs([1, 0]), part.inputs([1, 0]))


@pytest.mark.parametrize("name", ON_DISK)
def test_a_subset_is_refused_unless_partial_is_said(name, home, fabricate):
    root = fabricate.by_name(name)
    with pytest.raises(DataError, match=r"partial|is not Fashion-MNIST's"):
        data.load(name, root)
    assert not [p for p in (home / "prepared").iterdir() if not p.name.endswith(".lock")]


@pytest.mark.parametrize("name", [n for n in ON_DISK if registry.get(n).download is None])
def test_missing_files_are_asked_for_with_licence_and_place(name, home, monkeypatch):
    monkeypatch.setitem(registry.RECIPES, name, replace(registry.get(name), system_folders=()))
    with pytest.raises(MissingDataError) as caught:
        data.load(name)
    message = str(caught.value)
    assert registry.get(name).licence in message
    assert str(home / "raw" / registry.get(name).store) in message
    assert f"apical data prepare {name}" in message
    assert "http" in message


@pytest.mark.parametrize("name", NAMES)
def test_describe_says_what_it_is_and_under_which_licence(name):
    text = data.describe(name)
    assert registry.get(name).licence in text
    assert registry.get(name).citation in text


def test_a_wrong_name_shows_the_right_ones():
    with pytest.raises(InvalidArgumentError, match="did you mean 'crema-d'"):
        data.load("crema")


@pytest.mark.parametrize(
    ("name", "split"), [("crema-d", "actor"), ("utkface-gender", "no-duplicates"), ("utkface-age", "no-duplicates")]
)
def test_the_other_splits_are_there(name, split, home, fabricate):
    root = fabricate.by_name(name)
    paper, other = data.load(name, root, partial=True), data.load(name, root, partial=True, split=split)
    assert paper.identity != other.identity
    assert set(paper.train.ids) != set(other.train.ids)
    with pytest.raises(InvalidArgumentError, match="has no split 'random'"):
        data.load(name, root, partial=True, split="random")

"""Converted Transformers models: saved with their configuration, loaded by apical.hub; and Lightning's checkpoints."""

import json
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import apical
from apical.errors import ConversionError, InvalidArgumentError

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # those of the libraries

transformers = pytest.importorskip("transformers", reason="make test-slow installs the libraries")
import networks  # noqa: E402, F401 - it defines the operators that torchvision needs

TOKENS = torch.arange(3, 11).view(1, -1)
SPECIAL = {"vocab_size": 50, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SMALL = {**SPECIAL, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def gpt2() -> Any:
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**SPECIAL, n_embd=16, n_layer=2, n_head=2)).eval()


def bert() -> Any:
    return transformers.BertForSequenceClassification(transformers.BertConfig(**SMALL)).eval()


def llama() -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL)).eval()


def output(model: Any) -> Tensor:
    with torch.no_grad():
        return model(TOKENS)[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("make", [gpt2, bert, llama])
@pytest.mark.parametrize("unit", ["ada", "pynada(alpha=learn)"])
def test_a_saved_model_loads_with_its_conversion(make: Any, unit: str, tmp_path: Path) -> None:
    model = make()
    report = apical.convert_(model, unit, example_inputs={"input_ids": TOKENS})
    assert len(report.converted) == 2
    expected = output(model)
    model.save_pretrained(tmp_path)
    loaded = apical.hub.from_pretrained(type(model), tmp_path)
    assert torch.equal(output(loaded), expected)
    assert loaded.config.apical == model.config.apical
    report.undo()
    assert not hasattr(model.config, "apical")
    assert [key for key in model.state_dict() if "apical" in key] == []


def test_plain_from_pretrained_says_what_is_missing(tmp_path: Path, caplog: Any) -> None:
    model = gpt2()
    apical.convert_(model, "ada")
    model.save_pretrained(tmp_path)
    logger = transformers.utils.logging.get_logger("transformers")
    logger.addHandler(caplog.handler)
    plain = transformers.GPT2LMHeadModel.from_pretrained(tmp_path)
    logger.removeHandler(caplog.handler)
    assert "converted_load_with_apical_hub_from_pretrained" in caplog.text
    plain.save_pretrained(tmp_path / "again")
    with pytest.raises(ConversionError, match="again was saved by a network that had lost its conversion"):
        apical.hub.from_pretrained(transformers.GPT2LMHeadModel, tmp_path / "again")


@pytest.mark.parametrize("cls", ["GPT2LMHeadModel", "AutoModelForCausalLM"])
def test_plain_from_pretrained_warns_once_apical_is_registered(cls: str, tmp_path: Path) -> None:
    model = gpt2()
    model.save_pretrained(tmp_path / "plain")
    apical.convert_(model, "ada")
    model.save_pretrained(tmp_path / "converted")
    apical.register("transformers")
    apical.register("transformers")
    with pytest.warns(UserWarning, match=r"was converted by apical.*load it with apical\.hub\.from_pretrained") as seen:
        getattr(transformers, cls).from_pretrained(tmp_path / "converted")
    assert sum("converted by apical" in str(each.message) for each in seen) == 1
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="the model in")
        getattr(transformers, cls).from_pretrained(tmp_path / "plain")
        apical.hub.from_pretrained(getattr(transformers, cls), tmp_path / "converted")


def test_auto_classes_plain_models_and_other_weights(tmp_path: Path) -> None:
    model = bert()
    plain = output(model)
    model.save_pretrained(tmp_path / "plain")
    same = apical.hub.from_pretrained(transformers.BertForSequenceClassification, tmp_path / "plain")
    assert torch.allclose(output(same), plain, atol=1e-6)
    apical.convert_(model, "pynada")
    model.save_pretrained(tmp_path / "converted")
    auto = apical.hub.from_pretrained(transformers.AutoModelForSequenceClassification, tmp_path / "converted")
    assert torch.equal(output(auto), output(model))
    with pytest.raises(ConversionError, match=r"is not the network that was converted|do not fit"):
        apical.hub.from_pretrained(transformers.BertForMaskedLM, tmp_path / "converted")


@pytest.mark.parametrize("automatic", [False, True])
def test_what_transformers_takes_is_taken_or_refused_by_name(automatic: bool, tmp_path: Path) -> None:
    model = gpt2()
    model.save_pretrained(tmp_path / "plain")
    apical.convert_(model, "ada")
    model.save_pretrained(tmp_path / "converted")
    cls = transformers.AutoModelForCausalLM if automatic else type(model)

    def load(**options: Any) -> Any:
        return apical.hub.from_pretrained(cls, tmp_path / "converted", **options)

    for options in ({"dtype": "bfloat16"}, {"torch_dtype": torch.bfloat16}, {"dtype": torch.bfloat16}):
        assert load(**options).dtype == torch.bfloat16
    assert load(dtype="auto").dtype == load(torch_dtype=None).dtype == torch.float32
    assert load(local_files_only=True, revision="main", resid_pdrop=0.5).config.resid_pdrop == 0.5
    assert torch.equal(
        output(load(config=transformers.GPT2Config.from_pretrained(tmp_path / "converted"))), output(model)
    )
    with pytest.raises(InvalidArgumentError, match=r"cannot pass device_map, nonsense on for .*it takes dtype, config"):
        load(device_map="cpu", nonsense=3)
    with pytest.raises(InvalidArgumentError, match=r"dtype is 'half-ish': give a torch\.dtype"):
        load(dtype="half-ish")
    plain, told = apical.hub.from_pretrained(cls, tmp_path / "plain", output_loading_info=True, dtype="bfloat16")
    assert plain.dtype == torch.bfloat16
    assert "missing_keys" in told


def test_a_new_head_on_a_converted_base(tmp_path: Path) -> None:
    base = transformers.BertModel(transformers.BertConfig(**SMALL)).eval()
    apical.convert_(base, "ada")
    base.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match=r"does not hold classifier\.weight, classifier\.bias, which start at random"):
        model = apical.hub.from_pretrained(transformers.BertForSequenceClassification, tmp_path)
    with torch.no_grad():
        assert torch.equal(model.bert(TOKENS)[0], base(TOKENS)[0])


def test_the_base_of_a_converted_model_and_another_head(tmp_path: Path) -> None:
    model = gpt2()
    apical.convert_(model, "pynada")
    model.save_pretrained(tmp_path / "whole")
    model.transformer.save_pretrained(tmp_path / "base")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # nothing is random: the head is tied to the embedding
        whole = apical.hub.from_pretrained(transformers.GPT2LMHeadModel, tmp_path / "base")
    assert torch.equal(output(whole), output(model))
    for folder in ("whole", "base"):
        base = apical.hub.from_pretrained(transformers.GPT2Model, tmp_path / folder)
        assert torch.equal(output(base), output(model.transformer))
    with pytest.warns(UserWarning, match=r"does not hold score\.weight, which starts at random"):
        other = apical.hub.from_pretrained(transformers.GPT2ForSequenceClassification, tmp_path / "whole")
    assert torch.equal(output(other.transformer), output(model.transformer))


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = gpt2()
        self.first, self.second = nn.Linear(50, 8), nn.Linear(8, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.encoder(tokens, use_cache=False)[0].mean(1)
        return self.second(torch.relu(self.first(h)))  # type: ignore[no-any-return]


@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_a_model_in_a_network_that_was_converted_keeps_its_conversion(unit: str, tmp_path: Path) -> None:
    network = Classifier().eval()
    report = apical.convert_(network, unit, kinds=["gelu", "relu"])
    assert len(report.converted) == 3
    network.encoder.save_pretrained(tmp_path)
    loaded = apical.hub.from_pretrained(transformers.GPT2LMHeadModel, tmp_path)
    assert torch.equal(output(loaded), output(network.encoder))
    fresh = Classifier().eval()
    apical.convert.load(fresh, report.record)
    fresh.load_state_dict(network.state_dict())
    assert torch.equal(fresh(TOKENS), network(TOKENS))
    report.undo()
    assert not hasattr(network.encoder.config, "apical")
    assert [key for key in network.state_dict() if "apical" in key] == []


def test_a_block_that_was_converted_by_itself_is_not_loaded_as_if_it_were_not(tmp_path: Path) -> None:
    model = gpt2()
    apical.convert_(model.transformer.h[0], "ada")
    model.save_pretrained(tmp_path)
    with pytest.raises(ConversionError, match=r"was converted in part \(transformer\.h\.0\), and its configuration"):
        apical.hub.from_pretrained(transformers.GPT2LMHeadModel, tmp_path)
    apical.convert_(model, "elu")  # the other block
    model.save_pretrained(tmp_path / "both")
    with pytest.raises(ConversionError, match=r"not the network that was converted|converted in part"):
        apical.hub.from_pretrained(transformers.GPT2LMHeadModel, tmp_path / "both")


@pytest.fixture
def hostile(tmp_path: Path) -> Any:
    """Loads a saved model after its configuration was changed."""
    model = gpt2()
    apical.convert_(model, "ada")
    model.save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())

    def load(**changes: Any) -> Any:
        (tmp_path / "config.json").write_text(json.dumps(values | changes))
        return apical.hub.from_pretrained(type(model), tmp_path)

    return load


@pytest.mark.parametrize("entry", ["/etc/passwd", "config.json", "", 0, 7, 1.5, True, [1]])
def test_a_configuration_whose_conversion_is_none_opens_no_file(entry: Any, hostile: Any) -> None:
    with pytest.raises(ConversionError, match=r"the entry apical in the configuration of .* is no conversion"):
        hostile(apical=entry)


@pytest.mark.parametrize(
    ("change", "what"),
    [({"vocab_size": 10**9}, "parameters"), ({"n_embd": 10**6}, "parameters"), ({"n_layer": 10**6}, "tensors")],
)
def test_a_configuration_that_asks_for_far_more_than_the_weights_hold_is_refused_before_memory_is_taken(
    change: dict[str, int], what: str, hostile: Any
) -> None:
    with pytest.raises(InvalidArgumentError, match=rf"has more than [\d,]+ {what} .*--limits {what}="):
        hostile(**change)


def test_a_pickle_of_weights_is_not_opened(hostile: Any, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(ConversionError, match="is a pickle, which apical does not open"):
        hostile()
    (tmp_path / "model.safetensors").write_bytes(b"\x80\x04cposix\nsystem\n")
    with pytest.raises(ConversionError, match="not a safetensors file or is damaged"):
        hostile()


def test_a_lightning_module_loads_from_its_checkpoint(tmp_path: Path) -> None:
    lightning = pytest.importorskip("pytorch_lightning", reason="make test-slow installs it")

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))

        def training_step(self, batch: list[Tensor], index: int) -> Tensor:
            return self.net(batch[0]).square().mean()  # type: ignore[no-any-return]

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

        def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            checkpoint["conversion"] = self.report.record

        def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            self.report = apical.convert.load(self.net, checkpoint["conversion"])

    module, x = Module(), torch.randn(8, 4)
    module.report = apical.convert_(module.net, "pynada(alpha=0.5)")
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=4)
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=tmp_path, enable_checkpointing=False,
    )  # fmt: skip
    trainer.fit(module, data)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    loaded = Module.load_from_checkpoint(tmp_path / "last.ckpt", weights_only=True)
    assert torch.equal(loaded.net(x), module.net(x))


DOCS = (Path(__file__).parents[2] / "docs" / "convert.md").read_text(encoding="utf-8")
RECIPES = [
    block for block in re.findall(r"^```text\n(.*?)^```$", DOCS, re.MULTILINE | re.DOTALL) if "import apical" in block
]


@pytest.mark.parametrize("code", RECIPES, ids=["transformers", "timm"])
def test_the_recipes_of_the_page_run(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/convert.md", "exec"), {"__name__": "recipe"})

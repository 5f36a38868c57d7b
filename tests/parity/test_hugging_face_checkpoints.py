"""We read checkpoints of transformers, and transformers reads ours: outputs in float32."""

import dataclasses

import numpy as np
import pytest
import torch
import transformers

from bert_tf import checkpoints
from bert_tf.conversion import convert_checkpoint
from bert_tf.settings import ConversionSettings
from bert_tf.tokenization import SPECIAL_TOKENS
from tests.bert_tf.pretraining.scored_texts import scored
from tests.bert_tf.reference import random_batch, relative_error
from tests.parity.hugging_face import their_inputs

pytestmark = pytest.mark.torch

CLASSES = [
    "BertModel", "BertForPreTraining", "BertForMaskedLM", "BertForNextSentencePrediction",
    "BertForSequenceClassification", "BertForTokenClassification", "BertForQuestionAnswering",
]  # fmt: skip


def theirs(name, **changes):
    """Returns a small model of theirs, whose weights all have an effect."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=20, attn_implementation="eager", num_labels=3, pad_token_id=None,
        use_cache=False, **changes,
    )  # fmt: skip
    if name == "BertForQuestionAnswering":
        config.num_labels = 2
    model = getattr(transformers, name)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def outputs_of(model, batch) -> dict[str, np.ndarray]:
    with torch.no_grad():
        results = model(**their_inputs(batch), output_hidden_states=True)
    found = {key: value.numpy() for key, value in results.items() if isinstance(value, torch.Tensor)}
    return found | {"sequence": results.hidden_states[-1].numpy()}


def convert(source, output, format):
    convert_checkpoint(ConversionSettings(input=str(source), output=str(output), format=format))
    return output


@pytest.fixture(scope="module")
def batch():
    config = dataclasses.make_dataclass("C", [("vocab_size", int)])(60)
    return random_batch(config, batch=4, length=16, predictions=3)


@pytest.mark.parametrize("name", CLASSES)
def test_equal_outputs_and_exact_round_trip(name, batch, tmp_path):
    model = theirs(name)
    model.save_pretrained(tmp_path / "theirs")
    expected = outputs_of(model, batch)
    encoder = checkpoints.load_encoder(str(tmp_path / "theirs"))
    outputs = encoder(batch)
    assert relative_error(outputs["sequence_output"], expected["sequence"]) < 1e-5
    if "pooler_output" in expected:
        assert relative_error(outputs["pooled_output"], expected["pooler_output"]) < 1e-5
    # through every other format and back, without a changed bit
    folder = tmp_path / "theirs"
    for format in ("bert_tf", "tf1", "tf_models", "hugging_face"):
        folder = convert(folder, tmp_path / format, format)
    again, info = getattr(transformers, name).from_pretrained(
        folder, attn_implementation="eager", output_loading_info=True
    )
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    for (their_name, before), after in zip(model.state_dict().items(), again.state_dict().values(), strict=True):
        assert torch.equal(before, after), their_name


def test_a_decoder_of_theirs_is_left_to_right_here(batch, tmp_path):
    model = theirs("BertForMaskedLM", is_decoder=True)
    model.save_pretrained(tmp_path / "theirs")
    encoder = checkpoints.load_encoder(str(tmp_path / "theirs"))
    assert encoder.config.directionality == "ltr"
    kept = batch["input_mask"].numpy()[..., None]
    expected = outputs_of(model, batch)["sequence"] * kept
    assert relative_error(encoder(batch)["sequence_output"] * kept, expected) < 1e-5
    folder = convert(tmp_path / "theirs", tmp_path / "again", "hugging_face")
    again = transformers.BertForMaskedLM.from_pretrained(folder, attn_implementation="eager").eval()
    assert relative_error(outputs_of(again, batch)["sequence"] * kept, expected) < 1e-6


def test_a_decoder_of_theirs_scores_a_text_as_they_do(tmp_path):
    model = theirs("BertLMHeadModel", is_decoder=True)
    model.save_pretrained(tmp_path / "theirs")
    tokens = [*SPECIAL_TOKENS, *(f"w{number}" for number in range(55))]
    (tmp_path / "theirs/vocab.txt").write_text("\n".join(tokens) + "\n")
    (entry,) = scored(tmp_path / "theirs", tmp_path, ["w3 w54 w3 w20 w0"])
    ids = [tokens.index(token) for token in ("[CLS]", "w3", "w54", "w3", "w20", "w0")]
    with torch.no_grad():
        expected = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)[range(5), ids[1:]]
    np.testing.assert_allclose([token["log_probability"] for token in entry["tokens"]], expected, atol=1e-5)
    assert entry["log_likelihood"] == pytest.approx(float(expected.sum()), abs=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_and_several_files_are_read(dtype, tmp_path):
    model = theirs("BertForPreTraining").to(dtype)
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    kernel = checkpoints.load_encoder(str(tmp_path)).blocks[1].intermediate.kernel
    expected = model.bert.encoder.layer[1].intermediate.dense.weight.detach().float().numpy().T
    np.testing.assert_array_equal(kernel, expected)

"""Encoders that are BERT with other names: conversions without a changed bit, and training as in PyTorch."""

import json

import numpy as np
import pytest
import tensorflow as tf
import torch
import transformers

from bert_tf import checkpoints
from bert_tf.checkpoint_formats import families
from bert_tf.checkpoints import variables_by_path
from bert_tf.conversion import convert_checkpoint
from bert_tf.finetuning.model import FineTuningObjective
from bert_tf.modeling.halves import HalvedOperations
from bert_tf.settings import ConversionSettings, FineTuningSettings
from bert_tf.training.trainer import Trainer, make_optimizer
from tests.bert_tf.classification import make_classifier, make_task
from tests.migration.transformers_models import FAMILIES, HEADS
from tests.small_configs import small_config

pytestmark = pytest.mark.torch

# Positions begin at 2 in XLM-RoBERTa and MPNet.
SHAPES = FAMILIES | {
    "xlm-roberta": ("XLMRoberta", "", FAMILIES["bert"][2] | {
        "max_position_embeddings": 34, "type_vocab_size": 1, "layer_norm_eps": 1e-5,
    }),
    "mpnet": ("MPNet", "", FAMILIES["bert"][2] | {"max_position_embeddings": 302, "layer_norm_eps": 1e-5}),
}  # fmt: skip
STEPS, RATE = 20, 1e-3


def theirs(family, head, **changes):
    """Returns a model of theirs, whose weights all have an effect."""
    torch.manual_seed(0)
    classes, _, shape = SHAPES[family]
    config = getattr(transformers, f"{classes}Config")(vocab_size=50, **shape | HEADS.get(head, {}) | changes)
    model = getattr(transformers, f"{classes}{head}")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        for name, parameter in model.named_parameters():
            if family in ("xlm-roberta", "mpnet") and "position_embeddings" in name:
                parameter[:2] = 0  # no token has these positions
    return model


@pytest.mark.parametrize("head", [head for head in HEADS if head != "ForPreTraining"])
@pytest.mark.parametrize("family", SHAPES)
def test_a_conversion_and_back_keeps_every_bit(family, head, tmp_path):
    model, folder = theirs(family, head), tmp_path / "theirs"
    model.save_pretrained(folder)
    for format in ("bert_tf", "hugging_face"):
        settings = ConversionSettings(input=str(folder), output=str(tmp_path / format), format=format)
        folder = tmp_path / format
        convert_checkpoint(settings)
    entries = json.loads((folder / "config.json").read_text())
    assert entries["model_type"] == model.config.model_type
    assert entries["architectures"] == [type(model).__name__]
    again, info = type(model).from_pretrained(folder, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    for (name, before), after in zip(model.state_dict().items(), again.state_dict().values(), strict=True):
        assert torch.equal(before, after), name
    ids = torch.arange(5, 29).reshape(2, 12) if family != "mpnet" else torch.arange(600).reshape(2, 300) % 40 + 5
    ids = ids[:, None] if head == "ForMultipleChoice" else ids
    with torch.no_grad():
        expected, found = (each.eval()(ids)[0] for each in (model, again))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("family", SHAPES)
def test_outputs_are_theirs_in_every_computation(family, tmp_path):
    """Of padded rows, of the halves of an export, and of two examples in a packed row."""
    length = 300 if family == "mpnet" else 32  # the longest distance of MPNet's biases is 128
    model = theirs(family, "Model", max_position_embeddings=length + 2 if SHAPES[family][1] == "" else length)
    model.save_pretrained(tmp_path)
    lengths, rng = np.array([length, length // 3]), np.random.default_rng(0)
    ids, mask = rng.integers(5, 50, [2, length]), np.arange(length) < lengths[:, np.newaxis]
    with torch.no_grad():
        expected = model(torch.from_numpy(ids), attention_mask=torch.from_numpy(mask.astype(np.int64)))[0].numpy()
    encoder = checkpoints.load_encoder(str(tmp_path))
    batch = {"input_ids": tf.constant(ids, tf.int32), "input_mask": tf.cast(mask, tf.int32)}
    row = np.concatenate([ids[1, : lengths[1]], ids[0, : length - lengths[1]]])
    number = np.repeat([1, 2], [lengths[1], length - lengths[1]])
    packed = {
        "input_ids": [row], "input_mask": np.ones([1, length]), "sequence_ids": number[np.newaxis],
        "position_ids": [np.concatenate([np.arange(lengths[1]), np.arange(length - lengths[1])])],
        "cls_positions": [[0, lengths[1]]],
    }  # fmt: skip
    found = encoder({name: tf.constant(value, tf.int32) for name, value in packed.items()})["sequence_output"][0]
    np.testing.assert_allclose(found[: lengths[1]], expected[1, : lengths[1]], atol=2e-5)
    for halved in (False, True):
        if halved:
            encoder.inference_operations = HalvedOperations(encoder)
        found = encoder(batch)["sequence_output"].numpy()
        np.testing.assert_allclose(found[mask], expected[mask], atol=2e-5)


@pytest.mark.parametrize("family", SHAPES)
def test_twenty_steps_of_training_are_theirs(family, tmp_path):
    dropout = ("dropout", "attention_dropout", "seq_classif_dropout")
    if family != "distilbert":
        dropout = ("hidden_dropout_prob", "attention_probs_dropout_prob", "summary_last_dropout")
    model = theirs(family, "ForSequenceClassification", **dict.fromkeys(dropout, 0.0)).train()
    model.save_pretrained(tmp_path)
    config = checkpoints.read_config(str(tmp_path / "config.json"))
    rng = np.random.default_rng(0)
    lengths = np.array([12, 5, 9, 12, 7, 12, 3, 10])
    batch = {
        "input_ids": rng.integers(5, 50, [8, 12]), "input_mask": (np.arange(12) < lengths[:, np.newaxis]),
        "segment_ids": np.zeros([8, 12]), "label_ids": rng.integers(0, 3, 8),
    }  # fmt: skip
    batch = {name: value.astype(np.int32) for name, value in batch.items()} | {"row_weights": np.ones(8, np.float32)}
    ours = make_classifier(config, 3)
    checkpoints.initialize(ours, str(tmp_path))
    settings = FineTuningSettings(output_dir="o", do_train=True)
    data = tf.data.Dataset.from_tensors(batch).repeat()
    strategy = tf.distribute.get_strategy()
    optimizer = make_optimizer(settings, RATE, STEPS, 2)
    task = make_task(3, has_pairs=False)
    trainer = Trainer(FineTuningObjective(ours, task), strategy, optimizer=optimizer, train_dataset=data, random_seed=0)
    trainer.train(tf.constant(STEPS))
    train(model, batch)
    weights = variables_by_path(ours)
    (tmp_path / "after").mkdir()
    model.save_pretrained(tmp_path / "after")
    contents = checkpoints.open_checkpoint(str(tmp_path / "after"))
    expected = contents.read(contents.tensors)
    assert expected.keys() == weights.keys() - ({"encoder/pooler/kernel"} - expected.keys())
    for path, value in expected.items():
        if not path.endswith("attention/key/bias"):  # its gradient is 0 but for rounding
            np.testing.assert_allclose(weights[path].numpy(), value, atol=2e-5, err_msg=path)


def train(model, batch):
    """Trains with AdamW, clipping, and a linear schedule with two steps of warm-up."""
    plain = [p for name, p in model.named_parameters() if name.endswith("bias") or "norm" in name.lower()]
    decayed = [p for p in model.parameters() if all(p is not other for other in plain)]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, eps=1e-8)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 2, STEPS)
    ids, mask, labels = (torch.from_numpy(batch[n].astype(np.int64)) for n in ("input_ids", "input_mask", "label_ids"))
    for _ in range(STEPS):
        model(input_ids=ids, attention_mask=mask, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        model.zero_grad()


@pytest.mark.parametrize("model_type", ["roberta", "deberta-v2", "modernbert", "t5"])
def test_other_architectures_are_refused_by_name(model_type, tmp_path):
    config = transformers.AutoConfig.for_model(model_type)
    config.save_pretrained(tmp_path)
    with pytest.raises(Exception, match=f"model_type='{model_type}' is not BERT: .* not implemented.*; give a checkp"):
        checkpoints.read_config(str(tmp_path / "config.json"))


def test_a_configuration_must_fit_its_family():
    with pytest.raises(Exception, match="pooler_activation=relu: models of the type bert need tanh"):
        families.check(small_config(pooler_activation="relu"))

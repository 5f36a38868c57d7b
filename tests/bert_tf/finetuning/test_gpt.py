"""GPT's fine-tuning: special tokens, the auxiliary loss of the language model, and pairs in both orders."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.checkpoints import variables_by_path
from bert_tf.encoder import BertEncoder
from bert_tf.finetuning.model import FineTunedBert, FineTuningObjective, head_maker
from bert_tf.finetuning.task import encoded_split
from bert_tf.pretraining.objective import BertPretrainer
from bert_tf.tasks.classification.reading import LongTextRule
from tests.bert_tf.classification import make_task
from tests.bert_tf.finetuning import word_task
from tests.bert_tf.finetuning.test_packed_finetuning import CONFIG, TASKS, assert_same, examples, measured
from tests.bert_tf.formulas import Formulas, _log_softmax
from tests.kit import read_jsonl, refused

LTR = dataclasses.replace(CONFIG, directionality="ltr")
BOTH_ORDERS = dataclasses.replace(make_task(3), reading=LongTextRule(pair_order="both"))


def make_objective(task, config=LTR, coefficient=0.5):
    tf.random.set_seed(0)
    model = FineTunedBert(config, head_maker(task.head, False), has_language_model=coefficient > 0)
    return FineTuningObjective(model, task, coefficient)


@pytest.mark.quick_cases("pairs-ltr")
@pytest.mark.parametrize(
    ("kind", "direction"), [("pairs", "ltr"), ("both orders", "ltr"), ("choices", "ltr"), ("questions", "rtl")]
)
def test_packed_auxiliary_losses_equal_padded_ones(tokenizer, kind, direction):
    task = BOTH_ORDERS if kind == "both orders" else TASKS[kind]
    split = encoded_split(task, examples("pairs" if kind == "both orders" else kind, tokenizer), tokenizer, 32)
    config = dataclasses.replace(CONFIG, directionality=direction, extract_token_id=tokenizer.mask_id)
    objective = make_objective(task, config)
    sums, expected, logits, _ = measured(objective, task, tokenizer, split, packed=False)
    packed_sums, found, packed_logits, batch = measured(objective, task, tokenizer, split, packed=True)
    assert "slots" in batch and sums["lm_loss"] > 1
    assert_same(packed_sums, found, sums, expected)
    np.testing.assert_allclose(packed_logits, logits, atol=1e-5 * np.abs(logits).max())


@pytest.mark.parametrize("direction", ["ltr", "rtl"])
@pytest.mark.core
def test_the_auxiliary_loss_equals_its_formula(tokenizer, direction):
    config = dataclasses.replace(CONFIG, directionality=direction)
    objective = make_objective(TASKS["pairs"], config, 0.3)
    split = encoded_split(TASKS["pairs"], examples("pairs", tokenizer), tokenizer, 32)
    *_, batch = measured(objective, TASKS["pairs"], tokenizer, split, packed=False)
    weights = {path: variable.numpy() for path, variable in variables_by_path(objective.model).items()}
    weights |= {"next_sentence/dense/kernel": np.zeros([32, 2]), "next_sentence/dense/bias": np.zeros(2)}
    rows = {name: batch[name].numpy() for name in ("input_ids", "input_mask", "segment_ids")}
    count, length = rows["input_ids"].shape
    places = np.tile(np.arange(length), (count, 1))
    unread = {"masked_lm_ids": places, "masked_lm_weights": places, "next_sentence_labels": places[:, 0]}
    logits = Formulas(config, weights).outputs(rows | unread | {"masked_lm_positions": places})["masked_lm_logits"]
    losses, step = [], 1 if direction == "ltr" else -1
    for ids, mask, log_probabilities in zip(rows["input_ids"], rows["input_mask"], _log_softmax(logits), strict=True):
        for place in range(mask.sum()):
            is_text = ids[place] not in (tokenizer.cls_id, tokenizer.sep_id)
            if is_text:
                losses.append(-log_probabilities[place - step, ids[place]])
    numerators = objective.numerators(batch, training=True, seed=[0, 0])["loss"]
    denominators = objective.denominators(batch)["loss"]
    plain = FineTuningObjective(objective.model, TASKS["pairs"])
    loss = plain.loss(plain.numerators(batch, True, [0, 0])["loss"], plain.denominators(batch)["loss"])
    expected = float(loss) + 0.3 * np.mean(losses)
    np.testing.assert_allclose(objective.loss(numerators, denominators), expected, rtol=1e-6)


def test_both_orders_add_the_vectors_of_two_rows(tokenizer):
    pairs = examples("pairs", tokenizer)
    objective = make_objective(BOTH_ORDERS, coefficient=0)
    split = encoded_split(BOTH_ORDERS, pairs, tokenizer, 32)
    _, _, logits, _ = measured(objective, BOTH_ORDERS, tokenizer, split, packed=False)
    swapped = [dataclasses.replace(pair, text_a=pair.text_b, text_b=pair.text_a) for pair in pairs]
    plain, pooled = make_task(3), 0
    for order in (pairs, swapped):
        columns = plain.encode(order, tokenizer, 32)
        pooled += objective.model.encoder(plain.model_inputs(columns, tokenizer, 32))["pooled_output"]
    np.testing.assert_allclose(logits[::2], objective.model.task_head.dense(pooled), atol=1e-5)
    np.testing.assert_array_equal(logits[::2], logits[1::2])
    found, means = BOTH_ORDERS.by_example(split, logits)
    assert len(found.example_ids) == len(pairs)
    np.testing.assert_allclose(means, logits[::2])


def test_the_extract_token_replaces_the_pooled_token(tokenizer):
    split = encoded_split(TASKS["pairs"], examples("pairs", tokenizer), tokenizer, 32)
    inputs = TASKS["pairs"].model_inputs(split.columns, tokenizer, 32)
    tf.random.set_seed(1)
    encoder = BertEncoder(dataclasses.replace(LTR, extract_token_id=tokenizer.mask_id))
    last = inputs["input_mask"].numpy().sum(axis=1) - 1
    ids = inputs["input_ids"].numpy()
    ids[np.arange(len(ids)), last] = tokenizer.mask_id
    plain = BertEncoder(LTR)
    plain.set_weights(encoder.get_weights())
    expected = plain(inputs | {"input_ids": ids})["sequence_output"].numpy()[np.arange(len(ids)), last]
    np.testing.assert_allclose(encoder(inputs)["pooled_output"], expected, atol=1e-6)


def test_new_tokens_keep_their_initial_embeddings(tmp_path, tokenizer):
    pretrained = BertPretrainer(LTR)
    (tmp_path / "bert_config.json").write_text(LTR.to_json_string())
    tf.train.Checkpoint(model=pretrained).write(f"{tmp_path}/ckpt-1")
    model = make_objective(TASKS["pairs"]).model
    path, new = "encoder/embeddings/word_embeddings", [tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id]
    before, theirs = variables_by_path(model)[path].numpy(), variables_by_path(pretrained)[path].numpy()
    checkpoints.initialize(model, f"{tmp_path}/ckpt-1", new_tokens=new)
    theirs[new] = before[new]
    np.testing.assert_array_equal(variables_by_path(model)[path], theirs)
    np.testing.assert_array_equal(model.masked_lm.transform.kernel, pretrained.masked_lm.transform.kernel)


def test_both_orders_of_a_single_text_are_refused():
    task = dataclasses.replace(make_task(3, has_pairs=False), reading=LongTextRule(pair_order="both"))
    refused("--pair_order=both: the examples have only one text", task.check, LTR, None)


@pytest.mark.parametrize("flag", ["--lm_coefficient=0.5", "--special_tokens=new"])
def test_a_bidirectional_model_is_refused(folder, vocab_file, tmp_path, flag):
    message = f"{flag}.*: .*config.json says directionality=bidi.*drop the flag"
    refused(message, word_task.train, folder, vocab_file, tmp_path / "out", "--do_train", flag)


@pytest.mark.slow
def test_a_run_with_gpts_recipe_resumes(folder, vocab_file, tokenizer, tmp_path):
    config = json.loads((folder / "config.json").read_text()) | {"directionality": "ltr"}
    (tmp_path / "config.json").write_text(json.dumps(config))

    def run(*flags):
        flags = [f"--bert_config_file={tmp_path}/config.json", *flags] if "--do_train" in flags else flags
        return word_task.train(folder, vocab_file, tmp_path / "out", *flags)

    gpt = ("--special_tokens=new", "--lm_coefficient=0.5", "--do_train", "--do_eval")
    trained = run(*gpt, "--num_train_epochs=4")
    kept = json.loads((tmp_path / "out/bert_config.json").read_text())
    assert kept["extract_token_id"] == tokenizer.mask_id
    metrics = read_jsonl(tmp_path / "out/metrics.jsonl")
    assert all(np.isfinite(entry["lm_loss"]) for entry in metrics if entry["split"] == "train")
    again = run("--do_eval", f"--bert_config_file={tmp_path}/out/bert_config.json")
    assert again["exact_rows"] == trained["exact_rows"]

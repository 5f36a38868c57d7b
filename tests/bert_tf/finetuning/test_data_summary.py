"""The summary of its data that a run logs before it begins."""

import types

import pytest

from bert_tf.finetuning import data_summary
from bert_tf.finetuning.prepared_run import PreparedRun
from bert_tf.finetuning.task import encoded_split
from bert_tf.tasks.choice.choice_files import ChoiceExample
from bert_tf.tasks.choice.choice_task import ChoiceTask
from bert_tf.tasks.classification.example import Example
from bert_tf.tasks.embeddings.data import PAIRS, Texts
from bert_tf.tasks.embeddings.embedding_task import EmbeddingTask
from tests.bert_tf.classification import make_task
from tests.small_configs import small_config


def said(caplog, task, tokenizer, length=16, do_train=True, **splits):
    """Returns the log lines of a run, and the warnings among them."""
    settings = types.SimpleNamespace(
        max_seq_length=length, do_train=do_train, sweep=False, train_batch_size=4, num_train_epochs=2.0
    )
    encoded = {name: encoded_split(task, examples, tokenizer, length) for name, examples in splits.items()}
    config = small_config(300, 8, max_position_embeddings=64)
    caplog.clear()
    data_summary.log(PreparedRun(settings, task, config, tokenizer, encoded, strategy=None))
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    return [text for _, text in lines], [text for level, text in lines if level == "WARNING"]


def texts(*words):
    return [Example("the man " * (count // 2) + "the" * (count % 2), None, str(count % 2)) for count in words]


def test_each_split_has_its_counts_steps_and_lengths(tokenizer, caplog):
    task = make_task(2, has_pairs=False)
    lines, warnings = said(caplog, task, tokenizer, train=texts(*range(1, 11), 10, 10), dev=texts(2, 3))
    assert lines == [
        "train: 12 examples, 6 steps of 4; tokens: median 8, 95% up to 12, longest 12; none truncated; 0.0% [UNK]",
        "dev: 2 examples; tokens: median 4, 95% up to 5, longest 5; none truncated; 0.0% [UNK]",
    ]
    assert not warnings


def test_much_unknown_text_is_warned_of(tokenizer, caplog):
    task = make_task(2, has_pairs=False)
    examples = [Example("the man ☃ " * 2, None, "0"), Example("the man the ", None, "1")]
    lines, (warning,) = said(caplog, task, tokenizer, train=examples)
    assert lines[0].endswith("none truncated; 22.2% [UNK]")
    assert warning.startswith(f"train: 22.2% of the tokens are [UNK]; check that {tokenizer.vocab_file} is for this")


def test_lost_text_is_counted_and_the_remedy_named(tokenizer, caplog):
    task = make_task(2, has_pairs=False)
    lines, warnings = said(caplog, task, tokenizer, train=texts(*[2] * 30, 20))
    assert "longest 22; 3.2% truncated" in lines[0]
    assert len(warnings) == 0, "six of 142 tokens"
    lines, (warning,) = said(caplog, task, tokenizer, train=texts(2, 2, 30))
    assert "longest 32; 33.3% truncated" in lines[0]
    assert warning == (
        "train: 33% of the examples are truncated, and 40% of the tokens are lost; give a larger --max_seq_length, or "
        "--long_text=window, or --long_text=head_tail"
    )
    _, (warning,) = said(caplog, task, tokenizer, do_train=False, test=texts(30))
    assert "test: 100% of the examples" in warning and "train with a larger --max_seq_length" in warning
    _, (warning,) = said(caplog, task, tokenizer, 64, train=texts(*[200] * 4))
    assert "lost; give --long_text=window" in warning, "the model has 64 positions"


LONG = "the man " * 20
OF_EACH_KIND = {
    "classification": (make_task(2, has_pairs=False), Example(LONG, None, "0")),
    "choice": (ChoiceTask(), ChoiceExample("the", "", (LONG, LONG), 0)),
    "embeddings": (EmbeddingTask(), Texts(("the", LONG), PAIRS)),
}


@pytest.mark.parametrize("kind", OF_EACH_KIND)
def test_every_kind_that_truncates_says_so(tokenizer, caplog, kind):
    task, example = OF_EACH_KIND[kind]
    lines, warnings = said(caplog, task, tokenizer, train=[example] * 4)
    assert "100.0% truncated" in lines[0] and "give a larger --max_seq_length" in warnings[0]

import json
import os
import re

import pytest
from official.legacy.bert import configs

from bert_tf import config
from bert_tf.config import BertConfig
from bert_tf.core.command_line import parse
from tests.kit import refused

# uncased_L-12_H-768_A-12/bert_config.json of google-research/bert
PUBLISHED_BASE = {
    "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768,
    "initializer_range": 0.02, "intermediate_size": 3072, "max_position_embeddings": 512, "num_attention_heads": 12,
    "num_hidden_layers": 12, "type_vocab_size": 2, "vocab_size": 30522,
}  # fmt: skip
# additional keys in the multilingual models' files
MULTILINGUAL_EXTRAS = {
    "directionality": "bidi", "pooler_fc_size": 768, "pooler_num_attention_heads": 12, "pooler_num_fc_layers": 3,
    "pooler_size_per_head": 128, "pooler_type": "first_token_transform",
}  # fmt: skip


def test_defaults_are_the_originals():
    # The defaults of modeling.BertConfig.__init__ in google-research/bert.
    changed = {"vocab_size": 7, "type_vocab_size": 16, "directionality": "bidi"}
    assert BertConfig(vocab_size=7).to_dict() == PUBLISHED_BASE | changed


@pytest.mark.parametrize(
    "name, layers, hidden, heads",
    [("tiny", 2, 128, 2), ("mini", 4, 256, 4), ("small", 4, 512, 8),
     ("medium", 8, 512, 8), ("base", 12, 768, 12), ("large", 24, 1024, 16)],
)  # fmt: skip
def test_named_sizes_are_the_published_ones(name, layers, hidden, heads):
    changed = {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
               "intermediate_size": 4 * hidden, "directionality": "bidi"}  # fmt: skip
    assert BertConfig.named(name).to_dict() == PUBLISHED_BASE | changed
    assert BertConfig.named(name).head_size == 64


@pytest.mark.parametrize("size", ["mini", "L-3_H-12_A-2"])
def test_the_command_prints_a_file_of_a_size(size, tmp_path, capsys):
    config.main(parse(config.ConfigSettings, [f"--size={size}", "--vocab_size=8000"]))
    (tmp_path / "bert_config.json").write_text(capsys.readouterr().out)
    assert BertConfig.from_json_file(str(tmp_path / "bert_config.json")) == BertConfig.named(size, vocab_size=8000)


def test_unknown_size_error_names_known_sizes():
    refused(r"'huge'.*tiny, mini, small, medium, base, large", BertConfig.named, "huge")


@pytest.mark.parametrize(
    "changes, message",
    [
        *(
            ({name: 0}, f"{name}=0: must be at least 1")
            for name in (
                "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
                "max_position_embeddings", "embedding_size",
            )
        ),
        ({"type_vocab_size": -1}, "type_vocab_size=-1: must be at least 0"),
        ({"pooler_activation": "sigmoid"}, "pooler_activation='sigmoid': must be one of gelu, gelu_erf, relu, tanh"),
        ({"family": "albert"}, "family='albert': must be one of bert, distilbert, electra, xlm-roberta"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers=1000000000: must be at most 1000"),
        ({"hidden_size": "768"}, "hidden_size='768': must be of type int"),
        ({"num_hidden_layers": True}, "num_hidden_layers=True: must be of type int"),
        ({"hidden_dropout_prob": "0.1"}, "hidden_dropout_prob='0.1': must be of type float"),
        ({"hidden_act": 3}, "hidden_act=3: must be of type str"),
        ({"hidden_act": "swish"}, "hidden_act='swish': must be one of gelu, gelu_erf, relu, tanh, linear"),
        ({"directionality": "both"}, "directionality='both': must be one of bidi, ltr, rtl"),
        ({"num_attention_heads": 7}, "hidden_size=768 is not a multiple of num_attention_heads=7"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob=1.0: must be at least 0 and below 1"),
        ({"attention_probs_dropout_prob": float("nan")}, "attention_probs_dropout_prob=nan"),
        ({"initializer_range": 0.0}, "initializer_range=0.0: must be above 0"),
        ({"hiden_size": 768}, "unknown key 'hiden_size'; the known keys are vocab_size, hidden_size"),
        ({"layer_norm_eps": 2}, "layer_norm_eps=2: must be above 0 and at most 1"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key': BERT only supports"),
        ({"is_decoder": True}, "is_decoder=True: BERT only supports False"),
    ],
)  # fmt: skip
def test_a_bad_entry_is_refused_with_file_and_key(tmp_path, changes, message):
    path = tmp_path / "bert_config.json"
    path.write_text(json.dumps({**PUBLISHED_BASE, **changes}))
    refused(re.escape(f"{path}: {message}"), BertConfig.from_json_file, str(path))


@pytest.mark.parametrize(
    "content, message",
    [
        (b"{", "not JSON"),
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[1]", "must contain one JSON object, but contains a list"),
        (b"{}", "the key 'vocab_size' is missing"),
        (b"[" * 100_000, "not JSON (maximum recursion depth exceeded"),
        (b'{"vocab_size": ' + b"9" * 5000 + b"}", "not JSON (Exceeds the limit"),
    ],
)
def test_refuses_file_without_configuration(tmp_path, content, message):
    path = tmp_path / "bert_config.json"
    path.write_bytes(content)
    refused(re.escape(f"{path}: {message}"), BertConfig.from_json_file, str(path))


def test_a_named_pipe_is_refused(tmp_path):
    """Nobody writes to the pipe, so a read would never return."""
    os.mkfifo(tmp_path / "config.json")
    message = "config.json: is not a regular file; replace it by one"
    refused(message, BertConfig.from_json_file, str(tmp_path / "config.json"))


def test_unknown_multilingual_keys_are_ignored():
    assert BertConfig.from_dict({**PUBLISHED_BASE, **MULTILINGUAL_EXTRAS}) == BertConfig.named("base")


def test_keys_that_say_what_bert_is_are_taken():
    theirs = configs.BertConfig(**{**PUBLISHED_BASE, "vocab_size": 7}).to_json_string()
    assert BertConfig.from_dict(json.loads(theirs)) == BertConfig.named("base", vocab_size=7)
    more = {"layer_norm_eps": 1e-12, "position_embedding_type": "absolute", "embedding_size": 768, "use_cache": True,
            "pruned_heads": {}, "output_past": True, "is_decoder": False, "pad_token_id": 0}  # fmt: skip
    assert BertConfig.from_dict({**PUBLISHED_BASE, **more}) == BertConfig.named("base")


def test_json_round_trip_keeps_every_entry(tmp_path):
    config = BertConfig(11, 12, 3, 4, 5, "relu", 0.6, 0.7, 8, 9, 0.01, "rtl")
    path = tmp_path / "bert_config.json"
    path.write_text(config.to_json_string())
    assert json.loads(config.to_json_string())["attention_probs_dropout_prob"] == 0.7
    assert BertConfig.from_json_file(str(path)) == config

"""The pooling of served vectors, without an export."""

import json

import pytest

from bert_tf.checkpoints import open_checkpoint
from export.kinds.embeddings import ServedEmbeddings
from export.settings import ExportSettings
from tests.bert_tf.pretrained_folder import write_pretrained


@pytest.mark.parametrize(
    "flags, expected",
    [
        ({}, ("max", True, 12)),
        ({"pooling": "mean"}, ("mean", True, 12)),
        ({"pooling": "cls", "normalize": False, "max_seq_length": 9}, ("cls", False, 9)),
    ],
)
def test_flags_change_only_their_part_of_the_files(tmp_path, vocab_file, flags, expected):
    write_pretrained(tmp_path, vocab_file)
    plain = ExportSettings(checkpoint_dir=str(tmp_path), export_dir="m/1", task_name="embeddings", **flags)
    found = ServedEmbeddings.parameters(plain, open_checkpoint(str(tmp_path)))
    assert found["pooling"] == flags.get("pooling", "mean") and not found["normalize"]
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling/config.json").write_text('{"pooling_mode_max_tokens": true}')
    modules = [{"type": f"models.{name}"} for name in ("Transformer", "Pooling", "Normalize")]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 12}')
    found = ServedEmbeddings.parameters(plain, open_checkpoint(str(tmp_path)))
    assert (found["pooling"], found["normalize"], found["max_seq_length"]) == expected

"""Loads the teacher of pre-training, whose predictions of masked tokens a student learns.

Paper: V. Sanh et al., "DistilBERT, a distilled version of BERT", 2019.
"""

from bert_tf import checkpoint_tokenizer, checkpoints
from bert_tf.checkpoint_formats.contents import OpenCheckpoint
from bert_tf.config import BertConfig, require_segments
from bert_tf.core.errors import InputError
from bert_tf.pretraining.objective import BertPretrainer
from bert_tf.pretraining.record_files import PretrainingData
from bert_tf.pretraining.scoring import require_language_model
from bert_tf.settings import PretrainingSettings


def open_teacher(settings: PretrainingSettings, config: BertConfig, data: PretrainingData) -> OpenCheckpoint | None:
    """Returns the checkpoint of `--teacher`; None if the command does not distill.
    Raises InputError: the checkpoint has no masked-LM head, or another vocabulary or direction than the student."""
    if not settings.distills:
        return None
    contents = checkpoints.open_checkpoint(settings.teacher)
    own = require_language_model(contents)
    for name in ("vocab_size", "directionality"):
        if getattr(own, name) != getattr(config, name):
            raise InputError(
                f"--teacher={settings.teacher}: has {name}={getattr(own, name)}, but the model has "
                f"{getattr(config, name)}; give a teacher with the student's vocabulary and direction"
            )
    own.check_length(settings.max_seq_length, settings.teacher)
    if data.has_pairs:
        require_segments(own, settings.teacher)
    if not settings.ignore_checkpoint_tokenizer:
        checkpoint_tokenizer.check_data(contents, data.vocabulary, data.rules)
    return contents


def load(contents: OpenCheckpoint) -> BertPretrainer:
    """Returns the model of a checkpoint that `open_teacher` returned."""
    model = BertPretrainer(contents.require_config())
    checkpoints.initialize(model, contents.source)
    return model

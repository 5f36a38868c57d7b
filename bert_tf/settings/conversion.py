"""Settings of `convert_checkpoint`: every field is a flag."""

import dataclasses

from bert_tf.core.command_line import require_folder, setting
from bert_tf.settings.model import Casing, ChosenCheckpoint, ModelFiles


@dataclasses.dataclass(frozen=True)
class ConversionSettings(ModelFiles, Casing, ChosenCheckpoint):
    """Settings of `convert_checkpoint`."""

    flag_group = "Input"

    input: str = setting("checkpoint in any supported format: prefix, folder, or hf://owner/model")
    output: str = setting("output folder; must be new or empty", group="Output")
    format: str = setting(
        "output format; bert_tf: the format of this project; tf1: the format of google-research/bert; tf_models: the "
        "format of tf-models-official; hugging_face: the format of transformers; sentence_transformers: a folder of "
        "sentence-transformers", choices=("bert_tf", "tf1", "tf_models", "hugging_face", "sentence_transformers"),
        group="Output",
    )  # fmt: skip
    has_pairs: bool | None = setting(
        "with --format=bert_tf and a text classifier of another project: whether it reads pairs of texts; the output "
        "can then be evaluated, exported and served like a trained run; default: take over only the weights", None,
    )  # fmt: skip
    version_2_with_negative: bool = setting(
        "with --format=bert_tf and a question answering model of another project: whether a question may have no "
        "answer, as in SQuAD 2.0", False,
    )  # fmt: skip
    max_seq_length: int | None = setting(
        "for a fine-tuned model of another project: maximum number of tokens in a row; default: the value in "
        "tokenizer_config.json, but at most the model's number of positions", None, at_least=5,
    )  # fmt: skip
    extended_vocab_file: str = setting(
        "larger vocabulary for the output's model, from learn_vocab --extend_vocab; empty: the input's vocabulary", "",
        group="Output",
    )  # fmt: skip
    keep_vocabulary_of: str = setting(
        "text files, such as the training data: the output's model keeps only the special tokens and the tokens of "
        "these texts, for which its outputs do not change; other words become shorter tokens or [UNK]", "",
        group="Output", not_with=("extended_vocab_file",),
    )  # fmt: skip

    def __post_init__(self):
        super().__post_init__()
        require_folder("output", self.output)

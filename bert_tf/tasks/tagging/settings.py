"""Settings of `run_ner`: every field is a flag."""

import dataclasses
from typing import ClassVar

from bert_tf.core.command_line import require, setting
from bert_tf.settings.finetuning import FolderSettings
from bert_tf.settings.protocol import ProtocolSettings

# The layers that --feature_layers can name: the rows of the paper's Table 7, and ELMo's sum of all layers with a scale.
# `modeling.heads` uses the same names.
FEATURE_LAYERS = (
    "embeddings",
    "second_to_last_hidden",
    "last_hidden",
    "weighted_sum_last_four",
    "concat_last_four",
    "weighted_sum_all",
    "elmo",
)


@dataclasses.dataclass(frozen=True)
class NerSettings(FolderSettings):
    """Settings of `run_ner`. If a data flag is not given, its value is the value of the run in `output_dir`. Without
    such a run, the flag has its default."""

    flag_group = "Data"
    script: ClassVar[str] = "run_ner"
    reported: ClassVar[tuple[str, ...]] = ("data_dir", "document_context", "feature_layers", "lstm_size")

    data_dir: str = setting(
        "folder with files in the format of CoNLL-2003 or CoNLL-2002: train.txt, valid.txt and test.txt; or eng.train, "
        "eng.testa and eng.testb (or esp.*, ned.*, deu.*); or train.conll, dev.conll and test.conll; or .jsonl "
        "or .parquet with columns tokens and ner_tags", "", first=True, per_worker=True,
    )  # fmt: skip
    word_column: int | None = setting("column of the word, from 0; -1 is the last column", None, new_run=0)
    tag_column: int | None = setting("column of the tag, from 0; -1 is the last column", None, new_run=-1)
    tag_scheme: str | None = setting(
        "scheme of the tags in the files; auto: recognize the scheme of each file", None,
        choices=("auto", "iob1", "iob2", "bioes"), new_run="auto",
    )  # fmt: skip
    repair_tags: bool | None = setting(
        "accept tag sequences that violate the scheme, and read them as the official scorer reads them; without this "
        "flag, such a sequence is an error", None, new_run=False,
    )  # fmt: skip
    entity_types: str = setting(
        "comma-separated types of entities; default: from the run in --output_dir, else from the training data", ""
    )
    document_context: bool | None = setting(
        "fill the rest of a sentence's row with the neighboring sentences of the document, as in the paper; these "
        "sentences are not tagged in this row", None, group="Model", new_run=False,
    )  # fmt: skip
    feature_layers: str = setting(
        "freeze the encoder, and train a BiLSTM on the activations of these layers (paper: Table 7); fine_tuning: "
        "train all layers; default: from the run in --output_dir, else fine_tuning", "",
        choices=("", "fine_tuning", *FEATURE_LAYERS), group="Model",
    )  # fmt: skip
    lstm_size: int | None = setting(
        "with --feature_layers: number of units in each direction of the two-layer BiLSTM; 768 in the paper", None,
        group="Model", above=0, new_run=768,
    )  # fmt: skip
    activations_dir: str = setting(
        "with --feature_layers: folder for the encoder's activations; several runs may share the folder; default: the "
        "subfolder 'activations' of --output_dir", "", group="Model", per_worker=True,
    )  # fmt: skip

    @property
    def divides_batches(self) -> bool:
        return not self.feature_layers

    def __post_init__(self):
        super().__post_init__()
        if self.feature_layers not in ("", "fine_tuning"):
            names = ("frozen_layers", "layer_learning_rate_decay", "special_tokens", "lm_coefficient")
            contrary = [f"--{name}" for name in names if getattr(self, name) != getattr(ProtocolSettings, name)]
            require(
                not contrary,
                f"--feature_layers={self.feature_layers} does not train the encoder; drop {' and '.join(contrary)}",
            )
            require(
                not self.bilstm_head,
                f"--feature_layers={self.feature_layers} already has a BiLSTM, and --bilstm_head (given, or from the "
                "run in --output_dir) would add another; drop one of the two flags, or give another --output_dir",
            )

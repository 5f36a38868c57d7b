"""Settings of `convert_checkpoint`: every field is a flag."""

import dataclasses

from bert_tf.core.command_line import check_values, require, require_folder, setting


@dataclasses.dataclass(frozen=True)
class ConversionSettings:
    """Settings of `convert_checkpoint`."""

    flag_group = "Input"

    input: str = setting("checkpoint in any supported format: prefix, folder, or hf://owner/model")
    output: str = setting("folder to write; new or empty", group="Output")
    format: str = setting(
        "bert_tf (this project's), tf1 (google-research/bert's), tf_models (tf-models-official's) or hugging_face",
        choices=("bert_tf", "tf1", "tf_models", "hugging_face"),
        group="Output",
    )
    bert_config_file: str = setting("the input's configuration; empty: the file in its folder", "")
    use_checkpoint: str = setting(
        "if --input is a fine-tuning run's folder: convert the best checkpoint on the dev data, or the last one; "
        "without --eval_strategy in training, always the last", "best", choices=("best", "last"),
    )  # fmt: skip
    vocab_file: str = setting("the input's vocabulary; empty: vocab.txt in its folder", "")
    do_lower_case: bool | None = setting(
        "whether the input's tokenizer lower-cases; default: from tokenizer_config.json in the input's folder, or from "
        "the published name of the checkpoint", None,
    )  # fmt: skip
    ignore_checkpoint_tokenizer: bool = setting(
        "use --vocab_file and --do_lower_case even if they contradict the files in the input's folder", False
    )
    extended_vocab_file: str = setting(
        "larger vocabulary for the model, as learn_vocab --extend_vocab writes", "", group="Output"
    )

    def __post_init__(self):
        check_values(self)
        require(self.input and self.output, "--input and --output must not be empty")
        require_folder("output", self.output)

"""Settings of the training scripts: every field is a flag."""

import dataclasses
import math

from bert_tf.command_line import require, require_folder, setting


@dataclasses.dataclass(frozen=True)
class DeviceSettings:
    """Devices, numerics and update rule of a trainer; flags of the original and of TensorFlow 2."""

    use_tpu: bool = setting("train on a TPU; the same as --distribution_strategy=tpu", False)
    tpu_name: str = setting("name or grpc:// address of the TPU; 'local' on a TPU VM", "")
    tpu_zone: str = setting("Google Cloud zone of the TPU, if its name does not determine it", "")
    gcp_project: str = setting("Google Cloud project of the TPU, if its name does not determine it", "")
    master: str = setting("grpc:// address of the TPU; the original's other name for --tpu_name", "")
    num_tpu_cores: int = setting("total number of TPU cores; checked against the TPU", 8)
    distribution_strategy: str = setting(
        "how to distribute training over devices",
        "off",
        choices=("off", "one_device", "mirrored", "multi_worker_mirrored", "tpu"),
    )
    num_gpus: int = setting("number of GPUs of each worker", 0)
    worker_hosts: str = setting(
        "multi_worker_mirrored: host:port of every worker, comma-separated, the same on all; empty: from TF_CONFIG", ""
    )
    task_index: int = setting("multi_worker_mirrored: index of this worker in --worker_hosts, from 0", -1)
    dtype: str = setting("dtype of the computation; weights are always float32", "float32",
                         choices=("float32", "bfloat16", "float16"))  # fmt: skip
    enable_xla: bool = setting(
        "let XLA compile clusters of the graph on a GPU; a TPU always compiles, a CPU never does", False
    )
    optimizer: str = setting("adamw: the original's; lamb: for very large batches", "adamw", choices=("adamw", "lamb"))
    adam_bias_correction: bool = setting("apply Adam's bias correction, which the original's AdamW omits", False)
    gradient_accumulation_steps: int = setting("micro-batches per step and device; more need less memory", 1)
    recompute_activations: bool = setting(
        "store only the input of each layer and recompute the layer for its gradient; needs less memory", False
    )
    random_seed: int = setting("seed of initial weights, data order and dropout", 12345)
    deterministic: bool = setting(
        "the same command on the same machine gives the same weights to the last bit, also if the run is stopped and "
        "resumed; uses slower deterministic operations, most of them on a GPU", False,
    )  # fmt: skip
    skip_non_finite_steps: bool = setting(
        "skip a step whose loss or gradient is not finite, up to 10 in a row, instead of stopping; overflows of "
        "float16 are always skipped", False,
    )  # fmt: skip

    def __post_init__(self):
        require(self.num_gpus >= 0, f"--num_gpus={self.num_gpus}: must be at least 0")
        _require_positive(self, "gradient_accumulation_steps")
        require(
            not (self.optimizer == "lamb" and self.adam_bias_correction),
            "--adam_bias_correction is for --optimizer=adamw; LAMB always corrects; drop one of them",
        )
        require(0 <= self.random_seed < 1 << 31, f"--random_seed={self.random_seed}: must lie between 0 and 2^31 - 1")
        is_tpu = self.use_tpu or self.distribution_strategy == "tpu"
        require(
            is_tpu or not (self.tpu_name or self.master or self.tpu_zone or self.gcp_project),
            "--tpu_name, --master, --tpu_zone and --gcp_project need --use_tpu",
        )
        require(not (is_tpu and self.num_gpus), f"--num_gpus={self.num_gpus} contradicts a TPU; drop one of them")
        require(
            not (self.use_tpu and self.distribution_strategy not in ("off", "tpu")),
            f"--use_tpu contradicts --distribution_strategy={self.distribution_strategy}; drop one of them",
        )
        require(
            not (self.tpu_name and self.master),
            "--tpu_name and --master name the same thing; give one of them",
        )
        several = self.distribution_strategy == "multi_worker_mirrored"
        require(
            several or not (self.worker_hosts or self.task_index >= 0),
            "--worker_hosts and --task_index need --distribution_strategy=multi_worker_mirrored",
        )
        require(
            bool(self.worker_hosts) == (self.task_index >= 0),
            f"--worker_hosts and --task_index={self.task_index}: give both, the index from 0 up",
        )
        require(
            self.num_gpus <= 1 or self.distribution_strategy not in ("off", "one_device"),
            f"--num_gpus={self.num_gpus} needs --distribution_strategy=mirrored",
        )


def _require_positive(settings, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        require(value is None or 0 < value < math.inf, f"--{name}={value}: must be above 0 and finite")


_IGNORE_TOKENIZER = "use --init_checkpoint even if it was trained with another vocabulary or casing"


@dataclasses.dataclass(frozen=True)
class PretrainingSettings(DeviceSettings):
    """Settings of `run_pretraining`; names and defaults of google-research/bert."""

    bert_config_file: str = setting(
        "JSON file with the shape of the model; empty: the file beside --init_checkpoint", ""
    )
    input_file: str = setting("TFRecords of create_pretraining_data; comma-separated paths and globs")
    eval_input_file: str = setting(
        "held-out TFRecords to evaluate on; empty: those of --input_file, which says little after training on them", ""
    )
    output_dir: str = setting("folder for checkpoints and results")
    init_checkpoint: str = setting("checkpoint of any format to start from: prefix, folder, or hf://owner/model", "")
    vocab_file: str = setting(
        "vocabulary of the data, which is copied into the run's folder; empty: the file that the data's manifest "
        "names, or the same file beside the data or --init_checkpoint; needed for data made with --masking=dynamic", "",
    )  # fmt: skip
    ignore_checkpoint_tokenizer: bool = setting(_IGNORE_TOKENIZER, False)
    fill_mask_file: str = setting(
        "sentences with [MASK], one a line, to fill in at each evaluation, in addition to rows of the data",
        "",
    )
    max_seq_length: int = setting("length of the data's rows, in tokens", 128)
    max_predictions_per_seq: int | None = setting(
        "maximum masked positions a row; default: from the manifest of data made with --masking=dynamic, else 20",
        None,
    )
    masked_lm_prob: float | None = setting(
        "share of tokens to mask in data made with --masking=dynamic; default: from its manifest", None
    )
    pack_sequences: bool = setting(
        "pack several examples into each row, so that there is hardly any padding; --train_batch_size still counts "
        "rows, which then hold more examples; evaluation is not packed", False,
    )  # fmt: skip
    use_next_sentence_label: bool = setting("train the next-sentence task if the data has pairs", True)
    do_train: bool = setting("train", False)
    do_eval: bool = setting("evaluate the latest checkpoint; with --do_train every checkpoint", False)
    train_batch_size: int = setting("rows per step, over all devices", 32)
    eval_batch_size: int = setting("rows per evaluation step, over all devices", 8)
    learning_rate: float = setting("peak learning rate", 5e-5)
    num_train_steps: int = setting("step at which training ends", 100000)
    num_warmup_steps: int = setting("number of steps of linear warm-up", 10000)
    num_schedule_steps: int | None = setting(
        "step at which the learning rate reaches 0; default: --num_train_steps, that of the last phase", None
    )
    save_checkpoints_steps: int = setting("steps between checkpoints", 1000)
    iterations_per_loop: int = setting(
        "maximum steps between two returns to Python; a TPU and several workers handle SIGTERM and Ctrl-C only there; "
        "other devices run at most 50 steps at once",
        1000, alias="steps_per_loop",
    )  # fmt: skip
    max_eval_steps: int = setting("maximum number of evaluation steps", 100)
    next_phase: str = setting(
        "flag file of the phase that follows in the same folder; its flags replace these; it may have its own "
        "--next_phase", "",
    )  # fmt: skip
    eval_timeout: float = setting(
        "--do_eval without --do_train: evaluate each new checkpoint of a run until its last step, or until no new one "
        "appears for this many seconds; 0: only the latest", 0.0,
    )  # fmt: skip

    def __post_init__(self):
        super().__post_init__()
        require(self.do_train or self.do_eval, "nothing to do: give --do_train, --do_eval or both")
        require_folder("output_dir", self.output_dir)
        _require_positive(
            self, "max_seq_length", "max_predictions_per_seq", "train_batch_size", "eval_batch_size",
            "learning_rate", "num_train_steps", "num_schedule_steps", "save_checkpoints_steps", "iterations_per_loop",
            "max_eval_steps",
        )  # fmt: skip
        require(self.num_warmup_steps >= 0, f"--num_warmup_steps={self.num_warmup_steps}: must be at least 0")
        self._check_schedule()
        require(
            self.masked_lm_prob is None or 0 < self.masked_lm_prob < 1,
            f"--masked_lm_prob={self.masked_lm_prob}: must lie between 0 and 1",
        )
        require(self.eval_timeout >= 0, f"--eval_timeout={self.eval_timeout}: must be at least 0")
        require(
            not (self.eval_timeout and self.do_train),
            "--eval_timeout is for evaluating while another process trains; drop it or --do_train",
        )
        require(not self.fill_mask_file or self.do_eval, "--fill_mask_file needs --do_eval")
        require(not self.pack_sequences or self.do_train, "--pack_sequences needs --do_train; evaluation is not packed")
        require(not self.next_phase or self.do_train, "--next_phase needs --do_train")
        require(
            not self.eval_timeout or self.distribution_strategy != "multi_worker_mirrored",
            "--eval_timeout: one machine evaluates beside others that train; leave out --distribution_strategy",
        )

    def _check_schedule(self) -> None:
        end = self.num_schedule_steps
        if end is None or not self.do_train:
            return
        require(
            end >= self.num_train_steps,
            f"--num_schedule_steps={end}: the learning rate would be 0 before training ends at "
            f"--num_train_steps={self.num_train_steps}; give at least that, or leave it out",
        )
        require(
            end >= self.num_warmup_steps,
            f"--num_warmup_steps={self.num_warmup_steps}: the learning-rate schedule ends before, at step {end} "
            "(--num_schedule_steps; by default the last --num_train_steps), so the rate would never reach its peak; "
            f"give, for example, --num_warmup_steps={end // 10}",
        )


@dataclasses.dataclass(frozen=True)
class FineTuningSettings(DeviceSettings):
    """Settings that all fine-tuning scripts share; names and defaults of google-research/bert."""

    bert_config_file: str = setting(
        "JSON file with the shape of the model; empty: the file beside --init_checkpoint", ""
    )
    vocab_file: str = setting("vocabulary, one token a line; empty: the file beside --init_checkpoint", "")
    output_dir: str = setting("folder for checkpoints and results")
    init_checkpoint: str = setting(
        "pre-trained checkpoint of any format: prefix, folder, or hf://owner/model; empty: random weights", ""
    )
    do_lower_case: bool | None = setting(
        "lower-case and strip accents; must match the vocabulary; default: from the run's folder or --init_checkpoint, "
        "else true", None,
    )  # fmt: skip
    ignore_checkpoint_tokenizer: bool = setting(_IGNORE_TOKENIZER, False)
    max_seq_length: int | None = setting(
        "tokens in a row, [CLS] and [SEP] included; default: as the run's folder says, else 128", None
    )
    allow_unfinished: bool = setting("evaluate and predict with a checkpoint of unfinished training", False)
    do_train: bool = setting("train on the training data", False)
    do_eval: bool = setting("evaluate on the dev data", False)
    do_predict: bool = setting("predict the test data", False)
    train_batch_size: int = setting("examples per step, over all devices", 32)
    eval_batch_size: int = setting("examples per evaluation step, over all devices", 8)
    predict_batch_size: int = setting("examples per prediction step, over all devices", 8)
    learning_rate: float = setting("peak learning rate", 5e-5)
    num_train_epochs: float = setting("number of epochs", 3.0)
    warmup_proportion: float = setting("share of the steps used for warm-up", 0.1)
    save_checkpoints_steps: int = setting("steps between checkpoints", 1000)
    iterations_per_loop: int = setting(
        "maximum steps between two returns to Python; a TPU and several workers handle SIGTERM and Ctrl-C only there; "
        "other devices run at most 50 steps at once",
        1000, alias="steps_per_loop",
    )  # fmt: skip

    def __post_init__(self):
        super().__post_init__()
        require(
            self.do_train or self.do_eval or self.do_predict,
            "nothing to do: give --do_train, --do_eval, --do_predict or several of them",
        )
        require_folder("output_dir", self.output_dir)
        _require_positive(
            self, "train_batch_size", "eval_batch_size", "predict_batch_size", "learning_rate",
            "num_train_epochs", "save_checkpoints_steps", "iterations_per_loop",
        )  # fmt: skip
        require(
            self.max_seq_length is None or self.max_seq_length >= 5,
            f"--max_seq_length={self.max_seq_length}: must be at least 5, for [CLS] a [SEP] b [SEP]",
        )
        require(
            0 <= self.warmup_proportion < 1,
            f"--warmup_proportion={self.warmup_proportion}: must be at least 0 and below 1",
        )


@dataclasses.dataclass(frozen=True)
class ClassifierSettings(FineTuningSettings):
    """Settings of `run_classifier`; names and defaults of google-research/bert."""

    data_dir: str = setting("folder with train.tsv, dev.tsv and test.tsv")
    task_name: str = setting("MRPC, CoLA, SST-2, STS-B, or tsv for your own files")
    tsv_has_header: bool = setting("task tsv: the first line names the columns", True)
    tsv_text_a_column: str = setting("task tsv: column of the (first) text, by name or number from 0", "text")
    tsv_text_b_column: str = setting("task tsv: column of the second text; empty for none", "")
    tsv_label_column: str = setting("task tsv: column of the label, by name or number from 0", "label")
    tsv_labels: str = setting("task tsv: comma-separated labels; empty: the sorted labels of train.tsv", "")
    tsv_quoted: bool | None = setting(
        "task tsv: cells may stand in double quotes, which are removed; default: quotes are text, but a file whose "
        "texts all stand in quotes is refused", None,
    )  # fmt: skip
    tsv_regression: bool = setting("task tsv: the label is a number to learn", False)

    def __post_init__(self):
        super().__post_init__()
        require(
            not (self.tsv_regression and self.tsv_labels),
            "--tsv_regression learns numbers and --tsv_labels names classes; drop one of them",
        )


# Accepted names of the formats.
FORMATS = {
    "bert_tf": "bert_tf",
    "tf1": "tf1",
    "tf_models": "tf_models",
    "hugging_face": "hugging_face",
    "tf2": "bert_tf",
    "original": "tf1",
    "official": "tf_models",
    "tf_models_official": "tf_models",
    "huggingface": "hugging_face",
    "hf": "hugging_face",
    "safetensors": "hugging_face",
}


@dataclasses.dataclass(frozen=True)
class ConversionSettings:
    """Settings of `convert_checkpoint`."""

    input: str = setting("checkpoint of any format: prefix, folder, or hf://owner/model")
    output: str = setting("folder to write; new or empty")
    format: str = setting(
        "bert_tf (this project's), tf1 (google-research/bert's), tf_models (tf-models-official's) or hugging_face"
    )
    bert_config_file: str = setting("the input's configuration; empty: the file in its folder", "")
    vocab_file: str = setting("the input's vocabulary; empty: vocab.txt in its folder", "")
    do_lower_case: bool | None = setting(
        "whether the input's tokenizer lower-cases; default: from tokenizer_config.json in its folder or from its "
        "published name", None,
    )  # fmt: skip
    ignore_checkpoint_tokenizer: bool = setting(
        "use --vocab_file and --do_lower_case even if they contradict the files in the input's folder", False
    )
    extended_vocab_file: str = setting("larger vocabulary for the model, as learn_vocab --extend_vocab writes", "")
    keep_optimizer: bool = setting(
        "keep Adam's moments and the step, between bert_tf and tf1; the original's code resumes from them, "
        "--init_checkpoint reads only the weights",
        False,
    )

    def __post_init__(self):
        format = FORMATS.get(self.format.lower().replace("-", "_"))
        require(format, f"--format={self.format}: must be bert_tf, tf1, tf_models or hugging_face")
        object.__setattr__(self, "format", format)
        require(self.input and self.output, "--input and --output must not be empty")
        require_folder("output", self.output)
        require(
            not self.keep_optimizer or format in ("bert_tf", "tf1"),
            f"--keep_optimizer: {format} cannot store Adam's moments; remove the flag, or give --format=bert_tf or tf1",
        )
        require(
            not (self.keep_optimizer and self.extended_vocab_file),
            "--keep_optimizer contradicts --extended_vocab_file: new rows have no moments; remove one of them",
        )

"""The settings of a short run."""

from bert_tf.core.command_line import parse
from bert_tf.settings import PretrainingSettings


def settings(data, output_dir, *more: str) -> PretrainingSettings:
    return parse(
        PretrainingSettings,
        [
            f"--bert_config_file={data}/config.json", f"--input_file={data}/data.tfrecord",
            f"--output_dir={output_dir}", "--max_seq_length=32", "--max_predictions_per_seq=5", "--do_train",
            "--train_batch_size=8", "--num_train_steps=6", "--num_warmup_steps=2", "--learning_rate=1e-3",
            "--save_checkpoints_steps=3", *more,
        ],
    )  # fmt: skip

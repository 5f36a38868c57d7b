"""Records and settings of short pre-training runs."""

from bert_tf.core.command_line import parse
from bert_tf.jobs.run_local import LocalRunner
from bert_tf.settings import PretrainingSettings
from data_gen.generator import create_pretraining_data
from data_gen.settings import GeneratorSettings


def write_records(path, corpus_file, vocab_file, **options) -> None:
    """Writes records of rows of 32 tokens; `options` are other settings of the generator."""
    options = {"max_seq_length": 32, "max_predictions_per_seq": 5, "dupe_factor": 1} | options
    settings = GeneratorSettings(input_file=corpus_file, output_file=str(path), vocab_file=str(vocab_file), **options)
    with LocalRunner(1) as runner:
        create_pretraining_data(settings, runner)


def flags(config, records, output_dir, *more: str) -> list[str]:
    """Returns the flags of a run of six steps on rows of 32 tokens; of equal flags, the last one counts."""
    return [
        f"--bert_config_file={config}", f"--input_file={records}", f"--output_dir={output_dir}", "--max_seq_length=32",
        "--max_predictions_per_seq=5", "--train_batch_size=8", "--num_train_steps=6", "--num_warmup_steps=2",
        "--learning_rate=1e-3", "--save_checkpoints_steps=3", *more,
    ]  # fmt: skip


def settings(*given: str) -> PretrainingSettings:
    return parse(PretrainingSettings, flags(*given))

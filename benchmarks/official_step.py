"""Compiles tf-models-official's pre-training step for TPUs, for comparison with our step.

`python -m benchmarks.official_step` prints the same rows for this step as `make tpu-check` prints for our step: the
base model at sequence lengths 128 and 512, and the large model at 512.
"""

from __future__ import annotations

import typing

from benchmarks.compile_check import xla_flags
from benchmarks.compile_check.settings import CompileCheckSettings
from bert_tf.config import BertConfig
from bert_tf.core import command_line

if typing.TYPE_CHECKING:
    from benchmarks.compile_check.steps import Shape


def official_step(config: BertConfig, shape: Shape, dtype: str) -> str:
    """Converts tf-models-official's pre-training step, with its AdamW, to StableHLO text; see `steps.our_step`."""
    from official.modeling import optimization as official_optimization
    from official.nlp.configs import bert, encoders, pretraining_experiments
    from official.nlp.tasks import masked_lm

    from benchmarks.compile_check import steps

    with steps.dtype_policy(dtype):
        encoder = encoders.EncoderConfig(
            type="bert",
            bert=encoders.BertEncoderConfig(
                vocab_size=config.vocab_size,
                hidden_size=config.hidden_size,
                num_layers=config.num_hidden_layers,
                num_attention_heads=config.num_attention_heads,
                intermediate_size=config.intermediate_size,
                hidden_activation="gelu",
                dropout_rate=config.hidden_dropout_prob,
                attention_dropout_rate=config.attention_probs_dropout_prob,
                max_position_embeddings=config.max_position_embeddings,
                type_vocab_size=config.type_vocab_size,
            ),
        )
        head = bert.ClsHeadConfig(inner_dim=config.hidden_size, num_classes=2, name="next_sentence")
        experiment = pretraining_experiments.bert_pretraining()
        experiment.task.model = bert.PretrainerConfig(encoder=encoder, cls_heads=[head], mlm_activation="gelu")
        task = masked_lm.MaskedLMTask(experiment.task)
        model = task.build_model()
        rule = experiment.trainer.optimizer_config
        rule.learning_rate.polynomial.decay_steps, rule.warmup.polynomial.warmup_steps = (
            steps.TOTAL_STEPS,
            steps.WARMUP_STEPS,
        )
        factory = official_optimization.OptimizerFactory(rule)
        optimizer = factory.build_optimizer(factory.build_learning_rate())
        metrics = task.build_metrics(training=True)
        names = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}
        batch = {names.get(name, name): value for name, value in steps.zero_batch(shape).items()}
        # Create the optimizer's variables now. Otherwise, the compiled step would also create the variables.
        optimizer._create_all_weights(model.trainable_variables)
        return steps.lowered(lambda batch: task.train_step(batch, model, optimizer, metrics), batch)


def main(settings: CompileCheckSettings) -> None:
    """Runs the script with resolved settings."""
    xla_flags.keep_counters()
    from benchmarks.compile_check.check import run_check

    run_check(settings, "tf-models-official", lambda config, shape, device: official_step(config, shape, device.dtype))


if __name__ == "__main__":
    command_line.run(CompileCheckSettings, main, __doc__)

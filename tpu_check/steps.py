"""Training steps as programs: ours, and tf-models-official's beside it, from TensorFlow to StableHLO.

Letters: B batch, S sequence length, P predictions.
"""

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping

import tensorflow as tf
import tf_keras as keras
from official.modeling import optimization as official_optimization
from official.nlp.configs import bert, encoders, pretraining_experiments
from official.nlp.tasks import masked_lm

from bert_tf.config import BertConfig
from bert_tf.pretraining.objective import BertPretrainer, PretrainingObjective
from bert_tf.settings import DeviceSettings
from bert_tf.training.trainer import Trainer, make_optimizer
from tfrecords.errors import InputError

# Any will do: the schedule is a formula of the step, which is an input.
_LEARNING_RATE, _TOTAL_STEPS, _WARMUP_STEPS = 1e-4, 1_000_000, 10_000


@dataclasses.dataclass(frozen=True)
class Shape:
    """What a step works on.

    Attributes:
      batch_size: B, rows of one chip.
      length: S.
      predictions: P.
    """

    batch_size: int
    length: int
    predictions: int


def our_step(config: BertConfig, shape: Shape, settings: DeviceSettings) -> str:
    """The step that `Trainer` runs under TPUStrategy on each replica, as StableHLO text.

    Args:
      config: the model.
      shape: of the batch.
      settings: dtype, optimizer, and whether activations are recomputed.

    Raises:
      InputError: the step cannot be compiled by XLA at all.
    """
    with _dtype(settings.dtype):
        strategy = tf.distribute.get_strategy()
        trainer = Trainer(
            PretrainingObjective(BertPretrainer(config, settings.recompute_activations)),
            strategy,
            optimizer=make_optimizer(settings, _LEARNING_RATE, _TOTAL_STEPS, _WARMUP_STEPS),
        )
        return lowered(lambda batch: trainer.train_step(iter([batch])), _batch(shape))


def official_step(config: BertConfig, shape: Shape, settings: DeviceSettings) -> str:
    """tf-models-official's pre-training step with its AdamW, as StableHLO text; arguments as for `our_step`."""
    with _dtype(settings.dtype):
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
        rule.learning_rate.polynomial.decay_steps, rule.warmup.polynomial.warmup_steps = _TOTAL_STEPS, _WARMUP_STEPS
        factory = official_optimization.OptimizerFactory(rule)
        optimizer = factory.build_optimizer(factory.build_learning_rate())
        metrics = task.build_metrics(training=True)
        names = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}
        batch = {names.get(name, name): value for name, value in _batch(shape).items()}
        # its slots, which its first step would make inside the program
        optimizer._create_all_weights(model.trainable_variables)
        return lowered(lambda batch: task.train_step(batch, model, optimizer, metrics), batch)


@contextlib.contextmanager
def _dtype(dtype: str) -> Iterator[None]:
    # names are numbered by the session; the same step is to give the same program
    keras.backend.clear_session()
    before = keras.mixed_precision.global_policy()
    keras.mixed_precision.set_global_policy("float32" if dtype == "float32" else f"mixed_{dtype}")
    try:
        yield
    finally:
        keras.mixed_precision.set_global_policy(before)


def _batch(shape: Shape) -> dict[str, tf.Tensor]:
    rows, length, predictions = shape.batch_size, shape.length, shape.predictions
    sizes = {
        "input_ids": [rows, length],
        "input_mask": [rows, length],
        "segment_ids": [rows, length],
        "masked_lm_positions": [rows, predictions],
        "masked_lm_ids": [rows, predictions],
        "next_sentence_labels": [rows],
        "data_position": [rows, 3],
    }
    batch = {name: tf.zeros(size, tf.int32) for name, size in sizes.items()}
    return batch | {"masked_lm_weights": tf.zeros([rows, predictions])}


def lowered(step: Callable[[Mapping], object], batch: Mapping[str, tf.Tensor]) -> str:
    """A step as a program: batch and variables are its arguments, and the variables that it changes its results.

    Args:
      step: called with the batch.
      batch: tensors of the shapes to compile for.

    Raises:
      InputError: XLA cannot compile it.
    """

    def run(batch):
        step(batch)

    try:
        program = tf.function(run, jit_compile=True).experimental_get_compiler_ir(batch)(stage="stablehlo")
    except (tf.errors.OpError, ValueError) as error:
        raise InputError(f"the step is nothing that XLA can compile: {' '.join(str(error).split())[-400:]}") from error
    # every variable's new value ends in a copy of XLA's own, which StableHLO has no word for; compilers drop either
    program = re.sub(r"^module @\S+", "module @step", program, flags=re.MULTILINE)  # numbered by the process
    return re.sub(r"\bmhlo\.copy (\S+) : (tensor<[^>]*>)", r"stablehlo.reshape \1 : (\2) -> \2", program)

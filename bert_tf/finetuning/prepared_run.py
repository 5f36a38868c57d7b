"""Prepares a fine-tuning run before its first step: reads, checks, encodes and plans everything."""

import dataclasses
import fractions
import functools
import os
from collections.abc import Callable, Sequence

import tensorflow as tf
import tf_keras as keras
from absl import logging

from bert_tf import checkpoint_tokenizer, checkpoints
from bert_tf.checkpoint_formats import names
from bert_tf.config import BertConfig
from bert_tf.core.errors import InputError
from bert_tf.distributed import strategies
from bert_tf.finetuning import activations, description, distillation, evaluated_data, lower_layers
from bert_tf.finetuning.batches import row_batches
from bert_tf.finetuning.distillation import Teacher
from bert_tf.finetuning.initial import check_initial_of_task, has_head
from bert_tf.finetuning.model import FineTunedBert, head_maker
from bert_tf.finetuning.row_plan import RowPlan, plan_evaluation, plan_training
from bert_tf.finetuning.task import Split, Task
from bert_tf.finetuning.task_data import fingerprint_of
from bert_tf.input.record_order import Position
from bert_tf.runs import checkpoint_folder, run_folder, run_record
from bert_tf.settings import FineTuningSettings
from bert_tf.settings.finetuning import UNLABELED
from bert_tf.tokenization import BertTokenizer
from bert_tf.training import flops, loop

# Fewer steps than this rarely train a head.
_FEW_STEPS = 100


@dataclasses.dataclass(frozen=True)
class PreparedRun:
    """Everything that a run needs, already checked. A training batch has `train_batch_size` examples; see `row_plan`.
    It is divided into micro-batches, one after another; each micro-batch among the replicas; and the rows of a replica
    into parts, computed at the same time. A plan gives all of these the same number of rows."""

    settings: FineTuningSettings  # complete settings; see `resolution.resolve`
    task: Task
    config: BertConfig
    tokenizer: BertTokenizer  # tokenizer with the run's vocabulary
    # maps "train", "dev" and "test" to encoded splits; contains only the splits that the settings request
    splits: dict[str, Split]
    strategy: tf.distribute.Strategy
    # number of parts of a per-replica batch that are computed at the same time; see `batch_parts`. If the size of the
    # per-replica batch is not divisible by this number, the batch is not divided.
    wanted_parts: int = 1
    teacher: Teacher | None = None  # the model whose outputs the run learns; None without `--teacher`

    @functools.cached_property
    def data_ids(self) -> dict[str, str]:
        """The identities of the evaluated splits; see `fingerprint_of`."""
        splits = {name: split for name, split in self.splits.items() if name != "train"}
        return {name: fingerprint_of(self.task.data.title(name), split.examples) for name, split in splits.items()}

    @property
    def evaluates_same_examples(self) -> bool:
        """Whether the evaluated data and the predicted data are the same."""
        ids = self.data_ids
        return "dev" in ids and "test" in ids and evaluated_data.is_same(ids["dev"], ids["test"])

    @property
    def make_head(self) -> Callable[[BertConfig], keras.layers.Layer]:
        """The function that makes the model's head from a configuration."""
        return head_maker(self.task.head, self.settings.bilstm_head)

    @property
    def new_tokens(self) -> tuple[int, ...]:
        """The ids of the start, delimiter and extract tokens if they start from random embeddings, else ()."""
        tokenizer = self.tokenizer
        is_new = self.settings.special_tokens == "new"
        return (tokenizer.cls_id, tokenizer.sep_id, self.config.extract_token_id) if is_new else ()

    @property
    def packed_for(self) -> BertConfig | None:
        """Configuration of the model for which rows are packed; None if rows are not packed."""
        return self.config if self.settings.pack_sequences and not self.task.activations_dir else None

    def parts(self, batch_size: int) -> int:
        """Returns `wanted_parts` if it divides the rows of a replica in a batch or micro-batch evenly, else 1."""
        return 1 if batch_size % (self.strategy.num_replicas_in_sync * self.wanted_parts) else self.wanted_parts

    @property
    def train_parts(self) -> int:
        """The number of parts of a micro-batch in training."""
        return self.parts(self.settings.train_batch_size // self.settings.gradient_accumulation_steps)

    def check_batches(self) -> None:
        """Refuses batch sizes that the strategy or the number of examples does not allow."""
        strategies.check_batch_sizes(self.strategy, self.settings)
        flag = "feature_layers" if self.task.activations_dir else "teacher" if self.teacher else ""
        strategies.check_python_input(self.strategy, self.settings, reading_flag=flag)
        if self.settings.do_train:
            self.num_train_steps()

    def with_activations(self, model: FineTunedBert, names: Sequence[str] = ("train", "dev", "test")) -> "PreparedRun":
        """Returns a run whose splits with these names have the frozen encoder's activations. If the task has no
        `activations_dir`, returns `self`."""
        if not self.task.activations_dir:
            return self
        shared = self.task, model, self.tokenizer, self.settings.max_seq_length, self.strategy
        splits = {
            name: activations.with_activations(split, name, *shared)
            for name, split in self.splits.items()
            if name in names
        }
        return dataclasses.replace(self, splits=self.splits | splits)

    def with_teacher_outputs(self) -> "PreparedRun":
        """Returns a run whose training rows have the teacher's outputs; without a teacher, returns `self`."""
        if not self.teacher or self.splits["train"].teacher_outputs:
            return self
        train, labeled = self.splits["train"], len(self.task.data.read("train"))
        folder = os.path.join(self.settings.output_dir, distillation.FOLDER)
        train = distillation.with_teacher_outputs(train, labeled, self.task, self.teacher, folder, self.strategy)
        return dataclasses.replace(self, splits=self.splits | {"train": train})

    def write_files(self) -> None:
        """Writes the files for evaluation and export to the run's folder: configuration, tokenizer and task."""
        settings, folder = self.settings, self.settings.output_dir
        checkpoint_tokenizer.write(folder, self.config, self.tokenizer.rules)
        description.write(folder, self.described())
        self.task.write_files(folder, self.config, settings.max_seq_length)

    def num_train_examples(self) -> int:
        """Returns the number of examples of an epoch, as `row_plan` counts examples."""
        rows_per_example = self.task.rows_per_example(self.splits["train"])
        return len(self.splits["train"]) if rows_per_example is None else len(rows_per_example)

    def num_train_steps(self) -> int:
        settings, count = self.settings, self.num_train_examples()
        # A product of floats could be just below a whole number.
        steps = int(count * fractions.Fraction(str(settings.num_train_epochs)) / settings.train_batch_size)
        if steps < 1:
            raise InputError(
                f"--num_train_epochs={settings.num_train_epochs}: {count} examples are not enough for one step of "
                f"--train_batch_size={settings.train_batch_size}; give more epochs or a smaller batch size"
            )
        return steps

    def num_warmup_steps(self, num_train_steps: int) -> int:
        """Returns the number of steps of linear warm-up."""
        return int(num_train_steps * self.settings.warmup_proportion)

    def training_plan(self, num_train_steps: int) -> RowPlan:
        """Plans all batches of the run, from its first step. Therefore, a resumed run has the same packed rows."""
        settings = self.settings
        return plan_training(
            self.splits["train"].lengths,
            batch_size=settings.train_batch_size,
            num_batches=num_train_steps,
            slices=self.strategy.num_replicas_in_sync * settings.gradient_accumulation_steps * self.train_parts,
            seed=settings.random_seed,
            packed_for=self.packed_for,
            rows_per_example=self.task.rows_per_example(self.splits["train"]),
        )

    def evaluation_plan(self, split: str, batch_size: int) -> RowPlan:
        """Plans one pass over a split; a batch has at most as many tokens as `batch_size` padded rows."""
        return plan_evaluation(
            self.splits[split].lengths,
            batch_size=batch_size,
            max_seq_length=self.settings.max_seq_length,
            slices=self.strategy.num_replicas_in_sync * self.parts(batch_size),
            packed_for=self.packed_for,
            rows_per_example=self.task.rows_per_example(self.splits[split]),
        )

    def flops_per_row(self, plan: RowPlan) -> float:
        """Computes the model FLOPs of training for one row of the encoder's input. The row may be a packed row."""
        settings, config = self.settings, self.config
        length, examples = (plan.shape.width, plan.shape.sequences) if plan.shape else (settings.max_seq_length, 1)
        of_encoder = self.task.training_flops(config, length, examples)
        of_encoder -= lower_layers.flops_saved(config, settings.frozen_layers, length)
        if settings.lm_coefficient:
            of_encoder += flops.prediction_flops(config, length)
        if not settings.bilstm_head:
            return of_encoder
        # The BiLSTM reads each row separately, even if several rows share a packed row of the encoder.
        rows = plan.ids.shape[1] / plan.shape.rows if plan.shape else 1
        return of_encoder + rows * flops.bilstm_flops(config, int(self.splits["train"].lengths.max()))

    def batches_before(self, position: Position) -> int:
        return (position.epoch * self.num_train_examples() + position.examples) // self.settings.train_batch_size

    def batches(self, split: str, plan: RowPlan, slices_per_replica: int = 1, start: int = 0):
        """Returns a function that maps an input context to the dataset of a split's batches."""
        arguments = self.splits[split], self.task, self.tokenizer, plan
        options = {
            "max_seq_length": self.settings.max_seq_length,
            "slices": self.strategy.num_replicas_in_sync * slices_per_replica,
            "slices_per_replica": slices_per_replica,
            "start": start,
        }
        return lambda context: row_batches(*arguments, **options, input_context=context)

    def phase(self, num_train_steps: int) -> run_record.TrainingRecord:
        """Returns the entry of `run.json` for training with this number of steps."""
        settings = self.settings
        warmup = self.num_warmup_steps(num_train_steps)
        return run_record.TrainingRecord(
            settings=dataclasses.asdict(settings),
            model=self.model_facts(),
            data={
                "train": self.task.data.fingerprint("train"),
                "max_seq_length": settings.max_seq_length,
                **self.task.data_facts(),
                **self._facts_of_teacher(),
            },
            optimizer=loop.optimizer_facts(settings, num_train_steps, warmup, num_train_steps)
            | settings.training_facts,
            script=settings.script,
        )

    def _facts_of_teacher(self) -> dict:
        if not self.teacher:
            return {}
        unlabeled = self.task.data.fingerprint(UNLABELED) if self.settings.unlabeled_data_path else []
        return {"teacher": self.teacher.weights, UNLABELED: unlabeled}

    def same_on_workers(self) -> dict:
        """Returns the facts that must be the same on all workers; paths are not part of these facts."""
        fingerprints = {split: self.task.data.fingerprint(split) for split in self.splits}
        data = fingerprints.pop("train", "")
        teacher = self._facts_of_teacher()
        return {"model": self.model_facts(), "data": data, "evaluation data": fingerprints, "teacher": teacher}

    def model_facts(self) -> dict:
        """Returns the facts that identify the run's model; see `description.model_facts`."""
        return description.model_facts(self.described(), self.config, self.tokenizer.rules)

    def described(self) -> description.TaskDescription:
        settings = self.settings
        return description.describe(self.task, settings.max_seq_length, settings.bilstm_head)


def prepare(
    settings: FineTuningSettings,
    task: Task,
    strategy: tf.distribute.Strategy,
    wanted_parts: int = 1,
    open_teacher: Callable[[FineTuningSettings, Task], Teacher] | None = None,
) -> PreparedRun:
    """Reads and checks everything that a run needs, and encodes its data."""
    config = checkpoints.read_config(settings.bert_config_file)
    tokenizer = checkpoint_tokenizer.tokenizer(settings)
    config.check_vocabulary(len(tokenizer.vocabulary), tokenizer.vocab_file, settings.bert_config_file)
    config.check_length(settings.max_seq_length, settings.bert_config_file)
    lower_layers.check(config, settings)
    config = _of_gpt(config, settings, tokenizer)
    if not (settings.do_train or run_folder.takes_over(settings)):
        checkpoint_folder.check_there(settings.output_dir)
    task.check(config, settings)
    shares_test = task.test_is_dev and settings.do_eval
    asked = {"train": settings.do_train, "dev": settings.do_eval, "test": settings.do_predict and not shares_test}
    examples = {split: task.data.read(split) for split, wanted in asked.items() if wanted}
    task.check_examples(examples)
    if starts_from := run_folder.initial_checkpoint(settings):
        _check_start(starts_from, settings, task, config)
    teacher = open_teacher(settings, task) if settings.distills else None
    more = {"train": task.data.read(UNLABELED)} if teacher and settings.unlabeled_data_path else {}
    splits = {
        name: distillation.encoded(task, read, more.get(name, ()), tokenizer, settings.max_seq_length)
        for name, read in examples.items()
    }
    if more:
        logging.info("train: %d of the examples are unlabeled", len(more["train"]))
    if shares_test:
        splits["test"] = splits["dev"]
    return PreparedRun(settings, task, config, tokenizer, splits, strategy, wanted_parts, teacher)


def _check_start(path: str, settings: FineTuningSettings, task: Task, config: BertConfig) -> None:
    """Refuses an initial checkpoint that lacks the weights that the run needs; see also `check_initial_of_task`."""
    make_head = head_maker(task.head, settings.bilstm_head)
    contents = check_initial_of_task(
        path, task, config, settings.reinitialize_head, make_head, settings.transfer_layers
    )
    head = make_head(config)
    # some heads have no weights
    is_complete = has_head(contents, getattr(head, "checkpoint_name", "head")) or not head.variables
    if run_folder.takes_over(settings) and (settings.reinitialize_head or not is_complete):
        raise InputError(
            f"{contents.source}: has no head for this task, and {settings.output_dir} has no trained model; give "
            "--do_train, or a fine-tuned --init_checkpoint without --reinitialize_head"
        )
    if settings.lm_coefficient and "masked_lm" not in names.heads_in(contents.tensors):
        raise InputError(
            f"--lm_coefficient={settings.lm_coefficient}: {contents.source} has no masked-LM head, so there is no "
            "language model to train; give a checkpoint of run_pretraining, or drop the flag"
        )


def _of_gpt(config: BertConfig, settings: FineTuningSettings, tokenizer: BertTokenizer) -> BertConfig:
    """Returns the configuration with the extract token that `special_tokens` asks for; see `BertConfig`. The extract
    token has the id of [MASK], because models of one direction do not use [MASK] otherwise."""
    is_new = settings.special_tokens == "new"
    flag = "--special_tokens=new" if is_new else f"--lm_coefficient={settings.lm_coefficient}"
    if (is_new or settings.lm_coefficient) and config.directionality not in ("ltr", "rtl"):
        raise InputError(
            f"{flag}: {settings.bert_config_file} says directionality={config.directionality}, but GPT's recipe needs "
            "a model of one direction; give a left-to-right --init_checkpoint, or drop the flag"
        )
    return dataclasses.replace(config, extract_token_id=tokenizer.mask_id) if is_new else config


def warn_of_few_steps(settings: FineTuningSettings, num_train_steps: int) -> None:
    """Warns if the training is too short for most tasks."""
    if num_train_steps < _FEW_STEPS:
        logging.warning(
            "training has only %d steps (--num_train_epochs=%g, --train_batch_size=%d), and a model rarely learns a "
            "task in fewer than %d; give more epochs or smaller batches",
            num_train_steps, settings.num_train_epochs, settings.train_batch_size, _FEW_STEPS,
        )  # fmt: skip

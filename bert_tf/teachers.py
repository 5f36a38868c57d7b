"""Loads the teacher of a fine-tuning run: a run of this library, or a fine-tuned model of another project."""

from bert_tf import checkpoints, conversion
from bert_tf.finetuning import sweep_results
from bert_tf.finetuning.distillation import Teacher
from bert_tf.finetuning.task import Task
from bert_tf.settings import FineTuningSettings
from bert_tf.tasks import trained
from bert_tf.tasks.trained import Trained


def load(settings: FineTuningSettings, task: Task) -> Teacher:
    """Loads the model of `--teacher`, and checks that a model of the task can learn its outputs.
    Raises InputError: there is no finished model, it has no head, or it has another kind of task or other labels."""

    def read() -> Trained:
        with conversion.run_of(settings.teacher, getattr(task, "has_pairs", None)) as folder:
            return trained.load(sweep_results.best_folder(folder, allow_unfinished=False), "best")

    found = read()
    own = found.kind.task_of(found.description, found.folder)
    task.check_teacher(own, settings.teacher)
    weights = checkpoints.digest_of_weights(checkpoints.variables_by_path(found.model))
    length = found.description.max_seq_length
    size = found.model.num_weights
    return Teacher(settings.teacher, own, found.tokenizer, length, weights, size, lambda: read().model)

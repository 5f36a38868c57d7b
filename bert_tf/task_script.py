"""Finds and runs the task for a script's settings; all fine-tuning scripts share this code."""

from bert_tf.settings import FineTuningSettings


def main(settings: FineTuningSettings) -> dict[str, float]:
    """Runs a script with resolved settings; returns the metrics of the evaluation."""
    settings.set_environment()
    from bert_tf import conversion, report
    from bert_tf.finetuning.engine import run_finetuning
    from bert_tf.finetuning.ensemble import run_ensemble
    from bert_tf.tasks import registry, takeover

    make_task = registry.of_settings(settings).make_task
    if settings.ensemble_members:
        return run_ensemble(settings, make_task, settings.ensemble_members)
    scores = run_finetuning(settings, make_task, report.write, conversion.open_teacher, takeover.describe_initial)
    if settings.do_train:
        following = f"export_saved_model --checkpoint_dir={settings.output_dir} --export_dir=models/NAME"
        report.conclude(settings.output_dir, scores, following)
    return scores

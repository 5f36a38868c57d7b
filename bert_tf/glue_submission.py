r"""Prints the dev scores of GLUE runs as in Table 1 of the paper, and packs their predictions for GLUE's server.

glue_submission --run_dirs=finetuned/cola,finetuned/mnli,finetuned/rte --glue_dir=glue \
      --output_file=submission.zip
"""

from bert_tf.core import command_line
from bert_tf.settings import GlueSubmissionSettings


def main(settings: GlueSubmissionSettings) -> None:
    from bert_tf.tasks.classification import glue_results

    scores = glue_results.dev_scores(settings.folders)
    for column, score in scores.items():
        print(f"{column}\t{100 * score:.1f}")
    if len(scores) == len(glue_results.COLUMNS):
        print(f"Average\t{100 * glue_results.average(scores):.1f}")
    if settings.output_file:
        glue_results.assemble(settings.output_file, settings.folders, settings.glue_dir)


run = command_line.script_of(GlueSubmissionSettings, main, __doc__)

if __name__ == "__main__":
    run()

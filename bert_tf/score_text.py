r"""Computes log-likelihoods of texts and tokens with a pre-trained model, or predicts the token of each [MASK].

A masked LM gives pseudo-log-likelihoods, and a left-to-right model gives log-likelihoods.

score_text --init_checkpoint=uncased --input_file=sentences.txt --output_file=scores.jsonl

score_text --mode=fill_mask --init_checkpoint=uncased --input_file=blanks.txt \
      --output_file=guesses.jsonl

score_text --mode=choose --init_checkpoint=gpt --input_file=swag/val.csv --output_file=choices.jsonl
"""

from bert_tf.core import command_line
from bert_tf.settings import ScoringSettings


def main(settings: ScoringSettings) -> None:
    from bert_tf.settings.scoring import CHOOSE

    if settings.mode == CHOOSE:
        from bert_tf.zero_shot import choose

        choose(settings)
        return
    from bert_tf.jobs.runner import started

    with started(settings, "bert_tf.pretraining.scoring_job", **settings.devices) as (settings, runner):
        from bert_tf.pretraining.scoring_job import score_files

        score_files(settings, runner)


run = command_line.script_of(ScoringSettings, main, __doc__)

if __name__ == "__main__":
    run()

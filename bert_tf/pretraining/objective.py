"""The pre-training model and its joint loss.

Paper: section 3.1 and appendix A.2: the loss is the sum of the mean masked-LM and the mean
next-sentence negative log-likelihoods.

Letters: N examples in a packed row.
"""

from collections.abc import Mapping, Sequence

import tensorflow as tf
import tf_keras as keras

from bert_tf.config import BertConfig
from bert_tf.encoder import BertEncoder
from bert_tf.modeling.heads import MaskedLanguageModelHead, NextSentenceHead
from bert_tf.training import metrics
from bert_tf.training.divergence import divergence
from bert_tf.training.metrics import Form, Metric

# Share of the pairs whose second sentence is random. If a model gives the same answer for all pairs, its accuracy is
# this share, or 1 minus this share.
RANDOM_NEXT_SHARE = "next_sentence_random_share"
# The progress line omits the total loss and the next-sentence loss, because the other metrics are more informative.
_MASKED_LM = (
    Metric("masked_lm_loss", "mlm loss", "masked_lm", "masked_lm/loss", "masked-LM loss, nats"),
    Metric(
        "masked_lm_accuracy", "acc", "masked_lm", "masked_lm/accuracy", "masked-LM accuracy",
        form=Form.FRACTION, higher_is_better=True,
    ),
    Metric(
        "masked_lm_perplexity", "ppl", "masked_lm", "masked_lm/perplexity", "masked-LM perplexity",
        log_scale=True, derived_from=("masked_lm_loss",), derive=metrics.perplexity,
    ),
)  # fmt: skip
# Perplexities per word are comparable between vocabularies, unlike perplexities per token.
_WORDS = (
    Metric("word_loss", tag="masked_lm/word_loss"),
    Metric(
        "word_perplexity", "word ppl", "masked_lm", "masked_lm/word_perplexity", "perplexity per word", log_scale=True,
        derived_from=("word_loss",), derive=metrics.perplexity,
    ),
)  # fmt: skip
_NEXT_SENTENCE = (
    Metric("next_sentence_loss", tag="next_sentence/loss"),
    Metric(
        "next_sentence_accuracy", "nsp acc", "next_sentence", "next_sentence/accuracy", "next-sentence accuracy",
        form=Form.FRACTION, higher_is_better=True,
    ),
    Metric(RANDOM_NEXT_SHARE, tag="next_sentence/random_share"),
)  # fmt: skip
_TEACHER = Metric("teacher_loss", "teacher loss", "teacher", title="loss of the teacher's predictions")
_TOTAL = Metric("loss", derived_from=("masked_lm_loss", "next_sentence_loss"), derive=tf.add_n)
METRICS = (_TOTAL, *_MASKED_LM, *_WORDS, *_NEXT_SENTENCE, _TEACHER)


class BertPretrainer(keras.Model):
    """The encoder with the masked-LM and next-sentence heads.
    Paper: section 3.1."""

    def __init__(self, config: BertConfig, recompute_activations: bool = False, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.encoder = BertEncoder(config, recompute_activations)
        self.masked_lm = MaskedLanguageModelHead(config)
        self.next_sentence = NextSentenceHead(config)

    def call(self, inputs, training=False, seed=None):
        """Predicts masked tokens and whether the second sentence follows the first.
        `inputs`: the inputs of `BertEncoder`, and `masked_lm_positions` int32 [B, P].
        `seed`: seed of the dropout masks, int32 [2].
        Returns the encoder's outputs, and: `masked_lm_logits`: float32 [B, P, V]. `next_sentence_logits`: float32 [B,
        2], or [B, N, 2] for packed rows. `masked_lm_scores`: [B P, V], the masked-LM logits without the bias. In
        training, if P + N < S, the last layer is computed only at the positions that the heads read, and
        `sequence_output` contains only the masked positions, [B, P, H]. (N is 1 without packed rows.)"""
        positions = inputs["masked_lm_positions"]
        examples = inputs["cls_positions"].shape[1] if "cls_positions" in inputs else 1
        # In training, the heads read the last layer only at these positions. There are few such positions, unless the
        # model is left-to-right.
        few = training and positions.shape[1] + examples < inputs["input_ids"].shape[1]
        outputs = self.encoder(inputs, training=training, seed=seed, positions=positions if few else None)
        scores = self.masked_lm(
            outputs["sequence_output"], None if few else positions, self.encoder.embeddings.word_embeddings
        )
        logits = tf.reshape(self.masked_lm.logits(scores), [*tf.unstack(tf.shape(positions)), self.config.vocab_size])
        next_sentence_logits = self.next_sentence(outputs["pooled_output"])
        return {
            **outputs,
            "masked_lm_scores": scores,
            "masked_lm_logits": logits,
            "next_sentence_logits": next_sentence_logits,
        }


class PretrainingObjective:
    """The joint loss and its metrics; see `gradients.Objective`."""

    couples_rows = False

    def __init__(
        self,
        model: BertPretrainer,
        next_sentence: bool = True,
        starts_word: Sequence[bool] | None = None,
        teacher: BertPretrainer | None = None,
        distill_weight: float = 0.0,
        temperature: float = 1.0,
    ):
        """Creates the objective of a model.
        `next_sentence`: whether batches contain sentence pairs with `next_sentence_labels`.
        `starts_word`: for each token of the vocabulary, whether a word begins with it; None to measure no loss per
          word. The loss per word is only meaningful if the model predicts every token.
        `teacher`: a model whose predictions of masked tokens are learned; its weights do not change.
        `distill_weight`: share of the teacher's loss in the loss of the masked tokens.
        `temperature`: see `divergence`."""
        self.model = model
        self._next_sentence = next_sentence
        self._teacher, self._distill_weight, self._temperature = teacher, distill_weight, temperature
        self._starts_word = None if starts_word is None else tf.constant(starts_word, tf.float32)
        self.metrics = (
            _TOTAL, *_MASKED_LM, *(() if starts_word is None else _WORDS), *(_NEXT_SENTENCE if next_sentence else ()),
            *((_TEACHER,) if teacher else ()),
        )  # fmt: skip

    def loss(self, numerators: Mapping[str, tf.Tensor], denominators: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Computes the joint loss, float32 [], from the sums that `numerators` and `denominators` return.
        Paper: section 3.1 and appendix A.2."""
        mean = {name: tf.math.divide_no_nan(numerators[name], count) for name, count in denominators.items()}
        loss, weight = mean["masked_lm_loss"], self._distill_weight
        if self._teacher:
            loss = (1 - weight) * loss + weight * mean["teacher_loss"]
        return loss + mean["next_sentence_loss"] if self._next_sentence else loss

    def denominators(self, batch: Mapping[str, tf.Tensor]) -> dict[str, dict[str, tf.Tensor]]:
        """Counts the predictions of a batch for each loss term and metric, float32 [] each."""
        counts = {"masked_lm": tf.reduce_sum(batch["masked_lm_weights"])}
        if self._next_sentence:
            counts["next_sentence"] = tf.reduce_sum(_next_sentence_weights(batch))
        measured = {f"{task}_accuracy": count for task, count in counts.items()}
        if self._teacher:
            counts["teacher"] = counts["masked_lm"]
        if self._next_sentence:
            measured[RANDOM_NEXT_SHARE] = counts["next_sentence"]
        if self._starts_word is not None:
            starts = tf.gather(self._starts_word, batch["masked_lm_ids"])
            measured["word_loss"] = tf.reduce_sum(batch["masked_lm_weights"] * starts)
        return {"loss": {f"{task}_loss": count for task, count in counts.items()}, "metrics": measured}

    def numerators(self, batch: Mapping[str, tf.Tensor], training: bool, seed) -> dict[str, dict[str, tf.Tensor]]:
        """Sums each loss term and metric over the predictions of a batch, float32 [] each."""
        outputs = self.model(batch, training=training, seed=seed)
        weights = batch["masked_lm_weights"]  # [B, P]
        labels = batch["masked_lm_ids"]  # [B, P]
        # Only a teacher needs `masked_lm_logits`; otherwise, the graph of a step does not compute these logits.
        nll, likeliest = self.model.masked_lm.losses(outputs["masked_lm_scores"], tf.reshape(labels, [-1]))
        nll = tf.reshape(nll, tf.shape(labels))
        predicted = tf.cast(tf.reshape(likeliest, tf.shape(labels)) == labels, tf.float32)
        sums = {
            "loss": {"masked_lm_loss": tf.reduce_sum(weights * nll)},
            "metrics": {"masked_lm_accuracy": tf.reduce_sum(weights * predicted)},
        }
        if self._starts_word is not None:
            sums["metrics"]["word_loss"] = sums["loss"]["masked_lm_loss"]
        if self._next_sentence:
            nll, right, random = _next_sentence_sums(batch, outputs["next_sentence_logits"])
            sums["loss"]["next_sentence_loss"] = nll
            sums["metrics"] |= {"next_sentence_accuracy": right, RANDOM_NEXT_SHARE: random}
        if self._teacher:
            of_teacher = self._teacher(batch, training=False)["masked_lm_logits"]
            losses = divergence(of_teacher, outputs["masked_lm_logits"], self._temperature)
            sums["loss"]["teacher_loss"] = tf.reduce_sum(weights * losses)
        return sums


def _next_sentence_sums(batch: Mapping[str, tf.Tensor], logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Sums the loss, and counts the right answers and the random second sentences."""
    labels, weights = batch["next_sentence_labels"], _next_sentence_weights(batch)
    nll = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    predicted = tf.cast(tf.argmax(logits, -1, labels.dtype) == labels, tf.float32)
    random = tf.cast(labels, tf.float32)
    return tuple(tf.reduce_sum(weights * values) for values in (nll, predicted, random))


def _next_sentence_weights(batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Returns 1 for each label, and 0 for the unused labels of a packed row."""
    return batch.get("next_sentence_weights", tf.ones(tf.shape(batch["next_sentence_labels"])))

"""Losses that compare the vectors of all rows of a batch.

InfoNCE with negatives from the batch: A. van den Oord et al., "Representation Learning with Contrastive Predictive
Coding", 2018; M. Henderson et al., "Efficient Natural Language Response Suggestion for Smart Reply", 2017. SimCSE: T.
Gao et al., "SimCSE: Simple Contrastive Learning of Sentence Embeddings", 2021. CoSENT: J. Su, "CoSENT", 2022.
Matryoshka: A. Kusupati et al., "Matryoshka Representation Learning", 2022.

Letters: H size of a vector. The rows of an example are consecutive.
"""

from collections.abc import Mapping, Sequence

import tensorflow as tf

# Values of the column `roles`; further negatives have higher values. The two texts of a scored pair have the first two.
ANCHOR, POSITIVE, NEGATIVE = 0, 1, 2
# The score of a text that is not a candidate: low enough to have no effect, but finite.
_EXCLUDED = -1e9


def info_nce(
    vectors: tf.Tensor, batch: Mapping[str, tf.Tensor], scale: float, both_directions: bool = False
) -> dict[str, tf.Tensor]:
    """Computes the cross-entropy of choosing the positive of each anchor among all positives and negatives. Texts that
    are equal to the anchor, to its positive or to another positive of the same anchor are left out, so no sampler has
    to keep them apart.
    `vectors`: float32 [B, H].
    `batch`: `roles`, int32 [B]; `text_ids`, int32 [B], equal for equal texts; and `row_weights`, float32 [B], 0 for
      padding rows.
    `scale`: factor of the cosines.
    `both_directions`: whether the loss is the mean with the loss of choosing the anchor of each positive.
    Returns:
    `loss`: float32 [B]; only the values of anchors have a meaning.
    `accuracy`: float32 [B], 1 if the positive has the highest cosine, alone."""
    scores = _cosines(vectors) * scale  # [B, B]
    is_real = batch["row_weights"] > 0
    is_candidate = (batch["roles"] != ANCHOR) & is_real
    own = tf.range(tf.shape(vectors)[0]) + 1  # the positive of an anchor is the next row
    is_positive, is_anchor = ((batch["roles"] == role) & is_real for role in (POSITIVE, ANCHOR))
    loss, is_right = _choice(scores, own, is_candidate, is_positive, batch["text_ids"])
    if both_directions:
        back, _ = _choice(scores, own - 2, is_anchor, is_anchor, batch["text_ids"])
        loss = (loss + tf.roll(back, -1, 0)) / 2
    return {"loss": loss, "accuracy": is_right}


def _choice(
    scores: tf.Tensor, own: tf.Tensor, is_candidate: tf.Tensor, is_partner: tf.Tensor, text_ids: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the cross-entropy of choosing the candidate `own` of each row, and whether it has the highest score."""
    count = tf.shape(scores)[0]
    own = tf.clip_by_value(own, 0, count - 1)  # the first and the last row may have no partner
    is_own = tf.range(count)[tf.newaxis] == own[:, tf.newaxis]  # [B, B]
    is_equal = text_ids[tf.newaxis] == text_ids[:, tf.newaxis]
    # Rows with equal texts have the same partners.
    partners = tf.matmul(_float(is_equal), _float(is_own & is_partner[tf.newaxis]))  # [B, B]
    is_known = is_equal | (tf.matmul(partners, _float(is_equal)) > 0)
    scores = tf.where(is_own | (is_candidate[tf.newaxis] & ~is_known), scores, _EXCLUDED)
    right = tf.gather(scores, own, batch_dims=1)
    others = tf.reduce_max(tf.where(is_own, _EXCLUDED, scores), 1)
    return tf.reduce_logsumexp(scores, 1) - right, tf.cast(right > others, tf.float32)


def _float(values: tf.Tensor) -> tf.Tensor:
    return tf.cast(values, tf.float32)


def co_sent(vectors: tf.Tensor, batch: Mapping[str, tf.Tensor], scale: float) -> dict[str, tf.Tensor]:
    """Computes log(1 + the sum of exp(scale (c_j - c_i)) over all pairs i, j of examples with a higher score of i). c
    is the cosine of the two texts of an example. The batch has one loss, which each row repeats.
    `vectors`: float32 [B, H].
    `batch`: `roles`, int32 [B]; `label_ids`, float32 [B], the scores; and `row_weights`, float32 [B]."""
    unit = tf.math.l2_normalize(vectors, -1)
    cosines = tf.reduce_sum(unit * tf.roll(unit, -1, 0), -1) * scale  # [B]; an example is the row of its first text
    is_example = (batch["roles"] == ANCHOR) & (batch["row_weights"] > 0)
    is_higher = batch["label_ids"][:, tf.newaxis] > batch["label_ids"][tf.newaxis]
    counts = is_higher & is_example[:, tf.newaxis] & is_example[tf.newaxis]
    terms = tf.where(counts, cosines[tf.newaxis] - cosines[:, tf.newaxis], _EXCLUDED)
    loss = tf.reduce_logsumexp(tf.concat([[0.0], tf.reshape(terms, [-1])], 0))
    return {"loss": tf.fill(tf.shape(cosines), loss)}


def of_teacher(vectors: tf.Tensor, teacher: tf.Tensor, row_weights: tf.Tensor) -> tf.Tensor:
    """Computes the mean squared error of each text's cosines with all texts of the batch, float32 [B]. If the vectors
    have the size of the teacher's, adds 1 - c, where c is the cosine of a text's two vectors.
    `vectors`: float32 [B, H].
    `teacher`: the teacher's vectors, float32 [B, H of the teacher].
    `row_weights`: float32 [B], 0 for padding rows."""
    errors = tf.math.squared_difference(_cosines(vectors), _cosines(teacher)) * row_weights  # [B, B]
    loss = tf.reduce_sum(errors, 1) / tf.reduce_sum(row_weights)
    if vectors.shape[-1] != teacher.shape[-1]:
        return loss
    return loss + 1 - tf.reduce_sum(tf.math.l2_normalize(vectors, -1) * tf.math.l2_normalize(teacher, -1), -1)


def matryoshka(loss_of, vectors: tf.Tensor, sizes: Sequence[int]) -> dict[str, tf.Tensor]:
    """Sums a loss over the first numbers of the vectors; the other values come from the whole vectors.
    `loss_of`: function that maps vectors to values by name.
    `sizes`: the sizes of the vectors, falling."""
    of_sizes = [loss_of(vectors[:, :size]) for size in sizes]
    return of_sizes[0] | {"loss": tf.add_n([values["loss"] for values in of_sizes])}


def _cosines(vectors: tf.Tensor) -> tf.Tensor:
    unit = tf.math.l2_normalize(vectors, -1)
    return tf.matmul(unit, unit, transpose_b=True)

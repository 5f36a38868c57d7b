"""Served tagging: predicts a tag for each word of a text, for example a named-entity tag.

Paper: section 3.2, Figure 4 (d); section 5.3.

Letters: W words of the longest text, A words of all texts.
"""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from bert_tf.tasks.tagging import tag_schemes, tagging_task, word_rows
from bert_tf.tasks.tagging.running_text import TextWords, of_sentences, of_spaces
from bert_tf.text.characters import NOWHERE
from export.kinds import row_groups
from export.kinds.base import MoreSignatures, ServedTask

# Maximum number of words in an answer, including padding. Each word takes about 60 bytes.
_MOST_WORDS = 1 << 22


class ServedTagging(ServedTask):
    """Input: `text`, one or more sentences of any length. Outputs: see `answer`. The signature `words` has the input
    `words`: a text whose words are separated by white space, such as a sentence of a CoNLL file. The outputs of both
    signatures are the same."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        # Both signatures use one function, so that the graph contains the model only once.
        answer = tf.function(self._answers, autograph=False)
        self._answer = lambda texts: answer(texts)

    def more_signatures(self) -> MoreSignatures:
        return {"words": (self.answer_words, {"words": tf.TensorSpec([None], tf.string)})}

    def answer(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Tags running text, string [B]; `of_sentences` splits the text into words.
        Returns:
        `words`: string [B, W]; "" on padding.
        `tags`: string [B, W], the tags of the predicted entities, as in the prediction files of `run_ner`; "" on
          padding. The tag scheme is the training data's scheme.
        `start`, `end`: int32 [B, W], the range of the word's characters in the text; `end` is exclusive; -1 on padding.
        `scores`: float32 [B, W], the probability of the predicted label; 0 on padding.
        `num_words`: int32 [B], the number of words of each text."""
        return self._answer(of_sentences(text))

    def answer_words(self, words: tf.Tensor) -> dict[str, tf.Tensor]:
        """Tags texts whose words are separated by white space, string [B]; see `answer`."""
        return self._answer(of_spaces(words))

    def answer_tokens(self, inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Scores the tokens of rows, int32 [B, S]. Returns `probabilities`: float32 [B, S, C], in the order of
        `assets/labels.txt`. The probabilities of a word are at its first token. A model that was trained on activations
        of a frozen encoder reads only the first token of each word and of each punctuation mark; the probabilities of
        all other tokens are 0."""
        if not self._reads_words:
            return {"probabilities": tf.nn.softmax(self._model(inputs)["logits"])}
        begins = [not continues for continues in self.tokenizer.rules.continues_word]
        begins[self.tokenizer.cls_id] = begins[self.tokenizer.sep_id] = False
        input_ids = inputs["input_ids"]
        is_read = (inputs["input_mask"] > 0) & tf.gather(begins, input_ids)
        places = tf.ragged.boolean_mask(tf.zeros_like(input_ids) + tf.range(tf.shape(input_ids)[1]), is_read)
        logits = self._model(inputs | _read(places))["logits"]
        read = tf.nn.softmax(tf.gather_nd(logits, _indices(tf.ragged.range(places.row_lengths()))))
        shape = tf.concat([tf.shape(input_ids), [len(self._description.labels)]], 0)
        return {"probabilities": tf.scatter_nd(tf.cast(_indices(places), tf.int32), read, shape)}

    @property
    def _reads_words(self) -> bool:
        """Whether the head reads only the first token of each word, instead of all tokens."""
        return "features" in self._description.parameters

    def _answers(self, texts: TextWords) -> dict[str, tf.Tensor]:
        _check_size(texts.words)
        sentences, labels = texts.words.row_splits, self._description.labels
        probabilities = tf.nn.softmax(self._logits(texts.words))  # [A, C]
        predicted = tf.argmax(probabilities, -1, tf.int32)
        tags = tags_of(predicted, sentences, labels, self._description.parameters["tag_scheme"])

        def padded(values: tf.Tensor, padding: str | int | float) -> tf.Tensor:
            return tf.RaggedTensor.from_row_splits(values, sentences, validate=False).to_tensor(padding)

        return {
            "words": texts.words.to_tensor(""),
            "tags": padded(tags, ""),
            "start": padded(tf.cast(texts.starts, tf.int32), NOWHERE),
            "end": padded(tf.cast(texts.ends, tf.int32), NOWHERE),
            "scores": padded(tf.reduce_max(probabilities, -1), 0.0),
            "num_words": tf.cast(texts.words.row_lengths(), tf.int32),
        }

    def _logits(self, words: tf.RaggedTensor) -> tf.Tensor:
        """Computes the logits of all words, float32 [A, C]; `words`, [B, (words)], contains each text's words."""
        room = self.length - word_rows.NUM_SPECIAL
        tokens = word_rows.word_tokens(self.tokenizer.encode(words.values), self.tokenizer.unk_id, room)
        rows = word_rows.make_rows(tokens, words.row_splits, room)
        inputs = self.rows(rows.tokens)
        places = rows.words
        if self._reads_words:
            inputs |= _read(places)
            places = tf.ragged.range(places.row_lengths())
        logits = row_groups.compute(lambda part: self._model(part)["logits"], inputs)  # [N, S, C]
        return tf.gather_nd(logits, _indices(places))


def tags_of(labels: tf.Tensor, sentences: tf.Tensor, names: Sequence[str], scheme: str) -> tf.Tensor:
    """Returns the tags of the predicted entities in a tag scheme; see `TaggingTask.predicted_tags`.
    `labels`: int32 [A], indices into `names`.
    `sentences`: int64 [B + 1]; sentence b has the words from sentences[b] to sentences[b + 1] (exclusive).
    `scheme`: one of the schemes in `tag_schemes`.
    Returns string [A], the tag of each word."""
    prefixes, types = zip(*map(tag_schemes.split_tag, names), strict=True)
    type_names = sorted(set(types))
    prefix, type_ = tf.gather(list(prefixes), labels), tf.gather([type_names.index(name) for name in types], labels)
    word = tf.range(tf.size(labels, tf.int64))
    is_first = tf.gather(sentences, tf.ragged.row_splits_to_segment_ids(sentences)) == word
    before = tf.where(is_first, tag_schemes.OUTSIDE, tf.roll(prefix, 1, 0))
    same = type_ == tf.roll(type_, 1, 0)
    # `tag_schemes.entities` follows the same rule in Python.
    continues = _among(prefix, "IE") & _among(before, "BI") & same
    ends = ~tf.concat([continues[1:], [False]], 0)[: tf.size(labels)]
    if scheme == tag_schemes.IOB1:
        letter = tf.where(~continues & (before != tag_schemes.OUTSIDE) & same, "B", "I")
    elif scheme == tag_schemes.BIOES:
        letter = tf.where(continues, tf.where(ends, "E", "I"), tf.where(ends, "S", "B"))
    else:
        letter = tf.where(continues, "I", "B")
    suffix = tf.gather([f"-{name}" if name else "" for name in type_names], type_)
    return tf.where(prefix == tag_schemes.OUTSIDE, tag_schemes.OUTSIDE, tf.strings.join([letter, suffix]))


def _among(prefix: tf.Tensor, prefixes: str) -> tf.Tensor:
    return tf.reduce_any(prefix[:, tf.newaxis] == tf.constant(list(prefixes)), 1)


def _check_size(words: tf.RaggedTensor) -> None:
    """Refuses texts, [B, (words)], whose padded answer would take too much memory."""
    size = words.nrows() * tf.reduce_max(tf.concat([words.row_lengths(), [0]], 0))
    message = f"rows times words of the longest text exceed {_MOST_WORDS}; send fewer or shorter texts at once"
    tf.debugging.Assert(size <= _MOST_WORDS, [message])


def _indices(places: tf.RaggedTensor) -> tf.Tensor:
    """Returns the row and the value of each entry of `places`, [N, (places)], as int64 [values, 2]."""
    return tf.stack([places.value_rowids(), tf.cast(places.values, tf.int64)], 1)


def _read(places: tf.RaggedTensor) -> dict[str, tf.Tensor]:
    """Returns the inputs that limit a head to the positions `places`, [N, (places)]; see `TaggingTask.model_inputs`."""
    mask = tf.ones_like(places, tf.int32)
    return {"read_positions": tf.cast(places, tf.int32).to_tensor(), "read_mask": mask.to_tensor()}


KINDS: dict[str, type[ServedTask]] = {tagging_task.TAGGING: ServedTagging}

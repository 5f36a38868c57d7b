"""The signatures of an export. Their inputs are strings, tokens, or serialized `tf.train.Example`s."""

from collections.abc import Callable, Mapping

import tensorflow as tf
from tensorflow.python.saved_model import fingerprinting_utils

from export.kinds.base import PREDICT, ServedModel
from export.warmup import DEFAULT_SIGNATURE, EXAMPLES_INPUT

TOKENS, EXAMPLES = "tokens", "examples"
TOKEN_INPUTS = ("input_ids", "input_mask", "segment_ids")

# Maximum number of tokens in a request to the signature `tokens`. The limit bounds memory, because this signature
# computes all rows at the same time.
_MOST_TOKENS = 1 << 16


def signatures_of(served: ServedModel, longest: int) -> dict[str, tf.types.experimental.ConcreteFunction]:
    """Returns the signatures of a served model by name.
    `longest`: the model's number of positions, which is the maximum number of tokens in a row."""
    # `serving_default` and `examples` use one function, so that the graph contains the model only once.
    answer = tf.function(served.answer, autograph=False)
    strings, tokens = served.inputs(), dict.fromkeys(TOKEN_INPUTS, served.token_spec())

    def answer_strings(**texts: tf.Tensor) -> dict[str, tf.Tensor]:
        return answer(**_alike(texts, 1, "rows"))

    def answer_tokens(**rows: tf.Tensor) -> dict[str, tf.Tensor]:
        message = f"a row has more tokens than the {longest} positions of the model"
        fits = [
            tf.debugging.Assert(tf.shape(rows["input_ids"])[-1] > 0, ["a row needs at least one token, [CLS]"]),
            tf.debugging.Assert(tf.shape(rows["input_ids"])[-1] <= longest, [message]),
            tf.debugging.Assert(
                tf.size(rows["input_ids"]) <= _MOST_TOKENS,
                [f"a request has more than {_MOST_TOKENS} tokens; send fewer rows at once"],
            ),
        ]
        with tf.control_dependencies(fits):
            rows = {name: tf.identity(value) for name, value in _alike(rows, 3, "shape").items()}
        return served.answer_tokens(rows)

    def answer_examples(**serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        parsed = tf.io.parse_example(serialized[EXAMPLES_INPUT], _features(strings))
        return served.example_outputs(answer(**parsed))

    return {
        DEFAULT_SIGNATURE: _concrete(answer_strings, strings),
        TOKENS: _concrete(answer_tokens, tokens),
        EXAMPLES: _concrete(answer_examples, {EXAMPLES_INPUT: tf.TensorSpec([None], tf.string)}),
        **{name: _concrete(function, inputs) for name, (function, inputs) in served.more_signatures().items()},
    }


def callable_of(answer: tf.types.experimental.ConcreteFunction) -> tf.types.experimental.PolymorphicFunction:
    """Returns the signature `serving_default` as a function for `hub.KerasLayer`, which calls a model like a layer. Its
    argument is the tensor of the only input, or a dict of all inputs. With `training=True`, it fails, because an export
    only infers."""
    specs = answer.structured_input_signature[1]
    argument = dict(specs) if len(specs) > 1 else next(iter(specs.values()))

    def call(inputs, training=False):
        del training
        return answer(**(inputs if isinstance(inputs, dict) else {next(iter(specs)): inputs}))

    function = tf.function(call, autograph=False)
    function.get_concrete_function(argument, training=False)
    return function


def _alike(inputs: Mapping[str, tf.Tensor], axes: int, what: str) -> dict[str, tf.Tensor]:
    """Adds checks to the graph: the first axes of all inputs must have the same sizes. Without these checks, operations
    could read beyond the end of a tensor, or combine different rows."""
    first, *others = (tf.shape(value)[:axes] for value in inputs.values())
    message = f"{', '.join(sorted(inputs))} differ in {what}"
    checks = [tf.debugging.Assert(tf.reduce_all(other == first), [message]) for other in others]
    with tf.control_dependencies(checks):
        return {name: tf.identity(value) for name, value in inputs.items()}


def _concrete(function: Callable, specs: Mapping[str, tf.TensorSpec]) -> tf.types.experimental.ConcreteFunction:
    named = {name: tf.TensorSpec(spec.shape, spec.dtype, name=name) for name, spec in specs.items()}

    def outputs(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        # Cast bfloat16 outputs to float32, because JSON and NumPy cannot represent bfloat16.
        return {
            key: tf.cast(value, tf.float32) if value.dtype == tf.bfloat16 else value
            for key, value in function(**inputs).items()
        }

    return tf.function(outputs, autograph=False).get_concrete_function(**named)


def _features(inputs: Mapping[str, tf.TensorSpec]) -> dict:
    """Returns the features for parsing an Example. The feature of an input holds one text. If the input has a further
    axis of unknown size, it holds a list of texts."""
    list_of_texts = tf.io.FixedLenSequenceFeature([], tf.string, allow_missing=True)
    shapes = {name: spec.shape[1:] for name, spec in inputs.items()}
    return {
        name: tf.io.FixedLenFeature(shape, tf.string) if shape.is_fully_defined() else list_of_texts
        for name, shape in shapes.items()
    }


def set_method(folder: str, method: str) -> None:
    """Sets the method that TF Serving uses for the signature `examples` of a SavedModel: classify or regress.
    `tf.saved_model.save` cannot set methods: it gives every signature the method predict."""
    if method == PREDICT:
        return
    updater = tf.compat.v1.saved_model.signature_def_utils.MethodNameUpdater(folder)
    updater.replace_method_name(signature_key=EXAMPLES, method_name=method)
    updater.save()
    # `fingerprint.pb` contains a checksum of `saved_model.pb`.
    fingerprinting_utils.write_fingerprint(folder)

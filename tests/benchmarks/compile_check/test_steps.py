import dataclasses
import re

import pytest
import tensorflow as tf
import tf_keras as keras

from benchmarks.compile_check import programs, steps
from benchmarks.official_step import official_step
from bert_tf.core.errors import InputError
from bert_tf.settings import DeviceSettings
from tests.small_configs import small_config

pytestmark = pytest.mark.slow

CONFIG = small_config(50, max_position_embeddings=24)
SHAPE = steps.Shape(batch_size=3, length=12, predictions=2)
SETTINGS = DeviceSettings(dtype="bfloat16")


@pytest.fixture(scope="module")
def program() -> str:
    return steps.our_step(CONFIG, SHAPE, SETTINGS)


def arguments(program: str) -> dict[str, str]:
    """Maps the names of `@main`'s arguments to their types."""
    signature = program[program.index("func.func @main(") :].split(") -> ")[0]
    return dict(re.findall(r"(%arg\d+): (tensor<[^>]*>)", signature))


def reached(program: str, name: str, operation: str) -> list[bool]:
    """Returns for each operation of a kind in `@main` whether its operands depend on the named argument."""
    dependent, found = {name}, []
    for line in program[program.index("func.func @main(") :].splitlines()[1:]:
        if line.startswith("  }"):
            break
        results, _, rest = line.partition(" = ")
        depends = not dependent.isdisjoint(re.findall(r"%\w+", rest))
        if depends:
            dependent.update(re.findall(r"%\w+", results))
        if operation in line:
            found.append(depends)
    return found


def test_a_step_is_static_and_stays_on_the_chip(program):
    programs.check(program)
    assert "?" not in "".join(arguments(program).values())
    assert "mhlo.copy" not in program


def test_a_step_takes_and_gives_all_variables(program):
    types = list(arguments(program).values())
    assert types.count("tensor<3x12xi32>") == 3  # ids, mask, segments
    assert types.count("tensor<50x16xf32>") == 3  # embeddings and both moments
    taken = re.search(r"mhlo.input_output_alias = \[(.*?)\]", re.sub(r"array<[^>]*>", "", program))[1]
    given_back = {int(number) for number in re.findall(r"parameter_number = (\d+)", taken)}
    weights = {i for i, kind in enumerate(types) if kind.endswith("f32>") and kind != "tensor<3x2xf32>"}
    assert weights <= given_back


def test_dropout_masks_depend_on_step_argument(program):
    def dropped(text):
        counters = [name for name, kind in arguments(text).items() if kind == "tensor<i64>"]
        return [any(column) for column in zip(*(reached(text, c, "stablehlo.dot") for c in counters), strict=True)]

    without = dataclasses.replace(CONFIG, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    assert not any(dropped(steps.our_step(without, SHAPE, SETTINGS)))
    assert sum(dropped(program)) > len(dropped(program)) / 2


def test_the_products_are_in_bfloat16(program):
    products = re.findall(r"stablehlo\.dot(?:_general)? .*-> (tensor<\S+>) loc", program)
    assert len(products) > 20
    assert all(kind.endswith("bf16>") for kind in products)


def test_the_same_step_is_the_same_program(program):
    assert keras.mixed_precision.global_policy().name == "float32"  # the state before
    assert steps.our_step(CONFIG, SHAPE, SETTINGS) == program


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda batch: tf.reduce_sum(tf.where(batch["x"] > 0)), "a dynamic shape"),
        (lambda batch: tf.py_function(lambda x: x, [batch["x"]], tf.float32), "XLA cannot compile the step"),
    ],
)
def test_what_a_tpu_cannot_run_as_it_is_gets_refused(step, message):
    total = tf.Variable(0.0)
    with pytest.raises(InputError, match=message):
        programs.check(steps.lowered(lambda batch: total.assign(tf.cast(step(batch), tf.float32)), {"x": tf.ones([4])}))


def test_the_official_step_trains_the_same_weights(program):
    """The peer of the compiled step."""
    official = official_step(CONFIG, SHAPE, "bfloat16")
    programs.check(official)
    signatures = [text[text.index("func.func @main(") :].split(") -> ")[0] for text in (program, official)]
    for shape in ("50x16", "24x16", "16x32", "32x16"):  # words, positions, feed-forward; each with both moments
        assert [signature.count(f": tensor<{shape}xf32>") for signature in signatures] == [3, 3]

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras
from official.modeling.optimization import lamb

from bert_tf.training import optimization
from bert_tf.training.optimization import AdamWeightDecay, Lamb, WarmupLinearDecay, clipped_update

PEAK, TOTAL, WARMUP = 1e-2, 200, 20


class AsOnGPU(AdamWeightDecay):
    """Updates weights without TensorFlow's kernel for CPUs."""

    def _has_kernel(self, variable):
        return False


def original_update(w, m, v, g, step, decayed):
    """Computes the published code's step in float64: without bias correction, with the decay added to the update."""
    g = np.asarray(g, np.float64)
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    update = m / (np.sqrt(v) + 1e-6) + (0.01 * w if decayed else 0.0)
    rate = PEAK * step / WARMUP if step < WARMUP else PEAK * (1 - step / TOTAL)
    return w - rate * update, m, v


def applied(optimizer, variables):
    """Returns a traced function of gradients by names of variables."""

    @tf.function(autograph=False)
    def apply(gradients):
        optimizer.apply_gradients([(gradients[name], variables[name]) for name in variables])

    return apply


@pytest.mark.core
def test_200_steps_equal_original_update_in_float64():
    rng = np.random.default_rng(0)
    names = {"kernel": True, "bias": False, "gamma": False, "beta": False, "word_embeddings": True}
    start = {name: rng.standard_normal((5, 3)) for name in names}
    variables = {name: tf.Variable(value, dtype=tf.float32, name=name) for name, value in start.items()}
    optimizer = AdamWeightDecay(WarmupLinearDecay(PEAK, TOTAL, WARMUP))
    apply = applied(optimizer, variables)
    state = {n: (w.astype(np.float32).astype(np.float64), np.zeros((5, 3)), np.zeros((5, 3))) for n, w in start.items()}
    for step in range(TOTAL):
        gradients = {name: rng.standard_normal((5, 3)).astype(np.float32) * 10 ** rng.uniform(-3, 1) for name in names}
        apply({name: tf.constant(gradient) for name, gradient in gradients.items()})
        state = {n: original_update(*state[n], gradients[n], step, decayed) for n, decayed in names.items()}
    for name in names:
        expected = state[name][0]
        assert np.abs(variables[name] - expected).max() <= 1e-5 * np.abs(expected).max(), name


NOT_DECAYED = ["bias", "gamma", "beta"]


@pytest.mark.parametrize("large", [optimization._LARGE, 1], ids=["traced", "compiled"])
@pytest.mark.core
def test_200_lamb_steps_equal_tf_models_official(large, monkeypatch):
    monkeypatch.setattr(optimization, "_LARGE", large)  # updates of weights of this size are compiled
    rng = np.random.default_rng(1)
    start = {
        name: rng.standard_normal((5, 3)).astype(np.float32) for name in ["kernel", "word_embeddings", *NOT_DECAYED]
    }
    start["kernel/zero"] = np.zeros((5, 3), np.float32)
    schedule = WarmupLinearDecay(PEAK, TOTAL, WARMUP)
    options = {"weight_decay_rate": 0.01, "epsilon": 1e-6, "exclude_from_weight_decay": NOT_DECAYED}
    optimizers = Lamb(schedule), lamb.LAMB(learning_rate=schedule, **options)
    sides = [{name: tf.Variable(value, name=name) for name, value in start.items()} for _ in optimizers]
    steps = [applied(optimizer, variables) for optimizer, variables in zip(optimizers, sides, strict=True)]
    for _ in range(TOTAL):
        scale = 10 ** rng.uniform(-3, 1)
        gradients = {name: (rng.standard_normal((5, 3)) * scale).astype(np.float32) for name in start}
        gradients["bias"][0] = 0.0
        for step in steps:
            step({name: tf.constant(gradient) for name, gradient in gradients.items()})
    for name in start:
        mine, reference = (np.asarray(side[name]) for side in sides)
        assert np.abs(mine - reference).max() <= 1e-5 * np.abs(reference).max(), name


@pytest.mark.parametrize("make", [AdamWeightDecay, Lamb])
@pytest.mark.parametrize("rows", [20, 40_000], ids=["operations", "compiled"])
def test_sparse_gradients_update_like_dense_ones(make, rows):
    rng = np.random.default_rng(0)
    start = {"table": rng.standard_normal((rows, 2)), "kernel": rng.standard_normal((3, 2))}
    sides, norms = [], []
    for dense in (True, False):
        optimizer = make(WarmupLinearDecay(PEAK, TOTAL, 0))
        variables = [tf.Variable(value, dtype=tf.float32, name=name) for name, value in start.items()]
        step = tf.function(
            lambda gradients, optimizer=optimizer, variables=variables: clipped_update(optimizer, gradients, variables),
            autograph=False,
        )
        rng_of_side = np.random.default_rng(1)
        for _ in range(20):
            ids = tf.constant(rng_of_side.integers(0, rows // 2, 4) // 2 * 2, tf.int32)  # with repeated indices
            values = tf.constant(rng_of_side.standard_normal((4, 2)), tf.float32)
            of_table = tf.IndexedSlices(values, ids, tf.constant([rows, 2]))
            of_kernel = tf.constant(rng_of_side.standard_normal((3, 2)), tf.float32)
            norms.append(step([tf.convert_to_tensor(of_table) if dense else of_table, of_kernel]))
        sides.append([*variables, *optimizer._m, *optimizer._v])
        before = [value.numpy() for value in sides[-1]]
        bad = tf.fill([4, 2], float("nan"))
        assert not np.isfinite(step([tf.IndexedSlices(bad, ids, tf.constant([rows, 2])), of_kernel]))
        for value, unchanged in zip(sides[-1], before, strict=True):
            np.testing.assert_array_equal(value, unchanged)
    np.testing.assert_allclose(norms[:20], norms[20:], rtol=1e-6)
    for of_dense, of_rows in zip(*sides, strict=True):
        np.testing.assert_allclose(of_rows, of_dense, atol=1e-6 * np.abs(of_dense).max())


@pytest.mark.parametrize("corrects", [False, True])
def test_kernel_equals_compiled_update(corrects):
    rng = np.random.default_rng(2)
    shapes = {"a/bias": [5], "b/kernel": [5, 2], "b/table": [40_000, 2]}
    start = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    sides, optimizers = [], []
    for make in (AdamWeightDecay, AsOnGPU):
        sides.append([tf.Variable(start[name], name=name) for name in shapes])
        rate_factor = lambda v: 0.5 if v.name.startswith("b/") else 1.0  # noqa: E731
        optimizers.append(make(1e-4, bias_correction=corrects, rate_factor=rate_factor))
    for scale in (0.1, 10.0, float("nan"), 1e-3):
        gradients = [tf.constant(rng.standard_normal(shape) * scale, tf.float32) for shape in shapes.values()]
        for optimizer, variables in zip(optimizers, sides, strict=True):
            clipped_update(optimizer, gradients, variables)
    assert [int(optimizer.iterations) for optimizer in optimizers] == [3, 3]
    for one, other in zip([*sides[0], *optimizers[0]._m, *optimizers[0]._v],
                          [*sides[1], *optimizers[1]._m, *optimizers[1]._v], strict=True):  # fmt: skip
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-7)  # the kernel rounds 1 - beta_2


@pytest.mark.parametrize(
    ("warmup", "decay_after_warmup", "step", "expected"),
    [(10, False, 0, 0.0), (10, False, 5, 0.5), (10, False, 9, 0.9), (10, False, 10, 0.9), (10, False, 55, 0.45),
     (10, False, 100, 0.0), (10, False, 150, 0.0), (0, False, 0, 1.0), (0, False, 50, 0.5),
     (10, True, 5, 0.5), (10, True, 10, 1.0), (10, True, 55, 0.5), (10, True, 150, 0.0), (0, True, 50, 0.5)],
)  # fmt: skip
@pytest.mark.core
def test_schedule_warms_up_then_decays_linearly(warmup, decay_after_warmup, step, expected):
    rate = WarmupLinearDecay(1.0, 100, warmup, decay_after_warmup)(step)
    np.testing.assert_allclose(rate, expected, rtol=1e-6, atol=1e-7)


def first_moments(optimizer) -> list[np.ndarray]:
    """Returns the first moments after one step, which are a tenth of the applied gradients."""
    return [10 * m.numpy() for m in optimizer._m]


@pytest.mark.core
def test_clipping_scales_only_norms_above_one():
    for gradients, expected in (([[3.0], [4.0]], [[0.6], [0.8]]), ([[0.3], [0.4]], [[0.3], [0.4]])):
        variables = [tf.Variable([1.0], name="kernel") for _ in gradients]
        optimizer = AdamWeightDecay(0.1)
        norm = clipped_update(optimizer, [tf.constant(g) for g in gradients], variables)
        np.testing.assert_allclose(norm, np.linalg.norm(gradients), rtol=1e-6)
        np.testing.assert_allclose(first_moments(optimizer), expected, rtol=1e-6)


@pytest.mark.quick_cases("Lamb", "AsOnGPU")
@pytest.mark.parametrize("make", [AdamWeightDecay, AsOnGPU, Lamb])
@pytest.mark.core
def test_gradients_are_summed_before_clipping(make, monkeypatch):
    monkeypatch.setattr(optimization, "_LARGE", 2)  # two weights compiled, one not
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    gradients = [tf.constant([6.0, 0.0]), tf.constant([7.0]), tf.constant([0.0, 15**0.5])]

    def variables():  # two have one shape and are decayed
        return [tf.Variable(tf.ones([size]), name=name) for size, name in ((2, "kernel"), (1, "bias"), (2, "b/kernel"))]

    with strategy.scope():
        ours, optimizer = variables(), make(0.1)
        optimizer.build(ours)

    @tf.function
    def step():
        def on_replica():
            share = 1.0 + 2.0 * tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)
            return clipped_update(optimizer, [g * share / 4.0 for g in gradients], ours)

        return strategy.experimental_local_results(strategy.run(on_replica))

    assert [float(norm) for norm in step()] == [10.0, 10.0]
    alone, expected = variables(), make(0.1)
    clipped_update(expected, gradients, alone)
    np.testing.assert_allclose(np.concatenate(first_moments(optimizer)), [0.6, 0.0, 0.7, 0.0, 0.1 * 15**0.5], rtol=1e-6)
    for variable, reference in zip(ours, alone, strict=True):
        for replica in strategy.experimental_local_results(variable):
            np.testing.assert_allclose(replica, reference, rtol=1e-6)


def corrected_update(w, m, v, g, rate, update, decayed, lamb):
    """Computes a bias-corrected step in float64; `update` counts applied steps from 1."""
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    first, second = 1 - 0.9**update, 1 - 0.999**update
    direction = (m / first) / (np.sqrt(v / second) + (1e-6 if lamb else 1e-8))
    if decayed:
        direction = direction + 0.01 * w
        rate = rate * np.linalg.norm(w) / np.linalg.norm(direction) if lamb else rate
    return w - rate * direction, m, v


@pytest.mark.parametrize("lamb", [False, True], ids=["adamw", "lamb"])
@pytest.mark.parametrize("scaling", [False, True], ids=["plain", "loss_scaling"])
def test_bias_correction_counts_updates(lamb, scaling, tmp_path):
    """Compares with the formula in float64 if steps are skipped first, in between, and around a resume."""
    steps, skipped, resumed_at = 40, {0, 1, 2, 9, 10, 19, 20, 33}, 20
    rng = np.random.default_rng(4)
    names = {"kernel": True, "bias": False}
    state = {name: (rng.standard_normal((5, 3)), np.zeros((5, 3)), np.zeros((5, 3))) for name in names}
    first_weights = {name: weight for name, (weight, _, _) in state.items()}

    def fresh(weights):
        variables = {name: tf.Variable(value, dtype=tf.float32, name=name) for name, value in weights.items()}
        schedule = WarmupLinearDecay(PEAK, steps, 5)
        optimizer = Lamb(schedule) if lamb else AdamWeightDecay(schedule, bias_correction=True)
        if scaling:
            optimizer = keras.mixed_precision.LossScaleOptimizer(optimizer, initial_scale=1024.0)
        optimizer.build(list(variables.values()))
        step = tf.Variable(0, dtype=tf.int64)
        return variables, optimizer, step, tf.train.Checkpoint(weights=variables, optimizer=optimizer, step=step)

    variables, optimizer, step, checkpoint = fresh(first_weights)
    updates = 0
    for number in range(steps):
        if number == resumed_at:
            saved = checkpoint.write(str(tmp_path / "saved"))
            variables, optimizer, step, checkpoint = fresh({name: np.zeros((5, 3)) for name in names})
            checkpoint.read(saved).assert_consumed()
        gradients = {name: rng.standard_normal((5, 3)) for name in names}
        scale = (float(optimizer.loss_scale) if scaling else 1.0) * (np.inf if number in skipped else 1.0)
        given = [tf.constant(g * scale, tf.float32) for g in gradients.values()]
        clipped_update(optimizer, given, list(variables.values()), step)
        step.assign_add(1)
        rate = PEAK * number / 5 if number < 5 else PEAK * (1 - number / steps)
        np.testing.assert_allclose(optimizer.learning_rate, rate, rtol=1e-5)
        if number in skipped:
            continue
        updates += 1
        norm = np.sqrt(sum((g * g).sum() for g in gradients.values()))
        for name, decayed in names.items():
            g = gradients[name] / max(norm, 1.0)
            state[name] = corrected_update(*state[name], g, rate, updates, decayed, lamb)
    for name in names:
        np.testing.assert_allclose(variables[name], state[name][0], rtol=1e-5, atol=1e-6, err_msg=name)
    assert optimizer.iterations == updates == steps - len(skipped)
    if scaling:
        assert optimizer.loss_scale == 1024 / 2 ** len(skipped)


@pytest.mark.core
def test_all_replicas_decay_kernels_but_not_biases():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        variables = [tf.Variable(tf.ones([2]), name=name) for name in ("bias", "kernel")]
        optimizer = AdamWeightDecay(0.1, weight_decay_rate=1.0)
        optimizer.build(variables)

    @tf.function
    def step():
        pairs = [(tf.zeros([2]), variable) for variable in variables]
        strategy.run(lambda: optimizer.apply_gradients(pairs, skip_gradients_aggregation=True))

    step()
    for variable, expected in zip(variables, (1.0, 0.9), strict=True):
        for replica in strategy.experimental_local_results(variable):
            np.testing.assert_allclose(replica, expected, rtol=1e-6, err_msg=replica.name)

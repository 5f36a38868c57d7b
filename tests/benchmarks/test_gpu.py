import pathlib

import pytest

from benchmarks.gpu import bundle, cases, largest_batch
from benchmarks.gpu.bundle import Argument, Bundle
from bert_tf.compile_check.programs import Compiled, DoesNotFit

PROGRAM = "module @step {{ func.func @main(%arg0: tensor<{b}x128xi32>) -> tensor<{n}xf32> // 3 of {b}, 40 \n}}"
CASE = cases.CASES["tiny"]


def program(batch_size: int, each: int = 16384) -> str:
    return PROGRAM.format(b=batch_size, n=each * batch_size)


def test_one_text_holds_the_program_for_every_batch_size(tmp_path):
    template = bundle.template({rows: program(rows) for rows in (24, 40, 56)})
    argument = Argument("batch", "input_ids", None)
    bundle.write(tmp_path, "step", Bundle(CASE, (argument,), 1.0, 2.0, template))
    assert bundle.names(tmp_path) == ["step"]
    found = bundle.read(tmp_path, "step")
    assert found.case == CASE and found.arguments == (argument,)
    assert [found.program(rows) for rows in (1, 24, 40, 1000)] == [program(rows) for rows in (1, 24, 40, 1000)]


@pytest.mark.parametrize("packed", [False, True])
def test_batches_are_rows_that_training_could_read(packed):
    case = cases.Case(1, 8, 2, 50, 32, 5, 3, packed=packed)
    batch = cases.batch(case, 3, seed=1)
    assert all(len(column) == 3 for column in batch.values())
    positions = batch["masked_lm_positions"]
    assert positions.shape == (3, 5) and positions.min() >= 0 and positions.max() < 32
    assert all(len(set(row)) == 5 and list(row) == sorted(row) for row in positions.tolist())
    assert batch["segment_ids"][0].tolist() == ([0] * 8 + [1] * 8) * 2 if packed else [0] * 16 + [1] * 16
    assert packed == ("sequence_ids" in batch)
    if packed:
        starts = batch["cls_positions"][0]
        assert [batch["position_ids"][0][start] for start in starts] == [0, 0]
        assert [batch["sequence_ids"][0][start] for start in starts] == [1, 2]


@pytest.mark.parametrize("capacity", [0, 1, 5, 31, 100, 517])
@pytest.mark.parametrize("curve", [1.0, 1.3])
def test_the_largest_batch_is_found_in_few_compilations(capacity, curve):
    asked = []

    def compiled(rows):
        asked.append(rows)
        used = 1000 + int(rows**curve)
        limit = 1000 + int(capacity**curve)
        if used > limit:
            raise DoesNotFit("", used, limit)
        return Compiled(0, 0, used, 0.0, 0.0, pathlib.Path())

    found = largest_batch.search(compiled, 8)
    assert found.fits <= capacity < found.refused <= found.fits + max(1, found.fits / 16)
    assert len(asked) == len(set(asked)) <= 9

from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen import work_units
from data_gen.token_blocks import TokenBlock
from data_gen.work_units import plan_units, window_around

GIVEN = settings(max_examples=200, deadline=None, derandomize=True)
SIZES = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 40_000_000)), min_size=1, max_size=8)


def blocks_of(sizes):
    return [
        TokenBlock(f"{i}", documents, documents, tokens, 0, 4 * tokens) for i, (documents, tokens) in enumerate(sizes)
    ]


@GIVEN
@given(SIZES, st.integers(1, 12))
def test_every_document_is_in_every_pass_once(sizes, passes):
    blocks = blocks_of(sizes)
    units = plan_units(blocks, passes)
    done = [(unit.block, turn) for unit in units for turn in range(unit.first_pass, unit.last_pass)]
    assert sorted(done) == [(block, turn) for block in range(len(blocks)) for turn in range(passes)]
    assert all(unit.documents == blocks[unit.block].documents for unit in units)
    assert sum(unit.work for unit in units) == passes * sum(block.documents for block in blocks)
    assert len({unit.name for unit in units}) == len(units)


def test_passes_are_split_if_too_large_for_memory():
    blocks = blocks_of([(5, 3 * work_units.TOKENS_PER_UNIT), (5, 10)])
    units = plan_units(blocks, 4)
    assert [(u.first_pass, u.last_pass) for u in units if u.block == 0] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert [(u.first_pass, u.last_pass) for u in units if u.block == 1] == [(0, 4)]


@GIVEN
@given(SIZES, st.data())
def test_a_window_is_the_nearest_text(sizes, data):
    blocks = blocks_of(sizes)
    index = data.draw(st.integers(0, len(blocks) - 1))
    window = window_around(blocks, index)
    inside = [blocks[i] for i in window]
    assert index in window and 0 <= window.start < window.stop <= len(blocks)
    enough = sum(b.text_bytes for b in inside) >= work_units.WINDOW_BYTES and sum(b.documents for b in inside) >= 2
    assert enough or len(window) == len(blocks)
    # and no more than one block above this number, evenly on both sides
    before, after = index - window.start, window.stop - 1 - index
    assert abs(before - after) <= 1 or window.start == 0 or window.stop == len(blocks)
    smaller = [i for i in window if i not in (window.start, window.stop - 1)]
    assert len(smaller) < 1 or sum(blocks[i].text_bytes for i in smaller) < work_units.WINDOW_BYTES or (
        sum(blocks[i].documents for i in smaller) < 2
    )  # fmt: skip

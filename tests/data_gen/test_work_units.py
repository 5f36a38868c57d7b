from data_gen.token_blocks import TokenBlock
from data_gen.work_units import TOKENS_PER_UNIT, WINDOW_BYTES, plan_units, window_around


def test_passes_are_split_if_too_large_for_memory():
    blocks = [TokenBlock("", 5, 5, tokens, 0, 4 * tokens) for tokens in (3 * TOKENS_PER_UNIT, 10)]
    units = [(unit.block, unit.first_pass, unit.last_pass) for unit in plan_units(blocks, 4)]
    assert units == [(0, 0, 1), (0, 1, 2), (0, 2, 3), (0, 3, 4), (1, 0, 4)]


def test_a_window_has_enough_text_and_two_documents():
    halves = [TokenBlock("", 9, 9, 10, 0, WINDOW_BYTES // 2)] * 7
    assert [window_around(halves, index) for index in (0, 3, 6)] == [range(2), range(2, 4), range(5, 7)]
    assert window_around([TokenBlock("", 1, 1, 10, 0, WINDOW_BYTES)] * 2, 1) == range(2)

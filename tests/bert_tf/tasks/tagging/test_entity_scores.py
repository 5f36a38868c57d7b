"""The types of entities in a comparison of tags."""

from bert_tf.tasks.tagging import entity_scores


def test_a_type_that_is_only_predicted_has_its_line():
    found = entity_scores.compare([["B-PER", "O"]], [["B-PER", "B-LOC"]])
    assert {type_: (c.true, c.predicted, c.right) for type_, c in found.types.items()} == {
        "LOC": (0, 1, 0),
        "PER": (1, 1, 1),
    }

"""Schemes of tags and the entity scorer, against conlleval's own rules and seqeval."""

import numpy as np
import pytest
from seqeval import metrics as seqeval

from bert_tf.tasks.tagging import entity_scores, tag_schemes
from bert_tf.tasks.tagging.tag_schemes import BIOES, IOB1, IOB2, SCHEMES

TYPES = ("PER", "LOC", "creative-work")


def official_counts(true, predicted):
    """The official scorer's loop over all lines, with its rules for the start and the end of a chunk."""

    def starts(before, type_before, tag, type_):
        pairs = {("B", "B"), ("I", "B"), ("O", "B"), ("O", "I"), ("E", "E"), ("E", "I"), ("O", "E"), ("E", "B")}
        pairs |= {("S", x) for x in "BIES"} | {(x, "S") for x in "OBIES"}
        return (before, tag) in pairs or (tag != "O" and type_before != type_)

    def ends(before, type_before, tag, type_):
        pairs = {("B", "B"), ("B", "O"), ("I", "B"), ("I", "O"), ("E", "E"), ("E", "I"), ("E", "O"), ("E", "B")}
        pairs |= {("S", x) for x in "OBIES"} | {(x, "S") for x in "BIES"}
        return (before, tag) in pairs or (before != "O" and type_before != type_)

    counts = {"right": 0, "true": 0, "predicted": 0}
    inside, last = False, (("O", ""), ("O", ""))
    lines = [pair for sentence in zip(true, predicted, strict=True) for pair in [*zip(*sentence, strict=True), "OO"]]
    for line in lines:
        now = tuple((*tag.split("-", 1), "")[:2] for tag in line)
        ended = [ends(*before, *tag) for before, tag in zip(last, now, strict=True)]
        if inside:
            if all(ended) and last[0][1] == last[1][1]:
                inside, counts["right"] = False, counts["right"] + 1
            elif ended[0] != ended[1] or now[0][1] != now[1][1]:
                inside = False
        started = [starts(*before, *tag) for before, tag in zip(last, now, strict=True)]
        if all(started) and now[0][1] == now[1][1]:
            inside = True
        counts["true"], counts["predicted"] = counts["true"] + started[0], counts["predicted"] + started[1]
        last = now
    return counts


def random_tags(rng, prefixes, sentences=200, possible_share=0.5):
    """Sentences with independent random tags, so that most sequences are impossible in every scheme."""
    tags = ["O", *(f"{prefix}-{type_}" for prefix in prefixes for type_ in TYPES)]
    weights = np.array([possible_share, *[(1 - possible_share) / (len(tags) - 1)] * (len(tags) - 1)])
    return [rng.choice(tags, rng.integers(1, 12), p=weights).tolist() for _ in range(sentences)]


@pytest.mark.parametrize("prefixes", ["BI", "BIES"])
def test_scores_equal_conlleval_and_seqeval(prefixes):
    rng = np.random.default_rng(0)
    for share in (0.2, 0.5, 0.8):
        true = random_tags(rng, prefixes, possible_share=share)
        # half of the tags are right, so that some entities are right
        guess = [
            [a if keep else b for a, b, keep in zip(tags, drawn, rng.random(len(tags)) < 0.7, strict=True)]
            for tags, drawn in zip(true, (rng.permutation(t).tolist() for t in true), strict=True)
        ]
        found = entity_scores.compare(true, guess)
        counts = official_counts(true, guess)
        assert counts["right"] > 20
        assert (found.total.right, found.total.true, found.total.predicted) == tuple(
            counts[name] for name in ("right", "true", "predicted")
        )
        expected = [f(true, guess) for f in (seqeval.f1_score, seqeval.precision_score, seqeval.recall_score)]
        expected.append(seqeval.accuracy_score(true, guess))
        np.testing.assert_allclose(list(found.scores.values()), expected, rtol=1e-12)
        by_type = seqeval.classification_report(true, guess, output_dict=True)
        for type_ in TYPES:
            counts = found.types[type_]
            values = [counts.precision, counts.recall, counts.f1, counts.true]
            theirs = [by_type[type_][name] for name in ("precision", "recall", "f1-score", "support")]
            np.testing.assert_allclose(values, theirs, rtol=1e-12)


def test_the_table_is_the_official_scorers():
    true = [["B-PER", "I-PER", "O", "B-LOC"], ["O"]]
    guess = [["B-PER", "I-PER", "O", "B-PER"], ["O"]]
    assert entity_scores.compare(true, guess).describe().splitlines() == [
        "processed 5 tokens with 2 phrases; found: 2 phrases; correct: 1.",
        "accuracy:  80.00%; precision:  50.00%; recall:  50.00%; FB1:  50.00",
        "              LOC: precision:   0.00%; recall:   0.00%; FB1:   0.00  0",
        "              PER: precision:  50.00%; recall: 100.00%; FB1:  66.67  2",
    ]
    empty = entity_scores.compare([["O"]], [["O"]])
    assert empty.scores == {"f1": 0.0, "precision": 0.0, "recall": 0.0, "accuracy": 1.0}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_entities_round_trip_through_every_scheme(scheme):
    rng = np.random.default_rng(1)
    known = set(tag_schemes.tags_of_types(TYPES, scheme))
    for tags in random_tags(rng, "BIES"):
        found = tag_schemes.entities(tags)
        written = tag_schemes.write_tags(found, len(tags), scheme)
        assert tag_schemes.entities(written) == found
        assert tag_schemes.find_fault(written, scheme) is None
        assert known.issuperset(written)


def test_a_scheme_is_recognized():
    found = [[tag_schemes.Entity("PER", 0, 2), tag_schemes.Entity("PER", 2, 3), tag_schemes.Entity("LOC", 4, 5)]]
    for scheme in SCHEMES:
        assert tag_schemes.recognize(tag_schemes.write_tags(entities, 6, scheme) for entities in found) == scheme
    assert tag_schemes.recognize([["I-PER", "O"]]) == IOB1  # as CoNLL-2003 has it where no entities touch
    assert tag_schemes.recognize([["O"]]) == IOB2
    assert tag_schemes.recognize([["B", "I", "O"]]) == IOB2  # types without a name
    # one slip in a large file does not change the scheme
    assert tag_schemes.recognize([["B-PER", "I-PER", "O"]] * 9 + [["O", "I-PER"]]) == IOB2


@pytest.mark.parametrize(
    ("scheme", "tags", "index", "reason"),
    [
        (IOB2, "O I-PER", 1, "I-PER should be B-PER in IOB2"),
        (IOB2, "B-PER I-LOC", 1, "should be B-LOC"),
        (IOB1, "O B-PER", 1, "should be I-PER in IOB1"),
        (BIOES, "B-PER O", 0, "should be S-PER in BIOES"),
        (BIOES, "O B-PER I-PER", 2, "should be E-PER"),
        (BIOES, "S-PER E-PER", 1, "should be S-PER"),
    ],
)
def test_impossible_tags_are_found(scheme, tags, index, reason):
    found = tag_schemes.find_fault(tags.split(), scheme)
    assert found is not None and found[0] == index and reason in found[1]

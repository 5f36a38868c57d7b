"""Vectors of tokens and sentences compared with transformers and sentence-transformers on a published checkpoint."""

import importlib.util

import numpy as np
import pytest
import torch
import transformers

from bert_tf.features.extractor import FeatureExtractor

pytestmark = pytest.mark.torch

TEXTS = [
    "A man is playing a guitar on stage.", "", "Short", "The café in Zürich cost 3,141 naïve visitors É!",
    "Two sentences, one text. They are about nothing in particular, and 中文 too \U0001f600.", "word " * 300,
    "A dog runs across the field while two children watch it from the fence.",
]  # fmt: skip


@pytest.fixture(scope="module")
def hidden_states(minilm):
    """Returns for each single text the embeddings and all layers, [7, tokens, 384]."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    model = transformers.BertModel.from_pretrained(minilm).eval()
    found = []
    for text in TEXTS:
        rows = tokenizer([text], truncation=True, max_length=256, return_tensors="pt")
        with torch.no_grad():
            states = model(**rows, output_hidden_states=True).hidden_states
        found.append((rows.encodings[0], torch.cat(states).numpy()))
    return found


def test_layers_words_and_offsets_equal_transformers(minilm, hidden_states):
    extractor = FeatureExtractor(minilm, layers="0,1,2,3,4,5,6", max_seq_length=256)
    for ours, (encoding, states) in zip(extractor.tokens(TEXTS), hidden_states, strict=True):
        assert ours.tokens == encoding.tokens
        np.testing.assert_allclose(ours.values.transpose(1, 0, 2), states, atol=2e-5)
        assert [None if word == -1 else word for word in ours.words.tolist()] == encoding.words
        spans = list(zip(ours.starts.tolist(), ours.ends.tolist(), strict=True))
        assert spans[1:-1] == encoding.offsets[1:-1]


@pytest.mark.parametrize("pooling", [None, "cls", "mean", "max"])
def test_sentence_vectors_equal_published_pooling(minilm, hidden_states, pooling):
    given = {"sentence_vectors": True} if pooling is None else {"pooling": pooling}
    extractor = FeatureExtractor(minilm, max_seq_length=256, **given)
    top = [torch.from_numpy(states[-1]) for _, states in hidden_states]
    if pooling == "cls":
        expected = torch.stack([state[0] for state in top])
    elif pooling == "max":
        expected = torch.stack([state.max(dim=0).values for state in top])
    else:
        expected = torch.stack([state.mean(dim=0) for state in top])
    if pooling is None:  # 1_Pooling/config.json says mean, modules.json normalizes
        expected = torch.nn.functional.normalize(expected, dim=1)
    atol = 1e-6 if pooling is None else 2e-5
    np.testing.assert_allclose(extractor.sentences(TEXTS), expected.numpy(), atol=atol)


# The formula is above; the package itself is compared only if it is installed.
if importlib.util.find_spec("sentence_transformers"):

    def test_sentence_vectors_equal_sentence_transformers(minilm):
        import sentence_transformers

        theirs = sentence_transformers.SentenceTransformer(str(minilm), device="cpu")
        extractor = FeatureExtractor(minilm, sentence_vectors=True)
        assert extractor.settings.max_seq_length == theirs.max_seq_length
        np.testing.assert_allclose(extractor.sentences(TEXTS), theirs.encode(TEXTS), atol=1e-5)

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras
from official.nlp.data.pretrain_dataloader import BertPretrainDataConfig, BertPretrainDataLoader
from official.nlp.modeling import layers, models, networks

from bert_tf.jobs.run_local import LocalRunner
from data_gen.generator import create_pretraining_data
from data_gen.settings import GeneratorSettings

S, P, B = 32, 5, 16


def batches(path):
    loader = BertPretrainDataLoader(
        BertPretrainDataConfig(
            input_path=path, seq_length=S, max_predictions_per_seq=P, global_batch_size=B, is_training=False
        )
    )
    return list(loader.load())


@pytest.mark.slow
def test_tf_models_trains_on_our_records(tmp_path, vocab_file, corpus_file):
    settings = GeneratorSettings(
        input_file=corpus_file, output_file=str(tmp_path / "train"), vocab_file=vocab_file, max_seq_length=S,
        max_predictions_per_seq=P, dupe_factor=2,
    )  # fmt: skip
    with LocalRunner(1) as runner:
        create_pretraining_data(settings, runner)
    with open(vocab_file) as file:
        vocab_size = len(file.readlines())
    keras.utils.set_random_seed(1)
    encoder = networks.BertEncoderV2(
        vocab_size=vocab_size, hidden_size=32, num_layers=1, num_attention_heads=2, inner_dim=64, max_sequence_length=S
    )
    head = layers.ClassificationHead(inner_dim=32, num_classes=2, name="next_sentence")
    model = models.BertPretrainerV2(encoder, classification_heads=[head])
    optimizer = keras.optimizers.Adam(5e-3)
    cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits

    @tf.function
    def step(batch):
        with tf.GradientTape() as tape:
            outputs = model(batch, training=True)
            words = cross_entropy(batch["masked_lm_ids"], outputs["mlm_logits"]) * batch["masked_lm_weights"]
            words = tf.reduce_sum(words) / tf.reduce_sum(batch["masked_lm_weights"])
            order = tf.reduce_mean(cross_entropy(batch["next_sentence_labels"][:, 0], outputs["next_sentence"]))
            loss = words + order
        variables = model.trainable_variables
        gradients = zip(tape.gradient(loss, variables), variables, strict=True)
        optimizer.apply_gradients((g, v) for g, v in gradients if g is not None)  # no loss depends on the pooler
        return words, order

    data = batches(str(tmp_path / "train"))
    losses = np.array([step(batch) for _ in range(4) for batch in data])
    assert np.isfinite(losses).all()
    # at first, all words and both next-sentence classes are equally likely
    np.testing.assert_allclose(losses[0, 0], np.log(vocab_size), rtol=0.1)
    np.testing.assert_allclose(losses[0, 1], np.log(2), atol=0.3)
    assert losses[-len(data) :, 0].mean() < losses[: len(data), 0].mean() - 0.3
    assert losses[-len(data) :].sum(axis=1).mean() < losses[0].sum() - 0.3

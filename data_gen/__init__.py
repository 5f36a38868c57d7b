"""The data generator of bert_tf, which turns text into TFRecords of masked-LM and next-sentence examples."""

# `bert_tf.core.installation` looks for the word "bert_tf" in the first line of this file.

"""The generator of bert_tf: text in, TFRecords of masked-LM and next-sentence examples out."""

# `bert_tf.core.installation` looks for the word "bert_tf" in the first line of this file.

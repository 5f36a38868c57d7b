"""The data generator of bert_tf, which turns text into TFRecords of masked-LM and next-sentence examples."""

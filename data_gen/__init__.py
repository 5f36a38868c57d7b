"""The generator of bert_tf: text in, TFRecords of masked-LM and next-sentence examples out."""

"""Generation of masked-LM and next-sentence examples: text in, TFRecords out."""

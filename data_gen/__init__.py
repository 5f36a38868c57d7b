"""From text to masked-LM / next-sentence examples in TFRecords."""

"""The input pipeline from TFRecords to batches: record order, packed rows, and the position in the data."""

"""The input pipeline from TFRecords to batches: order of records, packed rows, position in the data."""

"""TFRecords to batches: the order of records, packed rows, and the position in the data."""

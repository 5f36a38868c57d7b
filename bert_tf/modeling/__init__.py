"""What the encoder and its heads are made of."""

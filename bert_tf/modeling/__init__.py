"""The layers and operations of the encoder and its heads."""

"""The SavedModels of bert_tf, which take raw strings, and how they are served."""

"""SavedModels that take raw strings, and how they are served."""

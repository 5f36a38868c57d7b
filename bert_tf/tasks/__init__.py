"""The fine-tuning tasks of the paper (section 4): one folder for each kind, and what the kinds share."""

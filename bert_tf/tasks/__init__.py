"""The fine-tuning tasks of the paper (section 4): one folder for each kind of task, and code that all kinds share."""

"""The contract between both sides of the disk: what a record holds, how it is written and read."""

"""Reads what users have, files and tables in memory, into rows; knows files and cells, but no kind of task.

A row is a pair: its place for messages, such as "dev.csv, line 7", and its cells by name. A kind of task turns a row
into an example with the functions of `cells`, which convert and check a cell by the type that the example needs.
"""

from collections.abc import Mapping
from typing import Any

Row = tuple[str, Mapping[str, Any]]

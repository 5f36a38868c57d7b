"""The value of a metric that a model reaches without having learned anything, as a line in the metric's curve."""

import os
from collections.abc import Sequence

import tensorflow as tf

from bert_tf.checkpoint_formats.run_record import Phase
from tfrecords import manifest, reader
from tfrecords.errors import InputError


def majority_of_pairs(phases: Sequence[Phase]) -> float | None:
    """Returns the share of the more frequent next-sentence label in the evaluated data.

    Args:
      phases: of the run; the last one names the data.

    Returns:
      A fraction from 0.5 to 1; None if the data or its manifests are gone, or have no pairs.
    """
    settings = phases[-1].settings if phases else {}
    try:
        sets = _manifests(reader.expand_files(settings.get("eval_input_file") or settings.get("input_file", "")))
    except (InputError, OSError, tf.errors.OpError):  # a report is drawn also where the data is not
        return None
    pairs = sum(entries.get("examples", 0) for entries in sets)
    if not pairs or any(entries.get("random_next_share") is None for entries in sets):
        return None
    random = sum(entries["random_next_share"] * entries["examples"] for entries in sets)
    return max(random, pairs - random) / pairs


def _manifests(files: Sequence[str]) -> list[dict]:
    """Returns the manifest of each set of shards, {} for a file without one."""
    sets, known = [], set()
    for path in files:
        if os.path.basename(path) not in known:  # a manifest of thousands of shards is read once
            sets.append(manifest.find_manifest(path) or {})
            known.update(shard["name"] for shard in sets[-1].get("shards", ()))
    return sets

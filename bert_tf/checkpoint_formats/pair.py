"""Joins the checkpoints of a left-to-right and a right-to-left encoder into the checkpoint of one encoder, as in ELMo.

Paper: section 5.1 (the last paragraph) and Figure 3; M. Peters et al., "Deep contextualized word representations",
2018.
"""

import dataclasses

from bert_tf.checkpoint_formats.contents import OpenCheckpoint
from bert_tf.config import BertConfig
from bert_tf.core.errors import InputError
from bert_tf.text import tokenizer_files, tokenizer_rules

# Separates the paths of the two checkpoints, and of their configurations.
SEPARATOR = ","


def join_configs(configs: dict[str, BertConfig]) -> BertConfig:
    """Returns the configuration of the joined encoder.
    `configs`: maps the names of the two configurations for messages to the configurations."""
    first, second = (*configs, "", "")[:2]
    if len(configs) != 2 or {config.directionality for config in configs.values()} != {"ltr", "rtl"}:
        names = " and ".join(f"{name} (directionality={config.directionality})" for name, config in configs.items())
        raise InputError(f"{names}: a pair needs one left-to-right and one right-to-left encoder; give two checkpoints")
    one, other = (dataclasses.asdict(config) for config in configs.values())
    for key, value in one.items():
        if key != "directionality" and other[key] != value:
            raise InputError(
                f"{first} has {key}={value}, but {second} has {other[key]}; give two checkpoints of equal configuration"
            )
    return BertConfig.joined(configs[first])


def join(contents: dict[str, OpenCheckpoint]) -> OpenCheckpoint:
    config = join_configs({path: each.require_config() for path, each in contents.items()})
    (first, one), (second, other) = contents.items()
    if one.vocab_file and other.vocab_file:
        facts = [tokenizer_files.read(each.vocab_file).facts for each in (other, one)]
        if difference := tokenizer_rules.difference(*facts):
            raise InputError(
                f"{second} has another tokenizer than {first}: {difference}; give two checkpoints that were trained "
                "on the same data"
            )
    tensors = {}
    for each in contents.values():
        scope = f"encoder/{each.require_config().directionality}/"
        tensors |= {
            path.replace("encoder/", scope, 1): stored
            for path, stored in each.tensors.items()
            if path.startswith("encoder/")
        }
    return OpenCheckpoint(
        source=SEPARATOR.join(each.source for each in contents.values()),
        format=one.format,
        tensors=tensors,
        expected_name=lambda path: path,
        config=config,
        config_file=SEPARATOR.join(each.config_file for each in contents.values()),
        vocab_file=one.vocab_file,
        left_over=tuple(path for each in contents.values() for path in each.tensors if not path.startswith("encoder/")),
    )

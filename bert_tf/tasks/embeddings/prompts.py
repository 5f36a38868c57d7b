"""How the texts of a model become vectors: pooling, normalization, prefixes and sizes."""

import dataclasses

from bert_tf import checkpoints
from bert_tf.checkpoint_formats import sentence_transformers as stated_files
from bert_tf.core.command_line import require
from bert_tf.core.flag_parsing import items
from bert_tf.finetuning.resolution import Command
from bert_tf.runs import run_folder

DEFAULT_POOLING = "mean"
QUERY, DOCUMENT = "query", "document"


def stated_folder(command: Command) -> str:
    """Returns the folder of --init_checkpoint if it has sentence-transformers' files and a new run starts; else ""."""
    starts_from = run_folder.initial_checkpoint(command.settings)
    folder = checkpoints.open_checkpoint(starts_from).folder if starts_from else ""
    return folder if folder and stated_files.is_stated(folder) else ""


@dataclasses.dataclass(frozen=True)
class VectorFiles:
    """What sentence-transformers' files in a model's folder state, and the Matryoshka sizes."""

    pooling: str = DEFAULT_POOLING  # "cls", "mean" or "max"
    normalize: bool = False  # whether vectors have length 1
    # `query_prefix`, `document_prefix`: texts before queries and before documents
    query_prefix: str = ""
    document_prefix: str = ""
    similarity: str = "cosine"  # how vectors are compared; a name in `sentence_transformers.SIMILARITIES`
    matryoshka_dims: str = ""  # sizes of vectors, comma-separated and falling; "" if only the whole vector is trained

    @classmethod
    def of_command(cls, command: Command) -> "VectorFiles":
        """Returns the values of a command: from the flags, else from the run, else from --init_checkpoint's files."""
        folder = stated_folder(command)
        stated = cls.of_folder(folder) if folder else cls()
        names = ("pooling", "normalize", "query_prefix", "document_prefix")
        values = command.of_model(**{name: getattr(stated, name) for name in names}, matryoshka_dims="")
        recorded = command.trained.parameters if command.trained else {}
        return cls(**values, similarity=recorded.get("similarity", stated.similarity))

    @classmethod
    def of_folder(cls, folder: str) -> "VectorFiles":
        """Returns the values that sentence-transformers' files in a folder state."""
        normalize, prompts = stated_files.is_normalized(folder), stated_files.read_prompts(folder)
        mode = stated_files.pooling_mode(folder)
        document = prompts[stated_files.document_prompt(prompts)]
        return cls(mode, normalize, prompts[QUERY], document, stated_files.similarity(folder))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The Matryoshka sizes; () if only the whole vector is trained."""
        sizes = items(self.matryoshka_dims)
        require(
            all(map(str.isdigit, sizes)), f"--matryoshka_dims={self.matryoshka_dims}: give whole numbers, as in 256,128"
        )
        return tuple(map(int, sizes))

    @property
    def prompts(self) -> dict[str, str]:
        """The prefixes by the names that sentence-transformers gives them."""
        return {QUERY: self.query_prefix, DOCUMENT: self.document_prefix}

    def prefix(self, is_query: bool) -> str:
        return self.query_prefix if is_query else self.document_prefix

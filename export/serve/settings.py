"""Settings of the local server, one field per flag. Most names are names of TF Serving's flags or parameters."""

import dataclasses
import re

from bert_tf.core.command_line import Settings, require, require_folder, setting
from bert_tf.core.flag_parsing import items


@dataclasses.dataclass(frozen=True)
class ServeSettings(Settings):
    """Settings of `serve_saved_model`."""

    flag_group = "Limits"

    model_name: str = setting("name of the model in --model_base_path", "default", group="Models", first=True)
    model_base_path: str = setting(
        "folder with the versions of the model, such as models/reviews for models/reviews/1", "", group="Models",
        first=True,
    )  # fmt: skip
    model: str = setting(
        "another model, as NAME=PATH; repeat the flag for each further model", "", group="Models", first=True,
        is_repeated=True,
    )  # fmt: skip
    file_system_poll_wait_seconds: float = setting(
        "seconds between two searches for new versions; 0 searches only once", 1.0, group="Models", at_least=0
    )
    port: int = setting("TCP port for gRPC; 0: no gRPC", 8500, group="Addresses", first=True, at_least=0, below=65536)
    rest_api_port: int = setting(
        "TCP port for REST; 0: no REST; TF Serving's own default is 0", 8501, group="Addresses", first=True, at_least=0,
        below=65536,
    )  # fmt: skip
    rest_api_timeout_in_ms: int = setting(
        "time limit for each step of a REST request: receiving the body, computing the answer, sending the answer",
        30000, above=0,
    )  # fmt: skip
    rest_api_num_threads: int | None = setting(
        "number of threads for REST requests; default: 4 per core", None, group="Batching and threads", above=0
    )
    grpc_max_threads: int | None = setting(
        "number of threads for gRPC requests; default: 4 per core", None, group="Batching and threads", above=0
    )
    grpc_channel_arguments: str = setting(
        "comma-separated arguments of gRPC, such as grpc.max_connection_age_ms=600000", "", group="Addresses"
    )
    rest_api_enable_cors_support: bool = setting(
        "allow REST requests from pages of other origins", False, group="Addresses"
    )
    enable_batching: bool = setting(
        "run the model on batches of requests", False, group="Batching and threads", first=True
    )
    enable_grpc_healthcheck_service: bool = setting("offer gRPC's health service", False, group="Monitoring")
    enable_model_warmup: bool = setting(
        "replay assets.extra/tf_serving_warmup_requests while a version loads", True, group="Models"
    )
    tensorflow_intra_op_parallelism: int = setting(
        "number of threads per operation; with 1, a request to an exported model uses two cores; 0: one per core", 1,
        group="Batching and threads", at_least=0,
    )  # fmt: skip
    tensorflow_inter_op_parallelism: int = setting(
        "number of operations that run at the same time; 0: one per core", 0, group="Batching and threads", at_least=0
    )

    max_batch_size: int = setting(
        "maximum number of rows in a batch, and in a request to a batching server", 1000, group="Batching and threads",
        first=True, above=0,
    )  # fmt: skip
    batch_timeout_micros: int = setting(
        "microseconds that a batch waits for more rows; 0: only while all threads are busy", 0,
        group="Batching and threads", at_least=0,
    )  # fmt: skip
    max_enqueued_batches: int = setting(
        "number of full batches that may wait; further requests get 503 (UNAVAILABLE)", 10,
        group="Batching and threads", above=0,
    )  # fmt: skip
    num_batch_threads: int | None = setting(
        "number of batches that run at the same time; default: half the number of cores", None,
        group="Batching and threads", above=0,
    )  # fmt: skip
    host: str = setting(
        "address to listen on; 0.0.0.0: reachable from other machines", "127.0.0.1", group="Addresses", first=True
    )
    max_request_mb: int = setting(
        "size limit in MiB for a decompressed request, and for the tensors of an answer", 32, first=True, above=0
    )
    max_request_rows: int = setting("maximum number of rows in a request", 4096, above=0)
    max_run_seconds: float = setting("time limit for running the model on a request", 120.0, first=True, above=0)
    max_requests_in_flight: int = setting(
        "maximum number of requests at the same time; further requests get 503 (UNAVAILABLE)", 256, above=0
    )
    max_connections: int = setting(
        "maximum number of connections to each interface (REST, gRPC); a further REST connection replaces the "
        "connection that has been idle longest", 512, above=0,
    )  # fmt: skip
    shutdown_grace_seconds: float = setting("time after SIGTERM for answering accepted requests", 20.0, at_least=0)

    def __post_init__(self):
        super().__post_init__()
        require(bool(self.port or self.rest_api_port), "--port=0 --rest_api_port=0: nothing to listen on; give a port")
        require(bool(self.folders), "nothing to serve: give --model_base_path=models/reviews")
        _ = self.channel_arguments  # raises an error if an argument is invalid

    @property
    def folders(self) -> dict[str, str]:
        """The folder of each model by the model's name."""
        folders = {self.model_name: self.model_base_path} if self.model_base_path else {}
        for pair in items(self.model):
            name, _, folder = (part.strip() for part in pair.partition("="))
            require(bool(folder), f"--model={pair}: give NAME=PATH")
            require(name not in folders, f"--model={pair}: two models have the name {name}")
            folders[name] = folder
        for name, folder in folders.items():
            require(bool(name), f"the model in {folder} has no name; give --model=NAME={folder}")
            require(not set(name) & set("/:"), f"model name {name!r}: must not contain / or :")
            require_folder("model_base_path", folder)
        return folders

    @property
    def channel_arguments(self) -> dict[str, int | str]:
        """The arguments in `grpc_channel_arguments` by name. Whole numbers have the type int."""
        arguments: dict[str, int | str] = {}
        for argument in filter(None, self.grpc_channel_arguments.split(",")):
            name, _, value = (part.strip() for part in argument.partition("="))
            require(bool(name and value), f"--grpc_channel_arguments={argument}: give name=value, separated by commas")
            arguments[name] = int(value) if re.fullmatch(r"-?\d{1,9}", value) else value
        return arguments

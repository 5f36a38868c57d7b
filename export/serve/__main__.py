"""Serves SavedModels over REST and gRPC, with the predict calls, answers and status codes of TF Serving.

serve_saved_model --model_name=reviews --model_base_path=models/reviews
"""

import importlib.util

from bert_tf.core import command_line
from export.serve.settings import ServeSettings

# The packages of the extra `serve`, by the names of their modules.
_LIBRARIES = {
    "aiohttp": "aiohttp", "grpc": "grpcio", "grpc_health": "grpcio-health-checking", "orjson": "orjson",
    "prometheus_client": "prometheus-client",
}  # fmt: skip


def main(settings: ServeSettings) -> None:
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    packages = " ".join(_LIBRARIES[name] for name in missing)
    command_line.require(not missing, f"{', '.join(missing)} missing; the server needs: pip install {packages}")
    from export.serve.server import serve

    serve(settings)


run = command_line.script_of(ServeSettings, main, __doc__)

if __name__ == "__main__":
    run()

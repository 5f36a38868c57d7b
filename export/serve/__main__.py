"""Serves SavedModels over REST and gRPC, with the predict calls, answers and status codes of TF Serving.

serve_saved_model --model_name=reviews --model_base_path=models/reviews
"""

import importlib.util

from bert_tf.core import command_line
from export.serve.settings import ServeSettings

_LIBRARIES = ("aiohttp", "grpc", "grpc_health", "prometheus_client")


def main(settings: ServeSettings) -> None:
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    command_line.require(not missing, f"{', '.join(missing)} missing; install the extra: pip install 'bert_tf[serve]'")
    from export.serve.server import serve

    serve(settings)


run = command_line.script_of(ServeSettings, main, __doc__)

if __name__ == "__main__":
    run()

"""Serves SavedModels over REST and gRPC, with the flags, calls and answers of TF Serving.

python -m export.serve --model_name=reviews --model_base_path=models/reviews
"""

import importlib.util

from bert_tf.core import command_line
from export.serve.settings import ServeSettings

_LIBRARIES = ("aiohttp", "grpc", "grpc_health", "prometheus_client")


def main(settings: ServeSettings) -> None:
    """Runs the script with resolved settings.

    Raises:
      InputError: a library of the extra is missing.
    """
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    command_line.require(not missing, f"{', '.join(missing)} missing; install the extra: pip install -e '.[serve]'")
    from export.serve.server import serve

    serve(settings)


if __name__ == "__main__":
    command_line.run(ServeSettings, main, __doc__)

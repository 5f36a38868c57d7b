"""Serves SavedModels over REST and gRPC, with the flags, calls and answers of TF Serving.

python -m export.serve --model_name=reviews --model_base_path=models/reviews
"""

from bert_tf import command_line
from export.serve.settings import ServeSettings


def main(settings: ServeSettings) -> None:
    """Runs the script with resolved settings."""
    from export.serve.server import serve

    serve(settings)


if __name__ == "__main__":
    command_line.run(ServeSettings, main, __doc__)

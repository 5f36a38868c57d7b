"""Replays the requests that the export recorded for a version, so that the first client does not have to wait."""

import itertools

from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from export import warmup
from export.serve import inference
from export.serve.errors import ServingError, from_exception
from export.serve.servable import Servable
from export.serve.tensors import from_proto

_MOST_RECORDS = 1000
_LARGEST_BYTES = 1 << 30


def replay(folder: str, servable: Servable) -> int:
    """Runs the recorded requests of a version; returns the number of requests.

    Raises:
      ServingError: a recorded request fails, or the file is damaged.
    """
    count = 0
    try:
        for log in itertools.islice(warmup.logs(folder), _MOST_RECORDS):
            _replay_one(servable, log)
            count += 1
    except Exception as error:
        known = from_exception(error)
        raise ServingError(known.code, f"{warmup.NAME}, request {count}: {known.message}") from error
    return count


def _replay_one(servable: Servable, log: PredictionLog) -> None:
    kind = log.WhichOneof("log_type")
    if kind == "predict_log":
        request = log.predict_log.request
        inputs = {name: from_proto(name, tensor, _LARGEST_BYTES) for name, tensor in request.inputs.items()}
        plan = inference.plan_predict(servable, request.model_spec.signature_name, inputs, request.output_filter)
    elif kind == "classify_log":
        request = log.classify_log.request
        plan = inference.plan_classify(servable, request.model_spec.signature_name, request.input)
    elif kind == "regress_log":
        request = log.regress_log.request
        plan = inference.plan_regress(servable, request.model_spec.signature_name, request.input)
    elif kind == "multi_inference_log":
        plan = inference.plan_multi_inference(servable, log.multi_inference_log.request)
    else:
        return
    plan.finish(servable.run(plan.feeds, plan.fetches))

"""Errors for clients. An error has a gRPC code, TF Serving's HTTP status for this code, and a message."""

import enum
import re
import traceback

import tensorflow as tf
from absl import logging
from tensorflow.core.protobuf import error_codes_pb2

from bert_tf.core.errors import InputError

# TensorFlow's messages can contain whole graphs; a client needs only the beginning.
_LONGEST_MESSAGE = 2048
# Matches lines of TensorFlow's messages that state the location of an error instead of the cause.
_NO_REASON = re.compile(
    r"Graph execution error|Detected at node|<stack traces|\d+ root error|\s*\[\[|Node: |  File |    "
)
_OF_SEVERAL = re.compile(r"  \(0\) [A-Z_]+: *")
_ASSERTION = re.compile(r"assertion failed: \[([^\]]*)\]")
# Status codes, with the same numbers in gRPC and TensorFlow.
Code = enum.IntEnum("Code", error_codes_pb2.Code.items())
HTTP_STATUS = {
    Code.OK: 200, Code.CANCELLED: 499, Code.UNKNOWN: 500, Code.INVALID_ARGUMENT: 400, Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404, Code.ALREADY_EXISTS: 409, Code.PERMISSION_DENIED: 403, Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 400, Code.ABORTED: 409, Code.OUT_OF_RANGE: 400, Code.UNIMPLEMENTED: 501,
    Code.INTERNAL: 500, Code.UNAVAILABLE: 503, Code.DATA_LOSS: 500, Code.UNAUTHENTICATED: 401,
}  # fmt: skip


class ServingError(Exception):
    """A request failed, or a version of a model could not be loaded."""

    def __init__(self, code: Code, message: str, http_status: int | None = None):
        super().__init__(message)
        self.code = code
        self.message = message
        self.http_status = http_status or HTTP_STATUS[code]


def invalid(message: str) -> ServingError:
    """Returns the error for a request that can never succeed."""
    return ServingError(Code.INVALID_ARGUMENT, message)


def _release(error: BaseException) -> None:
    """Empties the stack frames of an error and of its causes. The frames hold the request and its arrays, and errors
    are in reference cycles, so the memory would otherwise stay until Python's garbage collector runs, which may be
    after thousands of requests."""
    seen, left = set(), [error]
    while left:
        one = left.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            traceback.clear_frames(one.__traceback__)
            one.__traceback__ = None
            left += [one.__cause__, one.__context__]


def from_exception(error: Exception) -> ServingError:
    """Converts any exception to the error that the client gets."""
    if isinstance(error, ServingError):
        return error
    if isinstance(error, tf.errors.OpError):
        return ServingError(Code(error.error_code), reason(error.message or str(error)))
    if isinstance(error, InputError):
        return ServingError(Code.FAILED_PRECONDITION, str(error))
    if isinstance(error, RecursionError):
        return invalid("The request nests too deeply")
    if isinstance(error, MemoryError):
        return ServingError(Code.RESOURCE_EXHAUSTED, "The request needs more memory than is available")
    return ServingError(Code.INTERNAL, f"{type(error).__name__}: {error}"[:_LONGEST_MESSAGE])


def answer_to(error: Exception, request: str) -> ServingError:
    """Converts an error as `from_exception` does; logs a fault of the server, and empties the error's stack frames.
    `request`: the request, for the log."""
    answer = from_exception(error)
    if answer.code in (Code.INTERNAL, Code.UNKNOWN) and not isinstance(error, ServingError):
        logging.exception("%s failed", request)
    _release(error)
    return answer


def reason(message: str) -> str:
    """Returns the line that states the cause in a TensorFlow message; other lines name operations of the graph."""
    lines = (_OF_SEVERAL.sub("", line).strip() for line in message.splitlines() if not _NO_REASON.match(line))
    line = next(filter(None, lines), message.strip().partition("\n")[0])
    assertion = _ASSERTION.fullmatch(line)
    return (assertion[1] if assertion else line)[:_LONGEST_MESSAGE]

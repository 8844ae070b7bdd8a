"""Thoughtbeam: one question in, many reasoning traces searched, one answer out. This is its client SDK.

from thoughtbeam import Client

with Client("localhost:50551") as client:
    print(client.solve("What is 7 * 6?", policy="gambit").text)
"""

import os

# gRPC logs to stderr by itself, for example when a server says goodbye; it reads this when it is imported
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

from thoughtbeam._requests import AnswerMode, Prompt, SearchOptions, SubmitOptions
from thoughtbeam._retry import OnRetry, Retry, RetryConfig
from thoughtbeam.aio_client import AsyncClient
from thoughtbeam.client import Client
from thoughtbeam.errors import (
    AbortedError,
    AlreadyExistsError,
    ApiError,
    CancelledError,
    DataLossError,
    DeadlineExceededError,
    FailedPreconditionError,
    FieldViolation,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
    UnknownError,
)
from thoughtbeam.results import (
    Answer,
    Load,
    Node,
    NodeState,
    NodeTransition,
    Policy,
    PolicyParameter,
    Progress,
    Result,
    Round,
    Thought,
    TokenUsage,
    Trace,
    Tree,
    TreeCounts,
    TreeError,
    TreeEvent,
    TreeState,
    TreeTransition,
    Vote,
    Worker,
    WorkerState,
)

__version__ = "0.1.0"

__all__ = [
    "AbortedError",
    "AlreadyExistsError",
    "Answer",
    "AnswerMode",
    "ApiError",
    "AsyncClient",
    "CancelledError",
    "Client",
    "DataLossError",
    "DeadlineExceededError",
    "FailedPreconditionError",
    "FieldViolation",
    "InternalError",
    "InvalidArgumentError",
    "Load",
    "Node",
    "NodeState",
    "NodeTransition",
    "NotFoundError",
    "OnRetry",
    "OutOfRangeError",
    "PermissionDeniedError",
    "Policy",
    "PolicyParameter",
    "Progress",
    "Prompt",
    "ResourceExhaustedError",
    "Result",
    "Retry",
    "RetryConfig",
    "Round",
    "SearchOptions",
    "SubmitOptions",
    "Thought",
    "TokenUsage",
    "Trace",
    "Tree",
    "TreeCounts",
    "TreeError",
    "TreeEvent",
    "TreeState",
    "TreeTransition",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "UnknownError",
    "Vote",
    "Worker",
    "WorkerState",
    "__version__",
]

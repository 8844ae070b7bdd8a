"""A request that is good as it is, and the catalogue of one worker, for tests to change one thing of."""

from __future__ import annotations

from google.protobuf import struct_pb2

from thoughtbeam.v1 import reasoning_pb2 as pb
from thoughtbeam.v1 import work_pb2

REQUEST_ID = "6f1d1c9e-3f0a-4c55-9a5e-0c6b7b1f2a3d"


def number(value: float) -> struct_pb2.Value:
    return struct_pb2.Value(number_value=value)


def gambit() -> pb.Policy:
    return pb.Policy(
        name="gambit",
        parameters=[
            pb.PolicyParameter(
                name="C",
                type="int",
                minimum=1,
                defaults={"paper": number(256), "tiny": number(24)},
            ),
            pb.PolicyParameter(name="K", type="int", minimum=0),
            pb.PolicyParameter(name="kv_high_water", type="float", minimum=0, maximum=1),
            pb.PolicyParameter(
                name="child_temperature",
                type="float",
                maximum=2,
                defaults={"paper": struct_pb2.Value(null_value=struct_pb2.NULL_VALUE)},
            ),
            pb.PolicyParameter(name="refill", type="bool"),
            pb.PolicyParameter(name="interval_scope", type="choice", choices=["tree", "trace"]),
        ],
    )


def hello(worker: str = "w1", model: str = "tiny", **changed: object) -> work_pb2.Hello:
    message = work_pb2.Hello(
        worker=worker,
        model=model,
        slots=8,
        max_context=1024,
        max_capacity=64,
        policies=[gambit(), pb.Policy(name="vanilla")],
    )
    message.MergeFrom(work_pb2.Hello(**changed))
    return message


def reason_request() -> pb.ReasonRequest:
    """Every field set, and to a value that is allowed."""
    request = pb.ReasonRequest(
        request_id=REQUEST_ID,
        search=pb.Search(
            question="What is 6 x 7?",
            model="tiny",
            policy="gambit",
            profile="tiny",
            answer_mode=pb.ANSWER_MODE_REGEX,
            answer_regex=r"= (\d+)",
            sampling=pb.Sampling(temperature=0.7, top_p=0.9, top_k=20),
            budgets=pb.Budgets(tokens=10_000, trace_tokens=512),
            seed=1,
            scorer="confidence",
        ),
    )
    request.search.budgets.deadline.FromSeconds(60)
    request.search.parameters.update(
        {"C": 24, "K": 12, "kv_high_water": 0.9, "refill": True, "interval_scope": "tree"}
    )
    return request

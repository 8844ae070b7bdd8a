from thoughtbeam.v1 import reasoning_pb2 as _reasoning_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WorkRequest(_message.Message):
    __slots__ = ("hello", "credit", "draining")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    credit: Credit
    draining: Draining
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ..., draining: _Optional[_Union[Draining, _Mapping]] = ...) -> None: ...

class WorkResponse(_message.Message):
    __slots__ = ("assignment", "cancellation", "welcome")
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    CANCELLATION_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    assignment: Assignment
    cancellation: Cancellation
    welcome: Welcome
    def __init__(self, assignment: _Optional[_Union[Assignment, _Mapping]] = ..., cancellation: _Optional[_Union[Cancellation, _Mapping]] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("worker", "model", "slots", "max_context", "max_capacity", "policies", "scorer")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    MAX_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    MAX_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    SCORER_FIELD_NUMBER: _ClassVar[int]
    worker: str
    model: str
    slots: int
    max_context: int
    max_capacity: int
    policies: _containers.RepeatedCompositeFieldContainer[_reasoning_pb2.Policy]
    scorer: str
    def __init__(self, worker: _Optional[str] = ..., model: _Optional[str] = ..., slots: _Optional[int] = ..., max_context: _Optional[int] = ..., max_capacity: _Optional[int] = ..., policies: _Optional[_Iterable[_Union[_reasoning_pb2.Policy, _Mapping]]] = ..., scorer: _Optional[str] = ...) -> None: ...

class Credit(_message.Message):
    __slots__ = ("trees",)
    TREES_FIELD_NUMBER: _ClassVar[int]
    trees: int
    def __init__(self, trees: _Optional[int] = ...) -> None: ...

class Draining(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Welcome(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("tree_id", "epoch", "search")
    TREE_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEARCH_FIELD_NUMBER: _ClassVar[int]
    tree_id: str
    epoch: int
    search: _reasoning_pb2.Search
    def __init__(self, tree_id: _Optional[str] = ..., epoch: _Optional[int] = ..., search: _Optional[_Union[_reasoning_pb2.Search, _Mapping]] = ...) -> None: ...

class Cancellation(_message.Message):
    __slots__ = ("tree_id",)
    TREE_ID_FIELD_NUMBER: _ClassVar[int]
    tree_id: str
    def __init__(self, tree_id: _Optional[str] = ...) -> None: ...

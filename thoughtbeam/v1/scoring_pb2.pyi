from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DataType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DATA_TYPE_UNSPECIFIED: _ClassVar[DataType]
    DATA_TYPE_FLOAT32: _ClassVar[DataType]
    DATA_TYPE_FLOAT16: _ClassVar[DataType]
    DATA_TYPE_BFLOAT16: _ClassVar[DataType]
DATA_TYPE_UNSPECIFIED: DataType
DATA_TYPE_FLOAT32: DataType
DATA_TYPE_FLOAT16: DataType
DATA_TYPE_BFLOAT16: DataType

class Tensor(_message.Message):
    __slots__ = ("dtype", "shape", "data")
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    dtype: DataType
    shape: _containers.RepeatedScalarFieldContainer[int]
    data: bytes
    def __init__(self, dtype: _Optional[_Union[DataType, str]] = ..., shape: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ...) -> None: ...

class ScoreRequest(_message.Message):
    __slots__ = ("model_fingerprint", "boundary_rule", "rows", "traces")
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    BOUNDARY_RULE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    TRACES_FIELD_NUMBER: _ClassVar[int]
    model_fingerprint: str
    boundary_rule: str
    rows: Tensor
    traces: _containers.RepeatedCompositeFieldContainer[TraceRows]
    def __init__(self, model_fingerprint: _Optional[str] = ..., boundary_rule: _Optional[str] = ..., rows: _Optional[_Union[Tensor, _Mapping]] = ..., traces: _Optional[_Iterable[_Union[TraceRows, _Mapping]]] = ...) -> None: ...

class TraceRows(_message.Message):
    __slots__ = ("tree_id", "node", "first_thought", "rows", "parent", "fork_thought", "history")
    TREE_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    FIRST_THOUGHT_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    FORK_THOUGHT_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    tree_id: str
    node: int
    first_thought: int
    rows: int
    parent: int
    fork_thought: int
    history: Tensor
    def __init__(self, tree_id: _Optional[str] = ..., node: _Optional[int] = ..., first_thought: _Optional[int] = ..., rows: _Optional[int] = ..., parent: _Optional[int] = ..., fork_thought: _Optional[int] = ..., history: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...

class ScoreResponse(_message.Message):
    __slots__ = ("scores", "projected", "need_history", "mismatch")
    SCORES_FIELD_NUMBER: _ClassVar[int]
    PROJECTED_FIELD_NUMBER: _ClassVar[int]
    NEED_HISTORY_FIELD_NUMBER: _ClassVar[int]
    MISMATCH_FIELD_NUMBER: _ClassVar[int]
    scores: Tensor
    projected: Tensor
    need_history: _containers.RepeatedCompositeFieldContainer[NeedHistory]
    mismatch: str
    def __init__(self, scores: _Optional[_Union[Tensor, _Mapping]] = ..., projected: _Optional[_Union[Tensor, _Mapping]] = ..., need_history: _Optional[_Iterable[_Union[NeedHistory, _Mapping]]] = ..., mismatch: _Optional[str] = ...) -> None: ...

class NeedHistory(_message.Message):
    __slots__ = ("trace", "from_thought")
    TRACE_FIELD_NUMBER: _ClassVar[int]
    FROM_THOUGHT_FIELD_NUMBER: _ClassVar[int]
    trace: int
    from_thought: int
    def __init__(self, trace: _Optional[int] = ..., from_thought: _Optional[int] = ...) -> None: ...

class ScoreTextRequest(_message.Message):
    __slots__ = ("traces",)
    TRACES_FIELD_NUMBER: _ClassVar[int]
    traces: _containers.RepeatedCompositeFieldContainer[TraceText]
    def __init__(self, traces: _Optional[_Iterable[_Union[TraceText, _Mapping]]] = ...) -> None: ...

class TraceText(_message.Message):
    __slots__ = ("tree_id", "node", "messages", "steps", "first_step")
    class Message(_message.Message):
        __slots__ = ("role", "content")
        ROLE_FIELD_NUMBER: _ClassVar[int]
        CONTENT_FIELD_NUMBER: _ClassVar[int]
        role: str
        content: str
        def __init__(self, role: _Optional[str] = ..., content: _Optional[str] = ...) -> None: ...
    TREE_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    FIRST_STEP_FIELD_NUMBER: _ClassVar[int]
    tree_id: str
    node: int
    messages: _containers.RepeatedCompositeFieldContainer[TraceText.Message]
    steps: _containers.RepeatedScalarFieldContainer[str]
    first_step: int
    def __init__(self, tree_id: _Optional[str] = ..., node: _Optional[int] = ..., messages: _Optional[_Iterable[_Union[TraceText.Message, _Mapping]]] = ..., steps: _Optional[_Iterable[str]] = ..., first_step: _Optional[int] = ...) -> None: ...

class ScoreTextResponse(_message.Message):
    __slots__ = ("scores", "mismatch")
    SCORES_FIELD_NUMBER: _ClassVar[int]
    MISMATCH_FIELD_NUMBER: _ClassVar[int]
    scores: Tensor
    mismatch: str
    def __init__(self, scores: _Optional[_Union[Tensor, _Mapping]] = ..., mismatch: _Optional[str] = ...) -> None: ...

class DropTracesRequest(_message.Message):
    __slots__ = ("tree_id", "nodes")
    TREE_ID_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    tree_id: str
    nodes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, tree_id: _Optional[str] = ..., nodes: _Optional[_Iterable[int]] = ...) -> None: ...

class DropTracesResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetScorerInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetScorerInfoResponse(_message.Message):
    __slots__ = ("kind", "hidden_size", "model_fingerprint", "boundary_rule", "max_rows", "history_size", "scorer_id", "mismatch_allowed")
    KIND_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_SIZE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    BOUNDARY_RULE_FIELD_NUMBER: _ClassVar[int]
    MAX_ROWS_FIELD_NUMBER: _ClassVar[int]
    HISTORY_SIZE_FIELD_NUMBER: _ClassVar[int]
    SCORER_ID_FIELD_NUMBER: _ClassVar[int]
    MISMATCH_ALLOWED_FIELD_NUMBER: _ClassVar[int]
    kind: str
    hidden_size: int
    model_fingerprint: str
    boundary_rule: str
    max_rows: int
    history_size: int
    scorer_id: str
    mismatch_allowed: bool
    def __init__(self, kind: _Optional[str] = ..., hidden_size: _Optional[int] = ..., model_fingerprint: _Optional[str] = ..., boundary_rule: _Optional[str] = ..., max_rows: _Optional[int] = ..., history_size: _Optional[int] = ..., scorer_id: _Optional[str] = ..., mismatch_allowed: _Optional[bool] = ...) -> None: ...

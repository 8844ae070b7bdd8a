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
    __slots__ = ("tree_id", "node", "first_thought", "rows")
    TREE_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    FIRST_THOUGHT_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    tree_id: str
    node: int
    first_thought: int
    rows: int
    def __init__(self, tree_id: _Optional[str] = ..., node: _Optional[int] = ..., first_thought: _Optional[int] = ..., rows: _Optional[int] = ...) -> None: ...

class ScoreResponse(_message.Message):
    __slots__ = ("scores",)
    SCORES_FIELD_NUMBER: _ClassVar[int]
    scores: Tensor
    def __init__(self, scores: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...

class GetScorerInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetScorerInfoResponse(_message.Message):
    __slots__ = ("kind", "hidden_size", "model_fingerprint", "boundary_rule", "max_rows")
    KIND_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_SIZE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    BOUNDARY_RULE_FIELD_NUMBER: _ClassVar[int]
    MAX_ROWS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    hidden_size: int
    model_fingerprint: str
    boundary_rule: str
    max_rows: int
    def __init__(self, kind: _Optional[str] = ..., hidden_size: _Optional[int] = ..., model_fingerprint: _Optional[str] = ..., boundary_rule: _Optional[str] = ..., max_rows: _Optional[int] = ...) -> None: ...

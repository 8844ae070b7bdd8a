import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AnswerMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ANSWER_MODE_UNSPECIFIED: _ClassVar[AnswerMode]
    ANSWER_MODE_BOXED: _ClassVar[AnswerMode]
    ANSWER_MODE_CHOICE: _ClassVar[AnswerMode]
    ANSWER_MODE_INTEGER: _ClassVar[AnswerMode]
    ANSWER_MODE_REGEX: _ClassVar[AnswerMode]
    ANSWER_MODE_NONE: _ClassVar[AnswerMode]

class AnswerState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ANSWER_STATE_UNSPECIFIED: _ClassVar[AnswerState]
    ANSWER_STATE_ANSWERED: _ClassVar[AnswerState]
    ANSWER_STATE_NO_ANSWER: _ClassVar[AnswerState]

class TreeState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TREE_STATE_UNSPECIFIED: _ClassVar[TreeState]
    TREE_STATE_QUEUED: _ClassVar[TreeState]
    TREE_STATE_RUNNING: _ClassVar[TreeState]
    TREE_STATE_SUCCEEDED: _ClassVar[TreeState]
    TREE_STATE_FAILED: _ClassVar[TreeState]
    TREE_STATE_CANCELLED: _ClassVar[TreeState]
    TREE_STATE_EXPIRED: _ClassVar[TreeState]

class NodeState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NODE_STATE_UNSPECIFIED: _ClassVar[NodeState]
    NODE_STATE_PENDING: _ClassVar[NodeState]
    NODE_STATE_LIVE: _ClassVar[NodeState]
    NODE_STATE_HELD: _ClassVar[NodeState]
    NODE_STATE_GHOST: _ClassVar[NodeState]
    NODE_STATE_FINISHED: _ClassVar[NodeState]
    NODE_STATE_PRUNED: _ClassVar[NodeState]
    NODE_STATE_CANCELLED: _ClassVar[NodeState]

class WorkerState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORKER_STATE_UNSPECIFIED: _ClassVar[WorkerState]
    WORKER_STATE_SERVING: _ClassVar[WorkerState]
    WORKER_STATE_DRAINING: _ClassVar[WorkerState]
ANSWER_MODE_UNSPECIFIED: AnswerMode
ANSWER_MODE_BOXED: AnswerMode
ANSWER_MODE_CHOICE: AnswerMode
ANSWER_MODE_INTEGER: AnswerMode
ANSWER_MODE_REGEX: AnswerMode
ANSWER_MODE_NONE: AnswerMode
ANSWER_STATE_UNSPECIFIED: AnswerState
ANSWER_STATE_ANSWERED: AnswerState
ANSWER_STATE_NO_ANSWER: AnswerState
TREE_STATE_UNSPECIFIED: TreeState
TREE_STATE_QUEUED: TreeState
TREE_STATE_RUNNING: TreeState
TREE_STATE_SUCCEEDED: TreeState
TREE_STATE_FAILED: TreeState
TREE_STATE_CANCELLED: TreeState
TREE_STATE_EXPIRED: TreeState
NODE_STATE_UNSPECIFIED: NodeState
NODE_STATE_PENDING: NodeState
NODE_STATE_LIVE: NodeState
NODE_STATE_HELD: NodeState
NODE_STATE_GHOST: NodeState
NODE_STATE_FINISHED: NodeState
NODE_STATE_PRUNED: NodeState
NODE_STATE_CANCELLED: NodeState
WORKER_STATE_UNSPECIFIED: WorkerState
WORKER_STATE_SERVING: WorkerState
WORKER_STATE_DRAINING: WorkerState

class ReasonRequest(_message.Message):
    __slots__ = ("search", "request_id", "cancel_on_disconnect", "after_event_id")
    SEARCH_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CANCEL_ON_DISCONNECT_FIELD_NUMBER: _ClassVar[int]
    AFTER_EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    search: Search
    request_id: str
    cancel_on_disconnect: bool
    after_event_id: str
    def __init__(self, search: _Optional[_Union[Search, _Mapping]] = ..., request_id: _Optional[str] = ..., cancel_on_disconnect: _Optional[bool] = ..., after_event_id: _Optional[str] = ...) -> None: ...

class SubmitRequest(_message.Message):
    __slots__ = ("search", "request_id")
    SEARCH_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    search: Search
    request_id: str
    def __init__(self, search: _Optional[_Union[Search, _Mapping]] = ..., request_id: _Optional[str] = ...) -> None: ...

class SubmitResponse(_message.Message):
    __slots__ = ("tree",)
    TREE_FIELD_NUMBER: _ClassVar[int]
    tree: Tree
    def __init__(self, tree: _Optional[_Union[Tree, _Mapping]] = ...) -> None: ...

class Search(_message.Message):
    __slots__ = ("question", "conversation", "model", "policy", "profile", "parameters", "answer_mode", "answer_regex", "sampling", "budgets", "seed", "scorer")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    ANSWER_MODE_FIELD_NUMBER: _ClassVar[int]
    ANSWER_REGEX_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    BUDGETS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    SCORER_FIELD_NUMBER: _ClassVar[int]
    question: str
    conversation: Conversation
    model: str
    policy: str
    profile: str
    parameters: _struct_pb2.Struct
    answer_mode: AnswerMode
    answer_regex: str
    sampling: Sampling
    budgets: Budgets
    seed: int
    scorer: str
    def __init__(self, question: _Optional[str] = ..., conversation: _Optional[_Union[Conversation, _Mapping]] = ..., model: _Optional[str] = ..., policy: _Optional[str] = ..., profile: _Optional[str] = ..., parameters: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., answer_mode: _Optional[_Union[AnswerMode, str]] = ..., answer_regex: _Optional[str] = ..., sampling: _Optional[_Union[Sampling, _Mapping]] = ..., budgets: _Optional[_Union[Budgets, _Mapping]] = ..., seed: _Optional[int] = ..., scorer: _Optional[str] = ...) -> None: ...

class Conversation(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[ChatMessage]
    def __init__(self, messages: _Optional[_Iterable[_Union[ChatMessage, _Mapping]]] = ...) -> None: ...

class ChatMessage(_message.Message):
    __slots__ = ("role", "content")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    role: str
    content: str
    def __init__(self, role: _Optional[str] = ..., content: _Optional[str] = ...) -> None: ...

class Sampling(_message.Message):
    __slots__ = ("temperature", "top_p", "top_k")
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_p: float
    top_k: int
    def __init__(self, temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., top_k: _Optional[int] = ...) -> None: ...

class Budgets(_message.Message):
    __slots__ = ("deadline", "tokens", "trace_tokens")
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TRACE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    deadline: _duration_pb2.Duration
    tokens: int
    trace_tokens: int
    def __init__(self, deadline: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., tokens: _Optional[int] = ..., trace_tokens: _Optional[int] = ...) -> None: ...

class ReasonResponse(_message.Message):
    __slots__ = ("event", "result")
    EVENT_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    event: TreeEvent
    result: Result
    def __init__(self, event: _Optional[_Union[TreeEvent, _Mapping]] = ..., result: _Optional[_Union[Result, _Mapping]] = ...) -> None: ...

class TreeEvent(_message.Message):
    __slots__ = ("event_id", "time", "tree", "node", "round", "progress")
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    TREE_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    event_id: str
    time: _timestamp_pb2.Timestamp
    tree: TreeTransition
    node: NodeTransition
    round: Round
    progress: Progress
    def __init__(self, event_id: _Optional[str] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., tree: _Optional[_Union[TreeTransition, _Mapping]] = ..., node: _Optional[_Union[NodeTransition, _Mapping]] = ..., round: _Optional[_Union[Round, _Mapping]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ...) -> None: ...

class TreeTransition(_message.Message):
    __slots__ = ("name", "state", "reason")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: TreeState
    reason: str
    def __init__(self, name: _Optional[str] = ..., state: _Optional[_Union[TreeState, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class NodeTransition(_message.Message):
    __slots__ = ("node", "to", "parent", "reason")
    NODE_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    node: int
    to: NodeState
    parent: int
    reason: str
    def __init__(self, node: _Optional[int] = ..., to: _Optional[_Union[NodeState, str]] = ..., parent: _Optional[int] = ..., reason: _Optional[str] = ..., **kwargs) -> None: ...

class Round(_message.Message):
    __slots__ = ("number", "thoughts", "capacity_count", "live", "ghosts", "kv_use", "pruned", "branched")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    THOUGHTS_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_COUNT_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    GHOSTS_FIELD_NUMBER: _ClassVar[int]
    KV_USE_FIELD_NUMBER: _ClassVar[int]
    PRUNED_FIELD_NUMBER: _ClassVar[int]
    BRANCHED_FIELD_NUMBER: _ClassVar[int]
    number: int
    thoughts: int
    capacity_count: int
    live: int
    ghosts: int
    kv_use: float
    pruned: _containers.RepeatedScalarFieldContainer[int]
    branched: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, number: _Optional[int] = ..., thoughts: _Optional[int] = ..., capacity_count: _Optional[int] = ..., live: _Optional[int] = ..., ghosts: _Optional[int] = ..., kv_use: _Optional[float] = ..., pruned: _Optional[_Iterable[int]] = ..., branched: _Optional[_Iterable[int]] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("counts", "usage")
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    counts: TreeCounts
    usage: TokenUsage
    def __init__(self, counts: _Optional[_Union[TreeCounts, _Mapping]] = ..., usage: _Optional[_Union[TokenUsage, _Mapping]] = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("name", "state", "answer_state", "answer", "votes", "counts", "usage", "ended_by", "degraded", "elapsed", "queued", "policy", "abridged", "scorer", "scorer_mismatch")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ANSWER_STATE_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    VOTES_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    ENDED_BY_FIELD_NUMBER: _ClassVar[int]
    DEGRADED_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    ABRIDGED_FIELD_NUMBER: _ClassVar[int]
    SCORER_FIELD_NUMBER: _ClassVar[int]
    SCORER_MISMATCH_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: TreeState
    answer_state: AnswerState
    answer: Answer
    votes: _containers.RepeatedCompositeFieldContainer[Vote]
    counts: TreeCounts
    usage: TokenUsage
    ended_by: str
    degraded: bool
    elapsed: _duration_pb2.Duration
    queued: _duration_pb2.Duration
    policy: str
    abridged: bool
    scorer: str
    scorer_mismatch: str
    def __init__(self, name: _Optional[str] = ..., state: _Optional[_Union[TreeState, str]] = ..., answer_state: _Optional[_Union[AnswerState, str]] = ..., answer: _Optional[_Union[Answer, _Mapping]] = ..., votes: _Optional[_Iterable[_Union[Vote, _Mapping]]] = ..., counts: _Optional[_Union[TreeCounts, _Mapping]] = ..., usage: _Optional[_Union[TokenUsage, _Mapping]] = ..., ended_by: _Optional[str] = ..., degraded: _Optional[bool] = ..., elapsed: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., queued: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., policy: _Optional[str] = ..., abridged: _Optional[bool] = ..., scorer: _Optional[str] = ..., scorer_mismatch: _Optional[str] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("text", "weight", "share", "node", "final_text")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    FINAL_TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    weight: float
    share: float
    node: int
    final_text: str
    def __init__(self, text: _Optional[str] = ..., weight: _Optional[float] = ..., share: _Optional[float] = ..., node: _Optional[int] = ..., final_text: _Optional[str] = ...) -> None: ...

class Vote(_message.Message):
    __slots__ = ("answer", "weight", "nodes")
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    answer: str
    weight: float
    nodes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, answer: _Optional[str] = ..., weight: _Optional[float] = ..., nodes: _Optional[_Iterable[int]] = ...) -> None: ...

class Tree(_message.Message):
    __slots__ = ("name", "state", "model", "policy", "profile", "parameters", "create_time", "start_time", "end_time", "deadline", "counts", "usage", "worker", "epoch", "result", "error", "question", "last_event_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    LAST_EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: TreeState
    model: str
    policy: str
    profile: str
    parameters: _struct_pb2.Struct
    create_time: _timestamp_pb2.Timestamp
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    deadline: _timestamp_pb2.Timestamp
    counts: TreeCounts
    usage: TokenUsage
    worker: str
    epoch: int
    result: Result
    error: TreeError
    question: str
    last_event_id: str
    def __init__(self, name: _Optional[str] = ..., state: _Optional[_Union[TreeState, str]] = ..., model: _Optional[str] = ..., policy: _Optional[str] = ..., profile: _Optional[str] = ..., parameters: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., counts: _Optional[_Union[TreeCounts, _Mapping]] = ..., usage: _Optional[_Union[TokenUsage, _Mapping]] = ..., worker: _Optional[str] = ..., epoch: _Optional[int] = ..., result: _Optional[_Union[Result, _Mapping]] = ..., error: _Optional[_Union[TreeError, _Mapping]] = ..., question: _Optional[str] = ..., last_event_id: _Optional[str] = ...) -> None: ...

class TreeError(_message.Message):
    __slots__ = ("code", "reason", "message", "field_violations")
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FIELD_VIOLATIONS_FIELD_NUMBER: _ClassVar[int]
    code: int
    reason: str
    message: str
    field_violations: _containers.RepeatedCompositeFieldContainer[FieldViolation]
    def __init__(self, code: _Optional[int] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., field_violations: _Optional[_Iterable[_Union[FieldViolation, _Mapping]]] = ...) -> None: ...

class FieldViolation(_message.Message):
    __slots__ = ("field", "description")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    field: str
    description: str
    def __init__(self, field: _Optional[str] = ..., description: _Optional[str] = ...) -> None: ...

class TreeCounts(_message.Message):
    __slots__ = ("nodes", "roots", "branches", "pending", "live", "held", "ghost", "finished", "pruned", "cancelled", "rounds", "thoughts", "evictions")
    NODES_FIELD_NUMBER: _ClassVar[int]
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    BRANCHES_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    GHOST_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    PRUNED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    THOUGHTS_FIELD_NUMBER: _ClassVar[int]
    EVICTIONS_FIELD_NUMBER: _ClassVar[int]
    nodes: int
    roots: int
    branches: int
    pending: int
    live: int
    held: int
    ghost: int
    finished: int
    pruned: int
    cancelled: int
    rounds: int
    thoughts: int
    evictions: int
    def __init__(self, nodes: _Optional[int] = ..., roots: _Optional[int] = ..., branches: _Optional[int] = ..., pending: _Optional[int] = ..., live: _Optional[int] = ..., held: _Optional[int] = ..., ghost: _Optional[int] = ..., finished: _Optional[int] = ..., pruned: _Optional[int] = ..., cancelled: _Optional[int] = ..., rounds: _Optional[int] = ..., thoughts: _Optional[int] = ..., evictions: _Optional[int] = ...) -> None: ...

class TokenUsage(_message.Message):
    __slots__ = ("prompt", "generated", "recomputed")
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    GENERATED_FIELD_NUMBER: _ClassVar[int]
    RECOMPUTED_FIELD_NUMBER: _ClassVar[int]
    prompt: int
    generated: int
    recomputed: int
    def __init__(self, prompt: _Optional[int] = ..., generated: _Optional[int] = ..., recomputed: _Optional[int] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("name", "number", "state", "parent", "branch_position", "mean_score", "thoughts", "unique_tokens", "total_tokens", "finish_reason", "answer", "winning")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    BRANCH_POSITION_FIELD_NUMBER: _ClassVar[int]
    MEAN_SCORE_FIELD_NUMBER: _ClassVar[int]
    THOUGHTS_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    WINNING_FIELD_NUMBER: _ClassVar[int]
    name: str
    number: int
    state: NodeState
    parent: int
    branch_position: int
    mean_score: float
    thoughts: int
    unique_tokens: int
    total_tokens: int
    finish_reason: str
    answer: str
    winning: bool
    def __init__(self, name: _Optional[str] = ..., number: _Optional[int] = ..., state: _Optional[_Union[NodeState, str]] = ..., parent: _Optional[int] = ..., branch_position: _Optional[int] = ..., mean_score: _Optional[float] = ..., thoughts: _Optional[int] = ..., unique_tokens: _Optional[int] = ..., total_tokens: _Optional[int] = ..., finish_reason: _Optional[str] = ..., answer: _Optional[str] = ..., winning: _Optional[bool] = ...) -> None: ...

class GetTreeRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetTreeResponse(_message.Message):
    __slots__ = ("tree",)
    TREE_FIELD_NUMBER: _ClassVar[int]
    tree: Tree
    def __init__(self, tree: _Optional[_Union[Tree, _Mapping]] = ...) -> None: ...

class ListTreesRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListTreesResponse(_message.Message):
    __slots__ = ("trees", "next_page_token")
    TREES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    trees: _containers.RepeatedCompositeFieldContainer[Tree]
    next_page_token: str
    def __init__(self, trees: _Optional[_Iterable[_Union[Tree, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListNodesRequest(_message.Message):
    __slots__ = ("parent", "page_size", "page_token")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    parent: str
    page_size: int
    page_token: str
    def __init__(self, parent: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListNodesResponse(_message.Message):
    __slots__ = ("nodes", "next_page_token")
    NODES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    next_page_token: str
    def __init__(self, nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class WatchTreeRequest(_message.Message):
    __slots__ = ("name", "after_event_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    AFTER_EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    after_event_id: str
    def __init__(self, name: _Optional[str] = ..., after_event_id: _Optional[str] = ...) -> None: ...

class WatchTreeResponse(_message.Message):
    __slots__ = ("event",)
    EVENT_FIELD_NUMBER: _ClassVar[int]
    event: TreeEvent
    def __init__(self, event: _Optional[_Union[TreeEvent, _Mapping]] = ...) -> None: ...

class GetTraceRequest(_message.Message):
    __slots__ = ("name", "own_only")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWN_ONLY_FIELD_NUMBER: _ClassVar[int]
    name: str
    own_only: bool
    def __init__(self, name: _Optional[str] = ..., own_only: _Optional[bool] = ...) -> None: ...

class GetTraceResponse(_message.Message):
    __slots__ = ("node", "thoughts", "text")
    NODE_FIELD_NUMBER: _ClassVar[int]
    THOUGHTS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    node: Node
    thoughts: Thoughts
    text: str
    def __init__(self, node: _Optional[_Union[Node, _Mapping]] = ..., thoughts: _Optional[_Union[Thoughts, _Mapping]] = ..., text: _Optional[str] = ...) -> None: ...

class Thoughts(_message.Message):
    __slots__ = ("thoughts",)
    THOUGHTS_FIELD_NUMBER: _ClassVar[int]
    thoughts: _containers.RepeatedCompositeFieldContainer[Thought]
    def __init__(self, thoughts: _Optional[_Iterable[_Union[Thought, _Mapping]]] = ...) -> None: ...

class Thought(_message.Message):
    __slots__ = ("position", "score", "confidence", "text_end", "node")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    TEXT_END_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    position: int
    score: float
    confidence: float
    text_end: int
    node: int
    def __init__(self, position: _Optional[int] = ..., score: _Optional[float] = ..., confidence: _Optional[float] = ..., text_end: _Optional[int] = ..., node: _Optional[int] = ...) -> None: ...

class GetResultRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetResultResponse(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class DeleteTreeRequest(_message.Message):
    __slots__ = ("name", "force")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    force: bool
    def __init__(self, name: _Optional[str] = ..., force: _Optional[bool] = ...) -> None: ...

class DeleteTreeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CancelTreeRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class CancelTreeResponse(_message.Message):
    __slots__ = ("tree",)
    TREE_FIELD_NUMBER: _ClassVar[int]
    tree: Tree
    def __init__(self, tree: _Optional[_Union[Tree, _Mapping]] = ...) -> None: ...

class ListPoliciesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListPoliciesResponse(_message.Message):
    __slots__ = ("policies",)
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    policies: _containers.RepeatedCompositeFieldContainer[Policy]
    def __init__(self, policies: _Optional[_Iterable[_Union[Policy, _Mapping]]] = ...) -> None: ...

class Policy(_message.Message):
    __slots__ = ("name", "summary", "source", "parameters", "needs_scores")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    NEEDS_SCORES_FIELD_NUMBER: _ClassVar[int]
    name: str
    summary: str
    source: str
    parameters: _containers.RepeatedCompositeFieldContainer[PolicyParameter]
    needs_scores: bool
    def __init__(self, name: _Optional[str] = ..., summary: _Optional[str] = ..., source: _Optional[str] = ..., parameters: _Optional[_Iterable[_Union[PolicyParameter, _Mapping]]] = ..., needs_scores: _Optional[bool] = ...) -> None: ...

class PolicyParameter(_message.Message):
    __slots__ = ("name", "symbol", "description", "source", "type", "defaults", "minimum", "maximum", "choices")
    class DefaultsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _struct_pb2.Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    SYMBOL_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DEFAULTS_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_FIELD_NUMBER: _ClassVar[int]
    MAXIMUM_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    name: str
    symbol: str
    description: str
    source: str
    type: str
    defaults: _containers.MessageMap[str, _struct_pb2.Value]
    minimum: float
    maximum: float
    choices: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., symbol: _Optional[str] = ..., description: _Optional[str] = ..., source: _Optional[str] = ..., type: _Optional[str] = ..., defaults: _Optional[_Mapping[str, _struct_pb2.Value]] = ..., minimum: _Optional[float] = ..., maximum: _Optional[float] = ..., choices: _Optional[_Iterable[str]] = ...) -> None: ...

class GetLoadRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetLoadResponse(_message.Message):
    __slots__ = ("queued_trees", "max_queued_trees", "oldest_wait", "running_trees", "workers", "slots", "free_slots", "waiting_traces", "kv_use")
    QUEUED_TREES_FIELD_NUMBER: _ClassVar[int]
    MAX_QUEUED_TREES_FIELD_NUMBER: _ClassVar[int]
    OLDEST_WAIT_FIELD_NUMBER: _ClassVar[int]
    RUNNING_TREES_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    FREE_SLOTS_FIELD_NUMBER: _ClassVar[int]
    WAITING_TRACES_FIELD_NUMBER: _ClassVar[int]
    KV_USE_FIELD_NUMBER: _ClassVar[int]
    queued_trees: int
    max_queued_trees: int
    oldest_wait: _duration_pb2.Duration
    running_trees: int
    workers: int
    slots: int
    free_slots: int
    waiting_traces: int
    kv_use: float
    def __init__(self, queued_trees: _Optional[int] = ..., max_queued_trees: _Optional[int] = ..., oldest_wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., running_trees: _Optional[int] = ..., workers: _Optional[int] = ..., slots: _Optional[int] = ..., free_slots: _Optional[int] = ..., waiting_traces: _Optional[int] = ..., kv_use: _Optional[float] = ...) -> None: ...

class ListWorkersRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListWorkersResponse(_message.Message):
    __slots__ = ("workers", "next_page_token")
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[Worker]
    next_page_token: str
    def __init__(self, workers: _Optional[_Iterable[_Union[Worker, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Worker(_message.Message):
    __slots__ = ("name", "state", "model", "slots", "free_slots", "waiting_traces", "trees", "kv_use", "max_context", "max_capacity", "scorer", "last_seen")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    FREE_SLOTS_FIELD_NUMBER: _ClassVar[int]
    WAITING_TRACES_FIELD_NUMBER: _ClassVar[int]
    TREES_FIELD_NUMBER: _ClassVar[int]
    KV_USE_FIELD_NUMBER: _ClassVar[int]
    MAX_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    MAX_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    SCORER_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: WorkerState
    model: str
    slots: int
    free_slots: int
    waiting_traces: int
    trees: int
    kv_use: float
    max_context: int
    max_capacity: int
    scorer: str
    last_seen: _timestamp_pb2.Timestamp
    def __init__(self, name: _Optional[str] = ..., state: _Optional[_Union[WorkerState, str]] = ..., model: _Optional[str] = ..., slots: _Optional[int] = ..., free_slots: _Optional[int] = ..., waiting_traces: _Optional[int] = ..., trees: _Optional[int] = ..., kv_use: _Optional[float] = ..., max_context: _Optional[int] = ..., max_capacity: _Optional[int] = ..., scorer: _Optional[str] = ..., last_seen: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

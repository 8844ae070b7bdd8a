"""The calls about the service itself: what its workers can run, how busy they are, who they are."""

from __future__ import annotations

from typing import Any

import grpc

from gateway import mapping, page_tokens
from gateway.answering import Answering
from gateway.config import GatewayConfig
from gateway.fleet import Fleet
from gateway.validation import page_size
from thoughtbeam.v1 import reasoning_pb2 as pb
from thoughtbeam.v1 import reasoning_pb2_grpc
from tree_store.store import TreeStore

WORKERS_PER_PAGE = 100

Context = grpc.aio.ServicerContext[Any, Any]


class Operations(reasoning_pb2_grpc.ReasoningServiceServicer):
    """A part of ReasoningService. Load and workers are the whole service's, policies those of the workers
    that are connected to this gateway."""

    def __init__(self, store: TreeStore, fleet: Fleet, answering: Answering, config: GatewayConfig) -> None:
        self._store = store
        self._fleet = fleet
        self._answering = answering
        self._config = config

    async def ListPolicies(  # noqa: N802
        self, request: pb.ListPoliciesRequest, context: Context
    ) -> pb.ListPoliciesResponse:
        async with self._answering(context):
            policies = self._fleet.catalogue.policies
            return pb.ListPoliciesResponse(policies=[policies[name] for name in sorted(policies)])

    async def GetLoad(self, request: pb.GetLoadRequest, context: Context) -> pb.GetLoadResponse:  # noqa: N802
        async with self._answering(context):
            workers = await self._store.workers()
            taking = [worker for worker in workers if not worker.draining]
            load = pb.GetLoadResponse(
                queued_trees=await self._store.queue_length(),
                max_queued_trees=self._config.max_queued,
                running_trees=sum(worker.trees for worker in workers),
                workers=len(taking),
                slots=sum(worker.slots for worker in taking),
                free_slots=sum(worker.free_slots for worker in taking),
                waiting_traces=sum(worker.waiting_traces for worker in taking),
                kv_use=max((worker.kv_use for worker in taking), default=0.0),
            )
            if (wait := await self._store.oldest_wait()) is not None:
                load.oldest_wait.CopyFrom(mapping.duration(wait))
            return load

    async def ListWorkers(self, request: pb.ListWorkersRequest, context: Context) -> pb.ListWorkersResponse:  # noqa: N802
        async with self._answering(context):
            size = page_size(request.page_size, WORKERS_PER_PAGE)
            after = page_tokens.decode(request.page_token, "workers") if request.page_token else ""
            found = [worker for worker in await self._store.workers() if worker.worker > after]
            page = pb.ListWorkersResponse(workers=map(mapping.worker, found[:size]))
            if len(found) > size:
                page.next_page_token = page_tokens.encode("workers", found[size - 1].worker)
            return page

"""What the scheduler's process and the workers' tell each other in a step: picklable objects."""
import dataclasses

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorMetadata, KVConnectorWorkerMetadata)

from ..connector import Identity


@dataclasses.dataclass
class Load:
    request_id: str
    lease: bytes
    first: int  # rows [first, end)
    end: int
    blocks: list  # that they come into
    is_layered: bool = False  # by codes, and rows that the engine's queries choose
    prompt: int = 0  # tokens of the request whose queries choose


@dataclasses.dataclass
class Save:
    request_id: str
    end: int  # rows [0, end) are computed, and their ids known
    tokens: bytes  # uint32, behind those that came before
    blocks: list  # likewise
    identity: Identity
    lossy: tuple = None  # (first, end) of rows that came layered: those behind depend on them


@dataclasses.dataclass
class Step:
    """What a step computes, of all its requests together; what it loads is not among it."""
    tokens: int
    positions: int  # sum over the tokens: how many tokens stand before each
    is_part: bool = False  # of one prompt, whose rest later steps compute


@dataclasses.dataclass
class SpecMetadata(KVConnectorMetadata):
    loads: list = dataclasses.field(default_factory=list)
    saves: list = dataclasses.field(default_factory=list)
    ended: list = dataclasses.field(default_factory=list)  # after the saves
    epoch: int = 0  # that the scheduler knew when it said which rows are to be saved
    is_over: bool = False  # the scheduler gave up, and says no more who ends
    step: Step | None = None  # None: it computes too little to be timed, or it is not known


@dataclasses.dataclass
class SpecWorkerMetadata(KVConnectorWorkerMetadata):
    """Sent by a worker that gave up: nothing it is promised would come."""
    reason: str

    def aggregate(self, other):
        return self

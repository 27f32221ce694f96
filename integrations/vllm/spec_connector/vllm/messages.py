"""What the scheduler's process tells the workers' in every step: one picklable object."""
import dataclasses

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata

from ..connector import Identity


@dataclasses.dataclass
class Load:
    request_id: str
    lease: bytes
    first: int  # rows [first, end)
    end: int
    blocks: list  # that they come into


@dataclasses.dataclass
class Save:
    request_id: str
    end: int  # rows [0, end) are computed, and their ids known
    tokens: bytes  # uint32, behind those that came before
    blocks: list  # likewise
    identity: Identity


@dataclasses.dataclass
class SpecMetadata(KVConnectorMetadata):
    loads: list = dataclasses.field(default_factory=list)
    saves: list = dataclasses.field(default_factory=list)
    ended: list = dataclasses.field(default_factory=list)  # after the saves
    reset: bool = False

"""vLLM's KV connector over spec_connector: `"kv_connector": "SpecConnector",
"kv_connector_module_path": "spec_connector.vllm"`. Made for vLLM 0.32.

    scheduler process                          worker process, one a rank
    peek(tokens) -> a lease   -- metadata -->  attach(lease); layer by layer into the paged cache
    whole blocks computed     -- metadata -->  store, from the paged cache, before they can be freed

Lossless: rows that come back are, bit for bit, those that were computed, and a miss is always
allowed. Saves of a step go in front of the next one (handle_preemptions is called before anything
is overwritten), and say nothing that the scheduler does not know to be computed.

Holds: no exception leaves a method: what goes wrong is logged once, and the engine goes on
without the tier; rows that could not be loaded are reported in their step, and nothing that was
computed on them is stored.
Does not: guess a layout (layout.py), nor decide what may be reused (the plugin compares token
ids, and identity, by value).
Threads: the engine's one of each process.
"""
import array
import ctypes
import dataclasses
import functools
import json
import os

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1, KVConnectorMetadata, KVConnectorRole)
from vllm.logger import init_logger
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from . import abi, identity
from .connector import Connector, Error, Identity, Model
from .layout import Cache, dtype_of

logger = init_logger("vllm.spec_connector")  # below vllm, so that its level and format are taken

EXTRA_IMAGE = 1  # kinds of extra keys
LOAD_NS = 20 * 10**9  # a layer that takes longer is computed
SUSPECT_STEPS = 3  # so long steps may come that were scheduled before a failed load was told


class Refused(Exception):
    """Why this engine is served without the tier: one line."""


# ---- What goes from the scheduler to the worker ------------------------------------------------

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


# ---- The model, as both processes see it -------------------------------------------------------

def folder_of(model_config):
    if os.path.isdir(model_config.model):
        return model_config.model
    from huggingface_hub import snapshot_download
    return snapshot_download(model_config.model, revision=model_config.revision,
                             local_files_only=True)


def check(config, kv_config):
    """The one group's spec and layer names; Refused names what is not served."""
    parallel, groups = config.parallel_config, kv_config.kv_cache_groups
    if config.model_config.is_encoder_decoder:
        raise Refused("encoder-decoder models")
    if config.model_config.use_mla:
        raise Refused("latent attention (MLA)")
    if len(groups) != 1:
        raise Refused(f"{len(groups)} KV cache groups")
    if parallel.pipeline_parallel_size > 1:
        raise Refused("pipeline parallelism")
    for name in ("decode_context_parallel_size", "prefill_context_parallel_size"):
        if getattr(parallel, name, 1) > 1:
            raise Refused("context parallelism")
    if config.speculative_config is not None:
        raise Refused("speculative decoding")
    spec = groups[0].kv_cache_spec
    if type(spec).__name__ not in ("FullAttentionSpec", "SlidingWindowSpec"):
        raise Refused(f"a cache of {type(spec).__name__}")
    if dtype_of(spec.dtype) is None:
        raise Refused(f"a cache of {spec.dtype}")
    return spec, groups[0].layer_names


ROPES = (None, "default", "linear", "llama3", "yarn", "mrope", "proportional")


def is_known_rope(rope):
    """Whether no length of the engine's takes part; parameters may come by kinds of layers."""
    nested = [r for r in rope.values() if isinstance(r, dict)]
    return all(r.get("rope_type") in ROPES for r in [rope, *nested])


def describe(config, kv_config, rank):
    spec, layers = check(config, kv_config)
    model, parallel = config.model_config, config.parallel_config
    extra = config.kv_transfer_config.kv_connector_extra_config
    rope = getattr(model.hf_text_config, "rope_parameters", None) or {}
    facts = {"config": model.hf_text_config.to_json_string(use_diff=False),
             "dtype": model.dtype, "quantization": model.quantization,
             "revision": model.revision, "layers": ",".join(layers),
             "kv_cache_dtype": config.cache_config.cache_dtype,
             # what the length that is served decides of the rotary turn (longrope, dynamic)
             "length": "" if is_known_rope(rope) else model.max_model_len}
    return Model(
        layers=len(layers), kv_heads=spec.num_kv_heads,
        query_heads=model.get_num_attention_heads(parallel), head_size=spec.head_size,
        dtype=dtype_of(spec.dtype), tp_rank=rank, tp_size=parallel.tensor_parallel_size,
        weights_id=identity.weights_id(folder_of(model), facts, extra.get("weights") == "full"))


def open_connector(config, kv_config, rank, role):
    extra = config.kv_transfer_config.kv_connector_extra_config
    if "config" not in extra:
        raise Refused('kv_connector_extra_config has no "config": a path of a JSON file')
    with open(extra["config"], encoding="utf-8") as file:
        settings = json.load(file)
    # as many requests as the engine runs, as long as it takes them
    settings.setdefault("max_requests", config.scheduler_config.max_num_seqs + 16)
    settings.setdefault("max_request_tokens", max(8192, config.model_config.max_model_len))
    return Connector(settings, describe(config, kv_config, rank), role=role, rank=rank,
                     rank_count=config.parallel_config.tensor_parallel_size,
                     library=extra.get("library"))


def identity_of(request):
    """None: this request's KV is of no prompt that token ids and keys could name."""
    if request.prompt_embeds is not None:
        return None
    lora = request.lora_request
    name = f"{lora.lora_name}:{lora.lora_int_id}:{lora.lora_path}" if lora is not None else ""
    if lora is not None and os.path.isdir(lora.lora_path):
        name += ":" + identity.weights_id(lora.lora_path, {}).hex()
    extra = tuple((EXTRA_IMAGE, f.mm_position.offset, f.mm_position.length, f.identifier.encode())
                  for f in sorted(request.mm_features, key=lambda f: f.mm_position.offset))
    return Identity(salt=(request.cache_salt or "").encode(), lora=name.encode(), extra=extra)


def asked(request, name):
    """A request's own word: kv_transfer_params {"spec": {"load": false, "store": false}}."""
    return ((request.kv_transfer_params or {}).get("spec") or {}).get(name, True)


# ---- The scheduler's side ----------------------------------------------------------------------

@dataclasses.dataclass
class Tracked:
    """A request that runs, as the scheduler knows it."""
    request: object
    identity: Identity
    blocks: list = dataclasses.field(default_factory=list)
    sent_tokens: int = 0
    sent_blocks: int = 0
    is_old: bool = False  # it holds rows from before a reset
    ids: array.array = dataclasses.field(default_factory=lambda: array.array("I"))

    def known(self):
        """Ids as uint32; those that are new since the last time are converted."""
        have = len(self.ids)
        if have < self.request.num_tokens:
            self.ids.extend(self.request.all_token_ids[have:])
        return self.ids


class Scheduler:
    def __init__(self, config, kv_config):
        self.block = kv_config.kv_cache_groups[0].kv_cache_spec.block_size
        self.conn = open_connector(config, kv_config, 0, abi.ROLE_READER)
        self.tracked, self.found, self.saves, self.ended = {}, {}, [], []

    def track(self, request):
        """None: its KV is neither found nor kept."""
        tracked = self.tracked.get(request.request_id)
        if tracked is None:
            who = identity_of(request)
            tracked = None if who is None else Tracked(request, who)
            self.tracked[request.request_id] = tracked
        return tracked

    def match(self, request, computed):
        tracked = self.track(request)
        if tracked is None or request.skip_reading_prefix_cache or not asked(request, "load"):
            return 0
        if request.num_tokens - 1 < computed + self.block:
            return 0
        try:
            found = self.conn.lookup(tracked.known().tobytes(), peek=True, exact=True,
                                     from_token=computed, multiple_of=self.block,
                                     identity=tracked.identity)
        except Error as error:
            logger.warning("spec_connector: request %s: %s", request.request_id, error)
            return 0
        self.found[request.request_id] = (computed, found)
        return max(0, found.matched_tokens - computed)

    def load_of(self, request, held, count):
        """`count` tokens of what the last match found come into blocks that the request holds."""
        first, found = self.found[request.request_id]
        if first + count != found.matched_tokens:
            raise ValueError(f"{count} tokens from {first} on, but {found.matched_tokens} matched")
        return Load(request.request_id, found.lease, first, first + count,
                    held[first // self.block:(first + count) // self.block])

    def save(self, tracked, computed):
        """What is computed, known and was not sent yet, by whole blocks."""
        end = min(computed, tracked.request.num_tokens) // self.block * self.block
        if end <= tracked.sent_tokens or tracked.is_old or not asked(tracked.request, "store"):
            return
        if end // self.block > len(tracked.blocks):
            return
        ids = tracked.known()
        self.saves.append(Save(tracked.request.request_id, end,
                               ids[tracked.sent_tokens:end].tobytes(),
                               tracked.blocks[tracked.sent_blocks:end // self.block],
                               tracked.identity))
        tracked.sent_tokens, tracked.sent_blocks = end, end // self.block

    def restart(self, request_id):
        """Its blocks went to others: the worker forgets it."""
        tracked = self.tracked.get(request_id)
        if tracked is not None:
            tracked.blocks, tracked.sent_tokens, tracked.sent_blocks = [], 0, 0
            tracked.is_old = False  # it is computed anew
        self.ended.append(request_id)

    def build(self, output):
        for request_id in output.preempted_req_ids or ():
            self.restart(request_id)
        for new in output.scheduled_new_reqs:
            tracked = self.tracked.get(new.req_id)
            if tracked is not None:  # what it computes is there when its next step is scheduled
                tracked.blocks = list(new.block_ids[0])
        cached = output.scheduled_cached_reqs
        for i, request_id in enumerate(cached.req_ids):
            tracked, blocks = self.tracked.get(request_id), cached.new_block_ids[i]
            if tracked is None:
                continue
            if request_id in cached.resumed_req_ids:
                tracked.blocks = list(blocks[0])
                continue
            self.save(tracked, cached.num_computed_tokens[i])
            if blocks is not None:
                tracked.blocks.extend(blocks[0])
        metadata = SpecMetadata([], self.saves, self.ended)
        self.saves, self.ended = [], []
        return metadata

    def finished(self, request):
        tracked = self.tracked.pop(request.request_id, None)
        self.found.pop(request.request_id, None)
        if tracked is not None and tracked.blocks:
            self.save(tracked, request.num_computed_tokens)
        self.ended.append(request.request_id)

    def reset(self):
        self.conn.reset()
        self.saves = []
        for tracked in self.tracked.values():
            if tracked is not None:
                tracked.is_old = True
        return True

    def close(self):
        self.conn.close()


# ---- The worker's side -------------------------------------------------------------------------

@dataclasses.dataclass
class Stored:
    """A request whose blocks are stored, in the worker."""
    tokens: bytearray = dataclasses.field(default_factory=bytearray)
    blocks: list = dataclasses.field(default_factory=list)
    request: int = 0  # of the plugin; 0: none
    known: int = 0    # tokens that the plugin has
    end: int = 0      # rows [0, end) are stored, or on their way
    ticket: int = 0
    is_bad: bool = False  # it computed on rows that never came


class Loading:
    """The loads of a step: a layer is waited for where it is used, the next comes meanwhile."""

    def __init__(self, conn, cache, loads):
        self.conn, self.cache = conn, cache
        self.layer, self.ticket, self.items = 0, 0, None
        self.good, self.failed = [], []  # [(load, request)], [load]
        for load in loads:
            try:
                found = conn.attach(load.lease, load.first)
            except Error as error:
                logger.warning("spec_connector: request %s: %s", load.request_id, error)
                self.failed.append(load)
                continue
            if found.request == 0 or found.matched_tokens != load.end:
                self.failed.append(load)
                if found.request != 0:
                    conn.release(found.request)
                continue
            self.good.append((load, found.request))
        self.places = {id(load): cache.slots(load.blocks) for load, _ in self.good}
        self.submit()

    def submit(self):
        if not self.good or self.layer == self.cache.layers:
            return
        self.memories = [self.cache.memory(self.layer, self.places[id(load)])
                         for load, _ in self.good]
        self.items = (abi.Important * len(self.good))()
        for item, (_, request), memory in zip(self.items, self.good, self.memories):
            item.struct_size = ctypes.sizeof(abi.Important)
            item.request, item.layer = request, self.layer
            item.destination, item.deadline_ns = ctypes.pointer(memory), LOAD_NS
        self.ticket = self.conn.submit(self.items)

    def await_layer(self, layer):
        """Until rows of layers up to this one are in place, or their loads have failed."""
        while self.good and self.layer <= layer and self.layer < self.cache.layers:
            self.conn.wait_for(self.ticket)
            self.ticket = 0
            good = []
            for item, (load, request) in zip(self.items, self.good):
                if item.status == abi.OK and item.row_count == load.end - load.first:
                    good.append((load, request))
                    continue
                logger.warning("spec_connector: request %s: layer %d was not loaded (status %d)",
                               load.request_id, self.layer, item.status)
                self.failed.append(load)
                self.conn.release(request)
            self.good, self.layer = good, self.layer + 1
            self.submit()

    def finish(self):
        """Layers that no attention asked for too: what was promised is there, or told."""
        self.await_layer(self.cache.layers - 1)
        for _, request in self.good:
            self.conn.release(request)
        self.good = []
        return self.failed


class Worker:
    def __init__(self, config, kv_config):
        self.config, self.kv_config = config, kv_config
        check(config, kv_config)
        self.conn = self.cache = self.loading = None
        self.stored, self.errors, self.suspects = {}, set(), []
        self.tickets = []  # of requests that have ended, to be asked for

    def register(self, caches):
        from vllm.distributed import get_tensor_model_parallel_rank
        rank = get_tensor_model_parallel_rank()
        cache = Cache(self.config, self.kv_config.kv_cache_groups[0], caches)
        self.conn = open_connector(self.config, self.kv_config, rank, abi.ROLE_WRITER)
        self.cache = cache

    # ---- Saving: in front of a step, from the cache, what steps before have computed

    def save(self, metadata):
        self.suspects = [(left - 1, blocks) for left, blocks in self.suspects if left > 1]
        self.tickets = [t for t in self.tickets if self.conn.poll(t) == abi.PENDING]
        steps = []
        for save in metadata.saves:
            try:
                step = self.step_of(save)
            except Error as error:  # the next save of this request begins anew
                logger.warning("spec_connector: request %s: %s", save.request_id, error)
                continue
            if step is not None:
                steps.append(step)
        if steps:
            self.store(steps)
        for request_id in metadata.ended:
            self.forget(request_id)

    def step_of(self, save):
        """(stored, first, end, slots) of what is to be stored now; None: nothing."""
        stored = self.stored.setdefault(save.request_id, Stored())
        stored.tokens += save.tokens
        stored.blocks += save.blocks
        if any(not blocks.isdisjoint(stored.blocks) for _, blocks in self.suspects):
            stored.is_bad = True
        if stored.is_bad:
            return None
        if stored.ticket:
            ended = self.conn.poll(stored.ticket)
            if ended == abi.PENDING:
                return None  # the next save has these rows too
            stored.ticket = 0
            if ended != abi.OK:
                self.release(stored)  # given up: where it is good to go on, a lookup says
        if stored.request == 0:
            known = len(stored.tokens) // 4
            found = self.conn.lookup(bytes(stored.tokens), exact=True, from_token=known,
                                     identity=save.identity)  # none of it is to be loaded
            stored.request, stored.known = found.request, known
            stored.end = found.stored_tokens
        first = stored.end
        if first >= save.end:
            return None
        block = self.cache.block
        slots = self.cache.slots(stored.blocks[first // block:save.end // block], first % block)
        return stored, first, save.end, slots

    def store(self, steps):
        params = (abi.StoreParams * len(steps))()
        for layer in range(self.cache.layers):
            memories = [self.cache.memory(layer, slots) for _, _, _, slots in steps]
            for param, (stored, first, end, _), memory in zip(params, steps, memories):
                param.struct_size = ctypes.sizeof(abi.StoreParams)
                param.request, param.layer = stored.request, layer
                param.first_token, param.token_count = first, end - first
                param.memory = ctypes.pointer(memory)
                new = bytes(stored.tokens[4 * stored.known:4 * end]) if layer == 0 else b""
                param.tokens = ctypes.cast(ctypes.c_char_p(new), ctypes.c_void_p) if new else None
                param.tokens_count = len(new) // 4
            try:
                tickets = self.conn.store(params, want_tickets=True)
            except Error as error:
                logger.warning("spec_connector: %s", error)
                for stored, _, _, _ in steps:
                    self.release(stored)
                return
        for ticket, (stored, _, end, _) in zip(tickets, steps):
            stored.ticket, stored.end = ticket, end
            stored.known = max(stored.known, end)

    def release(self, stored):
        if stored.request:
            self.conn.release(stored.request)
        if stored.ticket:
            self.tickets.append(stored.ticket)
        stored.request = stored.ticket = stored.end = 0

    def forget(self, request_id):
        stored = self.stored.pop(request_id, None)
        if stored is not None:
            self.release(stored)

    # ---- Loading

    def start(self, metadata):
        if metadata.loads:
            self.loading = Loading(self.conn, self.cache, metadata.loads)

    def await_layer(self, name):
        layer = self.cache.index.get(name) if self.loading is not None else None
        if layer is not None:  # None: it reads another layer's rows, and has none of its own
            self.loading.await_layer(layer)

    def finish(self):
        if self.loading is None:
            return
        for load in self.loading.finish():
            self.errors.update(load.blocks)
            self.suspects.append((SUSPECT_STEPS, set(load.blocks)))
            self.stored.setdefault(load.request_id, Stored()).is_bad = True
        self.loading = None

    def fail(self, metadata):
        """Something broke: no row of this step's loads counts."""
        self.loading = None
        for load in metadata.loads:
            self.errors.update(load.blocks)

    def close(self):
        if self.conn is not None:
            self.conn.close()


# ---- The connector -----------------------------------------------------------------------------

def guarded(default):
    """No exception leaves: the side goes, with a line that says why, and the engine goes on."""
    def decorate(method):
        @functools.wraps(method)
        def run(self, *args, **kwargs):
            if self._side is None:
                return default
            try:
                return method(self, *args, **kwargs)
            except Exception as error:  # pylint: disable=broad-except
                self._give_up(method.__name__, error)
                return default
        return run
    return decorate


class SpecConnector(KVConnectorBase_V1):
    _cache_hit_source = CacheHitSource.DISK

    def __init__(self, vllm_config, role, kv_cache_config):
        super().__init__(vllm_config, role, kv_cache_config)
        self._side, self._errors, self._loads = None, set(), []
        side = Scheduler if role == KVConnectorRole.SCHEDULER else Worker
        try:
            self._side = side(vllm_config, kv_cache_config)
        except (Refused, Error, OSError, ValueError) as error:
            logger.warning("spec_connector: served without the tier: %s", error)

    def _give_up(self, where, error):
        logger.error("spec_connector: served without the tier from now on: %s: %s", where, error,
                     exc_info=error)
        side, self._side = self._side, None
        if isinstance(side, Worker):
            if self.has_connector_metadata():
                side.fail(self._connector_metadata)
            self._errors |= side.errors
        # The connector stays open: threads of it may still write where a submission told them to.

    @property
    def requires_kv_delivery(self):
        return False

    # Scheduler

    @guarded((0, False))
    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        return self._side.match(request, num_computed_tokens), False

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        if num_external_tokens > 0:  # was promised: it is loaded, or told to have failed
            held = blocks.get_block_ids()[0]
            load = self._load_of(request, held, num_external_tokens)
            self._loads.append(load or Load(request.request_id, b"", 0, 0, held))

    @guarded(None)
    def _load_of(self, request, held, count):
        return self._side.load_of(request, held, count)

    def build_connector_meta(self, scheduler_output):
        metadata = self._build(scheduler_output) or SpecMetadata()
        metadata.loads, self._loads = self._loads, []
        return metadata

    @guarded(None)
    def _build(self, scheduler_output):
        return self._side.build(scheduler_output)

    @guarded((False, None))
    def request_finished(self, request, block_ids):
        self._side.finished(request)
        return False, None

    @guarded(False)
    def reset_cache(self):
        return self._side.reset()

    # Worker

    @guarded(None)
    def register_kv_caches(self, kv_caches):
        try:
            self._side.register(kv_caches)
        except (Refused, Error, OSError, ValueError) as error:
            logger.warning("spec_connector: served without the tier: %s", error)
            self._side = None

    @guarded(None)
    def handle_preemptions(self, kv_connector_metadata):
        self._side.save(kv_connector_metadata)

    def start_load_kv(self, forward_context, **kwargs):
        if self._side is None and self.has_connector_metadata():  # the scheduler may not know yet
            for load in self._connector_metadata.loads:
                self._errors.update(load.blocks)
        else:
            self._start()

    @guarded(None)
    def _start(self):
        self._side.start(self._get_connector_metadata())

    @guarded(None)
    def wait_for_layer_load(self, layer_name):
        self._side.await_layer(layer_name)

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
        pass  # rows are stored from the cache, in front of the next step

    @guarded(None)
    def wait_for_save(self):
        self._side.finish()

    def get_block_ids_with_load_errors(self):
        errors, self._errors = self._errors, set()
        if isinstance(self._side, Worker):
            errors |= self._side.errors
            self._side.errors = set()
        return errors

    def shutdown(self):
        if self._side is not None:
            self._side.close()
        self._side = None

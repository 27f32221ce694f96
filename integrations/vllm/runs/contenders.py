"""load's contenders: the same rows, loaded in different ways into caches as vLLM's CPU backend has
them, in a process with vLLM and no engine. runs/load.py gives the orders; each function's first
argument is the engine that is not there.

    blocks 0 .. n - 1       rows that the backend wrote (its own do_kv_cache_update)
    blocks n .. 2n - 1      where every contender loads them to; zeroed before, compared after
    block 2n                of the new tokens whose queries choose, of layered loads
    block 2n + 1            none's: the layout is proved there

The connector is driven as vLLM drives it (facts of a step: handle_preemptions, start_load_kv, then
a layer after the other, wait_for_save), through the objects that an engine has: VllmConfig,
KVCacheConfig, the attention layers' impls.

Holds: a load that did not bring the bytes raises; no time of it is told.
Threads: one; the contenders' own.
"""
import array
import ctypes
import glob
import json
import os
import time
import types
from unittest import mock

import torch
from vllm.config import set_current_vllm_config
from vllm.distributed import init_distributed_environment, initialize_model_parallel
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.attention.backends import cpu_attn
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec

from spec_connector import abi
from spec_connector.connector import Identity
from spec_connector.vllm import SpecConnector, backend
from spec_connector.vllm.layout import DTYPES
from spec_connector.vllm.messages import Load, Save, SpecMetadata
from spec_connector.vllm.rows import open_rows

from . import peers

# Layers, KV heads, query heads, head size, dtype: the first two of the model, as is.
SHAPES = {"smollm2": (30, 3, 9, 64, "float16"), "llama-3-8b": (32, 8, 32, 128, "bfloat16")}
NEW = 32  # tokens behind the prefix: what asks, of layered loads
WHOLE = 256  # tokens are a multiple of this: LMCache's chunks, and blocks
STEP = 1024  # tokens that are stored at once
SETTLE_SECONDS = 600


def write_model(folder, shape):
    """What an engine would read of a model: its sizes. Weights are none."""
    layers, heads, query_heads, size, dtype = SHAPES[shape]
    model = os.path.join(folder, shape)
    os.makedirs(model)
    with open(os.path.join(model, "config.json"), "w", encoding="utf-8") as file:
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
                   "hidden_size": query_heads * size, "intermediate_size": 4 * query_heads * size,
                   "num_hidden_layers": layers, "num_attention_heads": query_heads,
                   "num_key_value_heads": heads, "head_dim": size, "vocab_size": 32000,
                   "max_position_embeddings": 16384, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
                   "hidden_act": "silu", "torch_dtype": dtype}, file)
    with open(os.path.join(model, "model.safetensors"), "wb") as file:
        file.write((2).to_bytes(8, "little") + b"{}")
    return model


class NotThere(Exception):
    """A load was told as good, and other bytes are there."""


class Bench:
    """One shape and length: caches, what is in them, and who loads it."""

    def __init__(self, folder, shape, tokens, block):
        self.folder, self.shape, self.block = folder, shape, block
        self.layers, self.heads, self.query_heads, self.size, name = SHAPES[shape]
        self.dtype = getattr(torch, name)
        self.model = write_model(folder, shape)
        self.count = -(-tokens // WHOLE) * WHOLE // block  # blocks
        self.tokens = self.count * block
        self.names = [f"model.layers.{i}.self_attn.attn" for i in range(self.layers)]
        self.tensors = [torch.zeros(2 * self.count + 2, self.heads, block, 2 * self.size,
                                    dtype=self.dtype) for _ in self.names]
        self.source = list(range(self.count))
        self.target = list(range(self.count, 2 * self.count))
        self.ids = array.array("I", [(7 * i + i // 251) % 31991 for i in range(self.tokens)])
        spec = FullAttentionSpec(block_size=block, num_kv_heads=self.heads, head_size=self.size,
                                 dtype=self.dtype)
        self.kv_config = KVCacheConfig(num_blocks=2 * self.count + 2, kv_cache_tensors=[],
                                       kv_cache_groups=[KVCacheGroupSpec(self.names, spec)])
        config = self.config("ExampleConnector", {})
        with set_current_vllm_config(config):
            init_distributed_environment(1, 0, f"file://{folder}/rendezvous", 0, "gloo")
            initialize_model_parallel(1, 1)
            isa = cpu_attn._get_attn_isa(self.dtype, block, self.size)
            self.modules = [types.SimpleNamespace(
                layer_name=layer, isa=isa, _k_scale_float=1.0, _v_scale_float=1.0, kv_cache=tensor,
                impl=backend.Impl(self.query_heads, self.size, self.size ** -.5, self.heads, None,
                                  None, "auto"))
                            for layer, tensor in zip(self.names, self.tensors)]
        self.fill()
        self.contenders = {}

    def config(self, connector, extra, **more):
        """A VllmConfig as an engine's, whose layers are these."""
        config = EngineArgs(
            model=self.model, skip_tokenizer_init=True, dtype=str(self.dtype).rsplit(".", 1)[-1],
            block_size=self.block, max_model_len=self.tokens + self.block, max_num_seqs=4,
            kv_cache_memory_bytes=64 << 20, enforce_eager=True, kv_transfer_config={
                "kv_connector": connector, "kv_role": "kv_both",
                "kv_load_failure_policy": "recompute", "kv_connector_extra_config": extra,
                **more}).create_engine_config()
        if hasattr(self, "modules"):
            config.compilation_config.static_forward_context.update(
                zip(self.names, self.modules))
        return config

    @property
    def bytes(self):
        return 4 * self.layers * self.tokens * self.heads * self.size  # K and V of 2 bytes

    def fill(self):
        """Other rows in every layer, written by the backend itself."""
        dice = torch.Generator().manual_seed(17)
        rows = torch.randn(2, self.tokens, self.heads, self.size, generator=dice).to(self.dtype)
        slots = torch.arange(self.tokens, dtype=torch.int64)
        for layer, (module, tensor) in enumerate(zip(self.modules, self.tensors)):
            key, value = torch.roll(rows, 7 * layer, 1)
            module.impl.do_kv_cache_update(module, key, value, tensor, slots)
        self.new_rows = rows[:, :NEW]
        self.queries = torch.randn(NEW, self.query_heads, self.size, generator=dice).to(self.dtype)

    def clear(self):
        for tensor in self.tensors:
            tensor[self.count:].zero_()

    def compare(self, who):
        for layer, tensor in enumerate(self.tensors):
            rows, came = tensor[:self.count], tensor[self.count:2 * self.count]
            if not torch.equal(rows.view(torch.int16), came.view(torch.int16)):
                raise NotThere(f"{who}: layer {layer} did not come")

    def compare_roughly(self, who):
        """Codes: not the bytes, and not others' either."""
        for layer, tensor in enumerate(self.tensors):
            rows = tensor[0].float()
            error = float((tensor[self.count].float() - rows).norm() / rows.norm())
            if not 0 < error < .5:
                raise RuntimeError(f"{who}: layer {layer} is off by {error:.2f}")

    # ---- The connector

    def connector(self, name, **settings):
        """Opened, and with the rows stored."""
        path = os.path.join(self.folder, name)
        extra = {"layered": True} if "preset" in settings else {}
        os.makedirs(path)
        with open(os.path.join(path, "spec.json"), "w", encoding="utf-8") as file:
            json.dump({"path": os.path.join(path, "kv"), "disk_bytes": "8GiB",
                       "max_request_tokens": 16384, **settings}, file)
        config = self.config("SpecConnector", {**extra, "config": os.path.join(path, "spec.json")},
                             kv_connector_module_path="spec_connector.vllm")
        connector = SpecConnector(config, KVConnectorRole.WORKER, self.kv_config)
        connector.register_kv_caches(dict(zip(self.names, self.tensors)))
        if connector._side is None:
            raise RuntimeError(f"{name}: refused, as the log says")
        self.store(connector._side)
        return connector

    def store(self, side):
        for end in range(min(STEP, self.tokens), self.tokens + STEP, STEP):
            end = min(end, self.tokens)
            first = end - 1 - (end - 1) % STEP
            save = Save("stored", end, self.ids[first:end].tobytes(),
                        self.source[first // self.block:end // self.block], Identity())
            side.saving.save(SpecMetadata([], [save], [], side.conn.epoch()))
            stored = side.saving.stored["stored"]
            side.conn.wait(stored.tickets)
            stored.tickets = []
        side.saving.save(SpecMetadata([], [], ["stored"]))
        end = time.monotonic() + SETTLE_SECONDS
        while side.conn.stats()["building"]:
            if time.monotonic() > end:
                raise TimeoutError("codes are not made")
            time.sleep(.05)
        self.promise(side.conn, True)

    def promise(self, conn, exact):
        """A lease on all rows; what the scheduler's side asks for."""
        found = conn.lookup(self.ids.tobytes() + b"\7\0\0\0", peek=True, exact=exact,
                            multiple_of=self.block)
        if found.matched_tokens != self.tokens:
            raise RuntimeError(f"{found.matched_tokens} of {self.tokens} tokens are found")
        return found.lease


class Driven:
    """Loads through vLLM's hooks. window: what a layer computes takes so long, in which nobody of
    this process does; exposed time is what the hooks take all the same."""

    files = "lossless/kv/rank-*/seg-*"

    def __init__(self, bench, connector, rows=None, query_rows=NEW):
        self.bench, self.connector, self.query_rows = bench, connector, query_rows
        self.side, self.is_layered = connector._side, connector._side.layered is not None
        self.rows = rows or self.side.rows
        self.metadata = cpu_attn.CPUAttentionMetadata(
            num_actual_tokens=NEW, max_query_len=NEW, max_seq_len=bench.tokens + NEW,
            query_start_loc=torch.tensor([0, NEW], dtype=torch.int32),
            seq_lens=torch.tensor([bench.tokens + NEW], dtype=torch.int32),
            block_table=torch.tensor([[*bench.target, 2 * bench.count]], dtype=torch.int32),
            slot_mapping=torch.arange(NEW) + 2 * bench.count * bench.block,
            scheduler_metadata=None)

    def load(self, window_ns=0):
        bench, connector = self.bench, self.connector
        lease = bench.promise(self.side.conn, not self.is_layered)
        metadata = SpecMetadata([Load("load", lease, 0, bench.tokens, bench.target,
                                      self.is_layered, bench.tokens + NEW)])
        self.side.rows = self.rows
        if self.is_layered:
            self.side.layered.query_rows = self.query_rows
        before = self.counts()
        connector.bind_connector_metadata(metadata)
        connector.handle_preemptions(metadata)
        with mock.patch.object(cpu_attn.CPUAttentionBackendImpl, "forward", lambda *_: None):
            clock = peers.Clock()
            exposed = self.layers(window_ns)
            times = clock.times()
        connector.wait_for_save()
        connector.clear_connector_metadata()
        if connector._side is None or connector.get_block_ids_with_load_errors():
            raise peers.Told("the load failed, as the log says")
        return {**times, "exposed_ns": exposed,
                **{name: count - before[name] for name, count in self.counts().items()}}

    def layers(self, window_ns):
        """What the hooks took, in ns, beside what layers compute."""
        exposed, at = 0, time.perf_counter_ns()
        self.connector.start_load_kv(None)
        for layer, name in enumerate(self.bench.names):
            self.connector.wait_for_layer_load(name)
            self.attend(layer)
            exposed += time.perf_counter_ns() - at
            if window_ns:
                time.sleep(window_ns / 1e9)
            at = time.perf_counter_ns()
        return exposed

    def counts(self):
        return {**(self.side.layered.counts if self.is_layered else {}),
                "read_bytes": self.side.conn.stats()["read_bytes"]}

    def attend(self, layer):
        """The attention's call; what it computes is nothing (load)."""
        if not self.is_layered:
            return
        key, value = self.bench.new_rows
        module = self.bench.modules[layer]
        module.impl.forward(module, self.bench.queries, key, value, module.kv_cache, self.metadata,
                            None)

    def check(self, who):
        (self.bench.compare_roughly if self.is_layered else self.bench.compare)(who)


class Plain:
    """The plugin's own load of the same bytes, into rows [layer][K, V][token][head][element]:
    begin_layer and get_important of a layer after the other, and nothing between them."""

    def __init__(self, bench, connector):
        self.bench, self.conn = bench, connector._side.conn
        self.rows = torch.zeros(bench.layers, 2, bench.tokens, bench.heads, bench.size,
                                dtype=bench.dtype)
        size = bench.size * 2
        self.memories = [abi.Memory(
            dtype=DTYPES[bench.dtype], k_base=k.data_ptr(), v_base=v.data_ptr(), k_bytes=k.nbytes,
            v_bytes=v.nbytes, token_stride_bytes=bench.heads * size, head_stride_bytes=size)
                         for k, v in self.rows]

    def load(self, window_ns=0):
        del window_ns
        lease = self.bench.promise(self.conn, True)
        before = self.conn.stats()["read_bytes"]
        clock = peers.Clock()
        request = self.conn.attach(lease).request
        items = [(abi.Important * 1)(abi.Important(
            request=request, layer=layer, destination=ctypes.pointer(memory),
            select=ctypes.pointer(abi.EXACTLY))) for layer, memory in enumerate(self.memories)]
        requests = (ctypes.c_uint64 * 1)(request)
        for layer, item in enumerate(items):
            self.conn.begin_layer(requests, layer)
            self.conn.get(item)
        times = clock.times()
        self.conn.release(request)
        if any(item[0].status != abi.OK or item[0].row_count != self.bench.tokens
               for item in items):
            raise RuntimeError("the load failed")
        return {**times, "read_bytes": self.conn.stats()["read_bytes"] - before}

    def check(self, who):
        """Put into the caches by the backend."""
        slots = torch.arange(self.bench.tokens) + self.bench.tokens
        for module, (key, value) in zip(self.bench.modules, self.rows):
            module.impl.do_kv_cache_update(module, key, value, module.kv_cache, slots)
        self.bench.compare(who)
        self.rows.zero_()


# ---- Orders

_bench = None


def start(_llm, folder, shape, tokens, block, names):
    """Stores the rows with all contenders of these names; what they are told of."""
    global _bench
    _bench = bench = Bench(folder, shape, tokens, block)
    lossless = bench.connector("lossless")
    bench.contenders = {"plain": Plain(bench, lossless), "direct": Driven(bench, lossless)}
    if "layered" in names:
        layered = bench.connector("layered", preset="layered")
        bench.contenders["layered"] = Driven(bench, layered)
        bench.contenders["layered, 1 row"] = Driven(bench, layered, query_rows=1)
    if "writer" in names:  # from here on the backend's writes are listened to, too
        bench.contenders["writer"] = Driven(bench, lossless, open_rows(
            lossless._side.caches, {"rows": "writer"}))
    for name in names:
        if name in peers.CONTENDERS:
            bench.contenders[name] = peers.CONTENDERS[name](bench)
    os.sync()
    return {"tokens": bench.tokens, "bytes": bench.bytes, "block": block, "layers": bench.layers,
            "rank": os.path.join(folder, "lossless", "kv", "rank-0000-of-0001")}


def load(_llm, who, window_ns=0):
    contender = _bench.contenders[who]
    _bench.clear()
    said = contender.load(window_ns)
    contender.check(who)
    return said


def damaged(_llm, who):
    """A byte changes in the largest of its files: what its next load says."""
    contender = _bench.contenders[who]
    paths = glob.glob(os.path.join(_bench.folder, contender.files), recursive=True)
    path = max(sorted(paths), key=os.path.getsize)
    with open(path, "r+b") as file:
        at = os.path.getsize(path) // 2
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 4]))
        file.flush()
        os.fsync(file.fileno())
    try:
        load(None, who)
    except NotThere:
        return "wrong rows, told as good"
    except peers.Told:
        return "told as failed"
    return "the rows, and nothing told"


def stop(_llm):
    """What runs beside this process ends."""
    for contender in _bench.contenders.values():
        getattr(contender, "close", int)()

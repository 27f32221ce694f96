"""A storage back end of SGLang's HiCache (SGLang 0.5.23) over objects by key.

    --hicache-storage-backend dynamic --hicache-mem-layout page_first
    --hicache-storage-backend-extra-config '{"backend_name": "spec_connector",
        "module_path": "spec_connector.sglang", "class_name": "SpecConnectorStorage",
        "interface_v1": 1, "config": {"path": "/var/lib/kv", "disk_bytes": "200GiB"}}'

Keys of the extra configuration:
  config        the configuration of the store: a dict, or a path of a JSON file
  weights       folder of the model's weights, or "name"; default: the model's own folder
  weights_full  true: the identity reads every byte of the weights
  identity      any text that separates values, for what neither weights nor layout say
  library       another libspec_connector.so

Each rank of an engine stores into files of its own, so models whose KV is equal on all ranks (MLA)
need tensor parallelism 1. Each pool (KV, Mamba state, sliding window, index) has a domain. Pages
whose pieces are few (page_first, page_first_direct, page_head) are read and written in place; other
pages are copied through one flat page each.

SGLang calls from its prefetch and backup threads. A failure of a call is a miss.
Tests: integrations/sglang/tests/test_sglang.py
"""
import importlib.metadata
import logging
import os
from array import array

from sglang.srt.mem_cache.hicache_storage import (HiCacheStorage, PoolHitPolicy, PoolName,
                                                  PoolTransferResult)

from . import hosts
from .objects import Objects
from .objects_abi import KEY_DONE, PIECES_MAX

# Attributes of a host pool that say how its pages lie in memory.
LAYOUT = ("layout", "page_size", "size_per_token", "start_layer", "end_layer", "layer_num",
          "head_num", "head_dim", "v_head_dim", "kv_lora_rank", "qk_rope_head_dim", "dcp_size",
          "dcp_rank", "storage_format_tag")


class Pool:
    """The pages of one host pool, in a domain of their own."""

    def __init__(self, pool, domain):
        self.pool, self.domain = pool, domain
        self.page_size = getattr(pool, "page_size", 1) or 1
        self.is_in_place = self._pieces() <= PIECES_MAX

    def _pieces(self):
        """Pieces of a page in host memory; above PIECES_MAX: pages are copied."""
        import torch
        if not hasattr(self.pool, "get_page_buffer_meta"):
            return PIECES_MAX + 1
        try:
            return len(self.pool.get_page_buffer_meta(torch.arange(self.page_size))[0])
        except (ValueError, NotImplementedError, AssertionError):
            return PIECES_MAX + 1

    def _checked(self, keys, indices):
        if indices is None or indices.numel() != len(keys) * self.page_size:
            raise ValueError(f"{len(keys)} pages of {self.page_size} have "
                             f"{0 if indices is None else indices.numel()} indices")

    def _transfer(self, transfer, keys, indices):
        addresses, sizes = self.pool.get_page_buffer_meta(indices)
        return transfer(keys, array("Q", addresses), array("Q", sizes),
                        len(addresses) // len(keys))

    def get(self, keys, indices):
        """[bool]: whether each page was read."""
        self._checked(keys, indices)
        if self.is_in_place:
            statuses = self._transfer(self.domain.get, keys, indices)
            return [*map(KEY_DONE.__eq__, statuses)]
        pages = [self.pool.get_dummy_flat_data_page() for _ in keys]
        loaded = get_tensors(self.domain, keys, pages)
        for index, page, ok in zip(indices[::self.page_size].tolist(), pages, loaded):
            if ok:
                self.pool.set_from_flat_data_page(index, page)
        return loaded

    def set(self, keys, indices):
        """[bool]: whether each page is stored now."""
        self._checked(keys, indices)
        if self.is_in_place:
            return [*map((0).__lt__, self._transfer(self.domain.put, keys, indices))]
        return set_tensors(self.domain, keys, [
            self.pool.get_data_page(index, flat=True)
            for index in indices[::self.page_size].tolist()])


def _columns(tensors):
    return (array("Q", [t.data_ptr() for t in tensors]),
            array("Q", [t.numel() * t.element_size() for t in tensors]))


def get_tensors(domain, keys, tensors):
    return [*map(KEY_DONE.__eq__, domain.get(keys, *_columns(tensors)))]


def set_tensors(domain, keys, tensors):
    tensors = [tensor.contiguous() for tensor in tensors]
    return [*map((0).__lt__, domain.put(keys, *_columns(tensors)))]


class SpecConnectorStorage(HiCacheStorage):
    def __init__(self, storage_config, kwargs=None):
        self._config, self._extra = storage_config, storage_config.extra_config or {}
        self._failures = hosts.Failures(logging.getLogger("sglang.spec_connector"))
        at = self._config
        if at.is_mla_model and at.tp_size > 1:
            raise ValueError(
                f"spec_connector: this model's KV is equal on all {at.tp_size} ranks, so SGLang "
                "stores it on one of them, and each rank has files of its own: only tensor "
                "parallelism 1 is supported")
        self._weights = hosts.weights_of(self._extra.get("weights"), at.model_name or "",
                                         bool(self._extra.get("weights_full")))
        self._store, self._pools = None, {}

    # ---- Pools: what a page is becomes known when one is registered ------------------------------

    def _open(self):
        at, settings = self._config, hosts.settings_of(self._extra["config"])
        if getattr(at, "dp_rank", 0):  # each replica has a store of its own
            settings["path"] = os.path.join(settings["path"], f"dp{at.dp_rank}")
        shard = at.pp_rank * at.attn_cp_size + at.attn_cp_rank
        self._store = Objects(settings, rank=shard * at.tp_size + at.tp_rank,
                              rank_count=at.pp_size * at.attn_cp_size * at.tp_size,
                              library=self._extra.get("library"), log=self._failures.log_line)

    def _register(self, name, pool):
        if self._store is None:
            self._open()
        at = self._config
        named = hosts.identity_of(
            "sglang", version=importlib.metadata.version("sglang"), model=at.model_name,
            weights=self._weights, pool=str(name), kind=type(pool).__name__,
            dtype=str(getattr(pool, "dtype", "")),
            layout={key: str(getattr(pool, key, None)) for key in LAYOUT},
            tp=[at.tp_rank, at.tp_size], pp=[at.pp_rank, at.pp_size],
            cp=[at.attn_cp_rank, at.attn_cp_size], split_heads=bool(at.should_split_heads),
            v1=bool(self._extra.get("interface_v1")), extra=self._extra.get("identity", ""))
        if str(name) in self._pools:  # KV is registered a second time by its name
            self._pools[str(name)].domain.close()
        self._pools[str(name)] = Pool(pool, self._store.domain(named))

    def register_mem_pool_host(self, mem_pool_host):
        super().register_mem_pool_host(mem_pool_host)
        self._register(PoolName.KV, mem_pool_host)

    def register_mem_host_pool_v2(self, host_pool, host_pool_name):
        super().register_mem_host_pool_v2(host_pool, host_pool_name)
        if self._pools.get(str(host_pool_name)) is None or \
                self._pools[str(host_pool_name)].pool is not host_pool:
            self._register(host_pool_name, host_pool)

    @property
    def _kv(self):
        return self._pools[str(PoolName.KV)]

    # ---- Which pages are stored ------------------------------------------------------------------

    def batch_exists(self, keys, extra_info=None):
        try:
            return self._kv.domain.exists(keys, hold=True, prefix=True)[1]
        except hosts.FAILURES as error:
            self._failures.add("exists", error)
            return 0

    def exists(self, key):
        return self.batch_exists([key]) == 1

    def batch_exists_v2(self, keys, pool_transfers=None, extra_info=None):
        try:
            return self._exists_v2(keys, pool_transfers or ())
        except hosts.FAILURES as error:
            self._failures.add("exists", error)
            return PoolTransferResult.empty()

    def _exists_v2(self, keys, transfers):
        pages = self._kv.domain.exists(keys, hold=True, prefix=True)[1]
        hits = {PoolName.KV: pages} if pages else {}
        restorable = set(range(1, pages + 1))  # lengths of prefixes that all pools can restore
        for transfer in transfers:
            if not restorable:
                break
            pool = self._pools[str(transfer.name)]
            found, leading = pool.domain.exists(keys[:pages], hold=True)
            if transfer.hit_policy == PoolHitPolicy.ALL_PAGES:
                lengths = set(range(1, leading + 1))
            elif transfer.hit_policy == PoolHitPolicy.TRAILING_PAGES:
                lengths = trailing_lengths(found, len(transfer.keys or ()) or 1)
            else:
                raise ValueError(f"pool {transfer.name} has the hit policy {transfer.hit_policy}")
            if lengths:
                hits[transfer.name] = max(lengths)
            restorable &= lengths
        return PoolTransferResult(max(restorable, default=0), hits, sorted(restorable))

    # ---- Pages -----------------------------------------------------------------------------------

    def _pages(self, name, call, pool, keys, indices):
        try:
            return getattr(self._pools[str(pool)], call)(keys, indices) if keys else []
        except hosts.FAILURES as error:
            self._failures.add(name, error)
            return [False] * len(keys)

    def batch_get_v1(self, keys, host_indices, extra_info=None):
        return self._pages("get", "get", PoolName.KV, keys, host_indices)

    def batch_set_v1(self, keys, host_indices, extra_info=None):
        return self._pages("set", "set", PoolName.KV, keys, host_indices)

    def batch_get_v2(self, transfers, extra_info=None):
        return {transfer.name: self._pages("get", "get", transfer.name, transfer.keys or [],
                                           transfer.host_indices) for transfer in transfers}

    def batch_set_v2(self, transfers, extra_info=None):
        return {transfer.name: self._pages("set", "set", transfer.name, transfer.keys or [],
                                           transfer.host_indices) for transfer in transfers}

    # ---- Without interface_v1: flat pages as tensors ---------------------------------------------

    def batch_get(self, keys, target_locations=None, target_sizes=None):
        try:
            loaded = get_tensors(self._kv.domain, keys, target_locations)
        except hosts.FAILURES as error:
            self._failures.add("get", error)
            return [None] * len(keys)
        return [tensor if ok else None for tensor, ok in zip(target_locations, loaded)]

    def batch_set(self, keys, values=None, target_locations=None, target_sizes=None):
        try:
            return all(set_tensors(self._kv.domain, keys, values))
        except hosts.FAILURES as error:
            self._failures.add("set", error)
            return False

    def get(self, key, target_location=None, target_sizes=None):
        return self.batch_get([key], [target_location])[0]

    def set(self, key, value=None, target_location=None, target_sizes=None):
        return self.batch_set([key], [value])

    def clear(self):
        try:
            for pool in self._pools.values():
                pool.domain.clear()
        except hosts.FAILURES as error:
            self._failures.add("clear", error)
            return False
        return True

    def close(self):
        if self._store is not None:
            self._store.close()


def trailing_lengths(found, count):
    """Lengths of prefixes whose last `count` pages (all, of shorter ones) are stored; found: a
    status byte for each page."""
    lengths, run = set(), 0
    for length, status in enumerate(found, 1):
        run = run + 1 if status == KEY_DONE else 0
        if run >= min(count, length):
            lengths.add(length)
    return lengths

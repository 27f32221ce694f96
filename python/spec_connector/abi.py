"""abi/spec_connector.h as ctypes: structures, constants, the function table.

Holds: every size and offset is the header's (tests/test_abi.py compares them with abi/frozen.c).
A structure is made with its struct_size, the rest zero or as named.
"""
import ctypes
from ctypes import (CFUNCTYPE, POINTER, c_char_p, c_double, c_float, c_int32, c_int64, c_uint8,
                    c_uint16, c_uint32, c_uint64, c_void_p)

MAJOR, MINOR = 0, 20

OK, PENDING = 0, 1
E_INVALID, E_UNSUPPORTED, E_NO_MEMORY, E_NO_SPACE, E_IO, E_CORRUPT, E_BUSY = range(-1, -8, -1)
E_TIMEOUT, E_DROPPED, E_FORKED, E_LOCKED, E_VERSION, E_STALE, E_POISONED = range(-8, -15, -1)
E_CONFIG = -15

DTYPE_F32, DTYPE_F16, DTYPE_BF16 = 1, 2, 3
ROPE_NONE, ROPE_HALF, ROPE_INTERLEAVED = 0, 1, 2
DTYPE_FP8_E4M3, DTYPE_FP8_E5M2, DTYPE_INT8, DTYPE_BYTES = 4, 5, 6, 7
LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG = 0, 1, 2, 3
ROLE_AUTO, ROLE_WRITER, ROLE_READER = 0, 1, 2
LOOKUP_REQUIRE_EXACT, LOOKUP_PEEK = 1, 2
LOOKUP_MISS, LOOKUP_HIT, LOOKUP_PENDING = 0, 1, 2
PROVENANCE_EXACT, PROVENANCE_LOSSY, PROVENANCE_PRUNED = 0, 1, 2
ITEM_AHEAD, ITEM_RESCORE, ITEM_TAIL = 1, 2, 4
STORE_LATER = 1
COMPUTED_PART = 1
MAINTAIN_BYPASS, BYPASS_END = 8, 1
MAINTAIN_ERASE, MAINTAIN_ERASE_SALT = 32, 64
IMPORTANT_PARTIAL = 4
SELECT_EXACT = 8
LEASE_BYTES = 64
CALL_MAX = 256  # requests or items that one call takes
FOREVER = 2**64 - 1
TIERS = 4


def status_name(status):
    """SPEC_E_IO of -5."""
    names = {value: name for name, value in globals().items() if name.startswith("E_")}
    return f"SPEC_{names[status]}" if status in names else f"status {status}"


class Structure(ctypes.Structure):
    """With struct_size as its first member, which is set."""

    def __init__(self, **members):
        super().__init__(struct_size=ctypes.sizeof(type(self)), **members)


class Error(Structure):
    _fields_ = [("struct_size", c_uint32), ("code", c_int32), ("sys_errno", c_int32),
                ("text", ctypes.c_char * 244)]


class Bytes(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("byte_count", c_uint64)]


class Memory(Structure):
    _fields_ = [("struct_size", c_uint32), ("device", c_uint32), ("device_index", c_int32),
                ("dtype", c_uint32), ("k_base", c_void_p), ("v_base", c_void_p),
                ("k_bytes", c_uint64), ("v_bytes", c_uint64), ("token_stride_bytes", c_uint64),
                ("head_stride_bytes", c_uint64), ("slots", c_void_p), ("slot_count", c_uint64),
                ("block_tokens", c_uint64), ("block_stride_bytes", c_uint64), ("stream", c_void_p),
                ("k_element_stride_bytes", c_uint64), ("v_token_stride_bytes", c_uint64),
                ("v_head_stride_bytes", c_uint64)]


class Queries(Structure):
    _fields_ = [("struct_size", c_uint32), ("device", c_uint32), ("device_index", c_int32),
                ("dtype", c_uint32), ("data", c_void_p), ("byte_count", c_uint64),
                ("row_count", c_uint32), ("heads", c_uint32), ("row_stride_bytes", c_uint64),
                ("head_stride_bytes", c_uint64), ("first_position", c_uint64), ("stream", c_void_p),
                ("scale", c_float), ("reserved", c_uint32)]


class Select(Structure):
    _fields_ = [("struct_size", c_uint32), ("given", c_uint32), ("budget", c_uint32),
                ("retain_ppm", c_uint32), ("mass_ppm", c_uint32), ("metric", c_uint32),
                ("keep_first", c_uint32), ("keep_last", c_uint32), ("count", c_uint64),
                ("exact_ppm", c_uint32), ("reserved", c_uint32)]


EXACTLY = Select(given=SELECT_EXACT, exact_ppm=10**6)  # every row, whatever is configured


class Provenance(ctypes.Structure):
    _fields_ = [("kind", c_uint32), ("computed_on", c_uint32), ("bits_k", c_uint32),
                ("bits_v", c_uint32), ("exact_ppm", c_uint32), ("retain_ppm", c_uint32),
                ("metric", c_uint32), ("reserved", c_uint32 * 5)]


class Model(Structure):
    _fields_ = [("struct_size", c_uint32), ("layer_count", c_uint32), ("kv_head_count", c_uint32),
                ("query_head_count", c_uint32), ("head_size", c_uint32), ("kv_dtype", c_uint32),
                ("kv_layout", c_uint32), ("rope_kind", c_uint32), ("tp_rank", c_uint32),
                ("tp_size", c_uint32), ("rope_theta", c_double), ("rope_scaling", c_double * 8),
                ("rope_scaling_kind", c_char_p), ("kv_scales", c_void_p),
                ("kv_scale_count", c_uint64), ("weights_paths", c_void_p),
                ("weights_path_count", c_uint64), ("weights_id", Bytes), ("revision", c_char_p),
                ("head_size_v", c_uint32), ("reserved", c_uint32), ("groups", c_void_p),
                ("group_count", c_uint64)]


LogFn = CFUNCTYPE(None, c_int32, c_char_p, c_void_p)  # level, line, user


class OpenParams(Structure):
    _fields_ = [("struct_size", c_uint32), ("role", c_uint32), ("config", c_char_p),
                ("model", POINTER(Model)), ("alloc", c_void_p), ("log", LogFn),
                ("log_user", c_void_p), ("log_level_max", c_int32), ("rank", c_uint32),
                ("rank_count", c_uint32), ("reserved", c_uint32)]


class ExtraKey(Structure):
    _fields_ = [("struct_size", c_uint32), ("kind", c_uint32), ("first_token", c_uint64),
                ("token_count", c_uint64), ("value", Bytes)]


class LookupParams(Structure):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("tokens", c_void_p),
                ("token_count", c_uint64), ("from_token", c_uint64), ("max_tokens", c_uint64),
                ("multiple_of", c_uint64), ("salt", Bytes), ("lora", Bytes),
                ("extra_keys", c_void_p), ("extra_key_count", c_uint64), ("retain_s", c_uint64),
                ("priority", c_int64)]


class LookupResult(Structure):
    _fields_ = [("struct_size", c_uint32), ("state", c_uint32), ("request", c_uint64),
                ("matched_tokens", c_uint64), ("provenance", Provenance),
                ("tier_bytes", c_uint64 * TIERS), ("load_ns", c_uint64),
                ("lease", c_uint8 * LEASE_BYTES), ("lease_expiry_ns", c_uint64),
                ("stored_tokens", c_uint64)]


class Important(Structure):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("request", c_uint64),
                ("layer", c_uint32), ("reserved", c_uint32), ("queries", POINTER(Queries)),
                ("new_keys", POINTER(Memory)), ("destination", POINTER(Memory)),
                ("positions", c_void_p),
                ("position_capacity", c_uint64), ("exact_bits", c_void_p),
                ("exact_bit_words", c_uint64), ("budget_bytes", c_uint64),
                ("deadline_ns", c_uint64), ("refine_of", c_uint64), ("status", c_int32),
                ("result_flags", c_uint32), ("row_count", c_uint64), ("next_position", c_uint64),
                ("failed_position", c_uint64), ("similarity", c_float), ("threshold", c_float),
                ("wanted_bytes", c_uint64), ("read_bytes", c_uint64), ("io_ops", c_uint64),
                ("io_exposed_ns", c_uint64), ("probe_ns", c_uint64),
                ("tier_rows", c_uint64 * TIERS), ("prefetched_rows", c_uint64),
                ("exact_rows", c_uint64), ("provenance", Provenance), ("union_rows", c_uint64),
                ("unused_bytes", c_uint64), ("select", POINTER(Select))]


class StoreParams(Structure):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("request", c_uint64),
                ("layer", c_uint32), ("computed_on", c_uint32), ("first_token", c_uint64),
                ("token_count", c_uint64), ("memory", POINTER(Memory)), ("tokens", c_void_p),
                ("tokens_count", c_uint64), ("wait_ns", c_uint64)]


class Computed(Structure):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("tokens", c_uint64),
                ("positions", c_uint64), ("ns", c_uint64)]


class AttachParams(Structure):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("lease", Bytes),
                ("from_token", c_uint64)]


class MaintainParams(Structure):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("deadline_ns", c_uint64),
                ("salt", Bytes)]


STATS = """lookups lookup_hits lookup_tokens matched_tokens wanted_bytes read_bytes read_ops
    stored_tokens stored_chunks dropped_chunks duplicate_chunks aborted_stores write_bytes write_ops
    corrupt_ranges io_errors no_space requests_open tickets_open chunks index_bytes disk_bytes_used
    disk_bytes_max extent_bytes log_bytes staging_bytes_used verify_ns exposed_ns prefetched_rows
    demanded_rows log_lines_dropped evicted_chunks quarantine_bytes checkpoints epoch lock_waits
    lookup_retries leases_attached leases_refused follow_lag_ns role selected_layers fallback_layers
    dense_layers selected_rows selected_from_rows selector_read_bytes identify_ns speculated_bytes
    unused_bytes selector_bytes_used selectors_refused built_chunks built_bytes quantised_layers
    quantised_rows layered_exact_rows layered_forced_rows partial_layers bad_blocks
    quantised_bytes building refined_layers refined_rows collisions
    compacted_chunks host_bytes_used host_bytes_max host_hits host_misses host_evictions
    unadmitted_chunks over_budget_chunks budget_left quantised_write_bytes compaction_write_bytes
    log_write_bytes checkpoint_write_bytes stored_row_bytes host_prefetched_bytes
    host_prefetches_open lookups_cut tokens_cut compute_token_ps compute_position_ps
    load_token_ps place_token_ps given_tokens tail_tokens reordered_chunks upper_bytes_used
    upper_bytes_max upper_hits upper_promoted upper_demoted upper_bus_bytes upper_bus_ns
    bypassed_lookups bypassed_chunks bypassing
    erased erase_failures erased_bytes erasing erase_left_bytes
    reordered_again_chunks reordered_write_bytes""".split()


class Stats(Structure):
    _fields_ = [("struct_size", c_uint32), ("poisoned", c_uint32), *((n, c_uint64) for n in STATS)]


_conn, _err, _status = c_void_p, POINTER(Error), c_int32


def _call(*arguments):
    return CFUNCTYPE(_status, *arguments, _err)


class Api(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("major", c_uint16), ("minor", c_uint16),
        ("open", _call(POINTER(OpenParams), POINTER(c_void_p))),
        ("close", CFUNCTYPE(None, _conn)),
        ("lookup", _call(_conn, POINTER(LookupParams), POINTER(LookupResult))),
        ("prefetch_to_host", _call(_conn, c_void_p, POINTER(c_uint64))),
        ("attach", _call(_conn, POINTER(AttachParams), POINTER(LookupResult))),
        ("next_chunk", _call(_conn, c_void_p)),
        ("begin_layer", _call(_conn, POINTER(c_uint64), c_uint64, c_uint32)),
        ("get_important", _call(_conn, POINTER(Important), c_uint64)),
        ("get_important_submit", _call(_conn, POINTER(Important), c_uint64, POINTER(c_uint64))),
        ("get_important_wait", _call(_conn, c_uint64, c_uint64)),
        ("prefetch_next", _call(_conn, c_uint64, c_uint32, c_void_p)),
        ("store", _call(_conn, POINTER(StoreParams), c_uint64, POINTER(c_uint64))),
        ("store_abort", _call(_conn, c_uint64, c_uint64)),
        ("poll", _call(_conn, POINTER(c_uint64), c_uint64, POINTER(c_int32))),
        ("wait", _call(_conn, POINTER(c_uint64), c_uint64, c_uint64, POINTER(c_int32))),
        ("release", _call(_conn, c_uint64)),
        ("reset", _call(_conn)),
        ("stats", _call(_conn, POINTER(Stats))),
        ("maintain", _call(_conn, POINTER(MaintainParams))),
        ("wait_kept", _call(_conn, POINTER(c_uint64), c_uint64, c_uint64, POINTER(c_int32),
                            POINTER(c_uint64))),
        ("computed", _call(_conn, POINTER(Computed))),
    ]


STRUCTURES = {
    "spec_error": Error, "spec_bytes": Bytes, "spec_memory": Memory, "spec_queries": Queries,
    "spec_provenance": Provenance, "spec_select": Select, "spec_model": Model,
    "spec_open_params": OpenParams, "spec_extra_key": ExtraKey, "spec_lookup_params": LookupParams,
    "spec_lookup_result": LookupResult, "spec_important": Important,
    "spec_store_params": StoreParams, "spec_attach_params": AttachParams,
    "spec_computed": Computed,
    "spec_maintain_params": MaintainParams, "spec_stats": Stats, "spec_api": Api,
}


def int64s(values):
    """A C array of slots."""
    return (c_int64 * len(values))(*values)

/* The frozen layout: offset and size of every member, size of every structure, value of every
 * constant. A change here is a change of the contract: members are appended, never moved.
 *
 *   AT(structure, member, offset, bytes)    LP64: x86-64, aarch64
 *
 * Holds: compiles as C11 and, through frozen_cxx.cpp, as C++17; every member of the header stands
 * here once (tests/unit/abi/test_frozen.py counts them).
 * Does not: make code.
 * Threads: none.
 * Tests: it is one. */
#include "abi/spec_connector.h"

#ifdef __cplusplus
#define FROZEN(condition) static_assert(condition, #condition)
#else
#define FROZEN(condition) _Static_assert(condition, #condition)
#endif

#define SIZE(object, bytes) FROZEN(sizeof(struct object) == (bytes))
#define VALUE(name, value)  FROZEN((name) == (value))
#define AT(object, member, offset, bytes)                                                          \
    FROZEN(offsetof(struct object, member) == (offset) &&                                          \
           sizeof(((struct object *)0)->member) == (bytes))

FROZEN(sizeof(void *) == 8 && sizeof(double) == 8 && sizeof(float) == 4);
FROZEN(sizeof(spec_status) == 4 && sizeof(spec_request) == 8 && sizeof(spec_ticket) == 8);

VALUE(SPEC_ABI_MAJOR, 0);
VALUE(SPEC_ABI_MINOR, 9);
VALUE(SPEC_OK, 0);
VALUE(SPEC_PENDING, 1);
VALUE(SPEC_E_INVALID, -1);
VALUE(SPEC_E_UNSUPPORTED, -2);
VALUE(SPEC_E_NO_MEMORY, -3);
VALUE(SPEC_E_NO_SPACE, -4);
VALUE(SPEC_E_IO, -5);
VALUE(SPEC_E_CORRUPT, -6);
VALUE(SPEC_E_BUSY, -7);
VALUE(SPEC_E_TIMEOUT, -8);
VALUE(SPEC_E_DROPPED, -9);
VALUE(SPEC_E_FORKED, -10);
VALUE(SPEC_E_LOCKED, -11);
VALUE(SPEC_E_VERSION, -12);
VALUE(SPEC_E_STALE, -13);
VALUE(SPEC_E_POISONED, -14);
VALUE(SPEC_E_CONFIG, -15);
VALUE(SPEC_DTYPE_F32, 1);
VALUE(SPEC_DTYPE_F16, 2);
VALUE(SPEC_DTYPE_BF16, 3);
VALUE(SPEC_DTYPE_FP8_E4M3, 4);
VALUE(SPEC_DTYPE_FP8_E5M2, 5);
VALUE(SPEC_DTYPE_INT8, 6);
VALUE(SPEC_DTYPE_BYTES, 7);
VALUE(SPEC_DEVICE_HOST, 0);
VALUE(SPEC_DEVICE_CUDA, 1);
VALUE(SPEC_QUERIES_ALL, 0);
VALUE(SPEC_QUERIES_PROBE, 1);
VALUE(SPEC_PROVENANCE_EXACT, 0);
VALUE(SPEC_PROVENANCE_LOSSY, 1);
VALUE(SPEC_PROVENANCE_PRUNED, 2);
VALUE(SPEC_HELD_ROWS, 0);
VALUE(SPEC_HELD_COARSE_ONLY, 1);
VALUE(SPEC_METRIC_H2O, 0);
VALUE(SPEC_METRIC_LAST, 1);
VALUE(SPEC_METRIC_RANDOM, 2);
VALUE(SPEC_LOG_ERROR, 0);
VALUE(SPEC_LOG_WARN, 1);
VALUE(SPEC_LOG_INFO, 2);
VALUE(SPEC_LOG_DEBUG, 3);
VALUE(SPEC_ROLE_AUTO, 0);
VALUE(SPEC_ROLE_WRITER, 1);
VALUE(SPEC_ROLE_READER, 2);
VALUE(SPEC_ROPE_NONE, 0);
VALUE(SPEC_ROPE_HALF, 1);
VALUE(SPEC_ROPE_INTERLEAVED, 2);
VALUE(SPEC_KV_ROWS, 0);
VALUE(SPEC_GROUP_FULL, 0);
VALUE(SPEC_GROUP_WINDOW, 1);
VALUE(SPEC_GROUP_LATENT, 2);
VALUE(SPEC_GROUP_STATE, 3);
VALUE(SPEC_LOOKUP_REQUIRE_EXACT, 1);
VALUE(SPEC_LOOKUP_PEEK, 2);
VALUE(SPEC_PRIORITY_MIN, -3);
VALUE(SPEC_PRIORITY_MAX, 3);
VALUE(SPEC_LOOKUP_MISS, 0);
VALUE(SPEC_LOOKUP_HIT, 1);
VALUE(SPEC_LOOKUP_PENDING, 2);
VALUE(SPEC_TIER_GPU, 0);
VALUE(SPEC_TIER_HOST, 1);
VALUE(SPEC_TIER_DISK, 2);
VALUE(SPEC_TIER_REMOTE, 3);
VALUE(SPEC_IMPORTANT_FALLBACK, 1);
VALUE(SPEC_IMPORTANT_DENSE, 2);
VALUE(SPEC_IMPORTANT_PARTIAL, 4);
VALUE(SPEC_BUDGET_RATIO, 0);
VALUE(SPEC_BUDGET_COUNT, 1);
VALUE(SPEC_BUDGET_MASS, 2);
VALUE(SPEC_SELECT_BUDGET, 1);
VALUE(SPEC_SELECT_METRIC, 2);
VALUE(SPEC_SELECT_KEEP, 4);
VALUE(SPEC_SELECT_EXACT, 8);
VALUE(SPEC_ITEM_AHEAD, 1);
VALUE(SPEC_ITEM_RESCORE, 2);
VALUE(SPEC_CHUNK_COMPUTE, 0);
VALUE(SPEC_CHUNK_MET, 1);
VALUE(SPEC_STORE_LATER, 1);
VALUE(SPEC_MAINTAIN_REORDER, 1);
VALUE(SPEC_MAINTAIN_CHECKPOINT, 2);
VALUE(SPEC_MAINTAIN_EVICT, 4);
VALUE(SPEC_MAINTAIN_BYPASS, 8);
VALUE(SPEC_MAINTAIN_BUILD, 16);
VALUE(SPEC_TIERS, 4);

SIZE(spec_error, 256);
AT(spec_error, struct_size, 0, 4);
AT(spec_error, code, 4, 4);
AT(spec_error, sys_errno, 8, 4);
AT(spec_error, text, 12, 244);

SIZE(spec_bytes, 16);
AT(spec_bytes, data, 0, 8);
AT(spec_bytes, byte_count, 8, 8);

SIZE(spec_alloc, 32);
AT(spec_alloc, struct_size, 0, 4);
AT(spec_alloc, reserved, 4, 4);
AT(spec_alloc, alloc, 8, 8);
AT(spec_alloc, free, 16, 8);
AT(spec_alloc, user, 24, 8);

SIZE(spec_memory, 120);
AT(spec_memory, struct_size, 0, 4);
AT(spec_memory, device, 4, 4);
AT(spec_memory, device_index, 8, 4);
AT(spec_memory, dtype, 12, 4);
AT(spec_memory, k_base, 16, 8);
AT(spec_memory, v_base, 24, 8);
AT(spec_memory, k_bytes, 32, 8);
AT(spec_memory, v_bytes, 40, 8);
AT(spec_memory, token_stride_bytes, 48, 8);
AT(spec_memory, head_stride_bytes, 56, 8);
AT(spec_memory, slots, 64, 8);
AT(spec_memory, slot_count, 72, 8);
AT(spec_memory, block_tokens, 80, 8);
AT(spec_memory, block_stride_bytes, 88, 8);
AT(spec_memory, stream, 96, 8);
AT(spec_memory, k_element_stride_bytes, 104, 8);
AT(spec_memory, v_token_stride_bytes, 112, 8);

SIZE(spec_queries, 80);
AT(spec_queries, struct_size, 0, 4);
AT(spec_queries, device, 4, 4);
AT(spec_queries, device_index, 8, 4);
AT(spec_queries, dtype, 12, 4);
AT(spec_queries, data, 16, 8);
AT(spec_queries, byte_count, 24, 8);
AT(spec_queries, row_count, 32, 4);
AT(spec_queries, heads, 36, 4);
AT(spec_queries, row_stride_bytes, 40, 8);
AT(spec_queries, head_stride_bytes, 48, 8);
AT(spec_queries, first_position, 56, 8);
AT(spec_queries, stream, 64, 8);
AT(spec_queries, scale, 72, 4);
AT(spec_queries, reserved, 76, 4);

SIZE(spec_provenance, 48);
AT(spec_provenance, kind, 0, 4);
AT(spec_provenance, computed_on, 4, 4);
AT(spec_provenance, held, 8, 4);
AT(spec_provenance, bits_k, 12, 4);
AT(spec_provenance, bits_v, 16, 4);
AT(spec_provenance, exact_ppm, 20, 4);
AT(spec_provenance, retain_ppm, 24, 4);
AT(spec_provenance, metric, 28, 4);
AT(spec_provenance, reserved, 32, 16);

SIZE(spec_layer_group, 64);
AT(spec_layer_group, struct_size, 0, 4);
AT(spec_layer_group, kind, 4, 4);
AT(spec_layer_group, layers, 8, 8);
AT(spec_layer_group, layer_count, 16, 8);
AT(spec_layer_group, kv_head_count, 24, 4);
AT(spec_layer_group, head_size, 28, 4);
AT(spec_layer_group, head_size_v, 32, 4);
AT(spec_layer_group, dtype, 36, 4);
AT(spec_layer_group, window, 40, 8);
AT(spec_layer_group, state_bytes, 48, 8);
AT(spec_layer_group, rope_theta, 56, 8);

SIZE(spec_model, 200);
AT(spec_model, struct_size, 0, 4);
AT(spec_model, layer_count, 4, 4);
AT(spec_model, kv_head_count, 8, 4);
AT(spec_model, query_head_count, 12, 4);
AT(spec_model, head_size, 16, 4);
AT(spec_model, kv_dtype, 20, 4);
AT(spec_model, kv_layout, 24, 4);
AT(spec_model, rope_kind, 28, 4);
AT(spec_model, tp_rank, 32, 4);
AT(spec_model, tp_size, 36, 4);
AT(spec_model, rope_theta, 40, 8);
AT(spec_model, rope_scaling, 48, 64);
AT(spec_model, rope_scaling_kind, 112, 8);
AT(spec_model, kv_scales, 120, 8);
AT(spec_model, kv_scale_count, 128, 8);
AT(spec_model, weights_paths, 136, 8);
AT(spec_model, weights_path_count, 144, 8);
AT(spec_model, weights_id, 152, 16);
AT(spec_model, revision, 168, 8);
AT(spec_model, head_size_v, 176, 4);
AT(spec_model, reserved, 180, 4);
AT(spec_model, groups, 184, 8);
AT(spec_model, group_count, 192, 8);

SIZE(spec_open_params, 64);
AT(spec_open_params, struct_size, 0, 4);
AT(spec_open_params, role, 4, 4);
AT(spec_open_params, config, 8, 8);
AT(spec_open_params, model, 16, 8);
AT(spec_open_params, alloc, 24, 8);
AT(spec_open_params, log, 32, 8);
AT(spec_open_params, log_user, 40, 8);
AT(spec_open_params, log_level_max, 48, 4);
AT(spec_open_params, rank, 52, 4);
AT(spec_open_params, rank_count, 56, 4);
AT(spec_open_params, reserved, 60, 4);

SIZE(spec_extra_key, 40);
AT(spec_extra_key, struct_size, 0, 4);
AT(spec_extra_key, kind, 4, 4);
AT(spec_extra_key, first_token, 8, 8);
AT(spec_extra_key, token_count, 16, 8);
AT(spec_extra_key, value, 24, 16);

SIZE(spec_lookup_params, 112);
AT(spec_lookup_params, struct_size, 0, 4);
AT(spec_lookup_params, flags, 4, 4);
AT(spec_lookup_params, tokens, 8, 8);
AT(spec_lookup_params, token_count, 16, 8);
AT(spec_lookup_params, from_token, 24, 8);
AT(spec_lookup_params, max_tokens, 32, 8);
AT(spec_lookup_params, multiple_of, 40, 8);
AT(spec_lookup_params, salt, 48, 16);
AT(spec_lookup_params, lora, 64, 16);
AT(spec_lookup_params, extra_keys, 80, 8);
AT(spec_lookup_params, extra_key_count, 88, 8);
AT(spec_lookup_params, retain_s, 96, 8);
AT(spec_lookup_params, priority, 104, 8);

SIZE(spec_lookup_result, 192);
AT(spec_lookup_result, struct_size, 0, 4);
AT(spec_lookup_result, state, 4, 4);
AT(spec_lookup_result, request, 8, 8);
AT(spec_lookup_result, matched_tokens, 16, 8);
AT(spec_lookup_result, provenance, 24, 48);
AT(spec_lookup_result, tier_bytes, 72, 32);
AT(spec_lookup_result, load_ns, 104, 8);
AT(spec_lookup_result, lease, 112, 64);
AT(spec_lookup_result, lease_expiry_ns, 176, 8);
AT(spec_lookup_result, stored_tokens, 184, 8);

SIZE(spec_select, 48);
AT(spec_select, struct_size, 0, 4);
AT(spec_select, given, 4, 4);
AT(spec_select, budget, 8, 4);
AT(spec_select, retain_ppm, 12, 4);
AT(spec_select, mass_ppm, 16, 4);
AT(spec_select, metric, 20, 4);
AT(spec_select, keep_first, 24, 4);
AT(spec_select, keep_last, 28, 4);
AT(spec_select, count, 32, 8);
AT(spec_select, exact_ppm, 40, 4);
AT(spec_select, reserved, 44, 4);

SIZE(spec_important, 304);
AT(spec_important, struct_size, 0, 4);
AT(spec_important, flags, 4, 4);
AT(spec_important, request, 8, 8);
AT(spec_important, layer, 16, 4);
AT(spec_important, reserved, 20, 4);
AT(spec_important, queries, 24, 8);
AT(spec_important, new_keys, 32, 8);
AT(spec_important, destination, 40, 8);
AT(spec_important, positions, 48, 8);
AT(spec_important, position_capacity, 56, 8);
AT(spec_important, exact_bits, 64, 8);
AT(spec_important, exact_bit_words, 72, 8);
AT(spec_important, budget_bytes, 80, 8);
AT(spec_important, deadline_ns, 88, 8);
AT(spec_important, refine_of, 96, 8);
AT(spec_important, status, 104, 4);
AT(spec_important, result_flags, 108, 4);
AT(spec_important, row_count, 112, 8);
AT(spec_important, next_position, 120, 8);
AT(spec_important, failed_position, 128, 8);
AT(spec_important, similarity, 136, 4);
AT(spec_important, threshold, 140, 4);
AT(spec_important, wanted_bytes, 144, 8);
AT(spec_important, read_bytes, 152, 8);
AT(spec_important, io_ops, 160, 8);
AT(spec_important, io_exposed_ns, 168, 8);
AT(spec_important, probe_ns, 176, 8);
AT(spec_important, tier_rows, 184, 32);
AT(spec_important, prefetched_rows, 216, 8);
AT(spec_important, exact_rows, 224, 8);
AT(spec_important, provenance, 232, 48);
AT(spec_important, union_rows, 280, 8);
AT(spec_important, unused_bytes, 288, 8);
AT(spec_important, select, 296, 8);

SIZE(spec_store_params, 64);
AT(spec_store_params, struct_size, 0, 4);
AT(spec_store_params, flags, 4, 4);
AT(spec_store_params, request, 8, 8);
AT(spec_store_params, layer, 16, 4);
AT(spec_store_params, computed_on, 20, 4);
AT(spec_store_params, first_token, 24, 8);
AT(spec_store_params, token_count, 32, 8);
AT(spec_store_params, memory, 40, 8);
AT(spec_store_params, tokens, 48, 8);
AT(spec_store_params, tokens_count, 56, 8);

SIZE(spec_stage_params, 24);
AT(spec_stage_params, struct_size, 0, 4);
AT(spec_stage_params, reserved, 4, 4);
AT(spec_stage_params, request, 8, 8);
AT(spec_stage_params, deadline_ns, 16, 8);

SIZE(spec_attach_params, 32);
AT(spec_attach_params, struct_size, 0, 4);
AT(spec_attach_params, reserved, 4, 4);
AT(spec_attach_params, lease, 8, 16);
AT(spec_attach_params, from_token, 24, 8);

SIZE(spec_next_chunk, 40);
AT(spec_next_chunk, struct_size, 0, 4);
AT(spec_next_chunk, state, 4, 4);
AT(spec_next_chunk, request, 8, 8);
AT(spec_next_chunk, budget_tokens, 16, 8);
AT(spec_next_chunk, first_token, 24, 8);
AT(spec_next_chunk, token_count, 32, 8);

SIZE(spec_maintain_params, 16);
AT(spec_maintain_params, struct_size, 0, 4);
AT(spec_maintain_params, flags, 4, 4);
AT(spec_maintain_params, deadline_ns, 8, 8);

SIZE(spec_stats, 736);
AT(spec_stats, struct_size, 0, 4);
AT(spec_stats, poisoned, 4, 4);
AT(spec_stats, lookups, 8, 8);
AT(spec_stats, lookup_hits, 16, 8);
AT(spec_stats, lookup_tokens, 24, 8);
AT(spec_stats, matched_tokens, 32, 8);
AT(spec_stats, wanted_bytes, 40, 8);
AT(spec_stats, read_bytes, 48, 8);
AT(spec_stats, read_ops, 56, 8);
AT(spec_stats, stored_tokens, 64, 8);
AT(spec_stats, stored_chunks, 72, 8);
AT(spec_stats, dropped_chunks, 80, 8);
AT(spec_stats, duplicate_chunks, 88, 8);
AT(spec_stats, aborted_stores, 96, 8);
AT(spec_stats, write_bytes, 104, 8);
AT(spec_stats, write_ops, 112, 8);
AT(spec_stats, corrupt_ranges, 120, 8);
AT(spec_stats, io_errors, 128, 8);
AT(spec_stats, no_space, 136, 8);
AT(spec_stats, requests_open, 144, 8);
AT(spec_stats, tickets_open, 152, 8);
AT(spec_stats, chunks, 160, 8);
AT(spec_stats, index_bytes, 168, 8);
AT(spec_stats, disk_bytes_used, 176, 8);
AT(spec_stats, disk_bytes_max, 184, 8);
AT(spec_stats, extent_bytes, 192, 8);
AT(spec_stats, log_bytes, 200, 8);
AT(spec_stats, stage_bytes_used, 208, 8);
AT(spec_stats, verify_ns, 216, 8);
AT(spec_stats, exposed_ns, 224, 8);
AT(spec_stats, prefetched_rows, 232, 8);
AT(spec_stats, demanded_rows, 240, 8);
AT(spec_stats, log_lines_dropped, 248, 8);
AT(spec_stats, evicted_chunks, 256, 8);
AT(spec_stats, quarantine_bytes, 264, 8);
AT(spec_stats, checkpoints, 272, 8);
AT(spec_stats, epoch, 280, 8);
AT(spec_stats, lock_waits, 288, 8);
AT(spec_stats, lookup_retries, 296, 8);
AT(spec_stats, leases_attached, 304, 8);
AT(spec_stats, leases_refused, 312, 8);
AT(spec_stats, follow_lag_ns, 320, 8);
AT(spec_stats, role, 328, 8);
AT(spec_stats, selected_layers, 336, 8);
AT(spec_stats, fallback_layers, 344, 8);
AT(spec_stats, dense_layers, 352, 8);
AT(spec_stats, selected_rows, 360, 8);
AT(spec_stats, selected_from_rows, 368, 8);
AT(spec_stats, sketch_read_bytes, 376, 8);
AT(spec_stats, identify_ns, 384, 8);
AT(spec_stats, speculated_bytes, 392, 8);
AT(spec_stats, unused_bytes, 400, 8);
AT(spec_stats, sketch_bytes_used, 408, 8);
AT(spec_stats, sketches_refused, 416, 8);
AT(spec_stats, built_chunks, 424, 8);
AT(spec_stats, built_bytes, 432, 8);
AT(spec_stats, coarse_layers, 440, 8);
AT(spec_stats, coarse_rows, 448, 8);
AT(spec_stats, coarse_exact_rows, 456, 8);
AT(spec_stats, coarse_forced_rows, 464, 8);
AT(spec_stats, partial_layers, 472, 8);
AT(spec_stats, bad_blocks, 480, 8);
AT(spec_stats, code_bytes, 488, 8);
AT(spec_stats, building, 496, 8);
AT(spec_stats, coarsened_chunks, 504, 8);
AT(spec_stats, coarse_only_chunks, 512, 8);
AT(spec_stats, refined_layers, 520, 8);
AT(spec_stats, refined_rows, 528, 8);
AT(spec_stats, collisions, 536, 8);
AT(spec_stats, merged_chunks, 544, 8);
AT(spec_stats, host_bytes_used, 552, 8);
AT(spec_stats, host_bytes_max, 560, 8);
AT(spec_stats, host_hits, 568, 8);
AT(spec_stats, host_misses, 576, 8);
AT(spec_stats, host_evictions, 584, 8);
AT(spec_stats, unadmitted_chunks, 592, 8);
AT(spec_stats, over_budget_chunks, 600, 8);
AT(spec_stats, budget_left, 608, 8);
AT(spec_stats, code_write_bytes, 616, 8);
AT(spec_stats, merge_write_bytes, 624, 8);
AT(spec_stats, log_write_bytes, 632, 8);
AT(spec_stats, checkpoint_write_bytes, 640, 8);
AT(spec_stats, stored_row_bytes, 648, 8);
AT(spec_stats, staged_bytes, 656, 8);
AT(spec_stats, stages_open, 664, 8);
AT(spec_stats, lookups_cut, 672, 8);
AT(spec_stats, tokens_cut, 680, 8);
AT(spec_stats, compute_token_ps, 688, 8);
AT(spec_stats, compute_position_ps, 696, 8);
AT(spec_stats, load_token_ps, 704, 8);
AT(spec_stats, place_token_ps, 712, 8);
AT(spec_stats, hot_rows, 720, 8);
AT(spec_stats, hot_bytes, 728, 8);

SIZE(spec_api, 160);
AT(spec_api, struct_size, 0, 4);
AT(spec_api, major, 4, 2);
AT(spec_api, minor, 6, 2);
AT(spec_api, open, 8, 8);
AT(spec_api, close, 16, 8);
AT(spec_api, lookup, 24, 8);
AT(spec_api, stage, 32, 8);
AT(spec_api, attach, 40, 8);
AT(spec_api, next_chunk, 48, 8);
AT(spec_api, begin_layer, 56, 8);
AT(spec_api, get_important, 64, 8);
AT(spec_api, get_important_submit, 72, 8);
AT(spec_api, get_important_wait, 80, 8);
AT(spec_api, prefetch_next, 88, 8);
AT(spec_api, store, 96, 8);
AT(spec_api, store_abort, 104, 8);
AT(spec_api, poll, 112, 8);
AT(spec_api, wait, 120, 8);
AT(spec_api, release, 128, 8);
AT(spec_api, reset, 136, 8);
AT(spec_api, stats, 144, 8);
AT(spec_api, maintain, 152, 8);

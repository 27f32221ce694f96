/* args: reads the host's versioned structures and writes ours back, by struct_size (ABI-001, 002).
 *
 * Invariants: a member that the caller's structure lacks reads as 0. A tail unknown to this version
 * must be zero. Nothing beyond the caller's struct_size is accessed; no member is split.
 * Threads: any. Tests: conformance/test_rules.c (abi_001_*, abi_002_*) */
#ifndef SC_PLUGIN_ARGS_ARGS_H
#define SC_PLUGIN_ARGS_ARGS_H

#include "base/status.h"

/* Sizes of one structure that hosts may have compiled against: a smaller one than ours ends where a
 * member ends, after the first group. */
struct sc_plugin_args_form {
    uint32_t bytes; /* sizeof of this version */
    uint32_t end_count;
    const uint16_t *ends; /* [end_count], ascending: ends of the first group and of later members */
    uint32_t even_from;   /* members from this offset on have 8 bytes each and are not listed */
};

extern const struct sc_plugin_args_form sc_plugin_form_alloc, sc_plugin_form_memory,
    sc_plugin_form_queries, sc_plugin_form_layer_group, sc_plugin_form_model, sc_plugin_form_open,
    sc_plugin_form_extra_key, sc_plugin_form_lookup, sc_plugin_form_lookup_result,
    sc_plugin_form_select, sc_plugin_form_important, sc_plugin_form_next_chunk,
    sc_plugin_form_store, sc_plugin_form_attach, sc_plugin_form_maintain,
    sc_plugin_form_prefetch_to_host, sc_plugin_form_stats, sc_plugin_form_computed;

/* Copies the host's structure at src into dst, which it zero-fills first. `name` is for errors. */
spec_status sc_plugin_args_read(void *dst, const struct sc_plugin_args_form *form, const void *src,
                                const char *name, struct spec_error *reterr);

/* Does the same for element i of an array, whose elements all have one struct_size. */
spec_status sc_plugin_args_read_at(void *dst, const struct sc_plugin_args_form *form,
                                   const void *array, uint64_t i, const char *name,
                                   struct spec_error *reterr);

/* Copies our structure over the host's, except struct_size, up to the host's size. */
void sc_plugin_args_write(void *dst, const void *src, uint32_t our_bytes);

/* Checks the struct_size of an output structure. */
spec_status sc_plugin_args_check_output(const void *dst, const struct sc_plugin_args_form *form,
                                        const char *name, struct spec_error *reterr);

#endif

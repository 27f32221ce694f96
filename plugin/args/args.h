/* Reading the host's versioned structures and writing ours back, by struct_size (ABI-001, 002).
 *
 * Holds: a member that the caller's structure lacks reads as 0; a tail that we do not know must be
 * zero; nothing beyond the caller's struct_size is read or written; no member is taken in part.
 * Threads: any.
 * Tests: conformance/test_rules.c (abi_001_*, abi_002_*) */
#ifndef SC_PLUGIN_ARGS_ARGS_H
#define SC_PLUGIN_ARGS_ARGS_H

#include "base/status.h"

/* What the host may have compiled against. A size below ours is that of a host which lacks the last
 * members: it ends where a member does, and has the first group whole. */
struct sc_plugin_args_form {
    uint32_t bytes; /* sizeof ours */
    uint32_t end_count;
    const uint16_t *ends; /* [end_count] rising: of the first group, of the members behind it */
    uint32_t even_from;   /* from here on every member has 8 bytes, and no end is listed */
};

extern const struct sc_plugin_args_form sc_plugin_form_alloc, sc_plugin_form_memory,
    sc_plugin_form_queries, sc_plugin_form_layer_group, sc_plugin_form_model, sc_plugin_form_open,
    sc_plugin_form_extra_key, sc_plugin_form_lookup, sc_plugin_form_lookup_result,
    sc_plugin_form_select, sc_plugin_form_important, sc_plugin_form_next_chunk,
    sc_plugin_form_store, sc_plugin_form_attach, sc_plugin_form_maintain,
    sc_plugin_form_prefetch_to_host, sc_plugin_form_stats, sc_plugin_form_computed;

/* Copies the host's structure at src into dst (form->bytes, zero-filled first). name is for the
 * error text: "lookup: params". src's first member is its struct_size. */
spec_status sc_plugin_args_read(void *dst, const struct sc_plugin_args_form *form, const void *src,
                                const char *name, struct spec_error *reterr);

/* The same for element i of an array, whose elements have the first one's struct_size each. */
spec_status sc_plugin_args_read_at(void *dst, const struct sc_plugin_args_form *form,
                                   const void *array, uint64_t i, const char *name,
                                   struct spec_error *reterr);

/* Copies our structure over the host's up to the host's struct_size, which stays as it is. */
void sc_plugin_args_write(void *dst, const void *src, uint32_t our_bytes);

/* Checks an output structure's struct_size before anything is done for it. */
spec_status sc_plugin_args_check_output(const void *dst, const struct sc_plugin_args_form *form,
                                        const char *name, struct spec_error *reterr);

#endif

/* Reading the host's versioned structures and writing ours back, by struct_size (ABI-001, 002).
 *
 * Holds: a member that the caller's structure lacks reads as 0; a tail that we do not know must be
 * zero; nothing beyond the caller's struct_size is read or written.
 * Threads: any.
 * Tests: conformance/test_rules.c (abi_001_*, abi_002_*) */
#ifndef SC_PLUGIN_ARGS_H
#define SC_PLUGIN_ARGS_H

#include "base/status.h"

/* Copies the host's structure at src into dst (our_bytes, zero-filled first). name is for the error
 * text: "lookup: params". src's first member is its struct_size. */
spec_status sc_plugin_args_read(void *dst, uint32_t our_bytes, const void *src, const char *name,
                                struct spec_error *reterr);

/* Copies our structure over the host's up to the host's struct_size, which stays as it is. */
void sc_plugin_args_write(void *dst, const void *src, uint32_t our_bytes);

/* Checks an output structure's struct_size before anything is done for it. */
spec_status sc_plugin_args_check_output(const void *dst, const char *name,
                                        struct spec_error *reterr);

#endif

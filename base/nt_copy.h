/* nt_copy: copies with stores that bypass the caches, for destinations larger than a core's caches.
 * Cached stores would fetch such lines only to overwrite them, and evict useful ones.
 *
 *   dst   ....|line|line| ... |line|....      whole lines bypass the caches; the ends do not
 *
 * Invariants: dst is as after memcpy. Other threads see the stores in order only after
 * sc_nt_copy_end.
 * Threads: any. Tests: tests/unit/base/test_stream.c */
#ifndef SC_BASE_NT_COPY_H
#define SC_BASE_NT_COPY_H

#include <stdbool.h>
#include <stdint.h>

/* src, dst [bytes], not overlapping. */
void sc_nt_copy(uint8_t *dst, const uint8_t *src, uint64_t bytes);
/* Orders this thread's bypassing stores before its next stores. */
void sc_nt_copy_end(void);
/* Returns true if this processor moves bytes that a device just wrote faster past its caches.
 * Constant for the machine. */
bool sc_nt_copy_is_faster(void);

#endif

/* Copies whose stores go past the caches, for destinations that are larger than a core's own: such
 * bytes would be fetched to be overwritten, and would push out what is still wanted.
 *
 *   dst   ....|line|line| ... |line|....      lines go past; the ends before and behind do not
 *
 * Holds: dst is what memcpy makes of it. Does not: order its stores for other threads before
 * sc_nt_copy_end. Threads: any. Tests: tests/unit/base/test_stream.c */
#ifndef SC_BASE_NT_COPY_H
#define SC_BASE_NT_COPY_H

#include <stdbool.h>
#include <stdint.h>

/* src, dst [bytes], apart. */
void sc_nt_copy(uint8_t *dst, const uint8_t *src, uint64_t bytes);
/* What this thread streamed is seen by whoever sees what it stores next. */
void sc_nt_copy_end(void);
/* Whether this processor moves bytes that a device just wrote faster past its caches than through
 * them. A fact of the machine, the same for everybody. */
bool sc_nt_copy_is_faster(void);

#endif

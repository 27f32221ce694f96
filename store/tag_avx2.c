/* Row tags with AVX2: 256-bit accumulators, about twice the rate of the baseline (SSE2). Compiled
 * with -mavx2, called only where the processor has it.
 *
 * Holds, Does not, Threads: store/tag.h.
 * Tests: tests/unit/store/test_tag.c */
#define TAG_RUNG sc_store_tag_avx2
#include "store/tag_rung.h"

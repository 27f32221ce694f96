/* avx512: the AVX-512 rung: 16 lanes, masks, twice the registers. Requires AVX-512 F, BW, VL, DQ.
 * Tests: tests/unit/kernels/ */
#include "kernels/kernels.h"

#if defined(__x86_64__)
#define RUNG sc_kernels_avx512
#include "kernels/cpu/v16.h"

#include "kernels/cpu/rung.h"
#endif

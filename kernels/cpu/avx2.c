/* avx2: the AVX2 rung, 8 lanes. Requires AVX2, FMA, F16C, POPCNT, BMI2. Tests:
 * tests/unit/kernels/ */
#include "kernels/kernels.h"

#if defined(__x86_64__)
#define RUNG sc_kernels_avx2
#include "kernels/cpu/v8.h"

#include "kernels/cpu/rung.h"
#endif

/* kernels_avx2: kernels compiled for AVX2, FMA and F16C: 8 lanes per register, widening in
 * hardware. See kernels.h. */
#include "conformance/engine/kernels_table.h"

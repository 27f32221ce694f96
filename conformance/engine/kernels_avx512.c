/* kernels_avx512: kernels compiled for AVX-512: 16 lanes, 32 registers (tiles of 14 x 32). See
 * kernels.h. */
#include "conformance/engine/kernels_table.h"

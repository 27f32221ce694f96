/* The kernels compiled for AVX2, FMA and F16C. Adds: 8 lanes a register, widening in hardware.
 *
 * Holds, Does not, Threads, Tests: as kernels.h.
 */
#include "conformance/engine/kernels_table.h"

/* The kernels compiled for AVX-512. Adds: 16 lanes a register, 32 registers (tiles of 14 x 32).
 *
 * Holds, Does not, Threads, Tests: as kernels.h.
 */
#include "conformance/engine/kernels_table.h"

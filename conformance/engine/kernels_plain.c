/* The kernels in plain C, with libm's fmaf: correct on every machine, and the rung that the
 * others are compared with. Adds: nothing.
 *
 * Holds, Does not, Threads, Tests: as kernels.h.
 */
#include "conformance/engine/kernels_table.h"

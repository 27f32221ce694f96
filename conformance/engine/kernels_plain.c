/* kernels_plain: kernels in plain C with libm's fmaf: correct on every machine, and the reference
 * for the others. See kernels.h. */
#include "conformance/engine/kernels_table.h"

/* The scale of averages' codes (store/store.h) by libm, as docs/reference/store-format.md has it.
 *
 * Threads: any. */
#ifndef TESTS_UNIT_STORE_AVERAGE_CODE_H
#define TESTS_UNIT_STORE_AVERAGE_CODE_H

#include <math.h>
#include <stdint.h>

#define AVERAGE_CODE_MAX  65535
#define AVERAGE_CODE_STEP 2047.96875 /* codes an octave: 65535 / 32 */

static inline uint16_t average_code(double share)
{
    if (!(share >= 0x1p-32)) /* NaN too */
        return 0;
    long code = AVERAGE_CODE_MAX + lround(AVERAGE_CODE_STEP * log2(share < 1.0 ? share : 1.0));
    return (uint16_t)(code > 1 ? code : 1);
}

static inline double average_share(uint16_t code)
{
    return code > 0 ? exp2(((double)code - AVERAGE_CODE_MAX) / AVERAGE_CODE_STEP) : 0.0;
}

#endif

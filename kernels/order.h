/* The total order of scores: a uint32 that grows with the score; NaN is lowest, -0 equals 0.
 *
 *   score   bits      order
 *   NaN     any       0
 *   < 0     1eeefff   ~bits
 *   >= 0    0eeefff   bits | 1 << 31
 *
 * Threads: any. Tests: tests/unit/kernels/test_choose.c */
#ifndef SC_KERNELS_ORDER_H
#define SC_KERNELS_ORDER_H

#include <stdint.h>
#include <string.h>

static inline uint32_t sc_kernels_order_of(float score)
{
    uint32_t bits;
    memcpy(&bits, &score, sizeof(bits));
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return 0;
    if (bits == 0x80000000u)
        bits = 0;
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

#endif

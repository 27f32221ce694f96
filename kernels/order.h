/* order: maps scores to uint32 keys with the same total order: NaN is lowest, -0 equals 0.
 *
 *   score   bits      order               plain: no NaN, no sign: the bits as they are
 *   NaN     any       0                   (sums of softmax are plain)
 *   < 0     1eeefff   ~bits
 *   >= 0    0eeefff   bits | 1 << 31
 *
 * Threads: any. Tests: tests/unit/kernels/test_topk.c */
#ifndef SC_KERNELS_ORDER_H
#define SC_KERNELS_ORDER_H

#include "kernels/kernels.h"

#include <stdint.h>
#include <string.h>

#define SC_KERNELS_PLAIN_MOST 0x7f800000u /* +infinity */

static inline uint32_t sc_kernels_order_of_bits(uint32_t bits)
{
    if ((bits & 0x7fffffffu) > SC_KERNELS_PLAIN_MOST)
        return 0;
    if (bits == 0x80000000u)
        bits = 0;
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static inline uint32_t sc_kernels_order_of(float score)
{
    uint32_t bits;
    memcpy(&bits, &score, sizeof(bits));
    return sc_kernels_order_of_bits(bits);
}

static inline uint32_t sc_kernels_key_of(uint32_t entry, enum sc_kernels_keys_are keys_are)
{
    return keys_are == SC_KERNELS_KEYS_SCORES ? sc_kernels_order_of_bits(entry) : entry;
}

#endif

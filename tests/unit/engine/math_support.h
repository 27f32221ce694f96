/* What the tests of the numeric kernels share: seeded numbers, guarded arrays, comparison by bits.
 *
 *   guarded: | 64 bytes 0xa5 | the array | 64 bytes 0xa5 |
 *
 * Holds: the same seed gives the same numbers on every machine.
 * Does not: use libc's rand.
 * Threads: one.
 * Tests: none; it serves tests.
 */
#ifndef TESTS_UNIT_ENGINE_MATH_SUPPORT_H
#define TESTS_UNIT_ENGINE_MATH_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/engine/cpuid.h"
#include "conformance/engine/halffloat.h"
#include "conformance/engine/pool.h"

#define GUARD_BYTES 64u
#define GUARD_VALUE 0xa5

static inline uint64_t next_random(uint64_t *seed)
{
    *seed += 0x9e3779b97f4a7c15u; /* splitmix64 */
    uint64_t z = *seed;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Uniform in [-1, 1). */
static inline float next_float(uint64_t *seed)
{
    return (float)(int32_t)(next_random(seed) >> 32) * 0x1p-31f;
}

static inline void *guarded_new(uint64_t bytes)
{
    uint8_t *whole = malloc(bytes + 2 * GUARD_BYTES);
    assert_non_null(whole);
    memset(whole, GUARD_VALUE, bytes + 2 * GUARD_BYTES);
    return whole + GUARD_BYTES;
}

/* Checks the guards and frees. */
static inline void guarded_free(void *array, uint64_t bytes)
{
    uint8_t *whole = (uint8_t *)array - GUARD_BYTES;
    for (uint64_t i = 0; i < GUARD_BYTES; i++) {
        assert_int_equal(whole[i], GUARD_VALUE);
        assert_int_equal(whole[GUARD_BYTES + bytes + i], GUARD_VALUE);
    }
    free(whole);
}

static inline float *random_floats(uint64_t count, uint64_t seed)
{
    float *values = guarded_new(count * sizeof(*values));
    for (uint64_t i = 0; i < count; i++)
        values[i] = next_float(&seed);
    return values;
}

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* The same bits; of NaNs only that both are one. */
static inline void assert_same_floats(const float *got, const float *want, uint64_t count,
                                      const char *what)
{
    for (uint64_t i = 0; i < count; i++) {
        int both_nan = got[i] != got[i] && want[i] != want[i];
        if (!both_nan && bits_of(got[i]) != bits_of(want[i]))
            fail_msg("%s: element %llu is %a, expected %a", what, (unsigned long long)i,
                     (double)got[i], (double)want[i]);
    }
}

static inline struct eng_pool *new_pool(uint32_t threads)
{
    struct eng_pool *pool = NULL;
    struct eng_error error = {0};
    if (eng_pool_open(threads, &pool, &error) != ENG_OK)
        fail_msg("%s", error.text);
    return pool;
}

/* Says once which levels this run compares. */
static inline void print_levels(void)
{
    print_message("levels compared: plain .. %s\n", eng_cpu_name(eng_cpu_best()));
}

#endif

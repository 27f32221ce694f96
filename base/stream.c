/* Streaming copies; stream.h. SSE2 belongs to every x86-64, and four of its stores fill a line as
 * well as one of AVX-512: memory binds. Elsewhere it is memcpy.
 *
 * Threads: any. Tests: tests/unit/base/test_stream.c */
#include "base/stream.h"

#include <string.h>

#define LINE_BYTES  64u
#define BYTES_LEAST 256u /* below this the ends are most of it */

#if defined(__x86_64__)
#include <immintrin.h>

void sc_stream_copy(uint8_t *dst, const uint8_t *src, uint64_t bytes)
{
    uint64_t before = (0 - (uint64_t)(uintptr_t)dst) % LINE_BYTES;
    if (bytes < BYTES_LEAST) {
        memcpy(dst, src, bytes);
        return;
    }
    memcpy(dst, src, before);
    dst += before;
    src += before;
    bytes -= before;
    for (; bytes >= LINE_BYTES; bytes -= LINE_BYTES, dst += LINE_BYTES, src += LINE_BYTES) {
        __m128i part[4];
        for (uint32_t i = 0; i < 4; i++)
            part[i] = _mm_loadu_si128((const __m128i *)(const void *)src + i);
        for (uint32_t i = 0; i < 4; i++)
            _mm_stream_si128((__m128i *)(void *)dst + i, part[i]);
    }
    memcpy(dst, src, bytes);
}

void sc_stream_end(void)
{
    _mm_sfence();
}
#else
void sc_stream_copy(uint8_t *dst, const uint8_t *src, uint64_t bytes)
{
    memcpy(dst, src, bytes);
}

void sc_stream_end(void)
{
}
#endif

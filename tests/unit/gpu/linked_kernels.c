/* Kernels for the fake, as whoever emulates some links them: one, which negates bytes. */
#include "tests/cuda/fake/fake.h"

static void negate(void **arguments, const unsigned grid[3], const unsigned block[3],
                   unsigned shared_bytes, uint64_t seed)
{
    (void)shared_bytes;
    (void)seed;
    uint8_t *bytes = (uint8_t *)(uintptr_t) * (const sc_cu_ptr *)arguments[0];
    for (uint64_t i = 0; i < (uint64_t)grid[0] * block[0]; i++)
        bytes[i] = (uint8_t)~bytes[i];
}

const struct fake_kernel *fake_kernels_linked(uint32_t *ret_count)
{
    static const size_t argument_bytes[] = {sizeof(sc_cu_ptr)};
    static const struct fake_kernel kernels[] = {{"negate", 256, 1, argument_bytes, negate}};
    *ret_count = 1;
    return kernels;
}

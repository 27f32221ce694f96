/* The emulated kernels (tests/cuda/emu/) as those of the fake driver: what loads through the plugin
 * are tested with; with SC_WITH_BENCH those of bench cuda, too.
 *
 * Threads: the fake's lock. Tests: tests/unit/plugin/test_device.c */
#include "tests/cuda/emu/run.h"
#include "tests/cuda/fake/fake.h"

#include "tests/cuda/emu/kernels.h"

namespace
{

void launch(const char *name, void **arguments, const unsigned grid[3], const unsigned block[3],
            unsigned shared_bytes, uint64_t seed)
{
    if (emu_run(emu_kernel_find(name), arguments, grid, block, shared_bytes, seed) != 0)
        __builtin_trap(); /* the fake has looked at the shape */
}

#define BYTES(name, params, threads) const size_t bytes_##name[] = {sizeof(params)};
SC_EMU_KERNELS(BYTES)

#define ROW(name, params, threads)                                                                 \
    {#name, threads, 1, bytes_##name,                                                              \
     [](void **arguments, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes,  \
        uint64_t seed) { launch(#name, arguments, grid, block, shared_bytes, seed); }},

const fake_kernel KERNELS[] = {SC_EMU_KERNELS(ROW)};

} // namespace

const struct fake_kernel *fake_kernels_linked(uint32_t *ret_count)
{
    *ret_count = sizeof(KERNELS) / sizeof(KERNELS[0]);
    return KERNELS;
}

/* The product's kernels by name: what cuModuleGetFunction is on a device.
 *
 * Threads: any. Tests: tests/unit/kernels/test_cuda_*.c */
#include "tests/cuda/emu/emu.h"

#include "tests/cuda/emu/kernels.h"

#define DECLARE(name, params, threads) extern "C" void name(const params what);
SC_EMU_KERNELS(DECLARE)

#define ROW(name, params, threads)                                                                 \
    {#name,                                                                                        \
     [](void *const *args) { name(*static_cast<const params *>(args[0])); },                       \
     1,                                                                                            \
     {sizeof(params)},                                                                             \
     threads},

static const struct emu_kernel kernels[] = {SC_EMU_KERNELS(ROW)};

const struct emu_kernel *emu_kernel_find(const char *name)
{
    for (const struct emu_kernel &kernel : kernels)
        if (strcmp(kernel.name, name) == 0)
            return &kernel;
    return nullptr;
}

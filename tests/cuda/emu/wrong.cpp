/* The kernels of wrong.h by name.
 *
 * Threads: any. Tests: tests/unit/kernels/test_cuda_emu.c */
#include "tests/cuda/emu/wrong.h"
#include "tests/cuda/emu/emu.h"

#define DECLARE(name) extern "C" void name(const emu_wrong what);
EMU_WRONG_KERNELS(DECLARE)

#define ROW(name)                                                                                  \
    {#name,                                                                                        \
     [](void *const *args) { name(*static_cast<const emu_wrong *>(args[0])); },                    \
     1,                                                                                            \
     {sizeof(emu_wrong)},                                                                          \
     256},

static const struct emu_kernel kernels[] = {EMU_WRONG_KERNELS(ROW)};

const struct emu_kernel *emu_wrong_find(const char *name)
{
    for (const struct emu_kernel &kernel : kernels)
        if (strcmp(kernel.name, name) == 0)
            return &kernel;
    return nullptr;
}

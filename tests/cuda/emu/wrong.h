/* Kernels that are wrong in what the emulation must see, and four that are right.
 *
 * Threads: as run.h. Tests: tests/unit/kernels/test_cuda_emu.c */
#ifndef SC_TESTS_CUDA_EMU_WRONG_H
#define SC_TESTS_CUDA_EMU_WRONG_H

#include "tests/cuda/emu/run.h"

struct emu_wrong {
    uint32_t *out; /* [256] of each block, unless a kernel says otherwise */
    uint32_t count;
};

#define EMU_WRONG_KERNELS(X)                                                                       \
    X(emu_sum)                                                                                     \
    X(emu_exchange)                                                                                \
    X(emu_product)                                                                                 \
    X(emu_product_rounded)                                                                         \
    X(emu_product_by_half_a_warp)                                                                  \
    X(emu_barrier_in_a_branch)                                                                     \
    X(emu_exit_before_barrier)                                                                     \
    X(emu_lane_has_ended)                                                                          \
    X(emu_lane_outside_the_mask)                                                                   \
    X(emu_shuffle_of_a_stranger)                                                                   \
    X(emu_warp_waits_for_barrier)                                                                  \
    X(emu_unaligned)                                                                               \
    X(emu_much_shared)                                                                             \
    X(emu_race)                                                                                    \
    X(emu_race_in_a_warp)                                                                          \
    X(emu_race_of_blocks)                                                                          \
    X(emu_shared_overrun)

#ifdef __cplusplus
extern "C"
#endif
    const struct emu_kernel *
    emu_wrong_find(const char *name);

#endif

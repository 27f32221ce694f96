/* A device of the fake driver, attached, for the tests of gpu/; what is left afterwards fails. */
#ifndef TESTS_UNIT_GPU_ATTACHED_H
#define TESTS_UNIT_GPU_ATTACHED_H

#include "gpu/device.h"
#include "tests/cuda/fake/fake.h"
#include "tests/unit/gpu/kernels_ptx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { COPY_KERNEL, FILL_KERNEL }; /* numbers in kernel_names */

static const char *const kernel_names[] = {"fake_copy", "fake_fill"};
static const struct sc_gpu_image images[] = {{.capability = 75,
                                              .kind = SC_GPU_PTX,
                                              .bytes = kernels_ptx,
                                              .byte_count = sizeof(kernels_ptx)}};

struct attached {
    struct sc_alloc alloc;
    struct sc_poison poison;
    struct sc_gpu_params params;
    struct sc_gpu_device *device;
};

static inline void attached_init(struct attached *it)
{
    memset(it, 0, sizeof(*it));
    sc_alloc_init(&it->alloc);
    it->params = (struct sc_gpu_params){.alloc = &it->alloc,
                                        .poison = &it->poison,
                                        .library_path = FAKE_CUDA,
                                        .images = images,
                                        .image_count = 1,
                                        .kernels = kernel_names,
                                        .kernel_count = 2,
                                        .slot_count = 2,
                                        .event_count = 8,
                                        .hold_max = 4,
                                        .staging_bytes = 64u << 10,
                                        .stage_ranges = 16};
}

static inline void attached_open(struct attached *it)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    attached_init(it);
    if (sc_gpu_device_attach(&it->params, &it->device, &error) != SPEC_OK)
        fail_msg("attach: %s", error.text);
}

/* Nothing is left: of the host's memory, on the device, of this thread's state, of our rules. */
static inline void attached_check_none_left(struct attached *it)
{
    assert_int_equal(atomic_load(&it->alloc.live_blocks), 0);
    assert_null(fake_leaks());
    assert_int_equal(fake_depth(), 0);
    assert_int_equal(fake_mode(), 0);
    assert_int_equal(atomic_load(&it->poison.broken), 0);
}

static inline void attached_close(struct attached *it)
{
    sc_gpu_device_detach(it->device);
    it->device = NULL;
    attached_check_none_left(it);
}

#endif

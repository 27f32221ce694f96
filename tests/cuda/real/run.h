/* Kernels as tests of kernels/cuda/ run them, on a device: by whatever driver the loader finds, and
 * by the images that the product has. It stands in for tests/cuda/emu/run.h, so that shapes and
 * comparisons are the emulated tests' own (tests/unit/kernels/cuda_run.h).
 *
 *   a test's block     malloc .. free, or lent for a launch     host memory, which ref/ uses too
 *   its twin           as many bytes of device memory, from the first launch that reaches it on
 *   launch             every block that the parameters reach -> twins | kernel | twins -> blocks
 *
 * Pointers in parameters, and in tables that these point to, are made to point into twins. A twin
 * is an allocation of its own and of its block's size, so that a checker of device memory sees what
 * lies outside of it.
 *
 * Holds: after a launch a block has what its twin has, but for those with pointers in them, and
 *   those that are lent, which no kernel may write. What a kernel is given and no block has fails.
 * Does not: know orders of threads; a second launch is another one.
 * Threads: one. Tests: tests/unit/kernels (test_cuda_device_*) */
#ifndef SC_TESTS_CUDA_REAL_RUN_H
#define SC_TESTS_CUDA_REAL_RUN_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cuda/launch.h"

/* A group's setup and teardown: the device is attached, with the product's images, or with the one
 * in the file that SC_TEST_IMAGE names: of sm_NN as its path says, else of any device from 8.0 on.
 * Where there is none that can be, says why and ends the process with 0. */
int real_open(void **state);
int real_close(void **state);

/* As libc's, of blocks. */
void *real_malloc(size_t bytes);
void *real_calloc(size_t count, size_t bytes);
void *real_aligned_alloc(size_t align, size_t bytes);
int real_posix_memalign(void **ret_at, size_t align, size_t bytes);
void real_free(void *at);
/* Memory of another kind is a block for the next launch. */
void real_lend(const void *at, uint64_t bytes);

/* By its name, with its one parameter; a grid of nothing is not launched. A driver that refuses
 * fails the test. */
void real_launch(const char *name, const void *params, uint64_t param_bytes,
                 const struct sc_cuda_shape *shape);

/* SC_TEST_SAMPLE is set, where a checker makes launches slow: tests take some of their cases. */
bool real_is_sampled(void);

#endif

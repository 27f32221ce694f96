/* gpu/driver.h beside the toolkit's cuda.h: each call's arguments and each number agree, or this
 * does not compile. Where there is no toolkit, it is skipped. */
#ifdef SC_HAS_CUDA_H
#include <cuda.h>
#if __has_include(<cudaTypedefs.h>)
#include <cudaTypedefs.h>
#define HAS_TYPEDEFS
#endif
#endif
#include "gpu/driver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#ifdef SC_HAS_CUDA_H
/* Tags of handles are the same; enumerations are cuda.h's where it was included. */
#define X(name, version, arguments)                                                                \
    _Static_assert(__builtin_types_compatible_p(CUresult(*) arguments, __typeof__(&name)), #name);
SC_CU_CALLS(X)
#undef X

/* The version that is asked for is that of the declaration: cudaTypedefs.h has a type a version.
 * The macros of cuda.h that rename calls (cuMemAlloc to cuMemAlloc_v2) are in the way: the names
 * are joined before they are looked at. */
#ifdef HAS_TYPEDEFS
#define X(name, version, arguments)                                                                \
    _Static_assert(__builtin_types_compatible_p(CUresult(*) arguments, PFN_##name##_v##version),   \
                   #name " of version " #version);
SC_CU_CALLS(X)
#undef X
#endif

/* Our int is as wide as their enumerations. */
_Static_assert(sizeof(CUresult) == sizeof(int), "CUresult");
_Static_assert(sizeof(CUdevice_attribute) == sizeof(int), "CUdevice_attribute");
_Static_assert(sizeof(CUpointer_attribute) == sizeof(int), "CUpointer_attribute");
_Static_assert(sizeof(CUstreamCaptureStatus) == sizeof(int), "CUstreamCaptureStatus");
_Static_assert(sizeof(CUstreamCaptureMode) == sizeof(int), "CUstreamCaptureMode");
_Static_assert(sizeof(CUjit_option) == sizeof(int), "CUjit_option");

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
SAME(SC_CU_OK, CUDA_SUCCESS);
SAME(SC_CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME(SC_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(SC_CU_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
SAME(SC_CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(SC_CU_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
SAME(SC_CU_INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE);
SAME(SC_CU_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
SAME(SC_CU_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE);
SAME(SC_CU_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
SAME(SC_CU_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(SC_CU_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED);
SAME(SC_CU_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
SAME(SC_CU_CAPTURE_IMPLICIT, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
SAME(SC_CU_ALREADY_REGISTERED, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
SAME(SC_CU_NOT_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
SAME(SC_CU_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(SC_CU_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(SC_CU_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(SC_CU_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(SC_CU_POINTER_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME(SC_CU_MEMORY_HOST, CU_MEMORYTYPE_HOST);
SAME(SC_CU_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE);
SAME(SC_CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(SC_CU_EVENT_BLOCKING_SYNC, CU_EVENT_BLOCKING_SYNC);
SAME(SC_CU_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
SAME(SC_CU_HOSTREGISTER_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
SAME(SC_CU_HOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_DEVICEMAP);
SAME(SC_CU_CAPTURE_NONE, CU_STREAM_CAPTURE_STATUS_NONE);
SAME(SC_CU_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(SC_CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER);
SAME(SC_CU_JIT_ERROR_LOG_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);

#define PLACE(ours, theirs)                                                                        \
    _Static_assert(offsetof(struct sc_cu_copy_2d, ours) == offsetof(CUDA_MEMCPY2D, theirs),        \
                   #theirs);                                                                       \
    _Static_assert(sizeof(((struct sc_cu_copy_2d *)NULL)->ours) ==                                 \
                       sizeof(((CUDA_MEMCPY2D *)NULL)->theirs),                                    \
                   #theirs)
PLACE(from_x_bytes, srcXInBytes);
PLACE(from_y, srcY);
PLACE(from_kind, srcMemoryType);
PLACE(from_host, srcHost);
PLACE(from_device, srcDevice);
PLACE(from_array, srcArray);
PLACE(from_pitch, srcPitch);
PLACE(to_x_bytes, dstXInBytes);
PLACE(to_y, dstY);
PLACE(to_kind, dstMemoryType);
PLACE(to_host, dstHost);
PLACE(to_device, dstDevice);
PLACE(to_array, dstArray);
PLACE(to_pitch, dstPitch);
PLACE(width_bytes, WidthInBytes);
PLACE(height, Height);
_Static_assert(sizeof(struct sc_cu_copy_2d) == sizeof(CUDA_MEMCPY2D), "CUDA_MEMCPY2D");
#endif

static void declarations_agree_with_the_toolkits(void **state)
{
    (void)state;
#ifndef SC_HAS_CUDA_H
    printf("skipped: no CUDA toolkit to compare with (cuda.h)\n");
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(declarations_agree_with_the_toolkits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

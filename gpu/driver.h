/* driver: the CUDA driver calls that we use, declared here to compile without a toolkit.
 *
 * SC_CU_CALLS lists each call's name, the version requested from cuGetProcAddress, and its
 * arguments. gpu/library.h loads the calls, gpu/device.h checks their results.
 *
 * Invariants: every declaration and number agrees with cuda.h. If a toolkit is found,
 * tests/unit/gpu/test_driver.c compares them by including cuda.h first. */
#ifndef SC_GPU_DRIVER_H
#define SC_GPU_DRIVER_H

#include <stddef.h>
#include <stdint.h>

/* The oldest driver supported: CUDA 12.0, first in driver 525. */
#define SC_CU_VERSION_MIN    12000
#define SC_CU_VERSION_DRIVER "525"
#define SC_CU_CAPABILITY_MIN 75u /* 7.5, as 10 * major + minor */

typedef int sc_cu_device;             /* CUdevice */
typedef unsigned long long sc_cu_ptr; /* CUdeviceptr */
typedef struct CUctx_st *sc_cu_context;
typedef struct CUmod_st *sc_cu_module;
typedef struct CUfunc_st *sc_cu_function;
typedef struct CUstream_st *sc_cu_stream;
typedef struct CUevent_st *sc_cu_event;

/* CUDA_MEMCPY2D: `height` rows of `width_bytes`. */
struct sc_cu_copy_2d {
    size_t from_x_bytes, from_y;
    unsigned from_kind; /* SC_CU_MEMORY_* */
    const void *from_host;
    sc_cu_ptr from_device;
    void *from_array;
    size_t from_pitch;
    size_t to_x_bytes, to_y;
    unsigned to_kind;
    void *to_host;
    sc_cu_ptr to_device;
    void *to_array;
    size_t to_pitch;
    size_t width_bytes, height;
};

#ifdef CUDA_VERSION /* cuda.h was included first: its enumerations, for the comparison */
typedef CUresult sc_cu_result;
typedef CUdevice_attribute sc_cu_attribute;
typedef CUpointer_attribute sc_cu_pointer_attribute;
typedef CUstreamCaptureStatus sc_cu_capture;
typedef CUstreamCaptureMode sc_cu_capture_mode;
typedef CUjit_option sc_cu_jit_option;
typedef CUDA_MEMCPY2D sc_cu_copy_2d;
#else
typedef int sc_cu_result; /* CUresult */
typedef int sc_cu_attribute, sc_cu_pointer_attribute, sc_cu_capture, sc_cu_capture_mode;
typedef int sc_cu_jit_option;
typedef struct sc_cu_copy_2d sc_cu_copy_2d;
#endif

#define SC_CU_OK                 0
#define SC_CU_INVALID_VALUE      1
#define SC_CU_OUT_OF_MEMORY      2
#define SC_CU_NOT_INITIALIZED    3
#define SC_CU_NO_DEVICE          100
#define SC_CU_INVALID_DEVICE     101
#define SC_CU_INVALID_IMAGE      200
#define SC_CU_INVALID_CONTEXT    201
#define SC_CU_INVALID_HANDLE     400
#define SC_CU_NOT_FOUND          500
#define SC_CU_NOT_READY          600
#define SC_CU_LAUNCH_FAILED      719
#define SC_CU_NOT_SUPPORTED      801
#define SC_CU_CAPTURE_IMPLICIT   906 /* legacy stream used while another stream is captured */
#define SC_CU_ALREADY_REGISTERED 712
#define SC_CU_NOT_REGISTERED     713

#define SC_CU_MULTIPROCESSORS     16
#define SC_CU_CAPABILITY_MAJOR    75
#define SC_CU_CAPABILITY_MINOR    76
#define SC_CU_POINTER_MEMORY_TYPE 2
#define SC_CU_POINTER_ORDINAL     9

#define SC_CU_MEMORY_HOST              1u
#define SC_CU_MEMORY_DEVICE            2u
#define SC_CU_STREAM_NON_BLOCKING      1u
#define SC_CU_EVENT_BLOCKING_SYNC      1u
#define SC_CU_EVENT_DISABLE_TIMING     2u
#define SC_CU_HOSTREGISTER_PORTABLE    1u
#define SC_CU_HOSTREGISTER_DEVICEMAP   2u
#define SC_CU_CAPTURE_NONE             0
#define SC_CU_CAPTURE_MODE_RELAXED     2
#define SC_CU_JIT_ERROR_LOG_BUFFER     5
#define SC_CU_JIT_ERROR_LOG_SIZE_BYTES 6

/* clang-format off: one line per call */
#define SC_CU_CALLS(X)                                                                             \
    X(cuInit, 2000, (unsigned flags))                                                              \
    X(cuDriverGetVersion, 2020, (int *version))                                                    \
    X(cuGetErrorName, 6000, (sc_cu_result code, const char **text))                                \
    X(cuGetErrorString, 6000, (sc_cu_result code, const char **text))                              \
    X(cuDeviceGetCount, 2000, (int *count))                                                        \
    X(cuDeviceGet, 2000, (sc_cu_device * device, int ordinal))                                     \
    X(cuDeviceGetName, 2000, (char *name, int name_bytes, sc_cu_device device))                    \
    X(cuDeviceGetAttribute, 2000, (int *value, sc_cu_attribute attribute, sc_cu_device device))    \
    X(cuDevicePrimaryCtxRetain, 7000, (sc_cu_context * context, sc_cu_device device))              \
    X(cuDevicePrimaryCtxRelease, 11000, (sc_cu_device device))                                     \
    X(cuCtxPushCurrent, 4000, (sc_cu_context context))                                             \
    X(cuCtxPopCurrent, 4000, (sc_cu_context * context))                                            \
    X(cuCtxGetCurrent, 4000, (sc_cu_context * context))                                            \
    X(cuCtxSynchronize, 2000, (void))                                                              \
    X(cuThreadExchangeStreamCaptureMode, 10010, (sc_cu_capture_mode * mode))                       \
    X(cuModuleLoadDataEx, 2010,                                                                    \
      (sc_cu_module * module, const void *image, unsigned option_count, sc_cu_jit_option *options, \
       void **values))                                                                             \
    X(cuModuleUnload, 2000, (sc_cu_module module))                                                 \
    X(cuModuleGetFunction, 2000,                                                                   \
      (sc_cu_function * function, sc_cu_module module, const char *name))                          \
    X(cuMemAlloc, 3020, (sc_cu_ptr * at, size_t bytes))                                            \
    X(cuMemFree, 3020, (sc_cu_ptr at))                                                             \
    X(cuMemHostRegister, 6050, (void *at, size_t bytes, unsigned flags))                           \
    X(cuMemHostUnregister, 4000, (void *at))                                                       \
    X(cuMemHostGetDevicePointer, 3020, (sc_cu_ptr * device_at, void *at, unsigned flags))          \
    X(cuPointerGetAttribute, 4000, (void *value, sc_cu_pointer_attribute attribute, sc_cu_ptr at)) \
    X(cuMemcpyHtoDAsync, 3020,                                                                     \
      (sc_cu_ptr to, const void *from, size_t bytes, sc_cu_stream stream))                         \
    X(cuMemcpyDtoHAsync, 3020, (void *to, sc_cu_ptr from, size_t bytes, sc_cu_stream stream))      \
    X(cuMemcpy2DAsync, 3020, (const sc_cu_copy_2d *copy, sc_cu_stream stream))                     \
    X(cuStreamCreate, 2000, (sc_cu_stream * stream, unsigned flags))                               \
    X(cuStreamCreateWithPriority, 5050, (sc_cu_stream * stream, unsigned flags, int priority))     \
    X(cuCtxGetStreamPriorityRange, 5050, (int *least, int *greatest))                              \
    X(cuStreamDestroy, 4000, (sc_cu_stream stream))                                                \
    X(cuStreamWaitEvent, 3020, (sc_cu_stream stream, sc_cu_event event, unsigned flags))           \
    X(cuStreamSynchronize, 2000, (sc_cu_stream stream))                                            \
    X(cuStreamIsCapturing, 10000, (sc_cu_stream stream, sc_cu_capture * status))                   \
    X(cuStreamGetCtx, 9020, (sc_cu_stream stream, sc_cu_context * context))                        \
    X(cuEventCreate, 2000, (sc_cu_event * event, unsigned flags))                                  \
    X(cuEventDestroy, 4000, (sc_cu_event event))                                                   \
    X(cuEventRecord, 2000, (sc_cu_event event, sc_cu_stream stream))                               \
    X(cuEventQuery, 2000, (sc_cu_event event))                                                     \
    X(cuEventSynchronize, 2000, (sc_cu_event event))                                               \
    X(cuLaunchKernel, 4000,                                                                        \
      (sc_cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,                 \
       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,                \
       sc_cu_stream stream, void **arguments, void **extra))
/* clang-format on */

struct sc_cu {
#define X(name, version, arguments) sc_cu_result(*name) arguments;
    SC_CU_CALLS(X)
#undef X
};

#endif

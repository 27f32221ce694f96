/* work.h: enqueues work. */
#include "gpu/work.h"

/* Tells whether the driver blames the host's handle, not the device. */
static bool is_hosts_mistake(sc_cu_result code)
{
    return code == SC_CU_INVALID_VALUE || code == SC_CU_INVALID_CONTEXT ||
           code == SC_CU_INVALID_HANDLE || code == SC_CU_NOT_SUPPORTED;
}

spec_status sc_gpu_stream_check(struct sc_gpu_device *device, sc_cu_stream stream,
                                struct spec_error *reterr)
{
    const struct sc_cu *cu = device->cu;
    sc_cu_capture capture = SC_CU_CAPTURE_NONE;
    sc_cu_result code = cu->cuStreamIsCapturing(stream, &capture);
    if (code == SC_CU_CAPTURE_IMPLICIT || (code == SC_CU_OK && capture != SC_CU_CAPTURE_NONE))
        return sc_fail(reterr, SPEC_E_INVALID, "the stream is being captured");
    if (is_hosts_mistake(code))
        return sc_fail(reterr, SPEC_E_INVALID, "not a stream of CUDA device %u", device->ordinal);
    if (code != SC_CU_OK)
        return sc_gpu_check(device, code, "cuStreamIsCapturing", reterr);
    sc_cu_context context = NULL;
    code = cu->cuStreamGetCtx(stream, &context);
    if (is_hosts_mistake(code) || (code == SC_CU_OK && context != device->context))
        return sc_fail(reterr, SPEC_E_INVALID,
                       "the stream is not one of CUDA device %u's primary context",
                       device->ordinal);
    return sc_gpu_check(device, code, "cuStreamGetCtx", reterr);
}

static spec_status byte_check(struct sc_gpu_device *device, sc_cu_ptr at, struct spec_error *reterr)
{
    unsigned kind = 0;
    int ordinal = -1;
    sc_cu_result code = device->cu->cuPointerGetAttribute(&kind, SC_CU_POINTER_MEMORY_TYPE, at);
    if (code == SC_CU_OK)
        code = device->cu->cuPointerGetAttribute(&ordinal, SC_CU_POINTER_ORDINAL, at);
    if (is_hosts_mistake(code))
        return sc_fail(reterr, SPEC_E_INVALID, "address %#llx is no memory of CUDA's", at);
    if (code != SC_CU_OK)
        return sc_gpu_check(device, code, "cuPointerGetAttribute", reterr);
    if (kind != SC_CU_MEMORY_DEVICE)
        return sc_fail(reterr, SPEC_E_INVALID, "address %#llx is host memory", at);
    if (ordinal != (int)device->ordinal)
        return sc_fail(reterr, SPEC_E_INVALID, "address %#llx is on CUDA device %d, not on %u", at,
                       ordinal, device->ordinal);
    return SPEC_OK;
}

spec_status sc_gpu_memory_check(struct sc_gpu_device *device, sc_cu_ptr at, uint64_t bytes,
                                struct spec_error *reterr)
{
    sc_cu_ptr last;
    if (bytes == 0 || __builtin_add_overflow(at, bytes - 1, &last))
        return sc_fail(reterr, SPEC_E_INVALID, "%" PRIu64 " bytes at %#llx", bytes, at);
    spec_status status = byte_check(device, at, reterr);
    return status == SPEC_OK ? byte_check(device, last, reterr) : status;
}

/* Records an event on `first`; wait_for makes `then` wait for it. */
static spec_status record(struct sc_gpu_device *device, sc_cu_event event, sc_cu_stream first,
                          struct spec_error *reterr)
{
    return sc_gpu_check(device, device->cu->cuEventRecord(event, first), "cuEventRecord", reterr);
}

static spec_status wait_for(struct sc_gpu_device *device, sc_cu_stream then, sc_cu_event event,
                            struct spec_error *reterr)
{
    return sc_gpu_check(device, device->cu->cuStreamWaitEvent(then, event, 0), "cuStreamWaitEvent",
                        reterr);
}

spec_status sc_gpu_begin(struct sc_gpu_device *device, struct sc_gpu_slot *slot,
                         sc_cu_stream stream, uint32_t lanes, struct spec_error *reterr)
{
    spec_status status = sc_gpu_stream_check(device, stream, reterr);
    if (status != SPEC_OK)
        return status;
    status = record(device, slot->begin, stream, reterr);
    if (status == SPEC_OK && (lanes & SC_GPU_COPIES) != 0)
        status = wait_for(device, slot->copies.stream, slot->begin, reterr);
    if (status == SPEC_OK && (lanes & SC_GPU_KERNELS) != 0)
        status = wait_for(device, slot->kernels.stream, slot->begin, reterr);
    return status;
}

spec_status sc_gpu_follow(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream,
                          struct sc_gpu_stream *first, struct spec_error *reterr)
{
    spec_status status = record(device, first->mark, first->stream, reterr);
    if (status == SPEC_OK)
        status = wait_for(device, own_stream->stream, first->mark, reterr);
    return status;
}

spec_status sc_gpu_end(struct sc_gpu_device *device, struct sc_gpu_slot *slot,
                       struct spec_error *reterr)
{
    return record(device, slot->end, slot->kernels.stream, reterr);
}

spec_status sc_gpu_end_wait(struct sc_gpu_device *device, struct sc_gpu_slot *slot,
                            sc_cu_stream stream, struct spec_error *reterr)
{
    spec_status status = sc_gpu_stream_check(device, stream, reterr);
    if (status == SPEC_OK)
        status = wait_for(device, stream, slot->end, reterr);
    return status;
}

spec_status sc_gpu_copy_in(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream,
                           sc_cu_ptr to, const void *from, uint64_t bytes,
                           struct spec_error *reterr)
{
    return sc_gpu_check(device, device->cu->cuMemcpyHtoDAsync(to, from, bytes, own_stream->stream),
                        "cuMemcpyHtoDAsync", reterr);
}

spec_status sc_gpu_copy_out(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream,
                            void *to, sc_cu_ptr from, uint64_t bytes, struct spec_error *reterr)
{
    return sc_gpu_check(device, device->cu->cuMemcpyDtoHAsync(to, from, bytes, own_stream->stream),
                        "cuMemcpyDtoHAsync", reterr);
}

spec_status sc_gpu_copy_rows_in(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream,
                                sc_cu_ptr to, uint64_t to_stride_bytes, const void *from,
                                uint64_t from_stride_bytes, uint64_t row_bytes, uint64_t rows,
                                struct spec_error *reterr)
{
    struct sc_cu_copy_2d copy = {.from_kind = SC_CU_MEMORY_HOST,
                                 .from_host = from,
                                 .from_pitch = from_stride_bytes,
                                 .to_kind = SC_CU_MEMORY_DEVICE,
                                 .to_device = to,
                                 .to_pitch = to_stride_bytes,
                                 .width_bytes = row_bytes,
                                 .height = rows};
    return sc_gpu_check(device, device->cu->cuMemcpy2DAsync(&copy, own_stream->stream),
                        "cuMemcpy2DAsync", reterr);
}

spec_status sc_gpu_launch(struct sc_gpu_device *device, sc_cu_stream stream, uint32_t kernel,
                          const struct sc_gpu_grid *grid, void **arguments,
                          struct spec_error *reterr)
{
    bool is_known = kernel < device->kernel_count;
    SC_ASSERT(device->poison, is_known);
    if (!is_known)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "kernel %u of %u", kernel, device->kernel_count);
    uint32_t x = grid->blocks_x > 0 ? grid->blocks_x : 1;
    uint32_t y = grid->blocks_y > 0 ? grid->blocks_y : 1;
    uint32_t z = grid->blocks_z > 0 ? grid->blocks_z : 1;
    sc_cu_result code =
        device->cu->cuLaunchKernel(device->functions[kernel], x, y, z, grid->threads, 1, 1,
                                   grid->shared_bytes, stream, arguments, NULL);
    return sc_gpu_check(device, code, "cuLaunchKernel", reterr);
}

void sc_gpu_stream_finish(struct sc_gpu_device *device, sc_cu_stream stream)
{
    if (device->cu->cuStreamSynchronize(stream) != SC_CU_OK)
        (void)device->cu->cuCtxSynchronize(); /* if that fails too, nothing runs */
}

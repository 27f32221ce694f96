/* Holds, Threads: tests/unit/plugin/device_fixture.h. */
#include "tests/unit/plugin/device_fixture.h"

#define PAGE 4096u

void device_ok(sc_cu_result code)
{
    assert_int_equal(code, 0);
}

void device_host_open(struct device_host *host, int ordinal)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    if (sc_gpu_library_load(NULL, &host->cu, &error) != SPEC_OK)
        fail_msg("%s", error.text);
    device_ok(host->cu->cuDeviceGet(&host->ordinal, ordinal));
    device_ok(host->cu->cuDevicePrimaryCtxRetain(&host->context, host->ordinal));
    device_ok(host->cu->cuCtxPushCurrent(host->context));
    device_ok(host->cu->cuStreamCreate(&host->stream, SC_CU_STREAM_NON_BLOCKING));
}

void device_host_close(struct device_host *host)
{
    sc_cu_context popped;
    device_ok(host->cu->cuStreamSynchronize(host->stream));
    device_ok(host->cu->cuStreamDestroy(host->stream));
    device_ok(host->cu->cuCtxPopCurrent(&popped));
    assert_ptr_equal(popped, host->context);
    device_ok(host->cu->cuDevicePrimaryCtxRelease(host->ordinal));
}

void device_assert_clean(const char *what)
{
    if (fake_leaks() != NULL)
        fail_msg("%s: left behind: %s", what, fake_leaks());
    assert_int_equal(fake_depth(), 0);
    assert_int_equal(fake_mode(), 0);
}

void device_host_end(struct device_host *host, const char *what)
{
    device_host_close(host);
    device_assert_clean(what);
}

static uint8_t *pinned_new(const struct device_host *host, uint64_t bytes)
{
    uint8_t *memory = aligned_alloc(PAGE, bytes);
    assert_non_null(memory);
    memset(memory, 0, bytes);
    device_ok(host->cu->cuMemHostRegister(memory, bytes, SC_CU_HOSTREGISTER_DEVICEMAP));
    return memory;
}

struct there there_make(struct device_host *host, struct area *area)
{
    struct spec_memory *memory = &area->memory;
    uint64_t used = (uint64_t)((uint8_t *)memory->v_base - area->bytes) + area->part_bytes;
    struct there there = {.host = host, .used = used + RIG_GUARD};
    there.bytes = (there.used + PAGE - 1) / PAGE * PAGE;
    there.pinned = pinned_new(host, there.bytes);
    there.before = pinned_new(host, there.bytes);
    memcpy(there.before, area->bytes, there.used);
    device_ok(host->cu->cuMemAlloc(&there.at, there.bytes));
    there_put(&there);
    uint8_t *base = (uint8_t *)(uintptr_t)there.at;
    memory->k_base = base + ((uint8_t *)memory->k_base - area->bytes);
    memory->v_base = base + ((uint8_t *)memory->v_base - area->bytes);
    memory->device = SPEC_DEVICE_CUDA;
    memory->device_index = host->ordinal;
    memory->stream = host->stream;
    return there;
}

void there_put(const struct there *there)
{
    const struct device_host *host = there->host;
    device_ok(host->cu->cuMemcpyHtoDAsync(there->at, there->before, there->bytes, host->stream));
}

void there_read(const struct there *there, struct area *area)
{
    const struct device_host *host = there->host;
    device_ok(host->cu->cuMemcpyDtoHAsync(there->pinned, there->at, there->bytes, host->stream));
    device_ok(host->cu->cuStreamSynchronize(host->stream));
    memcpy(area->bytes, there->pinned, there->used);
}

bool there_is_untouched(const struct there *there, struct area *area)
{
    there_read(there, area);
    return memcmp(there->pinned, there->before, there->used) == 0;
}

void there_free(struct there *there)
{
    const struct sc_cu *cu = there->host->cu;
    device_ok(cu->cuMemFree(there->at));
    device_ok(cu->cuMemHostUnregister(there->pinned));
    device_ok(cu->cuMemHostUnregister(there->before));
    free(there->pinned);
    free(there->before);
}

struct plain_there plain_there_make(struct device_host *host, const uint8_t *from, uint64_t bytes)
{
    struct plain_there there = {.host = host, .bytes = (bytes + PAGE - 1) / PAGE * PAGE};
    there.before = pinned_new(host, there.bytes);
    there.junk = pinned_new(host, there.bytes);
    memcpy(there.before, from, bytes);
    for (uint64_t i = 0; i < there.bytes; i++)
        there.junk[i] = (uint8_t)(i * 37 + 11);
    device_ok(host->cu->cuMemAlloc(&there.at, there.bytes));
    plain_there_put(&there);
    return there;
}

static void plain_there_write(const struct plain_there *there, const uint8_t *from)
{
    const struct device_host *host = there->host;
    device_ok(host->cu->cuMemcpyHtoDAsync(there->at, from, there->bytes, host->stream));
}

void plain_there_put(const struct plain_there *there)
{
    plain_there_write(there, there->before);
}

void plain_there_spoil(const struct plain_there *there)
{
    plain_there_write(there, there->junk);
}

void plain_there_free(struct plain_there *there)
{
    const struct sc_cu *cu = there->host->cu;
    device_ok(cu->cuStreamSynchronize(there->host->stream));
    device_ok(cu->cuMemFree(there->at));
    device_ok(cu->cuMemHostUnregister(there->before));
    device_ok(cu->cuMemHostUnregister(there->junk));
    free(there->before);
    free(there->junk);
}

struct pass_there pass_there_make(struct device_host *host, struct pass *pass, bool queries,
                                  bool keys)
{
    struct pass_there there = {.has_queries = queries, .has_keys = keys};
    if (queries) {
        there.queries = plain_there_make(host, pass->queries, pass->q.byte_count);
        pass->q.data = (const void *)(uintptr_t)there.queries.at;
        pass->q.device = SPEC_DEVICE_CUDA;
        pass->q.device_index = host->ordinal;
        pass->q.stream = host->stream;
    }
    if (keys) { /* their V is nowhere: keys are enough */
        pass->fresh.memory.v_base = pass->fresh.memory.k_base;
        there.keys = there_make(host, &pass->fresh);
        pass->fresh.memory.v_base = NULL;
    }
    return there;
}

void pass_there_spoil(const struct pass_there *there)
{
    if (there->has_queries)
        plain_there_spoil(&there->queries);
    if (there->has_keys)
        device_ok(there->keys.host->cu->cuMemcpyHtoDAsync(
            there->keys.at, there->keys.pinned, there->keys.bytes, there->keys.host->stream));
}

void pass_there_free(struct pass_there *there)
{
    if (there->has_queries)
        plain_there_free(&there->queries);
    if (there->has_keys) {
        device_ok(there->keys.host->cu->cuStreamSynchronize(there->keys.host->stream));
        there_free(&there->keys);
    }
}

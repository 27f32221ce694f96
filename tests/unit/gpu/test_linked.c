/* A fake with kernels of somebody else's is loaded, and runs them beside its own. */
#include "gpu/pin.h"
#include "gpu/work.h"
#include "tests/unit/gpu/attached.h"

static void a_linked_kernel_is_found_and_run(void **state)
{
    (void)state;
    static const char *const names[] = {"fake_fill", "negate"};
    struct attached it;
    struct sc_gpu_entry entry;
    struct sc_gpu_pin pin = {0};
    attached_init(&it);
    it.params.kernels = names;
    assert_int_equal(sc_gpu_device_attach(&it.params, &it.device, NULL), SPEC_OK);
    uint8_t *host = sc_alloc_huge(&it.alloc, 4096);
    assert_int_equal(sc_gpu_pin(it.device, host, 4096, &pin, NULL), SPEC_OK);
    assert_int_equal(sc_gpu_enter(it.device, &entry, NULL), SPEC_OK);
    struct sc_gpu_stream *lane = &it.device->slots[0].kernels;
    sc_cu_ptr at = it.device->staging_base;
    uint64_t bytes = 512;
    uint32_t byte = 0x0f;
    void *fill[] = {&at, &bytes, &byte}, *negate[] = {&at};
    assert_int_equal(
        sc_gpu_launch(it.device, lane->stream, 0, &(struct sc_gpu_grid){.threads = 1}, fill, NULL),
        SPEC_OK);
    assert_int_equal(sc_gpu_launch(it.device, lane->stream, 1,
                                   &(struct sc_gpu_grid){.blocks_x = 2, .threads = 128}, negate,
                                   NULL),
                     SPEC_OK);
    assert_int_equal(sc_gpu_copy_out(it.device, lane, host, at, bytes, NULL), SPEC_OK);
    assert_int_equal(it.device->cu->cuStreamSynchronize(lane->stream), 0);
    assert_int_equal(host[0], 0xf0);
    assert_int_equal(host[255], 0xf0);
    assert_int_equal(host[256], 0x0f);
    struct sc_gpu_grid too_large = {.blocks_x = 1, .threads = 257};
    assert_int_equal(sc_gpu_launch(it.device, lane->stream, 1, &too_large, negate, NULL),
                     SPEC_E_IO); /* refused, and the device is closed */
    assert_true(sc_gpu_has_failed(it.device));
    sc_gpu_leave(it.device, &entry);
    sc_gpu_unpin(&pin);
    sc_alloc_free(&it.alloc, host);
    attached_close(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_linked_kernel_is_found_and_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* No driver, or no kernels (WHY_ABSENT): a load to a device is UNSUPPORTED and says why, each time;
 * host memory is loaded as if nobody had asked; where a device is configured, open fails. Skipped
 * on a machine with a driver.
 */
#include "tests/unit/plugin/plugin_fixture.h"

#include <dlfcn.h>

static void a_machine_without_a_driver_says_so(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(1, 0, 0, 40);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver != NULL) {
        (void)dlclose(driver);
        rig_prompt_free(&prompt);
        skip();
    }
    rig_begin(&rig, true, "\"preset\": \"as-like\"");
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    struct spec_lookup_result found = rig_lookup(&rig, &prompt);
    struct area area = rig_area(&rig, 40);
    area.memory.device = SPEC_DEVICE_CUDA;
    struct spec_important item = {.struct_size = sizeof(item),
                                  .request = found.request,
                                  .destination = &area.memory,
                                  .status = SPEC_PENDING};
    for (int i = 0; i < 3; i++) {
        struct spec_error error = {.struct_size = sizeof(error)};
        spec_ticket ticket = 0;
        assert_int_equal(sc_plugin_get_important(rig.conn, &item, 1, &error), SPEC_E_UNSUPPORTED);
        assert_non_null(strstr(error.text, WHY_ABSENT));
        assert_int_equal(sc_plugin_submit(rig.conn, &item, 1, &ticket, NULL), SPEC_E_UNSUPPORTED);
        assert_int_equal(item.status, SPEC_E_UNSUPPORTED); /* nothing was begun */
        assert_true(rig_is_poison(area.bytes, 4 * RIG_GUARD));
        assert_int_equal(rig_load(&rig, found.request, &prompt, 0, 40, (uint32_t)i), SPEC_OK);
    }
    rig_area_free(&area);
    rig_release(&rig, found.request);
    rig_close(&rig);
    rig.extra = "\"preset\": \"as-like\", \"gpu\": {\"device\": 0}";
    assert_int_equal(rig_try_open(&rig), SPEC_E_UNSUPPORTED);
    assert_non_null(strstr(rig.error.text, WHY_ABSENT));
    assert_int_equal(atomic_load(&rig.memory.live_blocks), 0);
    rig_end(&rig, &prompt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_machine_without_a_driver_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* spec_load.h: what is no plugin of this version is refused with a status, a text, and no library.
 */
#include "abi/spec_load.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void refused(const char *path, spec_status expected, const char *why)
{
    struct spec_plugin plugin = {.library = NULL};
    struct spec_error error = {.struct_size = sizeof(error)};
    assert_int_equal(spec_load(path, &plugin, &error), expected);
    assert_int_equal(error.code, expected);
    assert_non_null(strstr(error.text, why));
    assert_null(plugin.library);
    assert_null(plugin.api);
    assert_int_equal(spec_load(path, &plugin, NULL), expected);
}

static void another_minor_version_is_refused(void **state)
{
    (void)state;
    refused(OTHER_MINOR, SPEC_E_VERSION, "does not speak this version");
}

static void what_is_no_plugin_is_refused(void **state)
{
    (void)state;
    refused("libm.so.6", SPEC_E_VERSION, "exports no spec_connector_api");
    refused("/nowhere/libspec_connector.so", SPEC_E_IO, "/nowhere/");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_minor_version_is_refused),
        cmocka_unit_test(what_is_no_plugin_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

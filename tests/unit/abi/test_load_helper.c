/* spec_load.h: what is no plugin of this version is refused with a status, a text, and no library;
 * every status has a name. */
#include "abi/spec_load.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Reads the contract's lines "#define SPEC_E_BUSY (-7)": a status without a name fails. */
static void every_status_of_the_contract_has_a_name(void **state)
{
    (void)state;
    char line[256], name[64], value[64];
    int count = 0;
    FILE *header = fopen(SC_SOURCE_DIR "/abi/spec_connector.h", "re");
    assert_non_null(header);
    while (fgets(line, sizeof(line), header) != NULL) {
        if (sscanf(line, "#define %63s %63s", name, value) != 2 ||
            (strncmp(name, "SPEC_E_", 7) != 0 && strcmp(name, "SPEC_OK") != 0 &&
             strcmp(name, "SPEC_PENDING") != 0))
            continue;
        const char *digits = value[0] == '(' ? value + 1 : value;
        assert_string_equal(spec_status_name((spec_status)strtol(digits, NULL, 10)), name);
        count++;
    }
    (void)fclose(header);
    assert_int_equal(count, 17); /* as many as the contract has: the lines above were found */
}

static void an_unknown_status_is_named_as_unknown(void **state)
{
    (void)state;
    assert_string_equal(spec_status_name(SPEC_E_CONFIG - 1), "SPEC_?");
    assert_string_equal(spec_status_name(SPEC_PENDING + 1), "SPEC_?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_minor_version_is_refused),
        cmocka_unit_test(what_is_no_plugin_is_refused),
        cmocka_unit_test(every_status_of_the_contract_has_a_name),
        cmocka_unit_test(an_unknown_status_is_named_as_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

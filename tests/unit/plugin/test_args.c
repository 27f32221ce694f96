/* Structures that grow at their end, from hosts that are older and newer than we are. */
#include "plugin/args/args.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct ours {
    uint32_t struct_size;
    uint32_t a;
    uint64_t b, c;
    uint32_t d, e;
};

static const uint16_t ENDS[] = {8, 16, 24, 28, 32};
static const struct sc_plugin_args_form FORM = {
    .bytes = sizeof(struct ours), .end_count = 5, .ends = ENDS, .even_from = 32};
/* All up to c is the first group, and what follows has 8 bytes a member. */
static const uint16_t FIRST[] = {24};
static const struct sc_plugin_args_form EVEN = {
    .bytes = sizeof(struct ours), .end_count = 1, .ends = FIRST, .even_from = 24};

/* Every size from 0 to beyond ours: read exactly to the end, which a sanitizer watches. */
static void every_size_is_read_to_its_end(void **state)
{
    (void)state;
    for (uint32_t size = 0; size <= 64; size++) {
        uint8_t *host = malloc(size < 4 ? 4 : size);
        assert_non_null(host);
        memset(host, 0, size < 4 ? 4 : size);
        for (uint32_t i = 4; i < size && i < sizeof(struct ours); i++)
            host[i] = (uint8_t)(i + 1);
        memcpy(host, &size, sizeof(size));
        struct ours got;
        memset(&got, 0xa5, sizeof(got));
        struct spec_error error = {.struct_size = sizeof(error)};
        bool in_even = size == 24 || size >= 32;
        assert_int_equal(sc_plugin_args_read(&got, &EVEN, host, "p", NULL),
                         in_even ? SPEC_OK : SPEC_E_INVALID);
        bool is_end = size == 8 || size == 16 || size == 24 || size == 28 || size >= 32;
        spec_status status = sc_plugin_args_read(&got, &FORM, host, "test: params", &error);
        assert_int_equal(sc_plugin_args_check_output(host, &FORM, "p", NULL), status);
        if (!is_end) {
            assert_int_equal(status, SPEC_E_INVALID);
            assert_non_null(strstr(error.text, "test: params"));
            assert_non_null(strstr(error.text, size < 8 ? "at least 8" : "inside a member"));
        } else {
            assert_int_equal(status, SPEC_OK);
            uint8_t want[sizeof(got)] = {0};
            memcpy(want, host, size < sizeof(want) ? size : sizeof(want));
            assert_memory_equal(&got, want, sizeof(got)); /* what the host lacks is 0 */
        }
        free(host);
    }
}

static void an_unknown_tail_must_be_zero(void **state)
{
    (void)state;
    uint8_t host[40] = {0};
    uint32_t size = sizeof(host);
    memcpy(host, &size, sizeof(size));
    struct ours got;
    assert_int_equal(sc_plugin_args_read(&got, &FORM, host, "p", NULL), SPEC_OK);
    for (uint32_t i = sizeof(got); i < sizeof(host); i++) {
        host[i] = 1;
        assert_int_equal(sc_plugin_args_read(&got, &FORM, host, "p", NULL), SPEC_E_UNSUPPORTED);
        host[i] = 0;
    }
}

static void null_and_absurd_sizes_are_invalid(void **state)
{
    (void)state;
    struct ours got, host = {.struct_size = UINT32_MAX};
    assert_int_equal(sc_plugin_args_read(&got, &FORM, NULL, "p", NULL), SPEC_E_INVALID);
    assert_int_equal(sc_plugin_args_read(&got, &FORM, &host, "p", NULL), SPEC_E_INVALID);
    assert_int_equal(sc_plugin_args_check_output(NULL, &FORM, "p", NULL), SPEC_E_INVALID);
    assert_int_equal(sc_plugin_args_check_output(&host, &FORM, "p", NULL), SPEC_E_INVALID);
    host.struct_size = 0;
    assert_int_equal(sc_plugin_args_check_output(&host, &FORM, "p", NULL), SPEC_E_INVALID);
    host.struct_size = sizeof(host);
    assert_int_equal(sc_plugin_args_check_output(&host, &FORM, "p", NULL), SPEC_OK);
}

/* Written up to the host's size, never its struct_size, never behind it. */
static void outputs_are_written_to_the_hosts_size(void **state)
{
    (void)state;
    struct ours mine;
    memset(&mine, 0x5a, sizeof(mine));
    for (uint32_t size = 8; size <= 40; size++) {
        uint8_t host[48], want[48];
        memset(host, 0xa5, sizeof(host));
        memset(want, 0xa5, sizeof(want));
        memcpy(host, &size, sizeof(size));
        memcpy(want, &size, sizeof(size));
        for (uint32_t i = 4; i < size && i < sizeof(mine); i++)
            want[i] = 0x5a;
        sc_plugin_args_write(host, &mine, sizeof(mine));
        assert_memory_equal(host, want, sizeof(host));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_is_read_to_its_end),
        cmocka_unit_test(an_unknown_tail_must_be_zero),
        cmocka_unit_test(null_and_absurd_sizes_are_invalid),
        cmocka_unit_test(outputs_are_written_to_the_hosts_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

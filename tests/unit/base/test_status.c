/* Status names and error texts: what is written, where it is cut, what is never touched.
 *
 * Holds: every error object starts with poison, so that an untouched byte is seen.
 * Threads: one. */
#include "base/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct spec_error poisoned(uint32_t struct_size)
{
    struct spec_error error;
    memset(&error, 'p', sizeof(error));
    error.struct_size = struct_size;
    return error;
}

static void fail_writes_code_and_text_and_returns_the_code(void **state)
{
    (void)state;
    struct spec_error error = poisoned(sizeof(error));
    assert_int_equal(sc_fail(&error, SPEC_E_BUSY, "slots %d of %s", 7, "pool"), SPEC_E_BUSY);
    assert_int_equal(error.struct_size, sizeof(error));
    assert_int_equal(error.code, SPEC_E_BUSY);
    assert_int_equal(error.sys_errno, 0);
    assert_string_equal(error.text, "slots 7 of pool");
}

static void fail_without_an_error_object_returns_the_code(void **state)
{
    (void)state;
    assert_int_equal(sc_fail(NULL, SPEC_E_STALE, "x"), SPEC_E_STALE);
    assert_int_equal(sc_fail_errno(NULL, SPEC_E_IO, 5, "x"), SPEC_E_IO);
}

static void errno_text_is_appended_and_never_cut(void **state)
{
    (void)state;
    struct spec_error error = poisoned(sizeof(error));
    char path[1000];
    memset(path, 'a', sizeof(path));
    path[sizeof(path) - 1] = '\0';
    assert_int_equal(sc_fail_errno(&error, SPEC_E_NO_SPACE, 28, "write %s", "log"),
                     SPEC_E_NO_SPACE);
    assert_string_equal(error.text, "write log: No space left on device");
    assert_int_equal(error.sys_errno, 28);
    sc_fail_errno(&error, SPEC_E_IO, 28, "%s", error.text); /* passed on */
    assert_string_equal(error.text, "write log: No space left on device");
    sc_fail_errno(&error, SPEC_E_CORRUPT, 0, "log of %s", "another"); /* not the system's word */
    assert_string_equal(error.text, "log of another");
    assert_int_equal(error.sys_errno, 0);
    sc_fail_errno(&error, SPEC_E_NO_SPACE, 28, "write %s", path);
    assert_int_equal(strlen(error.text), sizeof(error.text) - 1);
    const char *tail = "a: No space left on device";
    assert_string_equal(error.text + strlen(error.text) - strlen(tail), tail);
}

static void an_argument_may_be_the_old_text(void **state)
{
    (void)state;
    struct spec_error error = poisoned(sizeof(error));
    sc_fail(&error, SPEC_E_IO, "inner");
    sc_fail(&error, SPEC_E_CORRUPT, "outer: %s", error.text);
    assert_string_equal(error.text, "outer: inner");
}

static void a_long_text_is_cut_at_a_utf8_boundary(void **state)
{
    (void)state;
    static const char *const letters[] = {"x", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    for (size_t letter = 0; letter < 4; letter++) {
        for (size_t shift = 0; shift < 5; shift++) {
            char text[1200] = "";
            memset(text, '-', shift);
            for (size_t at = shift; at < 1000; at += strlen(letters[letter]))
                memcpy(text + at, letters[letter], strlen(letters[letter]) + 1);
            struct spec_error error = poisoned(sizeof(error));
            sc_fail(&error, SPEC_E_IO, "%s", text);
            size_t length = strlen(error.text);
            assert_true(length <= 243);
            assert_true(length > 243 - strlen(letters[letter]));
            assert_int_equal((length - shift) % strlen(letters[letter]), 0);
            assert_memory_equal(error.text, text, length);
        }
    }
}

static void a_text_is_one_line_without_control_characters(void **state)
{
    (void)state;
    struct spec_error error = poisoned(sizeof(error));
    sc_fail(&error, SPEC_E_IO, "a\nb\tc\x1b[2Jd\x7f");
    assert_string_equal(error.text, "a b c [2Jd ");
}

static void nothing_is_written_past_struct_size(void **state)
{
    (void)state;
    const char *bytes_of = "pppp";
    for (uint32_t size = 0; size <= sizeof(struct spec_error); size++) {
        struct spec_error error = poisoned(size);
        sc_fail_errno(&error, SPEC_E_IO, 5,
                      "a text of some length, longer than small structures "
                      "have room for, \xe2\x82\xac and so on");
        const char *memory = (const char *)&error;
        assert_int_equal(error.struct_size, size);
        for (uint32_t i = size < 4 ? 4 : size; i < sizeof(error); i++)
            assert_int_equal(memory[i], bytes_of[0]);
        if (size >= 8)
            assert_int_equal(error.code, SPEC_E_IO);
        if (size >= 12)
            assert_int_equal(error.sys_errno, 5);
        if (size > 12)
            assert_non_null(memchr(error.text, '\0', size - 12));
    }
}

static void every_status_has_its_own_name(void **state)
{
    (void)state;
    for (spec_status a = SPEC_E_CONFIG; a <= SPEC_PENDING; a++) {
        assert_int_equal(strncmp(sc_status_name(a), "SPEC_", 5), 0);
        assert_string_not_equal(sc_status_name(a), "SPEC_?");
        for (spec_status b = SPEC_E_CONFIG; b < a; b++)
            assert_string_not_equal(sc_status_name(a), sc_status_name(b));
    }
    assert_string_equal(sc_status_name(SPEC_E_POISONED), "SPEC_E_POISONED");
    assert_string_equal(sc_status_name(2), "SPEC_?");
    assert_string_equal(sc_status_name(INT32_MIN), "SPEC_?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fail_writes_code_and_text_and_returns_the_code),
        cmocka_unit_test(fail_without_an_error_object_returns_the_code),
        cmocka_unit_test(errno_text_is_appended_and_never_cut),
        cmocka_unit_test(an_argument_may_be_the_old_text),
        cmocka_unit_test(a_long_text_is_cut_at_a_utf8_boundary),
        cmocka_unit_test(a_text_is_one_line_without_control_characters),
        cmocka_unit_test(nothing_is_written_past_struct_size),
        cmocka_unit_test(every_status_has_its_own_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

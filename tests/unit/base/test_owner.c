/* Whose a directory or file is: by owner and mode of what is open. */
#include "base/path_owner.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void only_ours_and_only_we_write(void **state)
{
    (void)state;
    struct spec_error error;
    for (uint32_t mode = 0; mode < 01000; mode++)
        for (uint32_t other = 0; other < 2; other++) {
            struct stat about = {.st_mode = S_IFREG | mode, .st_uid = geteuid() + other};
            bool is_ours = other == 0 && (mode & 0022) == 0;
            error = (struct spec_error){.struct_size = sizeof(error)};
            assert_int_equal(sc_path_owner_check(&about, "/a/path", &error),
                             is_ours ? SPEC_OK : SPEC_E_IO);
            char owner[64];
            (void)snprintf(owner, sizeof(owner), "user %lu with mode %04o",
                           (unsigned long)about.st_uid, mode);
            if (is_ours)
                continue;
            assert_int_equal(error.sys_errno, EACCES);
            assert_non_null(strstr(error.text, "/a/path"));
            assert_non_null(strstr(error.text, owner));
        }
}

static void directories_are_looked_at_where_they_are(void **state)
{
    (void)state;
    char dir[] = "/tmp/spec-owner-XXXXXX", path[64], link[64];
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/store", dir);
    (void)snprintf(link, sizeof(link), "%s/link", dir);
    assert_int_equal(sc_path_owner_check_directory(path, NULL), SPEC_OK); /* nothing there */
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(sc_path_owner_check_directory(path, NULL), SPEC_OK);
    assert_int_equal(chmod(path, 0770), 0);
    assert_int_equal(sc_path_owner_check_directory(path, NULL), SPEC_E_IO);
    assert_int_equal(sc_path_owner_check_directory(link, NULL), SPEC_E_IO); /* what it leads to */
    assert_int_equal(chmod(path, 0755), 0);
    assert_int_equal(sc_path_owner_check_directory(link, NULL), SPEC_OK);
    assert_int_equal(rmdir(path), 0);
    struct spec_error error = {.struct_size = sizeof(error)};
    assert_int_equal(sc_path_owner_check_directory("/dev/null", &error), SPEC_E_IO);
    assert_int_equal(error.sys_errno, ENOTDIR);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_ours_and_only_we_write),
        cmocka_unit_test(directories_are_looked_at_where_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

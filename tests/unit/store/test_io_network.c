/* A store on a network file system: refused by name and place, unless it is allowed. No test has
 * such a file system: the question for its type is wrapped (--wrap=sc_io_posix_fs_type).
 *
 * Threads: those of the executor. */
#include "store/internal.h"
#include "store/io/io_posix.h"
#include "tests/unit/store/store_fixture.h"

#include <errno.h>

#define TYPE_EXT4 0xEF53u
#define TYPE_NFS  0x6969u

static const struct world_setup on_disk = {"pread", WORLD_ON(PREAD, 2),
                                           WORLD_SHAPE(PAIRED, 1, 48, 0), WORLD_DISK(4, 1, 64)};

/* The answer for paths that contain `part`; for other paths the kernel answers. */
static struct {
    const char *part;
    uint32_t type;
    int sys_errno;
} answer;

int __real_sc_io_posix_fs_type(const char *path, uint32_t *ret_type);
int __wrap_sc_io_posix_fs_type(const char *path, uint32_t *ret_type);

int __wrap_sc_io_posix_fs_type(const char *path, uint32_t *ret_type)
{
    if (answer.part == NULL || strstr(path, answer.part) == NULL)
        return __real_sc_io_posix_fs_type(path, ret_type);
    *ret_type = answer.type;
    return answer.sys_errno;
}

static int answer_reset(void **state)
{
    (void)state;
    memset(&answer, 0, sizeof(answer));
    return 0;
}

static void network_types_have_names_and_others_have_none(void **state)
{
    static const struct {
        uint32_t type;
        const char *name;
    } known[] = {{0x6969u, "NFS"},        {0xFF534D42u, "CIFS"}, {0xFE534D42u, "SMB2"},
                 {0x65735546u, "FUSE"},   {0x01021997u, "9P"},   {0x00C36400u, "Ceph"},
                 {0x0BD00BD0u, "Lustre"}, {0x47504653u, "GPFS"}, {TYPE_EXT4, NULL},
                 {0x58465342u, NULL},     {0x9123683Eu, NULL},   {0x01021994u, NULL},
                 {0x794C7630u, NULL},     {0x2FC12FC1u, NULL},   {0u, NULL}};
    (void)state;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        const char *name = sc_io_posix_network_name(known[i].type);
        if (known[i].name == NULL)
            assert_null(name);
        else
            assert_string_equal(name, known[i].name);
    }
}

/* This machine's answer is the kernel's, and nothing that is not there has one. */
static void the_type_is_that_of_statfs(void **state)
{
    uint32_t type = 0;
    (void)state;
    assert_int_equal(sc_io_posix_fs_type("/proc", &type), 0);
    assert_int_equal(type, 0x9fa0u); /* PROC_SUPER_MAGIC */
    assert_int_equal(sc_io_posix_fs_type("/proc/nothing", &type), ENOENT);
}

static void expect_refused(struct world *world, const char *path)
{
    assert_int_equal(world_open(world), SPEC_E_UNSUPPORTED);
    assert_null(world->store);
    assert_non_null(strstr(world->error.text, path));
    assert_non_null(strstr(world->error.text, "is on NFS (type 0x00006969)"));
    assert_non_null(strstr(world->error.text, "expected a local file system"));
    assert_non_null(strstr(world->error.text, "store.allow_network_fs"));
}

static void a_store_on_a_network_file_system_is_refused(void **state)
{
    (void)state;
    struct world *world = world_make(&on_disk, 3);
    answer.part = "/store";
    answer.type = TYPE_NFS;
    expect_refused(world, world->config.path);
    assert_int_equal(access(world->config.path, F_OK), -1); /* and nothing was left */
    world->config.allow_network_fs = 1;
    world_open_ok(world);
    assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
    world_close(world);
    world->config.allow_network_fs = 0; /* one that is there is refused as well, */
    for (uint32_t role = SC_STORE_WRITER; role <= SC_STORE_PEER; role++) {
        world->params.role = role; /* to whoever opens it */
        expect_refused(world, world->config.path);
    }
    world->params.role = SC_STORE_WRITER;
    answer.type = TYPE_EXT4;
    world_open_ok(world);
    assert_int_equal(world->open_count, 1); /* it stayed as it was */
    world_free(world);
}

/* A rank's directory may be a mount of its own. */
static void a_rank_on_a_network_file_system_is_refused(void **state)
{
    (void)state;
    struct world *world = world_make(&on_disk, 4);
    answer.part = "/rank-0000-of-0001";
    answer.type = TYPE_NFS;
    expect_refused(world, answer.part);
    world->config.allow_network_fs = 1;
    world_open_ok(world);
    world_free(world);
}

static void a_file_system_that_cannot_be_asked_is_refused(void **state)
{
    (void)state;
    struct world *world = world_make(&on_disk, 5);
    answer.part = "/store";
    answer.sys_errno = EACCES;
    assert_int_equal(world_open(world), SPEC_E_IO);
    assert_int_equal(world->error.sys_errno, EACCES);
    assert_non_null(strstr(world->error.text, world->config.path));
    world_free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(network_types_have_names_and_others_have_none),
        cmocka_unit_test(the_type_is_that_of_statfs),
        cmocka_unit_test_setup(a_store_on_a_network_file_system_is_refused, answer_reset),
        cmocka_unit_test_setup(a_rank_on_a_network_file_system_is_refused, answer_reset),
        cmocka_unit_test_setup(a_file_system_that_cannot_be_asked_is_refused, answer_reset),
    };
    return cmocka_run_group_tests_name("io network", tests, NULL, NULL);
}

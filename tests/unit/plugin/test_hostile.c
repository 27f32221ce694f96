/* Directories that others have been at: what belongs to another user or may be written by others is
 * refused, and what is no regular file holds nobody up.
 *
 * Threads: one beside the executor's; a forked child that does nothing. */
#include "tests/unit/plugin/plugin_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define NAMES_MAX    32u
#define SECONDS_MAX  600u /* then open hangs, however slow the machine is */
#define ANOTHER_USER 54321u

struct names {
    char of[NAMES_MAX][192];
    uint32_t count;
};

static struct names found;

static int note_name(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)info, (void)type, (void)at;
    assert_true(found.count < NAMES_MAX && strlen(path) < sizeof(found.of[0]));
    (void)snprintf(found.of[found.count++], sizeof(found.of[0]), "%s", path);
    return 0;
}

static void make_file(const struct rig *rig, const char *name)
{
    char path[192];
    (void)snprintf(path, sizeof(path), "%s/%s", rig->path, name);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
}

static spec_status open_with_weights(struct rig *rig)
{
    static const char *const PATHS[] = {SC_SOURCE_DIR "/LICENSE"};
    struct spec_model model = rig_model(rig);
    model.weights_id = (struct spec_bytes){NULL, 0};
    model.weights_paths = PATHS;
    model.weights_path_count = 1;
    return rig_try_open_model(rig, &model);
}

/* A store with every file that there may be; their names in `found`, directories too. */
static void fill(struct rig *rig)
{
    static const char *const MADE[] = {"rank-0000-of-0001/mail", "rank-0000-of-0001/mail.lock"};
    assert_int_equal(open_with_weights(rig), SPEC_OK);
    struct prompt prompt = rig_prompt(1, 0, 0, 100);
    rig_store_all(rig, &prompt, 100);
    rig_prompt_free(&prompt);
    rig_close(rig);
    assert_int_equal(open_with_weights(rig), SPEC_OK); /* there was no store to keep hashes in */
    rig_close(rig);
    for (uint32_t i = 0; i < 2; i++)
        make_file(rig, MADE[i]);
    found.count = 0;
    assert_int_equal(nftw(rig->path, note_name, 8, FTW_PHYS), 0);
    /* Two directories, weights, identity, 3 locks, members, log, .. */
    assert_int_equal(found.count, 11);
}

static void expect_refused(struct rig *rig, const char *path, const char *owner)
{
    rig->conn = NULL;
    assert_int_equal(open_with_weights(rig), SPEC_E_IO);
    assert_null(rig->conn);
    assert_int_equal(rig->error.sys_errno, EACCES);
    if (strstr(rig->error.text, path) == NULL || strstr(rig->error.text, owner) == NULL)
        fail_msg("%s and %s are not in: %s", path, owner, rig->error.text);
}

static void what_others_may_write_is_refused(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, false, "");
    fill(&rig);
    for (uint32_t i = 0; i < found.count; i++)
        for (uint32_t by = 0; by < 2; by++) {
            struct stat info;
            char text[32];
            assert_int_equal(stat(found.of[i], &info), 0);
            mode_t mode = (info.st_mode & 0777) | (by == 0 ? 0020 : 0002);
            assert_int_equal(chmod(found.of[i], mode), 0);
            (void)snprintf(text, sizeof(text), "mode %04o", (unsigned)mode);
            expect_refused(&rig, found.of[i], text);
            assert_int_equal(chmod(found.of[i], info.st_mode & 0777), 0);
            assert_int_equal(open_with_weights(&rig), SPEC_OK);
            rig_close(&rig);
        }
    for (uint32_t i = 0; i < found.count; i++)
        assert_int_equal(chmod(found.of[i], 0777), 0);
    rig.extra = "\"store\": {\"allow_shared\": \"yes\"}";
    assert_int_equal(open_with_weights(&rig), SPEC_OK);
    rig_done(&rig);
}

static void what_is_another_users_is_refused(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("skipped: only root can give a file to another user\n");
        skip();
    }
    struct rig rig;
    rig_init(&rig, false, "");
    fill(&rig);
    for (uint32_t i = 0; i < found.count; i++) {
        assert_int_equal(chown(found.of[i], ANOTHER_USER, (gid_t)-1), 0);
        expect_refused(&rig, found.of[i], "user 54321 with mode 0");
        assert_int_equal(chown(found.of[i], 0, (gid_t)-1), 0);
    }
    assert_int_equal(chown(rig.path, ANOTHER_USER, (gid_t)-1), 0);
    rig.role = SPEC_ROLE_READER;
    expect_refused(&rig, rig.path, "user 54321");
    rig.role = SPEC_ROLE_WRITER;
    rig.extra = "\"store\": {\"allow_shared\": \"yes\"}";
    assert_int_equal(open_with_weights(&rig), SPEC_OK);
    rig_done(&rig);
}

/* An empty directory that somebody else has prepared gets no identity, and nothing else. */
static void a_prepared_directory_stays_empty(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, false, "");
    assert_int_equal(mkdir(rig.path, 0700), 0);
    assert_int_equal(chmod(rig.path, 01777), 0);
    expect_refused(&rig, rig.path, "mode 1777");
    assert_int_equal(rmdir(rig.path), 0); /* it is empty */
    rig_done(&rig);
}

/* A pipe in the place of each file: open says yes or no, and comes back. */
static void a_pipe_holds_nobody_up(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, false, "");
    fill(&rig);
    (void)alarm(SECONDS_MAX);
    for (uint32_t i = 0; i < found.count; i++) {
        struct stat info;
        char aside[256];
        assert_int_equal(stat(found.of[i], &info), 0);
        if (!S_ISREG(info.st_mode))
            continue;
        (void)snprintf(aside, sizeof(aside), "%s/aside", rig.dir);
        assert_int_equal(rename(found.of[i], aside), 0);
        assert_int_equal(mkfifo(found.of[i], 0600), 0);
        bool is_weights = strstr(found.of[i], "weights.json") != NULL;
        rig.conn = NULL;
        spec_status status = open_with_weights(&rig);
        assert_true(!is_weights || status == SPEC_OK); /* what it holds can be had again */
        if (status == SPEC_OK)
            rig_close(&rig);
        assert_int_equal(rename(aside, found.of[i]), 0);
    }
    (void)alarm(0);
    rig_done(&rig);
}

/* The child has the lock's description as long as it lives, and makes no call. */
static void a_forked_child_keeps_no_lock_after_close(void **state)
{
    (void)state;
    static const char *const BACKENDS[] = {"pread", "auto"};
    for (uint32_t i = 0; i < 2; i++) {
        struct rig rig;
        int gate[2];
        char byte;
        rig_init(&rig, false, "");
        rig.backend = BACKENDS[i];
        rig_open(&rig);
        assert_int_equal(pipe2(gate, O_CLOEXEC), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            (void)close(gate[1]);
            _exit(read(gate[0], &byte, 1) == 0 ? 0 : 1); /* until the parent is done */
        }
        rig_reopen(&rig);
        assert_int_equal(rig.conn->ranks.role, SPEC_ROLE_WRITER);
        assert_int_equal(close(gate[1]), 0);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        assert_int_equal(close(gate[0]), 0);
        rig_done(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_others_may_write_is_refused),
        cmocka_unit_test(what_is_another_users_is_refused),
        cmocka_unit_test(a_prepared_directory_stays_empty),
        cmocka_unit_test(a_pipe_holds_nobody_up),
        cmocka_unit_test(a_forked_child_keeps_no_lock_after_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

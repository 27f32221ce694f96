/* Real processes over one store: writers of several ranks, readers, one that is killed, one that
 * forks. processes.h has the workers' commands.
 *
 * Threads: one in each process, beside the plugin's. */
#include "tests/fault/processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The first: promised = the minimum over ranks, no wrong row. */
static void a_writer_killed_between_layers_costs_what_it_had_not_finished(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene);
    struct process ranks[2], reader;
    for (uint32_t i = 0; i < 2; i++)
        ranks[i] = start_open(&scene, SPEC_ROLE_WRITER, i, 2, "");
    reader = start_open(&scene, SPEC_ROLE_READER, 0, 2, "");
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(ask_number(&ranks[i], "store 1 0 200 4"), 0);
    struct process *all[] = {&ranks[0], &ranks[1], &reader};
    for (uint32_t i = 0; i < 3; i++)
        await_number(all[i], "read 1 500", 200);
    assert_int_equal(ask_number(&ranks[0], "store 1 200 150 4"), 0);
    assert_int_equal(ask_number(&ranks[1], "store 1 200 150 2"), 0); /* two of four layers */
    kill_hard(&ranks[1]);
    assert_int_equal(ask_number(&ranks[0], "read 1 500"), 200);
    assert_int_equal(ask_number(&reader, "read 1 500"), 200);
    ranks[1] = start_open(&scene, SPEC_ROLE_WRITER, 1, 2, "");
    for (uint32_t i = 0; i < 3; i++)
        await_number(all[i], "read 1 500", 200);
    assert_int_equal(ask_number(&ranks[1], "store 1 200 100 4"), 0);
    for (uint32_t i = 0; i < 3; i++)
        await_number(all[i], "read 1 500", 300);
    finish(&reader);
    for (uint32_t i = 0; i < 2; i++)
        finish(&ranks[i]);
    scene_close(&scene);
}

/* How often one of the store's segments holds the row of (prompt, token, layer, K); flips: and a
 * byte of each is changed. */
static uint32_t find_row(const char *path, const uint8_t *row, bool flips)
{
    struct stat info;
    uint32_t found = 0;
    int fd = open(path, (flips ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    assert_true(fd >= 0 && fstat(fd, &info) == 0);
    uint8_t *bytes = malloc((size_t)info.st_size);
    assert_non_null(bytes);
    assert_int_equal(pread(fd, bytes, (size_t)info.st_size, 0), info.st_size);
    const uint8_t *at = bytes, *end = bytes + info.st_size;
    for (; (at = memmem(at, (size_t)(end - at), row, PART_BYTES)) != NULL; at++, found++) {
        uint8_t other = (uint8_t)(*at ^ 1);
        if (flips)
            assert_int_equal(pwrite(fd, &other, 1, at - bytes), 1);
    }
    free(bytes);
    (void)close(fd);
    return found;
}

static uint32_t rows_on_disk(const struct scene *scene, uint64_t seed, uint64_t token,
                             uint32_t layer, bool flips)
{
    static struct worker truth;
    char path[512];
    uint8_t row[PART_BYTES];
    uint32_t found = 0;
    make_prompt(&truth, seed, token + 1);
    make_row(&truth, token, layer, 0, row);
    (void)snprintf(path, sizeof(path), "%s/rank-0000-of-0001", scene->dir);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (strncmp(entry->d_name, "seg-", 4) != 0)
            continue;
        (void)snprintf(path, sizeof(path), "%s/rank-0000-of-0001/%.100s", scene->dir,
                       entry->d_name);
        found += find_row(path, row, flips);
    }
    (void)closedir(dir);
    return found;
}

/* Whether rows were loaded, and the lease attached, before its end: else the machine was too slow
 * for a lease of so long. The disk holds a dozen prompts, and what was dropped waits for a lease's
 * time. */
static bool lease_outlives_eviction(const char *members)
{
    struct scene scene;
    scene_open(&scene);
    struct process writer = start_open(&scene, SPEC_ROLE_WRITER, 0, 1, members);
    struct process reader = start_open(&scene, SPEC_ROLE_READER, 0, 1, members);
    assert_int_equal(ask_number(&writer, "store 1 0 256 4"), 0);
    await_number(&reader, "read 1 256", 256);
    char lease[129];
    uint64_t matched = 0, expiry_ns = 0;
    double end_s = now_s() + PATIENCE_S;
    while (matched != 256) { /* nothing, when the reader's turn is a lease late */
        assert_true(now_s() < end_s);
        const char *answer = ask(&reader, "look 1 256");
        assert_int_equal(
            sscanf(answer, "%" SCNu64 " %" SCNu64 " %128s", &matched, &expiry_ns, lease), 3);
    }
    uint64_t seed = 1000, loaded = 0, attached = 0;
    char line[LINE_MAX];
    /* The writer pushes it out, and goes on until other rows stand in its place: of the second
     * chunk, and of the first, which goes last. */
    while (wall_ns() < expiry_ns || rows_on_disk(&scene, 1, 100, 2, false) > 0 ||
           rows_on_disk(&scene, 1, 0, 2, false) > 0) {
        assert_true(now_s() < end_s);
        (void)snprintf(line, sizeof(line), "store %" PRIu64 " 0 256 4", seed++);
        (void)ask_number(&writer, line);
        if (wall_ns() >= expiry_ns)
            continue;
        int64_t status = ask_number(&reader, "load");
        assert_int_not_equal(status, 99);
        if (status != 0 && wall_ns() < expiry_ns)
            fail_msg("a leased row was refused: %" PRId64, status);
        loaded += status == 0;
        (void)snprintf(line, sizeof(line), "attach %s 1 256", lease);
        const char *answer = ask(&reader, "%s", line);
        bool is_attached = strcmp(answer, "0 1 256") == 0;
        if (!is_attached && wall_ns() < expiry_ns)
            fail_msg("a lease was refused: %s", answer);
        attached += is_attached;
    }
    assert_int_not_equal(ask_number(&reader, "load"), 99); /* whatever stands there now */
    (void)snprintf(line, sizeof(line), "attach %s 1 256", lease);
    assert_int_equal(ask_number(&reader, line), SPEC_E_STALE);
    assert_int_equal(ask_number(&writer, "read 1 256"), 0);
    await_number(&reader, "read 1 256", 0);
    finish(&reader);
    finish(&writer);
    scene_close(&scene);
    return loaded > 0 && attached > 0;
}

/* The second. On a machine that is too slow for a lease of two seconds, with longer ones,
 * up to two minutes. */
static void a_lease_outlives_eviction_and_rewriting_until_it_ends(void **state)
{
    (void)state;
    char members[160];
    uint64_t lease_ns = 500000000;
    bool has_outlived = false;
    for (uint32_t tries = 0; tries < 4 && !has_outlived; tries++) {
        lease_ns *= 4;
        (void)snprintf(members, sizeof(members),
                       "\"disk_bytes\": \"4MiB\", \"segment_bytes\": \"1MiB\", "
                       "\"lease_ns_max\": %" PRIu64,
                       lease_ns);
        has_outlived = lease_outlives_eviction(members);
    }
    if (!has_outlived)
        fail_msg("no row was loaded, and no lease attached, within a lease of %" PRIu64 " ns",
                 lease_ns);
}

static void a_slab_that_a_reader_finds_bad_goes_in_the_writer(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene);
    struct process writer = start_open(&scene, SPEC_ROLE_WRITER, 0, 1, "");
    struct process reader = start_open(&scene, SPEC_ROLE_READER, 0, 1, "");
    struct process other = start_open(&scene, SPEC_ROLE_READER, 0, 1, "");
    assert_int_equal(ask_number(&writer, "store 1 0 320 4"), 0);
    await_number(&reader, "read 1 320", 320);
    await_number(&other, "read 1 320", 320);
    assert_int_equal(rows_on_disk(&scene, 1, 200, 2, true), 1);
    char expected[32];
    (void)snprintf(expected, sizeof(expected), "error %d", SPEC_E_CORRUPT);
    assert_string_equal(ask(&reader, "read 1 320"), expected);
    assert_int_equal(ask_number(&reader, "read 1 320"), 192); /* at once: chunks before the bad */
    double end_s = now_s() + PATIENCE_S;
    const char *answer;
    uint64_t found = 320;
    while (found != 192 && now_s() < end_s) { /* a look alone, which reads no row */
        answer = ask(&writer, "look 1 320");
        assert_int_equal(sscanf(answer, "%" SCNu64, &found), 1);
        (void)usleep(50000);
        if (found != 192) {
            finish(&other);
            other = start_open(&scene, SPEC_ROLE_READER, 0, 1, "");
        }
    }
    assert_int_equal(found, 192);
    await_number(&other, "read 1 320", 192);
    assert_int_equal(ask_number(&writer, "store 1 192 128 4"), 0);
    await_number(&reader, "read 1 320", 320);
    finish(&other);
    finish(&reader);
    finish(&writer);
    scene_close(&scene);
}

static void a_reset_by_a_reader_reaches_both_writers(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene);
    struct process ranks[2], reader;
    for (uint32_t i = 0; i < 2; i++) {
        ranks[i] = start_open(&scene, SPEC_ROLE_WRITER, i, 2, "");
        assert_int_equal(ask_number(&ranks[i], "store 1 0 100 4"), 0);
    }
    reader = start_open(&scene, SPEC_ROLE_READER, 1, 2, "");
    await_number(&reader, "read 1 100", 100);
    assert_int_equal(ask_number(&reader, "reset"), 0);
    assert_int_equal(ask_number(&reader, "read 1 100"), 0);
    for (uint32_t i = 0; i < 2; i++) {
        await_number(&ranks[i], "epoch", 1);
        assert_int_equal(ask_number(&ranks[i], "read 1 100"), 0);
        assert_int_equal(ask_number(&ranks[i], "store 1 0 90 4"), 0);
    }
    await_number(&reader, "read 1 100", 90);
    finish(&reader);
    for (uint32_t i = 0; i < 2; i++)
        finish(&ranks[i]);
    scene_close(&scene);
}

/* Killed right after its reset returned: the mail is there. */
static void a_reset_outlives_the_reader_that_asked_for_it(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene);
    struct process writer = start_open(&scene, SPEC_ROLE_WRITER, 0, 1, "");
    struct process reader = start_open(&scene, SPEC_ROLE_READER, 0, 1, "");
    assert_int_equal(ask_number(&writer, "store 1 0 100 4"), 0);
    assert_int_equal(ask_number(&reader, "reset"), 0);
    kill_hard(&reader);
    await_number(&writer, "epoch", 1);
    assert_int_equal(ask_number(&writer, "read 1 100"), 0);
    finish(&writer);
    scene_close(&scene);
}

static void a_second_writer_is_told_who_is_first_and_auto_reads(void **state)
{
    (void)state;
    struct scene scene;
    char expected[32];
    scene_open(&scene);
    struct process writer = start_open(&scene, SPEC_ROLE_AUTO, 0, 1, ""), second = start();
    (void)snprintf(expected, sizeof(expected), "pid %d", writer.pid);
    const char *answer = ask(&second, "open %s %u 0 1", scene.dir, SPEC_ROLE_WRITER);
    assert_int_equal(strtol(answer, NULL, 10), SPEC_E_LOCKED);
    assert_non_null(strstr(answer, expected));
    assert_string_equal(ask(&second, "open %s %u 0 1", scene.dir, SPEC_ROLE_AUTO), "0 ");
    assert_int_equal(ask_number(&writer, "store 1 0 100 4"), 0);
    await_number(&second, "read 1 100", 100);
    assert_int_equal(ask_number(&second, "store 2 0 100 4"), SPEC_E_UNSUPPORTED);
    kill_hard(&writer); /* the reader goes on with what is there, and stores soon */
    assert_int_equal(ask_number(&second, "read 1 100"), 100);
    await_number(&second, "role", SPEC_ROLE_WRITER);
    writer = start_open(&scene, SPEC_ROLE_AUTO, 0, 1, "");
    assert_int_equal(ask_number(&writer, "role"), SPEC_ROLE_READER);
    await_number(&second, "store 2 0 70 4", 0);
    await_number(&writer, "read 2 100", 70);
    finish(&second);
    finish(&writer);
    scene_close(&scene);
}

/* Returns the process of three that has become the writer. */
static uint32_t await_writer(struct process *processes)
{
    for (double end_s = now_s() + PATIENCE_S; now_s() < end_s; (void)usleep(2000))
        for (uint32_t i = 0; i < 3; i++)
            if (processes[i].pid != 0 && ask_number(&processes[i], "role") == SPEC_ROLE_WRITER)
                return i;
    fail_msg("none of them stores");
    return 0;
}

/* Three AUTO processes; the one that stores is killed at any moment of a pass, again and again.
 * Survivors and processes that open later find all acknowledged data; nothing else is promised. */
/* Places of docs/reference/store-format.md that a living process has. */
static uint32_t members_of(const struct scene *scene)
{
    char path[512];
    uint32_t count = 0;
    (void)snprintf(path, sizeof(path), "%s/rank-0000-of-0001/members", scene->dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    for (off_t at = 0; at < 16 * 256; at += 256) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
        assert_int_equal(fcntl(fd, F_OFD_GETLK, &lock), 0);
        count += lock.l_type != F_UNLCK;
    }
    (void)close(fd);
    return count;
}

static void an_auto_reader_takes_over_from_each_killed_writer(void **state)
{
    (void)state;
    struct scene scene;
    struct process processes[3];
    uint64_t seed = 0, kills = 12, random = 1;
    char line[LINE_MAX];
    scene_open(&scene);
    for (uint32_t i = 0; i < 3; i++)
        processes[i] = start_open(&scene, SPEC_ROLE_AUTO, 0, 1, "");
    for (uint64_t kill_at = 0; kill_at < kills; kill_at++) {
        uint32_t writer = await_writer(processes);
        assert_int_equal(members_of(&scene), 3);
        for (uint32_t stored = 0; stored < 3; stored++) {
            (void)snprintf(line, sizeof(line), "store %" PRIu64 " 0 %u 4", ++seed, 100 + stored);
            await_number(&processes[writer], line, 0);
        }
        (void)fprintf(processes[writer].to, "store %" PRIu64 " 0 900 4\n", seed + 1000);
        (void)fflush(processes[writer].to);
        (void)usleep((useconds_t)((random = mix(random)) % 4000));
        kill_hard(&processes[writer]);
        processes[writer].pid = 0;
        assert_int_equal(members_of(&scene), 2); /* nobody has to look after its place */
        uint32_t next = await_writer(processes);
        processes[writer] = start_open(&scene, SPEC_ROLE_AUTO, 0, 1, "");
        for (uint64_t known = 1; known <= seed; known++) {
            (void)snprintf(line, sizeof(line), "read %" PRIu64 " 100", known);
            assert_int_equal(ask_number(&processes[next], line), 100);
            assert_int_equal(ask_number(&processes[writer], line), 100);
        }
        (void)snprintf(line, sizeof(line), "read %" PRIu64 " 900", seed + 1000);
        assert_true(ask_number(&processes[next], line) >= 0); /* some of it, and right */
    }
    for (uint32_t i = 0; i < 3; i++)
        finish(&processes[i]);
    scene_close(&scene);
}

/* A child that was forked away keeps nothing of the store open once it has made a call, so that the
 * parent's lock goes with the parent. */
static void fork_away(const char *members)
{
    struct scene scene;
    scene_open(&scene);
    struct process ranks[2];
    for (uint32_t i = 0; i < 2; i++) {
        ranks[i] = start_open(&scene, SPEC_ROLE_WRITER, i, 2, members);
        assert_int_equal(ask_number(&ranks[i], "store 1 0 100 4"), 0);
    }
    await_number(&ranks[0], "read 1 100", 100);
    int child, status;
    unsigned before, after;
    const char *answer = ask(&ranks[0], "fork");
    assert_int_equal(sscanf(answer, "%d %d %u %u", &child, &status, &before, &after), 4);
    assert_int_equal(status, SPEC_E_FORKED);
    assert_true(before > 0);
    assert_int_equal(after, 0);
    assert_int_equal(ask_number(&ranks[0], "read 1 100"), 100); /* the parent goes on */
    assert_int_equal(ask_number(&ranks[0], "store 1 100 50 4"), 0);
    kill_hard(&ranks[0]);
    assert_int_equal(kill(child, 0), 0); /* the child is still there */
    ranks[0] = start_open(&scene, SPEC_ROLE_WRITER, 0, 2, members);
    await_number(&ranks[0], "read 1 100", 100);
    (void)kill(child, SIGKILL);
    for (uint32_t i = 0; i < 2; i++)
        finish(&ranks[i]);
    scene_close(&scene);
}

static void a_forked_child_holds_nothing_of_the_store(void **state)
{
    (void)state;
    fork_away("\"io\": {\"backend\": \"pread\"}");
    fork_away("\"io\": {\"backend\": \"auto\"}"); /* rings, where the kernel allows them */
}

/* A scheduler that holds no rows hands leases to the ranks that do. */
static void a_lease_travels_from_a_scheduler_to_workers(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene);
    struct process scheduler = start_open(&scene, SPEC_ROLE_READER, 0, 2, ""), ranks[2];
    for (uint32_t i = 0; i < 2; i++) {
        ranks[i] = start_open(&scene, SPEC_ROLE_WRITER, i, 2, "");
        assert_int_equal(ask_number(&ranks[i], "store 1 0 200 4"), 0);
    }
    await_number(&scheduler, "read 1 150", 0 + 150);
    struct process loader = start_open(&scene, SPEC_ROLE_READER, 1, 2, "");
    uint64_t matched, expiry_ns;
    char lease[129], line[LINE_MAX];
    const char *answer = ask(&scheduler, "look 1 150");
    assert_int_equal(sscanf(answer, "%" SCNu64 " %" SCNu64 " %128s", &matched, &expiry_ns, lease),
                     3);
    (void)snprintf(line, sizeof(line), "attach %s 1 150", lease);
    char expected[32];
    (void)snprintf(expected, sizeof(expected), "0 %u 150", SPEC_LOOKUP_HIT);
    struct process *all[] = {&ranks[0], &ranks[1], &loader, &scheduler};
    for (uint32_t i = 0; i < 4; i++)
        assert_string_equal(ask(all[i], "%s", line), expected);
    for (uint32_t i = 0; i < 2; i++)
        finish(&ranks[i]);
    finish(&loader);
    finish(&scheduler);
    scene_close(&scene);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "worker") == 0)
        return worker_main(argv[2], NULL);
    if (argc != 2) {
        (void)fprintf(stderr, "usage: test_processes PLUGIN\n");
        return 2;
    }
    library_path = argv[1];
    (void)signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_writer_killed_between_layers_costs_what_it_had_not_finished),
        cmocka_unit_test(a_lease_outlives_eviction_and_rewriting_until_it_ends),
        cmocka_unit_test(a_slab_that_a_reader_finds_bad_goes_in_the_writer),
        cmocka_unit_test(a_reset_by_a_reader_reaches_both_writers),
        cmocka_unit_test(a_reset_outlives_the_reader_that_asked_for_it),
        cmocka_unit_test(a_second_writer_is_told_who_is_first_and_auto_reads),
        cmocka_unit_test(an_auto_reader_takes_over_from_each_killed_writer),
        cmocka_unit_test(a_forked_child_holds_nothing_of_the_store),
        cmocka_unit_test(a_lease_travels_from_a_scheduler_to_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

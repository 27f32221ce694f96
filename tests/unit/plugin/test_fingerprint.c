/* The fingerprint of weights: by bytes and order, not by path; kept hashes are used, and only when
 * the file is provably the same. */
#include "plugin/args/identify.h"
#include "tests/unit/plugin/plugin_fixture.h"

#include <fcntl.h>
#include <sys/stat.h>

/* A file of the tree: changed long ago, so that its hash is kept. */
#define OLD_FILE SC_SOURCE_DIR "/LICENSE"

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static spec_status fingerprint(struct rig *rig, struct sc_hash *ret_hash, uint64_t count,
                               const char *a, const char *b)
{
    const char *paths[2] = {a, b};
    rig->error = (struct spec_error){.struct_size = sizeof(rig->error)};
    return sc_plugin_fingerprint(rig->conn, paths, count, ret_hash, &rig->error);
}

static struct sc_hash hash_of(struct rig *rig, uint64_t count, const char *a, const char *b)
{
    struct sc_hash hash = {0, 0};
    spec_status status = fingerprint(rig, &hash, count, a, b);
    if (status != SPEC_OK)
        fail_msg("fingerprint: %s", rig->error.text);
    return hash;
}

static void bytes_and_order_decide(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, false, "");
    char a[128], b[128], c[128];
    (void)snprintf(a, sizeof(a), "%s/a", rig.dir);
    (void)snprintf(b, sizeof(b), "%s/b", rig.dir);
    (void)snprintf(c, sizeof(c), "%s/c", rig.dir);
    write_file(a, "one");
    write_file(b, "two");
    write_file(c, "one");
    struct sc_hash one = hash_of(&rig, 1, a, NULL);
    assert_true(sc_hash_equal(one, hash_of(&rig, 1, c, NULL)));
    assert_false(sc_hash_equal(one, hash_of(&rig, 1, b, NULL)));
    struct sc_hash both = hash_of(&rig, 2, a, b);
    assert_false(sc_hash_equal(both, hash_of(&rig, 2, b, a)));
    assert_false(sc_hash_equal(both, one));
    assert_true(sc_hash_equal(both, hash_of(&rig, 2, c, b)));
    write_file(c, "");
    assert_false(sc_hash_equal(one, hash_of(&rig, 1, c, NULL)));
    rig_done(&rig);
}

/* Same path, size and modification time, other bytes: another fingerprint, at once. */
static void a_change_that_hides_is_seen(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, false, "");
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/w", rig.dir);
    const struct timespec times[2] = {{1000000000, 0}, {1000000000, 0}};
    struct sc_hash seen[20];
    for (uint32_t i = 0; i < 20; i++) {
        char text[8];
        (void)snprintf(text, sizeof(text), "%03u", i);
        int fd = open(path, O_WRONLY | O_CREAT, 0600); /* in place: the inode stays */
        assert_true(fd >= 0);
        assert_int_equal(write(fd, text, 3), 3);
        assert_int_equal(futimens(fd, times), 0);
        assert_int_equal(close(fd), 0);
        seen[i] = hash_of(&rig, 1, path, NULL);
        for (uint32_t j = 0; j < i; j++)
            assert_false(sc_hash_equal(seen[i], seen[j]));
    }
    rig_done(&rig);
}

static void cache_path(const struct rig *rig, char path[160])
{
    (void)snprintf(path, 160, "%s/weights.json", rig->path);
}

static void read_text(const char *path, char *text, uint64_t text_bytes)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    uint64_t got = fread(text, 1, text_bytes - 1, file);
    text[got] = 0;
    assert_int_equal(fclose(file), 0);
}

/* The digits of the value that was kept last. */
static char *kept_digits(char *text)
{
    char *digits = strrchr(text, ':');
    assert_non_null(digits);
    digits = strchr(digits, '"');
    assert_non_null(digits);
    return digits + 1;
}

/* The kept fingerprint is what counts while the files are the same: shown by changing it. */
static void what_was_kept_is_used_while_the_files_are_the_same(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, false, "");
    char path[160], text[4097], moved[128], two[128];
    cache_path(&rig, path);
    struct sc_hash hash = hash_of(&rig, 1, OLD_FILE, NULL);
    read_text(path, text, sizeof(text));
    char *digits = kept_digits(text);
    digits[5] = digits[5] == '0' ? '1' : '0';
    write_file(path, text);
    struct sc_hash kept = hash_of(&rig, 1, OLD_FILE, NULL);
    assert_false(sc_hash_equal(hash, kept));
    assert_true(sc_hash_equal(kept, hash_of(&rig, 1, OLD_FILE, NULL)));
    /* By another path, in another list, of another size or inode: read. */
    assert_true(sc_hash_equal(hash, hash_of(&rig, 1, SC_SOURCE_DIR "/./LICENSE", NULL)));
    struct sc_hash both = hash_of(&rig, 2, OLD_FILE, OLD_FILE);
    assert_false(sc_hash_equal(both, kept));
    (void)snprintf(moved, sizeof(moved), "%s/m", rig.dir);
    (void)snprintf(two, sizeof(two), "%s/n", rig.dir);
    write_file(moved, "weights");
    struct sc_hash first = hash_of(&rig, 1, moved, NULL);
    write_file(two, "welghts");
    assert_int_equal(rename(two, moved), 0);
    assert_false(sc_hash_equal(first, hash_of(&rig, 1, moved, NULL)));
    rig_done(&rig);
}

/* One page, whatever comes: what was kept longest goes first. */
static void the_cache_is_bounded(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, false, "");
    char path[160], text[8192], first[33], weights[1024] = SC_SOURCE_DIR;
    struct stat info;
    cache_path(&rig, path);
    for (uint32_t i = 0; i < 100; i++) {
        (void)snprintf(weights + strlen(weights), 8, "/.");
        (void)snprintf(text, sizeof(text), "%s/LICENSE", weights);
        (void)hash_of(&rig, 1, text, NULL);
        assert_int_equal(stat(path, &info), 0);
        assert_true(info.st_size <= 4096);
        read_text(path, text, sizeof(text));
        char *models = strstr(text, "\"models\":{\"");
        assert_non_null(models);
        if (i == 0)
            memcpy(first, models + 11, 32), first[32] = 0;
        assert_true((strstr(text, first) != NULL) == (i < 48));
    }
    uint32_t count = 0;
    for (const char *at = text; (at = strstr(at, "\":\"")) != NULL; at++)
        count++;
    assert_int_equal(count, 48);
    rig_done(&rig);
}

static void a_damaged_cache_is_made_anew(void **state)
{
    (void)state;
    static const char *const TEXTS[] = {
        "",
        "{",
        "[]",
        "17",
        "{\"version\": 2}",
        "{\"version\": 2, \"models\": []}",
        "{\"version\": 2, \"models\": {}, \"more\": 1}",
        "{\"version\": 1, \"files\": {\"" OLD_FILE "\": {\"size\": 3}}}",
        "{\"version\": 3, \"models\": {}}",
    };
    struct rig rig;
    rig_begin(&rig, false, "");
    char path[160], text[4097], whole[4097], *large = calloc(1, 1u << 20);
    assert_non_null(large);
    cache_path(&rig, path);
    struct sc_hash hash = hash_of(&rig, 1, OLD_FILE, NULL);
    read_text(path, whole, sizeof(whole));
    for (uint32_t i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++) {
        write_file(path, TEXTS[i]);
        assert_true(sc_hash_equal(hash, hash_of(&rig, 1, OLD_FILE, NULL)));
        read_text(path, text, sizeof(text));
        assert_string_equal(text, whole);
    }
    /* More than a page, a fingerprint that is none or of another type, a link. */
    memset(large, ' ', (1u << 20) - 1);
    memcpy(large, whole, strlen(whole));
    write_file(path, large);
    free(large);
    assert_true(sc_hash_equal(hash, hash_of(&rig, 1, OLD_FILE, NULL)));
    read_text(path, text, sizeof(text));
    assert_string_equal(text, whole);
    memcpy(kept_digits(text), "0x", 2);
    write_file(path, text);
    assert_true(sc_hash_equal(hash, hash_of(&rig, 1, OLD_FILE, NULL)));
    char *value = kept_digits(text) - 1;
    memcpy(value, "5}}", 4);
    write_file(path, text);
    assert_true(sc_hash_equal(hash, hash_of(&rig, 1, OLD_FILE, NULL)));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(OLD_FILE, path), 0);
    assert_true(sc_hash_equal(hash, hash_of(&rig, 1, OLD_FILE, NULL)));
    struct stat info;
    assert_int_equal(lstat(path, &info), 0);
    assert_true(S_ISREG(info.st_mode));
    rig_done(&rig);
}

static void what_is_no_file_is_an_error(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, false, "");
    char path[128];
    struct sc_hash hash = {1, 2};
    (void)snprintf(path, sizeof(path), "%s/pipe", rig.dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(fingerprint(&rig, &hash, 1, path, NULL), SPEC_E_INVALID);
    assert_int_equal(fingerprint(&rig, &hash, 1, rig.dir, NULL), SPEC_E_INVALID);
    assert_int_equal(fingerprint(&rig, &hash, 1, "/nowhere/at/all", NULL), SPEC_E_IO);
    assert_int_equal(rig.error.sys_errno, 2);
    assert_non_null(strstr(rig.error.text, "/nowhere/at/all"));
    assert_int_equal(fingerprint(&rig, &hash, 2, OLD_FILE, NULL), SPEC_E_INVALID);
    rig_done(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_and_order_decide),
        cmocka_unit_test(a_change_that_hides_is_seen),
        cmocka_unit_test(what_was_kept_is_used_while_the_files_are_the_same),
        cmocka_unit_test(the_cache_is_bounded),
        cmocka_unit_test(a_damaged_cache_is_made_anew),
        cmocka_unit_test(what_is_no_file_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

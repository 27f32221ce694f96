/* Opening, closing and domains: OBJ-003, OBJ-005 (reopening), OBJ-007, OBJ-020 .. OBJ-023.
 *
 * Holds, Does not, Threads, Tests: as objects.h. */
#include "conformance/objects/objects.h"

#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- 003: domains ---- */

static void obj_003_equal_keys_of_two_domains_have_values_of_their_own(void **state)
{
    struct objects *fx = *state;
    spec_domain other = objects_domain(fx, "other");
    struct batch mine = batch_make(1, 16, 5000), theirs = batch_make(1, 16, 5000);
    theirs.salt = UINT64_C(1) << 40;
    put(fx, fx->domain, &mine);
    batch_expect(&mine, SPEC_KEY_DONE);
    assert_int_equal(exists_count(fx, other, 1, 16), 0);
    get_expect(fx, other, 1, 16, 5000, SPEC_KEY_ABSENT);
    put(fx, other, &theirs);
    batch_expect(&theirs, SPEC_KEY_DONE);
    for (int turn = 0; turn < 2; turn++) {
        get(fx, fx->domain, &mine);
        batch_expect(&mine, SPEC_KEY_DONE);
        get(fx, other, &theirs);
        batch_expect(&theirs, SPEC_KEY_DONE);
        objects_reopen(fx);
        other = objects_domain(fx, "other");
    }
    remove_keys(fx, other, 1, 16, 0);
    assert_int_equal(exists_count(fx, fx->domain, 1, 16), 16);
    batch_free(&theirs);
    batch_free(&mine);
}

/* Identities that differ in one byte, in length alone, or behind a NUL. */
static void obj_003_identities_are_compared_by_value(void **state)
{
    static uint8_t identities[8][SPEC_DOMAIN_BYTES_MAX];
    static const uint64_t BYTES[8] = {1, 2, 2, 3, 4095, 4096, 4096, 4096};
    struct objects *fx = *state;
    spec_domain domains[8];
    identities[2][1] = 1;
    identities[6][4095] = 1;
    identities[7][0] = 1;
    for (uint32_t i = 0; i < 8; i++) {
        struct spec_domain_params params = {.struct_size = sizeof(params),
                                            .identity = {identities[i], BYTES[i]}};
        assert_ok(fx, fx->api->domain_open(fx->store, &params, &domains[i], &fx->error));
        for (uint32_t j = 0; j < i; j++)
            assert_int_not_equal(domains[i], domains[j]);
        put_done(fx, domains[i], i, 1, 100);
    }
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(exists_count(fx, domains[i], 0, 8), 1);
        assert_int_equal(exists_one(fx, domains[i], i), SPEC_KEY_DONE);
    }
}

/* Keys that differ in one byte, in length alone, or behind a NUL. */
static void obj_003_keys_are_compared_by_value(void **state)
{
    struct objects *fx = *state;
    uint8_t data[1 + 2 + 2 + 3 + 1024 + 1024 + 1023] = {0};
    uint32_t lengths[7] = {1, 2, 2, 3, 1024, 1024, 1023};
    struct batch batch = batch_make(1, 7, 200);
    data[4] = 1;               /* the last byte of key 2 */
    data[8 + 1024 + 1023] = 1; /* the last byte of key 5 */
    batch.keys.data = data;
    batch.keys.lengths = lengths;
    batch.keys.key_bytes = 0;
    put(fx, fx->domain, &batch);
    batch_expect(&batch, SPEC_KEY_DONE);
    get(fx, fx->domain, &batch);
    batch_expect(&batch, SPEC_KEY_DONE);
    objects_reopen(fx);
    get(fx, fx->domain, &batch);
    batch_expect(&batch, SPEC_KEY_DONE);
    assert_ok(fx, fx->api->remove(fx->store, fx->domain,
                                  &(struct spec_keys){.struct_size = sizeof(struct spec_keys),
                                                      .count = 1,
                                                      .data = data + 1,
                                                      .key_bytes = 2},
                                  0, NULL, &fx->error));
    get(fx, fx->domain, &batch);
    for (uint32_t i = 0; i < 7; i++)
        assert_int_equal(batch.status[i], i == 1 ? SPEC_KEY_ABSENT : SPEC_KEY_DONE);
    batch_free(&batch);
}

/* So many pairs of a stored key and one that is not that short hashes of them are equal. */
static void obj_003_many_keys_are_not_taken_for_others(void **state)
{
    enum { STORED = 30000, CALLS = 8 };
    struct objects *fx = *state;
    for (uint32_t i = 0; i < STORED; i += 1000)
        put_done(fx, fx->domain, i, 1000, 1);
    for (uint64_t i = 0; i < SAMPLE_OF(10u * CALLS, CALLS); i++)
        assert_int_equal(exists_count(fx, fx->domain, (i + 1) * 1000000, SPEC_KEYS_MAX), 0);
    assert_int_equal(exists_count(fx, fx->domain, 0, STORED), STORED);
}

/* ---- 005: reopening ---- */

static void obj_005_objects_are_found_by_later_opens(void **state)
{
    struct objects *fx = *state;
    static const uint64_t SIZES[] = {1, 4095, 4096, 4097, 70272, MIB};
    for (uint64_t turn = 0; turn < 4; turn++) {
        for (uint64_t i = 0; i < sizeof(SIZES) / sizeof(SIZES[0]); i++)
            put_done(fx, fx->domain, turn * 1000 + i * 100, 5, SIZES[i]);
        objects_reopen(fx);
        for (uint64_t before = 0; before <= turn; before++)
            for (uint64_t i = 0; i < sizeof(SIZES) / sizeof(SIZES[0]); i++)
                get_expect(fx, fx->domain, before * 1000 + i * 100, 5, SIZES[i], SPEC_KEY_DONE);
    }
    assert_int_equal(objects_stats(fx, 0).objects, 4 * 5 * sizeof(SIZES) / sizeof(SIZES[0]));
}

/* ---- 007: one process, one kind ---- */

/* Opens in a child; the child ends when it is killed. */
static pid_t child_opens(struct objects *fx, _Atomic int *is_open)
{
    pid_t pid = conf_fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        atomic_store(is_open, objects_try_open(fx) == SPEC_OK ? 1 : -1);
        for (;;)
            pause();
    }
    while (atomic_load(is_open) == 0)
        usleep(1000);
    return pid;
}

static void obj_007_a_second_process_shares_or_is_locked_until_the_first_ends(void **state)
{
    struct objects *fx = *state;
    _Atomic int *is_open = memory_shared(sizeof(*is_open));
    int status = 0;
    pid_t pid = child_opens(fx, is_open);
    assert_int_equal(atomic_load(is_open), 1);
    if (objects_open_beside(fx)) {
        put_done(fx, fx->domain, 1, 1, 100);
        objects_close(fx);
    }
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    objects_open(fx);
    put_done(fx, fx->domain, 2, 1, 100);
}

static void obj_007_a_second_open_of_the_process_shares_or_is_locked(void **state)
{
    struct objects *fx = *state;
    struct objects second = *fx;
    bool shares = objects_open_beside(&second);
    put_done(fx, fx->domain, 1, 1, 100);
    if (shares)
        objects_close(&second);
}

static void obj_007_the_seventeenth_is_locked(void **state)
{
    enum { MOST = 16 };
    struct objects *fx = *state;
    struct objects others[MOST];
    uint32_t count = 0;
    for (others[0] = *fx; count < MOST && objects_open_beside(&others[count]); count++)
        if (count + 1 < MOST)
            others[count + 1] = *fx;
    assert_true(count == 1 || count == MOST);
    assert_status(objects_try_open(fx), SPEC_E_LOCKED);
    put_done(&others[count - 1], others[count - 1].domain, 1, 1, 100);
    objects_close(&others[0]); /* its place is free */
    objects_open(fx);
    for (uint32_t i = 1; i < count; i++)
        objects_close(&others[i]);
}

static void obj_007_one_writer_has_the_store_alone(void **state)
{
    struct objects *fx = *state;
    struct objects second = *fx;
    fx->extra = second.extra = SMALL ", \"store\": {\"writers\": \"one\"}";
    spec_status status = objects_try_open(fx);
    if (status == SPEC_E_CONFIG)
        conf_skip("the configuration does not know the key");
    assert_status(status, SPEC_OK);
    fx->domain = objects_domain(fx, "domain");
    assert_false(objects_open_beside(&second));
    put_done(fx, fx->domain, 1, 1, 100);
}

static void obj_007_ranks_have_files_of_their_own(void **state)
{
    struct objects *fx = *state;
    fx->rank_count = 2;
    objects_configure(fx, SMALL);
    struct objects second = *fx;
    second.store = NULL;
    second.rank = 1;
    objects_open(&second);
    put_done(fx, fx->domain, 1, 4, 100);
    assert_int_equal(exists_count(&second, second.domain, 1, 4), 0);
    put_done(&second, second.domain, 1, 2, 300);
    objects_reopen(fx);
    get_expect(fx, fx->domain, 1, 4, 100, SPEC_KEY_DONE);
    get_expect(&second, second.domain, 1, 2, 300, SPEC_KEY_DONE);
    objects_close(&second);
}

static void load_rows(struct objects *fx)
{
    if (spec_load(conf_options.so, &fx->rows.plugin, &fx->rows.error) != SPEC_OK)
        conf_skip("the library has no table of rows");
    fx->rows.api = fx->rows.plugin.api;
    fx->rows.role = SPEC_ROLE_WRITER;
    fx->rows.extra = SMALL;
    fixture_shape(&fx->rows, (struct shape){3, 2, 16, SPEC_DTYPE_F16});
}

static void obj_007_a_directory_of_objects_is_not_opened_for_rows(void **state)
{
    struct objects *fx = *state;
    load_rows(fx);
    put_done(fx, fx->domain, 1, 8, 5000);
    objects_close(fx);
    assert_status(fixture_try_open(&fx->rows), SPEC_E_CONFIG);
    assert_null(fx->rows.conn);
    objects_open(fx);
    get_expect(fx, fx->domain, 1, 8, 5000, SPEC_KEY_DONE);
    spec_unload(&fx->rows.plugin);
}

static void obj_007_a_directory_of_rows_is_not_opened_for_objects(void **state)
{
    struct objects *fx = *state;
    load_rows(fx);
    fixture_open(&fx->rows);
    struct prompt prompt = prompt_make(7, 100);
    bool stored = fixture_store(&fx->rows, &prompt);
    fixture_close(&fx->rows);
    assert_status(objects_try_open(fx), SPEC_E_CONFIG);
    assert_null(fx->store);
    fixture_open(&fx->rows);
    fixture_check(&fx->rows, &prompt, stored ? 99 : 0);
    fixture_close(&fx->rows);
    prompt_free(&prompt);
    spec_unload(&fx->rows.plugin);
}

/* ---- 020, 021 ---- */

static void obj_020_a_wrong_configuration_names_its_key(void **state)
{
    struct objects *fx = *state;
    fx->extra = "\"disk_byte\": \"64MiB\"";
    assert_status(objects_try_open(fx), SPEC_E_CONFIG);
    assert_non_null(strstr(fx->error.text, "disk_byte"));
    fx->extra = "\"objects\": {\"hold\": 1}";
    assert_status(objects_try_open(fx), SPEC_E_CONFIG);
    assert_non_null(strstr(fx->error.text, "objects.hold"));
    assert_null(fx->store);
    fx->extra = NULL;
    objects_open(fx);
}

static _Atomic int64_t allocated;

static void *count_alloc(uint64_t bytes, uint64_t align_bytes, void *user)
{
    (void)user;
    uint64_t align = align_bytes < sizeof(void *) ? sizeof(void *) : align_bytes;
    atomic_fetch_add(&allocated, (int64_t)bytes);
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void count_free(void *memory, uint64_t bytes, void *user)
{
    (void)user;
    if (memory != NULL)
        atomic_fetch_sub(&allocated, (int64_t)bytes);
    free(memory);
}

static void obj_020_the_hosts_allocator_gets_all_memory_back(void **state)
{
    struct objects *fx = *state;
    const struct spec_alloc alloc = {
        .struct_size = sizeof(alloc), .alloc = count_alloc, .free = count_free};
    fx->alloc = &alloc;
    objects_open(fx);
    assert_true(atomic_load(&allocated) > 0);
    put_done(fx, fx->domain, 1, 100, 5000);
    get_expect(fx, fx->domain, 1, 100, 5000, SPEC_KEY_DONE);
    get_expect(fx, fx->domain, 101, 100, 5000, SPEC_KEY_ABSENT);
    objects_close(fx);
    assert_int_equal(atomic_load(&allocated), 0);
}

static uint32_t count_threads(void)
{
    uint32_t count = 0;
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

/* A thread that was joined may be listed for a moment. */
static void await_threads(uint32_t most)
{
    for (uint32_t tries = 0; count_threads() > most;)
        if (!conf_wait(&tries))
            fail_msg("%" PRIu32 " threads, expected at most %" PRIu32, count_threads(), most);
}

static void obj_021_close_accepts_null_and_ends_every_thread(void **state)
{
    struct objects *fx = *state;
    objects_open(fx); /* a sanitizer has a thread of its own from the first on */
    objects_close(fx);
    uint32_t before = count_threads(); /* perhaps with one that was just joined: so several times */
    fx->api->close(NULL);
    for (uint32_t i = 0; i < 4; i++) {
        objects_open(fx);
        put_done(fx, fx->domain, 1 + 16 * i, 16, 5000);
        objects_close(fx);
    }
    await_threads(before);
}

static void obj_021_close_cancels_puts_that_wait(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, SMALL);
    fill_and_hold(fx, fx->domain, 1);
    struct batch large = batch_make(1000, 1, LARGE_MIB * MIB);
    (void)put_begin(fx, fx->domain, &large, 1);
    objects_close(fx); /* ends, though no room was made */
    batch_poison(&large);
    objects_open(fx);
    assert_int_equal(exists_one(fx, fx->domain, 1000), SPEC_KEY_ABSENT);
    get_expect(fx, fx->domain, 1, 48, MIB, SPEC_KEY_DONE);
    batch_free(&large);
}

/* An index that has no room for a key, or hardly any: puts end, and the store closes. */
static void obj_021_a_store_whose_index_is_full_closes(void **state)
{
    static const char *const CONFIGS[] = {
        "\"disk_bytes\": \"64MiB\", \"index_bytes_max\": \"1MiB\"",
        "\"disk_bytes\": \"64MiB\", \"index_bytes_max\": \"3MiB\""};
    struct objects *fx = *state;
    for (uint32_t c = 0; c < sizeof(CONFIGS) / sizeof(CONFIGS[0]); c++) {
        objects_configure(fx, CONFIGS[c]);
        struct batch b = batch_make(c * 5000, 5000, 1);
        b.params.timeout_ns = 100 * MS_NS;
        put(fx, fx->domain, &b);
        assert_int_equal(batch_count(&b, SPEC_KEY_DONE) + batch_count(&b, SPEC_KEY_STORED) +
                             batch_count(&b, SPEC_E_TIMEOUT) + batch_count(&b, SPEC_E_NO_SPACE),
                         5000);
        objects_close(fx);
        objects_open(fx);
        batch_free(&b);
    }
}

/* ---- 022, 023 ---- */

static void obj_022_one_identity_is_one_domain_and_openers_are_counted(void **state)
{
    struct objects *fx = *state;
    spec_domain again = objects_domain(fx, "domain");
    assert_int_equal(again, fx->domain);
    put_done(fx, fx->domain, 1, 4, 100);
    assert_ok(fx, fx->api->domain_close(fx->store, fx->domain, &fx->error));
    get_expect(fx, fx->domain, 1, 4, 100, SPEC_KEY_DONE);
    assert_ok(fx, fx->api->domain_close(fx->store, fx->domain, &fx->error));
    assert_status(fx->api->domain_close(fx->store, fx->domain, &fx->error), SPEC_E_INVALID);
    fx->domain = objects_domain(fx, "domain");
    get_expect(fx, fx->domain, 1, 4, 100, SPEC_KEY_DONE);
}

static void obj_022_wrong_identities_are_invalid(void **state)
{
    static uint8_t identity[SPEC_DOMAIN_BYTES_MAX + 1];
    struct objects *fx = *state;
    spec_domain domain = 0;
    struct spec_domain_params params = {.struct_size = sizeof(params), .identity = {identity, 0}};
    assert_status(fx->api->domain_open(fx->store, &params, &domain, &fx->error), SPEC_E_INVALID);
    params.identity.byte_count = SPEC_DOMAIN_BYTES_MAX + 1;
    assert_status(fx->api->domain_open(fx->store, &params, &domain, &fx->error), SPEC_E_INVALID);
    params.identity = (struct spec_bytes){NULL, 4};
    assert_status(fx->api->domain_open(fx->store, &params, &domain, &fx->error), SPEC_E_INVALID);
    assert_int_equal(domain, 0);
}

static void obj_022_more_domains_than_the_most_are_no_space(void **state)
{
    struct objects *fx = *state;
    spec_domain domain = 0;
    char identity[32];
    for (uint32_t i = 1; i <= SPEC_DOMAINS_MAX; i++) {
        (void)snprintf(identity, sizeof(identity), "domain %u", (unsigned)i);
        struct spec_domain_params params = {.struct_size = sizeof(params),
                                            .identity = {identity, strlen(identity)}};
        spec_status expected = i < SPEC_DOMAINS_MAX ? SPEC_OK : SPEC_E_NO_SPACE;
        spec_status status = fx->api->domain_open(fx->store, &params, &domain, &fx->error);
        if (status != expected)
            fail_msg("domain %u: status %d", (unsigned)i + 1, (int)status);
    }
    put_done(fx, fx->domain, 1, 1, 100);
}

/* Domains that came and went, with long names: the log forgets them. */
static void obj_022_domains_that_are_closed_and_empty_take_no_room(void **state)
{
    struct objects *fx = *state;
    char identity[4001];
    objects_configure(fx, "\"disk_bytes\": \"16MiB\", \"segment_bytes\": \"1MiB\"");
    memset(identity, 'i', sizeof(identity) - 1);
    identity[sizeof(identity) - 1] = '\0';
    for (uint32_t i = 0; i < 3000; i++) {
        (void)snprintf(identity, 9, "%08" PRIu32, i);
        identity[8] = 'i';
        spec_domain domain = objects_domain(fx, identity);
        if (i % 1000 == 7)
            put_done(fx, domain, i, 1, 5000);
        assert_ok(fx, fx->api->domain_close(fx->store, domain, &fx->error));
    }
    put_done(fx, fx->domain, 0, 8, MIB / 2);
    objects_reopen(fx);
    get_expect(fx, fx->domain, 0, 8, MIB / 2, SPEC_KEY_DONE);
    (void)snprintf(identity, 9, "%08u", 1007);
    identity[8] = 'i';
    get_expect(fx, objects_domain(fx, identity), 1007, 1, 5000, SPEC_KEY_DONE);
}

static void obj_023_calls_of_a_closed_domain_are_invalid(void **state)
{
    struct objects *fx = *state;
    struct batch b = batch_make(1, 1, 100);
    const struct spec_objects_api *api = fx->api;
    struct spec_exists_params params = {.struct_size = sizeof(params)};
    struct spec_object_stats stats = {.struct_size = sizeof(stats)};
    struct spec_completion completion;
    spec_operation operation = 0;
    uint64_t count = 0;
    put(fx, fx->domain, &b);
    assert_ok(fx, api->domain_close(fx->store, fx->domain, &fx->error));
    const spec_domain wrong[] = {fx->domain, 0, fx->domain + 1000, UINT64_MAX};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        spec_status statuses[] = {
            api->exists(fx->store, wrong[i], &b.keys, &params, NULL, NULL),
            api->get(fx->store, wrong[i], &b.keys, &b.pieces, &b.params, NULL),
            api->put(fx->store, wrong[i], &b.keys, &b.pieces, &b.params, NULL),
            api->put_submit(fx->store, wrong[i], &b.keys, &b.pieces, &b.params, &operation, NULL),
            api->poll(fx->store, wrong[i], &completion, 1, 0, &count, NULL),
            api->event_fd_set(fx->store, wrong[i], -1, NULL),
            api->remove(fx->store, wrong[i], &b.keys, 0, NULL, NULL),
            api->clear(fx->store, wrong[i], 0, NULL),
            api->touch(fx->store, wrong[i], &b.keys, NULL),
            api->domain_close(fx->store, wrong[i], NULL),
            wrong[i] == 0 ? SPEC_E_INVALID : api->stats(fx->store, wrong[i], &stats, NULL)};
        for (size_t j = 0; j < sizeof(statuses) / sizeof(statuses[0]); j++)
            if (statuses[j] != SPEC_E_INVALID)
                fail_msg("call %zu of domain %" PRIu64 ": status %d", j, wrong[i],
                         (int)statuses[j]);
    }
    assert_int_equal(operation, 0);
    batch_free(&b);
}

static void obj_023_the_last_close_cancels_and_drops_completions(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, SMALL);
    spec_domain other = objects_domain(fx, "other");
    fill_and_hold(fx, other, 1);
    struct batch large = batch_make(1000, 1, LARGE_MIB * MIB), little = batch_make(2000, 1, 100);
    (void)put_begin(fx, fx->domain, &little, 1);
    await_exists(fx, fx->domain, 2000, SPEC_KEY_DONE);
    assert_int_equal(exists(fx, fx->domain, 2000, 1, SPEC_EXISTS_HOLD, NULL), 1);
    (void)put_begin(fx, fx->domain, &large, 2);
    assert_ok(fx, fx->api->domain_close(fx->store, fx->domain, &fx->error));
    batch_poison(&large); /* the store reads it no more */
    fx->domain = objects_domain(fx, "domain");
    assert_int_equal(poll_none(fx, fx->domain, 0), 0);
    assert_int_equal(exists_one(fx, fx->domain, 1000), SPEC_KEY_ABSENT);
    get_expect(fx, fx->domain, 2000, 1, 100, SPEC_KEY_DONE);
    batch_free(&little);
    batch_free(&large);
}

const struct conf_test CONF_OBJECT_OPEN[] = {
    OPENED(obj_003_equal_keys_of_two_domains_have_values_of_their_own),
    OPENED(obj_003_identities_are_compared_by_value),
    OPENED(obj_003_keys_are_compared_by_value),
    OPENED(obj_003_many_keys_are_not_taken_for_others),
    OPENED(obj_005_objects_are_found_by_later_opens),
    BARE(obj_007_a_second_process_shares_or_is_locked_until_the_first_ends),
    OPENED(obj_007_a_second_open_of_the_process_shares_or_is_locked),
    BARE(obj_007_the_seventeenth_is_locked),
    BARE(obj_007_one_writer_has_the_store_alone),
    BARE(obj_007_ranks_have_files_of_their_own),
    OPENED(obj_007_a_directory_of_objects_is_not_opened_for_rows),
    BARE(obj_007_a_directory_of_rows_is_not_opened_for_objects),
    BARE(obj_020_a_wrong_configuration_names_its_key),
    BARE(obj_020_the_hosts_allocator_gets_all_memory_back),
    BARE(obj_021_close_accepts_null_and_ends_every_thread),
    OPENED(obj_021_close_cancels_puts_that_wait),
    OPENED(obj_021_a_store_whose_index_is_full_closes),
    OPENED(obj_022_one_identity_is_one_domain_and_openers_are_counted),
    OPENED(obj_022_wrong_identities_are_invalid),
    OPENED(obj_022_more_domains_than_the_most_are_no_space),
    OPENED(obj_022_domains_that_are_closed_and_empty_take_no_room),
    OPENED(obj_023_calls_of_a_closed_domain_are_invalid),
    OPENED(obj_023_the_last_close_cancels_and_drops_completions),
    END};

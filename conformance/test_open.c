/* test_open: opening and closing: ABI-012 .. ABI-015.
 *
 * Threads, Tests: see fixture.h. */
#include "conformance/suite.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- 012 ---- */

static void abi_012_open_makes_the_directory_and_finds_it_again(void **state)
{
    struct fixture *fx = *state;
    struct stat info;
    assert_int_not_equal(stat(fx->store, &info), 0);
    fixture_open(fx);
    struct prompt prompt = prompt_make(20, 200);
    bool stored = fixture_store(fx, &prompt);
    fixture_reopen(fx);
    fixture_check(fx, &prompt, stored ? 199 : 0);
    prompt_free(&prompt);
}

static void abi_012_config_may_be_the_path_of_a_file(void **state)
{
    struct fixture *fx = *state;
    char text[8192], path[4096];
    fixture_config(fx, text, sizeof(text));
    (void)snprintf(path, sizeof(path), "%s/conf.json", fx->dir);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    fclose(file);
    struct spec_open_params params = {
        .struct_size = sizeof(params), .config = path, .model = &fx->model};
    assert_ok(fx, fx->api->open(&params, &fx->conn, &fx->error));
    struct prompt prompt = prompt_make(21, 100);
    bool stored = fixture_store(fx, &prompt);
    fixture_reopen(fx); /* the same as text */
    fixture_check(fx, &prompt, stored ? 99 : 0);
    prompt_free(&prompt);
}

static void abi_012_open_errors_leave_ret_conn_alone(void **state)
{
    struct fixture *fx = *state;
    spec_connector *poison = (spec_connector *)(void *)fx, *conn = poison;
    struct spec_open_params params = {.struct_size = sizeof(params), .model = &fx->model};
    assert_status(fx->api->open(&params, &conn, &fx->error), SPEC_E_INVALID);
    assert_ptr_equal(conn, poison);
    params.config = "{}";
    params.model = NULL;
    assert_status(fx->api->open(&params, &conn, &fx->error), SPEC_E_INVALID);
    params.model = &fx->model;
    assert_status(fx->api->open(&params, NULL, &fx->error), SPEC_E_INVALID);
    assert_status(fx->api->open(NULL, &conn, &fx->error), SPEC_E_INVALID);
    params.config = "/nonexistent/conf.json";
    assert_true(fx->api->open(&params, &conn, &fx->error) < 0);
    assert_true(strlen(fx->error.text) > 0);
    assert_ptr_equal(conn, poison);
}

static void abi_012_models_that_cannot_be_are_invalid(void **state)
{
    struct fixture *fx = *state;
    uint32_t *members[] = {&fx->model.layer_count, &fx->model.kv_head_count,
                           &fx->model.query_head_count, &fx->model.head_size};
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        uint32_t right = *members[i];
        *members[i] = 0;
        assert_status(fixture_try_open(fx), SPEC_E_INVALID);
        *members[i] = right;
    }
    fx->model.kv_dtype = 9;
    assert_status(fixture_try_open(fx), SPEC_E_INVALID);
    fixture_shape(fx, fx->shape);
    fx->model.tp_rank = 2;
    fx->model.tp_size = 2;
    assert_status(fixture_try_open(fx), SPEC_E_INVALID);
    fixture_shape(fx, fx->shape);
    fx->model.kv_scale_count = 4;
    assert_status(fixture_try_open(fx), SPEC_E_INVALID);
    assert_null(fx->conn);
}

static void abi_012_paths_that_cannot_be_are_errors(void **state)
{
    struct fixture *fx = *state;
    static const char *const PATHS[] = {"/nonexistent/parent/store", "/dev/null/store", "/dev/null",
                                        "/proc/spec-store"};
    for (size_t i = 0; i < sizeof(PATHS) / sizeof(PATHS[0]); i++) {
        (void)snprintf(fx->store, sizeof(fx->store), "%s", PATHS[i]);
        spec_status status = fixture_try_open(fx);
        if (status != SPEC_E_IO && status != SPEC_E_VERSION)
            fail_msg("%s: status %d, expected SPEC_E_IO", PATHS[i], (int)status);
        assert_null(fx->conn);
        assert_true(strlen(fx->error.text) > 0);
    }
}

struct log_watch {
    pthread_t host;
    uint64_t lines, strange;
};

static void watch_log(int32_t level, const char *line, void *user)
{
    struct log_watch *watch = user;
    watch->lines++;
    if (!pthread_equal(pthread_self(), watch->host) || level > SPEC_LOG_DEBUG || level < 0 ||
        strchr(line, '\n') != NULL)
        watch->strange++;
}

static void abi_012_log_lines_come_on_the_hosts_threads(void **state)
{
    struct fixture *fx = *state;
    struct log_watch watch = {.host = pthread_self()};
    char config[8192];
    fixture_config(fx, config, sizeof(config));
    struct spec_open_params params = {.struct_size = sizeof(params),
                                      .config = config,
                                      .model = &fx->model,
                                      .log = watch_log,
                                      .log_user = &watch,
                                      .log_level_max = SPEC_LOG_DEBUG};
    assert_ok(fx, fx->api->open(&params, &fx->conn, &fx->error));
    struct prompt prompt = prompt_make(22, 300);
    bool stored = fixture_store(fx, &prompt);
    fixture_check(fx, &prompt, stored ? 299 : 0);
    fixture_close(fx);
    assert_int_equal(watch.strange, 0);
    prompt_free(&prompt);
}

/* ---- 013 ---- */

static void abi_013_config_errors_name_the_key(void **state)
{
    struct fixture *fx = *state;
    static const struct {
        const char *extra, *named;
    } WRONG[] = {
        {"\"no_such_key\": 1", "no_such_key"},
        {"\"disk_bytes\": NaN", ""},
        {"\"disk_bytes\": \"4GiBs\"", "disk_bytes"},
        {"\"disk_bytes\": -1", "disk_bytes"},
        {"\"io\": {\"threads\": \"two\"}", "io.threads"},
        {"\"io\": {\"threads\": 0}", "io.threads"},
        {"\"io\": 5", "io"},
        {"\"chunk_tokens\": 63", "chunk_tokens"},
        {"\"max_requests\": 0", "max_requests"},
        {"\"path\": \"/tmp/twice\"", "path"},
        {"]", ""},
    };
    for (size_t i = 0; i < sizeof(WRONG) / sizeof(WRONG[0]); i++) {
        fx->extra = WRONG[i].extra;
        spec_status status = fixture_try_open(fx);
        if (status != SPEC_E_CONFIG)
            fail_msg("{%s}: status %d, expected SPEC_E_CONFIG", WRONG[i].extra, (int)status);
        if (strstr(fx->error.text, WRONG[i].named) == NULL)
            fail_msg("{%s}: \"%s\" does not name %s", WRONG[i].extra, fx->error.text,
                     WRONG[i].named);
        assert_null(fx->conn);
    }
    struct spec_open_params params = {
        .struct_size = sizeof(params), .config = "{}", .model = &fx->model};
    assert_status(fx->api->open(&params, &fx->conn, &fx->error), SPEC_E_CONFIG);
    assert_non_null(strstr(fx->error.text, "path"));
}

static void abi_013_a_wrong_config_leaves_the_store_as_it_was(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(23, 100);
    fixture_open(fx);
    bool stored = fixture_store(fx, &prompt);
    fixture_close(fx);
    fx->extra = "\"no_such_key\": 1";
    assert_status(fixture_try_open(fx), SPEC_E_CONFIG);
    fx->extra = NULL;
    fixture_open(fx);
    fixture_check(fx, &prompt, stored ? 99 : 0);
    prompt_free(&prompt);
}

/* ---- 014 ---- */

static void abi_014_a_second_writer_is_locked_out(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(24, 100);
    bool stored = fixture_store(fx, &prompt);
    struct fixture second = *fx;
    second.conn = NULL;
    spec_status status = fixture_try_open(&second);
    if (status == SPEC_OK) { /* both could write the same files */
        fixture_close(&second);
        prompt_free(&prompt);
        if (!stored && !conf_options.require_hits)
            return; /* a connector that keeps nothing locks nothing */
        fail_msg("a second writer was let in");
    }
    assert_int_equal(status, SPEC_E_LOCKED);
    char pid[32];
    (void)snprintf(pid, sizeof(pid), "%ld", (long)getpid());
    assert_non_null(strstr(second.error.text, pid)); /* it names the owner */
    fixture_check(fx, &prompt, stored ? 99 : 0);
    fixture_reopen(fx);
    fixture_check(fx, &prompt, stored ? 99 : 0);
    prompt_free(&prompt);
}

static uint64_t count_entries(const char *path)
{
    uint64_t count = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while (readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count;
}

static void abi_014_a_foreign_directory_is_refused_and_left_alone(void **state)
{
    struct fixture *fx = *state;
    char path[4096], line[64] = "";
    assert_int_equal(mkdir(fx->store, 0700), 0);
    (void)snprintf(path, sizeof(path), "%s/thesis.tex", fx->store);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs("chapter one", file) >= 0);
    fclose(file);
    uint64_t entries = count_entries(fx->store);
    for (int i = 0; i < 2; i++) {
        assert_status(fixture_try_open(fx), SPEC_E_VERSION);
        assert_null(fx->conn);
        assert_true(strlen(fx->error.text) > 0);
        assert_int_equal(count_entries(fx->store), entries);
    }
    file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof(line), file));
    fclose(file);
    assert_string_equal(line, "chapter one");
}

struct writer {
    struct fixture *fx;
    int ready[2];
};

/* Opens, says how it went, and waits to be killed. */
static void hold_store(void *user)
{
    struct writer *writer = user;
    spec_status status = fixture_try_open(writer->fx);
    if (write(writer->ready[1], &status, sizeof(status)) == sizeof(status))
        for (;;)
            pause();
}

static void abi_014_a_killed_writer_leaves_no_lock(void **state)
{
    struct fixture *fx = *state;
    struct writer writer = {.fx = fx};
    assert_int_equal(pipe(writer.ready), 0);
    pid_t pid = conf_fork();
    if (pid == 0) {
        hold_store(&writer);
        _exit(0);
    }
    spec_status theirs = SPEC_PENDING;
    assert_int_equal(read(writer.ready[0], &theirs, sizeof(theirs)), sizeof(theirs));
    assert_int_equal(theirs, SPEC_OK);
    spec_status mine = fixture_try_open(fx);
    kill(pid, SIGKILL);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (mine == SPEC_OK && !conf_options.require_hits)
        return;
    assert_int_equal(mine, SPEC_E_LOCKED);
    fixture_open(fx);
}

/* ---- 015 ---- */

static void abi_015_close_takes_null(void **state)
{
    struct fixture *fx = *state;
    fx->api->close(NULL);
}

static void abi_015_close_waits_for_submitted_and_drops_incomplete_stores(void **state)
{
    struct fixture *fx = *state;
    struct prompt whole = prompt_make(25, 300), part = prompt_make(26, 300);
    struct spec_lookup_result found = fixture_find(fx, &whole);
    spec_ticket ticket;
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++)
        assert_ok(fx, fixture_put(fx, found.request, &whole, 0, 300, layer, &ticket));
    found = fixture_find(fx, &part);
    for (uint32_t layer = 0; layer + 1 < fx->shape.layers; layer++)
        assert_ok(fx, fixture_put(fx, found.request, &part, 0, 300, layer, &ticket));
    fixture_reopen(fx); /* nothing was waited for or released */
    fixture_check(fx, &whole, 299);
    found = fixture_find(fx, &part);
    assert_int_equal(found.matched_tokens, 0);
    fixture_release(fx, found.request);
    prompt_free(&whole);
    prompt_free(&part);
}

/* Counts what the connector holds; the allocation after `left` others fails, and all behind it. */
struct balance {
    pthread_mutex_t lock;
    uint64_t blocks, bytes, left;
    bool wrong;
};

static void *count_alloc(uint64_t bytes, uint64_t align_bytes, void *user)
{
    struct balance *balance = user;
    uint64_t align = align_bytes < sizeof(void *) ? sizeof(void *) : align_bytes;
    void *memory = NULL;
    pthread_mutex_lock(&balance->lock);
    if (balance->left > 0 && posix_memalign(&memory, align, bytes > 0 ? bytes : 1) == 0) {
        balance->left--;
        balance->blocks++;
        balance->bytes += bytes;
    }
    pthread_mutex_unlock(&balance->lock);
    return memory;
}

static void count_free(void *memory, uint64_t bytes, void *user)
{
    struct balance *balance = user;
    pthread_mutex_lock(&balance->lock);
    balance->wrong |= balance->blocks == 0 || balance->bytes < bytes || memory == NULL;
    balance->blocks--;
    balance->bytes -= bytes;
    pthread_mutex_unlock(&balance->lock);
    free(memory);
}

static void abi_015_close_gives_back_all_of_the_hosts_memory(void **state)
{
    struct fixture *fx = *state;
    struct balance balance = {.lock = PTHREAD_MUTEX_INITIALIZER, .left = UINT64_MAX};
    struct spec_alloc alloc = {
        .struct_size = sizeof(alloc), .alloc = count_alloc, .free = count_free, .user = &balance};
    char config[8192];
    fixture_config(fx, config, sizeof(config));
    struct spec_open_params params = {
        .struct_size = sizeof(params), .config = config, .model = &fx->model, .alloc = &alloc};
    assert_ok(fx, fx->api->open(&params, &fx->conn, &fx->error));
    struct prompt prompt = prompt_make(27, 200);
    bool stored = fixture_store(fx, &prompt);
    fixture_check(fx, &prompt, stored ? 199 : 0);
    fixture_close(fx);
    assert_false(balance.wrong);
    assert_int_equal(balance.blocks, 0);
    assert_int_equal(balance.bytes, 0);
    prompt_free(&prompt);
}

/* The n-th allocation of open fails, for n = 0, 1, 2 .. until none does. */
static void abi_015_open_without_memory_undoes_itself(void **state)
{
    struct fixture *fx = *state;
    char config[8192];
    fixture_config(fx, config, sizeof(config));
    uint64_t n = 0;
    for (;; n++) {
        struct balance balance = {.lock = PTHREAD_MUTEX_INITIALIZER, .left = n};
        struct spec_alloc alloc = {.struct_size = sizeof(alloc),
                                   .alloc = count_alloc,
                                   .free = count_free,
                                   .user = &balance};
        struct spec_open_params params = {
            .struct_size = sizeof(params), .config = config, .model = &fx->model, .alloc = &alloc};
        spec_status status = fx->api->open(&params, &fx->conn, &fx->error);
        if (status == SPEC_OK)
            fixture_close(fx);
        assert_null(fx->conn);
        assert_int_equal(balance.blocks, 0);
        assert_int_equal(balance.bytes, 0);
        assert_false(balance.wrong);
        if (status == SPEC_OK)
            break;
        assert_int_equal(status, SPEC_E_NO_MEMORY);
        n += n / 16; /* every one of the first, then ever fewer */
    }
    fixture_open(fx);
}

const struct conf_test CONF_OPEN[] = {
    BARE(abi_012_open_makes_the_directory_and_finds_it_again),
    BARE(abi_012_config_may_be_the_path_of_a_file),
    BARE(abi_012_open_errors_leave_ret_conn_alone),
    BARE(abi_012_models_that_cannot_be_are_invalid),
    BARE(abi_012_paths_that_cannot_be_are_errors),
    BARE(abi_012_log_lines_come_on_the_hosts_threads),
    BARE(abi_013_config_errors_name_the_key),
    BARE(abi_013_a_wrong_config_leaves_the_store_as_it_was),
    OPENED(abi_014_a_second_writer_is_locked_out),
    BARE(abi_014_a_killed_writer_leaves_no_lock),
    BARE(abi_014_a_foreign_directory_is_refused_and_left_alone),
    BARE(abi_015_close_takes_null),
    OPENED(abi_015_close_waits_for_submitted_and_drops_incomplete_stores),
    BARE(abi_015_close_gives_back_all_of_the_hosts_memory),
    BARE(abi_015_open_without_memory_undoes_itself),
    END,
};

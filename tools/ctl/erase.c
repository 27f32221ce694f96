/* erase: makes a store's contents, or those of one salt, unreadable in its files.
 *
 *   intents for every rank (store/erase.h)
 *     a rank that a process has open   that process overwrites; waited for until it has
 *     any other                        is opened here, as a writer of a model that stores nothing
 *
 * Exit code 0: every intent of this run was carried out. Otherwise the next process that opens the
 * rank carries them out. The salt is neither shown nor stored.
 * Threads: the executor's. Tests: tests/unit/tools/test_ctl.py */
#include "tools/ctl/ctl.h"

#include "hashing/chain.h"
#include "store/erase.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POLL_NS   UINT64_C(50000000)
#define SPARE     (UINT64_C(4) << 30) /* of disk_bytes: no segment is given up for want of room */
#define ROW_BYTES 1024u

struct eraser {
    const struct ctl_options *options;
    struct sc_alloc alloc;
    struct sc_log log;
    struct sc_fault fault;
    struct sc_poison poison;
    struct sc_config config;
    struct sc_exec *exec;
    struct sc_store_params params;
    uint64_t zeroed_bytes, ranks_here, ranks_waited;
};

static int said(const struct ctl_rank *rank, const struct spec_error *error)
{
    fprintf(stderr, "spec-ctl: %s: %s\n", rank->path, error->text);
    return CTL_FAILED;
}

static void on_line(int32_t level, const char *line, void *user)
{
    (void)user;
    if (level <= SPEC_LOG_WARN)
        fprintf(stderr, "spec-ctl: %s\n", line);
}

/* No record is of this namespace, and nothing is stored, so none ever will be. */
static void params_set(struct eraser *eraser)
{
    eraser->params =
        (struct sc_store_params){.alloc = &eraser->alloc,
                                 .exec = eraser->exec,
                                 .log = &eraser->log,
                                 .fault = &eraser->fault,
                                 .poison = &eraser->poison,
                                 .config = &eraser->config,
                                 .space = {.layer_count = 1,
                                           .layout = SC_STORE_PAIRED,
                                           .k_row_bytes = ROW_BYTES,
                                           .descriptor = "{\"model\":\"spec-ctl erase\"}"}};
}

static bool eraser_open(struct eraser *eraser, const struct ctl_store *store)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct json_object *json = json_object_new_object();
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < store->rank_count; i++) {
        uint64_t all = (2 * store->ranks[i].segment_bytes + SPARE) * store->ranks[i].rank_count;
        bytes = all > bytes ? all : bytes;
    }
    sc_alloc_init(&eraser->alloc);
    sc_log_init(&eraser->log, on_line, NULL, SPEC_LOG_WARN);
    sc_fault_init(&eraser->fault);
    json_object_object_add(json, "path", json_object_new_string(store->path));
    json_object_object_add(json, "disk_bytes", json_object_new_uint64(bytes));
    json_object_object_add(json, "staging_bytes", json_object_new_string("16MiB"));
    json_object_object_add(json, "host_bytes", json_object_new_int(0));
    spec_status status =
        sc_config_parse(&eraser->alloc, json_object_to_json_string(json), &eraser->config, &error);
    json_object_put(json);
    const struct sc_exec_params exec = {
        .alloc = &eraser->alloc, .thread_count = 2, .name = "erase", .poison = &eraser->poison};
    if (status == SPEC_OK)
        status = sc_exec_open(&exec, &eraser->exec, &error);
    if (status != SPEC_OK)
        fprintf(stderr, "spec-ctl: %s\n", error.text);
    params_set(eraser);
    return status == SPEC_OK;
}

static void eraser_close(struct eraser *eraser)
{
    if (eraser->exec != NULL)
        sc_exec_close(eraser->exec);
    sc_log_drain(&eraser->log);
    sc_log_done(&eraser->log);
    sc_alloc_done(&eraser->alloc);
}

static void pause_ns(struct eraser *eraser, uint64_t ns)
{
    _Atomic uint32_t never = 0;
    (void)sc_exec_wait(eraser->exec, &never, 0, sc_exec_now_ns(eraser->exec) + ns);
}

static void progress(const struct eraser *eraser, const struct ctl_rank *rank, uint64_t left)
{
    char text[32];
    if (!eraser->options->quiet && isatty(STDERR_FILENO))
        fprintf(stderr, "\r%s: %s left  ", rank->path, ctl_bytes_text(left, text));
}

/* A rank that nobody has open. */
static int rank_erase(struct eraser *eraser, const struct ctl_rank *rank, struct sc_store *store)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status = sc_store_erase_hear(store, NULL, NULL, &error);
    while (status == SPEC_OK && sc_store_erasures(store) > 0) {
        bool more = true;
        sc_store_erase_mark(store, NULL, NULL);
        while (more && status == SPEC_OK) {
            status = sc_store_erase_step(store, &more, &error);
            progress(eraser, rank, sc_store_erase_counts(store).left_bytes);
        }
        if (status == SPEC_OK)
            status = sc_store_erase_hear(store, NULL, NULL, &error);
    }
    eraser->zeroed_bytes += sc_store_erase_counts(store).zeroed_bytes;
    eraser->ranks_here++;
    return status == SPEC_OK ? CTL_OK : said(rank, &error);
}

/* A rank that a process has open: until its intents are away. That process says nothing else. */
static int rank_wait(struct eraser *eraser, const struct ctl_rank *rank)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct sc_store *store = NULL;
    eraser->params.role = SC_STORE_PEER;
    spec_status status = sc_store_open(&eraser->params, &store, &error);
    uint64_t end_ns = sc_exec_now_ns(eraser->exec) + eraser->options->timeout_s * 1000000000u;
    while (status == SPEC_OK) {
        status = sc_store_erase_hear(store, NULL, NULL, &error);
        if (status != SPEC_OK || sc_store_erasures(store) == 0)
            break;
        if (sc_exec_now_ns(eraser->exec) >= end_ns)
            status = sc_fail(&error, SPEC_E_TIMEOUT,
                             "not erased after %" PRIu64
                             " s: its process (%s) overwrites, or is of a version that does not",
                             eraser->options->timeout_s, rank->holder);
        else
            pause_ns(eraser, POLL_NS);
    }
    sc_store_close(store);
    eraser->ranks_waited++;
    return status == SPEC_OK ? CTL_OK : said(rank, &error);
}

static int rank_run(struct eraser *eraser, const struct ctl_rank *rank)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct sc_store *store = NULL;
    eraser->params.rank = rank->rank;
    eraser->params.rank_count = rank->rank_count;
    eraser->params.role = SC_STORE_WRITER;
    spec_status status = sc_store_open(&eraser->params, &store, &error);
    if (status == SPEC_E_LOCKED)
        return rank_wait(eraser, rank);
    if (status != SPEC_OK)
        return said(rank, &error);
    int code = rank_erase(eraser, rank, store);
    sc_store_close(store);
    return code;
}

/* For every rank: an intent is the whole store's. */
static int intents_put(struct eraser *eraser, const struct ctl_store *store)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct sc_store_erasure what = {.is_all = eraser->options->all};
    struct sc_chain_secret secret;
    struct sc_store *peer = NULL;
    const char *salt = eraser->options->salt;
    if (salt != NULL) {
        sc_chain_secret_init(&secret, store->identity.secret);
        sc_hash_to_bytes(sc_chain_salt(&secret, salt, strlen(salt)), what.salt);
    }
    eraser->params.rank = store->ranks[0].rank;
    eraser->params.rank_count = store->ranks[0].rank_count;
    eraser->params.role = SC_STORE_PEER;
    spec_status status = sc_store_open(&eraser->params, &peer, &error);
    if (status == SPEC_OK)
        status = sc_store_erase_put(peer, &what, &error);
    sc_store_close(peer);
    return status == SPEC_OK ? CTL_OK : said(&store->ranks[0], &error);
}

static void result_say(const struct eraser *eraser)
{
    char text[32];
    if (eraser->options->json) {
        struct json_object *object = json_object_new_object();
        json_object_object_add(object, "ranks_erased", json_object_new_uint64(eraser->ranks_here));
        json_object_object_add(object, "ranks_erased_by_their_process",
                               json_object_new_uint64(eraser->ranks_waited));
        json_object_object_add(object, "overwritten_bytes",
                               json_object_new_uint64(eraser->zeroed_bytes));
        printf("%s\n", json_object_to_json_string_ext(object, JSON_C_TO_STRING_PRETTY));
        json_object_put(object);
        return;
    }
    printf("erased: %" PRIu64 " ranks here (%s overwritten), %" PRIu64 " by their processes\n",
           eraser->ranks_here, ctl_bytes_text(eraser->zeroed_bytes, text), eraser->ranks_waited);
}

int ctl_erase(const struct ctl_options *options)
{
    struct ctl_store store;
    struct eraser eraser = {.options = options};
    if (options->all == (options->salt != NULL) ||
        (options->salt != NULL && options->salt[0] == '\0')) {
        fputs("spec-ctl: erase expects --all, or --salt TEXT that is not empty\n", stderr);
        return CTL_USAGE;
    }
    if (ctl_objects_refuse(options->path, "the host erases them by clear with SPEC_REMOVE_ERASE") ||
        !ctl_store_open(options->path, -1, &store))
        return CTL_FAILED;
    int code = eraser_open(&eraser, &store) ? CTL_OK : CTL_FAILED;
    if (code == CTL_OK && store.rank_count > 0)
        code = intents_put(&eraser, &store);
    for (uint64_t i = 0; i < store.rank_count && code == CTL_OK; i++)
        code = rank_run(&eraser, &store.ranks[i]);
    if (!options->quiet && isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
    if (code == CTL_OK)
        result_say(&eraser);
    eraser_close(&eraser);
    ctl_store_close(&store);
    return code;
}

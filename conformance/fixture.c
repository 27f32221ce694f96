/* fixture: the loaded connector and whole requests. See fixture.h. */
#include "conformance/fixture.h"

#include <ftw.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOMENT_US   2000
#define TRIES_LEAST 50u /* a machine that stood still has used up the time, and tried nothing */
#define MOMENTS_FEW 20u /* for a hit that nobody requires */

struct conf_options conf_options;

static uint64_t seconds_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail: the clock is there */
    return (uint64_t)now.tv_sec;
}

bool conf_wait(uint32_t *tries)
{
    static uint64_t begun_s; /* of the wait that began last */
    if (*tries == 0)
        begun_s = seconds_now();
    usleep(MOMENT_US);
    return ++*tries < TRIES_LEAST || seconds_now() - begun_s <= conf_options.patience_s;
}

void conf_skip(const char *reason)
{
    (void)snprintf(conf_options.shared->reason, sizeof(conf_options.shared->reason), "%s", reason);
    conf_options.shared->skipped = 1;
    conf_options.in_test = false;
    skip();
    abort(); /* skip does not return */
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info, (void)type, (void)walk;
    return remove(path);
}

void conf_remove_tree(const char *path)
{
    (void)nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- Opening ---- */

void fixture_shape(struct fixture *fx, struct shape shape)
{
    fx->shape = shape;
    fx->model = (struct spec_model){.struct_size = sizeof(fx->model),
                                    .layer_count = shape.layers,
                                    .kv_head_count = shape.heads,
                                    .query_head_count = shape.heads * 2,
                                    .head_size = shape.head_size,
                                    .kv_dtype = shape.dtype,
                                    .weights_id = {"conformance", 11}};
}

bool conf_says_what_is_chosen(void)
{
    return strstr(conf_options.extra, "\"select\"") != NULL ||
           strstr(conf_options.extra, "\"layered\"") != NULL ||
           strstr(conf_options.extra, "\"preset\"") != NULL;
}

void fixture_config(const struct fixture *fx, char *text, uint64_t text_bytes)
{
    const char *extra = fx->extra != NULL ? fx->extra : conf_options.extra;
    /* What is stored is what is promised, but where a test asks for the other thing. */
    const char *fill =
        strstr(extra, "\"load_policy\"") == NULL ? ", \"load_policy\": \"load\"" : "";
    /* A host tier as by default, but of a size that costs nothing to have and to give back. */
    const char *host = strstr(extra, "\"host_bytes\"") == NULL ? ", \"host_bytes\": \"64MiB\"" : "";
    int length = snprintf(text, text_bytes, "{\"path\": \"%s\"%s%s%s%s}", fx->store, fill, host,
                          extra[0] != '\0' ? ", " : "", extra);
    if (length < 0 || (uint64_t)length >= text_bytes)
        fail_msg("configuration of more than %" PRIu64 " bytes", text_bytes);
}

spec_status fixture_try_open(struct fixture *fx)
{
    char config[8192];
    fixture_config(fx, config, sizeof(config));
    struct spec_open_params params = {.struct_size = sizeof(params),
                                      .role = fx->role,
                                      .config = config,
                                      .model = &fx->model,
                                      .rank = fx->rank,
                                      .rank_count = fx->rank_count};
    return fx->api->open(&params, &fx->conn, &fx->error);
}

void fixture_open(struct fixture *fx)
{
    spec_connector *poison = (spec_connector *)(void *)fx;
    fx->conn = poison;
    spec_status status = fixture_try_open(fx);
    if (status != SPEC_OK)
        fx->conn = NULL; /* nothing is there that teardown could close */
    assert_ok(fx, status);
    if (fx->conn == poison || fx->conn == NULL) {
        fx->conn = NULL;
        fail_msg("open: SPEC_OK, and ret_conn was not written");
    }
}

void conf_skip_unlike_on_a_device(void)
{
    if (conf_options.one_set)
        conf_skip("rows of layers that are not all alike come into host memory alone");
}

void fixture_open_unlike(struct fixture *fx)
{
    conf_skip_unlike_on_a_device();
    spec_status status = fixture_try_open(fx);
    if (status == SPEC_E_UNSUPPORTED && conf_says_what_is_chosen())
        conf_skip("the command line's configuration says what is chosen or stored");
    assert_ok(fx, status);
}

void fixture_close(struct fixture *fx)
{
    fx->api->close(fx->conn);
    fx->conn = NULL;
}

struct fixture fixture_beside(const struct fixture *fx, uint32_t role)
{
    struct fixture beside = *fx;
    beside.conn = NULL;
    beside.role = role;
    return beside;
}

void fixture_reopen(struct fixture *fx)
{
    fixture_close(fx);
    fixture_open(fx);
}

void fixture_reconfigure(struct fixture *fx, const char *extra)
{
    if (fx->conn != NULL)
        fixture_close(fx);
    fx->extra = extra;
    fixture_open(fx);
}

int fixture_setup_bare(void **state)
{
    static uint64_t count;
    struct fixture *fx = calloc(1, sizeof(*fx));
    if (fx == NULL)
        return -1;
    *state = fx;
    fx->error.struct_size = sizeof(fx->error);
    (void)snprintf(fx->dir, sizeof(fx->dir), "%s/%ld-%" PRIu64, conf_options.dir, (long)getpid(),
                   count++);
    (void)snprintf(fx->store, sizeof(fx->store), "%s/store", fx->dir);
    if (mkdir(fx->dir, 0700) != 0)
        fail_msg("cannot make %s", fx->dir);
    if (spec_load(conf_options.so, &fx->plugin, &fx->error) != SPEC_OK)
        fail_msg("%s", fx->error.text);
    fx->api = fx->plugin.api;
    fixture_shape(fx, (struct shape){3, 2, 16, SPEC_DTYPE_F16});
    fx->role = SPEC_ROLE_WRITER;
    return 0;
}

int fixture_setup(void **state)
{
    int failed = fixture_setup_bare(state);
    if (failed == 0)
        fixture_open(*state);
    return failed;
}

/* A test that failed may have left connectors open, or threads in a call. The library stays loaded
 * for them until the process ends: a crash here would take the place of what the test found. */
int fixture_teardown(void **state)
{
    struct fixture *fx = *state;
    if (conf_options.in_test)
        return 0;
    if (fx->conn != NULL)
        fx->api->close(fx->conn);
    spec_unload(&fx->plugin);
    free(fx);
    return 0;
}

/* ---- Looking up ---- */

struct spec_lookup_params lookup_params(const struct prompt *prompt)
{
    return (struct spec_lookup_params){.struct_size = sizeof(struct spec_lookup_params),
                                       .tokens = prompt->tokens,
                                       .token_count = prompt->count};
}

struct spec_lookup_result fixture_lookup(struct fixture *fx, const struct spec_lookup_params *in)
{
    struct spec_lookup_result found;
    memset(&found, POISON, sizeof(found));
    found.struct_size = sizeof(found);
    assert_ok(fx, fx->api->lookup(fx->conn, in, &found, &fx->error));
    uint64_t limit = in->max_tokens != 0 ? in->max_tokens : in->token_count - 1;
    limit = limit > in->from_token ? limit : in->from_token;
    assert_int_equal(found.struct_size, sizeof(found));
    assert_int_not_equal(found.request, 0);
    assert_in_range(found.state, SPEC_LOOKUP_MISS, SPEC_LOOKUP_PENDING);
    assert_in_range(found.matched_tokens, in->from_token, limit);
    if (found.state == SPEC_LOOKUP_MISS)
        assert_int_equal(found.matched_tokens, in->from_token);
    else
        assert_true(found.matched_tokens > in->from_token);
    uint64_t tier_bytes = 0;
    for (uint64_t tier = 0; tier < SPEC_TIERS; tier++)
        tier_bytes += found.tier_bytes[tier];
    assert_true(tier_bytes > 0 || found.matched_tokens == in->from_token);
    assert_in_range(found.provenance.kind, SPEC_PROVENANCE_EXACT, SPEC_PROVENANCE_PRUNED);
    return found;
}

struct spec_lookup_result fixture_find(struct fixture *fx, const struct prompt *prompt)
{
    struct spec_lookup_params params = lookup_params(prompt);
    return fixture_lookup(fx, &params);
}

void fixture_release(struct fixture *fx, spec_request request)
{
    assert_ok(fx, fx->api->release(fx->conn, request, &fx->error));
}

struct spec_lookup_result fixture_await(struct fixture *fx, const struct prompt *prompt,
                                        uint64_t expected)
{
    for (uint32_t tries = 0;;) {
        struct spec_lookup_result found = fixture_find(fx, prompt);
        bool is_over = !conf_options.require_hits && tries == MOMENTS_FEW;
        if (found.matched_tokens >= expected || is_over || !conf_wait(&tries)) {
            expect_match(&found, expected);
            return found;
        }
        fixture_release(fx, found.request);
    }
}

void fixture_await_gone(struct fixture *fx, const struct prompt *prompt, uint64_t at_most)
{
    for (uint32_t tries = 0;;) {
        struct spec_lookup_result found = fixture_find(fx, prompt);
        fixture_release(fx, found.request);
        if (found.matched_tokens <= at_most)
            return;
        if (!conf_wait(&tries))
            fail_msg("%u tokens are promised still, %u expected", (unsigned)found.matched_tokens,
                     (unsigned)at_most);
    }
}

void expect_match(const struct spec_lookup_result *found, uint64_t expected)
{
    if (found->matched_tokens > expected)
        fail_msg("lookup promises %" PRIu64 " tokens, at most %" PRIu64 " are the prompt's",
                 found->matched_tokens, expected);
    if (conf_options.require_hits && found->matched_tokens != expected)
        fail_msg("lookup promises %" PRIu64 " tokens, %" PRIu64 " were stored (hits are required)",
                 found->matched_tokens, expected);
    if (found->state == SPEC_LOOKUP_HIT)
        conf_options.shared->hits++;
    else
        conf_options.shared->misses++;
}

struct held hold(struct fixture *fx, uint64_t seed, uint64_t count)
{
    struct held held = {.prompt = prompt_make(seed, count)};
    bool stored = fixture_store(fx, &held.prompt);
    held.found = fixture_find(fx, &held.prompt);
    expect_match(&held.found, stored ? count - 1 : 0);
    return held;
}

void let_go(struct fixture *fx, struct held *held)
{
    fixture_release(fx, held->found.request);
    prompt_free(&held->prompt);
}

/* ---- Storing ---- */

spec_status fixture_put(struct fixture *fx, spec_request request, const struct prompt *prompt,
                        uint64_t first, uint64_t count, uint32_t layer, spec_ticket *ret_ticket)
{
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, count);
    area_fill(&area, &fx->shape, prompt, first, layer);
    struct spec_store_params params = {.struct_size = sizeof(params),
                                       .request = request,
                                       .layer = layer,
                                       .first_token = first,
                                       .token_count = count,
                                       .memory = &area.memory};
    *ret_ticket = 0;
    spec_status status = fx->api->store(fx->conn, &params, 1, ret_ticket, &fx->error);
    assert_true((*ret_ticket != 0) == (status == SPEC_OK && layer + 1 == fx->shape.layers));
    area_free(&area);
    return status;
}

spec_status fixture_wait(struct fixture *fx, spec_ticket ticket)
{
    spec_status ended = SPEC_PENDING;
    if (ticket == 0)
        return SPEC_OK;
    assert_ok(fx, fx->api->wait(fx->conn, &ticket, 1, CONF_WAIT_NS, &ended, &fx->error));
    if (ended != SPEC_OK && ended != SPEC_E_DROPPED && ended != SPEC_E_NO_SPACE &&
        ended != SPEC_E_BUSY && ended != SPEC_E_IO)
        fail_msg("a ticket ended with status %d", (int)ended);
    return ended;
}

static spec_status store_range(struct fixture *fx, spec_request request,
                               const struct prompt *prompt, uint64_t first, uint64_t count)
{
    spec_status ended = SPEC_OK;
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
        spec_ticket ticket;
        assert_ok(fx, fixture_put(fx, request, prompt, first, count, layer, &ticket));
        ended = fixture_wait(fx, ticket);
    }
    return ended;
}

/* Whether it was stored; where that is required, fails if it was not. */
static bool store_ended(spec_status ended)
{
    if (conf_options.require_hits && ended != SPEC_OK)
        fail_msg("a store ended with status %d (hits are required)", (int)ended);
    return ended == SPEC_OK;
}

bool fixture_store_range(struct fixture *fx, spec_request request, const struct prompt *prompt,
                         uint64_t first, uint64_t count)
{
    return store_ended(store_range(fx, request, prompt, first, count));
}

/* BUSY: the layers came faster than a disk that others use takes them. It will. */
bool fixture_store(struct fixture *fx, const struct prompt *prompt)
{
    uint32_t tries = 0;
    spec_status ended;
    do {
        struct spec_lookup_result found = fixture_find(fx, prompt);
        uint64_t first = found.matched_tokens, count = prompt->count - first;
        ended = count > 0 ? store_range(fx, found.request, prompt, first, count) : SPEC_OK;
        fixture_release(fx, found.request);
    } while (ended == SPEC_E_BUSY && conf_options.require_hits && conf_wait(&tries));
    return store_ended(ended);
}

bool fixture_try_store(struct fixture *fx, const struct prompt *prompt)
{
    struct spec_lookup_result found = fixture_find(fx, prompt);
    spec_status ended = SPEC_OK;
    uint64_t first = found.matched_tokens;
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
        spec_ticket ticket = 0;
        assert_ok(fx, fixture_put(fx, found.request, prompt, first, prompt->count - first, layer,
                                  &ticket));
        ended = fixture_wait(fx, ticket);
    }
    fixture_release(fx, found.request);
    return ended == SPEC_OK;
}

bool fixture_store_at_last(struct fixture *fx, const struct prompt *prompt)
{
    uint32_t tries = 0;
    bool stored = fixture_try_store(fx, prompt);
    while (!stored && conf_wait(&tries) && (conf_options.require_hits || tries < 4))
        stored = fixture_try_store(fx, prompt);
    if (conf_options.require_hits && !stored)
        fail_msg("no room was made");
    return stored;
}

/* ---- Loading ---- */

struct spec_important important(spec_request request, uint32_t layer,
                                const struct spec_memory *destination)
{
    struct spec_important item;
    memset(&item, POISON, sizeof(item));
    memset(&item, 0, offsetof(struct spec_important, status)); /* only results are poison */
    item.struct_size = sizeof(item);
    item.request = request;
    item.layer = layer;
    item.destination = destination;
    item.select = NULL; /* an input that stands behind the results */
    return item;
}

void fixture_check_layer(struct fixture *fx, const struct spec_lookup_result *found,
                         const struct prompt *prompt, uint64_t from, uint32_t layer)
{
    uint64_t rows = found->matched_tokens - from;
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, rows);
    uint32_t *positions = calloc(rows + 1, sizeof(*positions));
    struct spec_important item = important(found->request, layer, &area.memory);
    item.positions = positions;
    item.position_capacity = rows;
    assert_ok(fx, fx->api->get_important(fx->conn, &item, 1, &fx->error));
    assert_int_equal(item.status, SPEC_OK);
    assert_int_equal(item.row_count, rows);
    assert_int_equal(item.next_position, found->matched_tokens);
    for (uint64_t j = 0; j < rows; j++)
        assert_int_equal(positions[j], from + j);
    uint64_t tier_rows = 0;
    for (uint64_t tier = 0; tier < SPEC_TIERS; tier++)
        tier_rows += item.tier_rows[tier];
    assert_int_equal(tier_rows, rows);
    assert_true(item.prefetched_rows <= rows);
    if (item.provenance.kind == SPEC_PROVENANCE_EXACT)
        assert_int_equal(item.exact_rows, rows);
    area_expect(&area, &fx->shape, prompt, from, rows, layer);
    free(positions);
    area_free(&area);
}

void fixture_check_layers(struct fixture *fx, const struct spec_lookup_result *found,
                          const struct prompt *prompt, uint64_t from)
{
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
        assert_ok(fx, fx->api->begin_layer(fx->conn, &found->request, 1, layer, &fx->error));
        fixture_check_layer(fx, found, prompt, from, layer);
        assert_ok(fx, fx->api->prefetch_next(fx->conn, found->request, layer, NULL, &fx->error));
    }
}

void fixture_check(struct fixture *fx, const struct prompt *prompt, uint64_t expected)
{
    struct spec_lookup_result found = fixture_find(fx, prompt);
    expect_match(&found, expected);
    fixture_check_layers(fx, &found, prompt, 0);
    fixture_release(fx, found.request);
}

uint64_t fixture_load_until_broken(struct fixture *fx, const struct prompt *prompt,
                                   const struct spec_lookup_result *found)
{
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, found->matched_tokens);
    uint64_t good = found->matched_tokens;
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
        struct spec_important item = important(found->request, layer, &area.memory);
        area_poison(&area);
        spec_status status = fx->api->get_important(fx->conn, &item, 1, &fx->error);
        assert_int_equal(item.status, status);
        if (status == SPEC_OK) {
            assert_int_equal(good, found->matched_tokens); /* void at every layer */
            area_expect(&area, &fx->shape, prompt, 0, found->matched_tokens, layer);
            continue;
        }
        assert_true(status == SPEC_E_CORRUPT || status == SPEC_E_IO);
        assert_true(item.failed_position < found->matched_tokens);
        if (good < found->matched_tokens)
            assert_int_equal(item.failed_position, good);
        good = item.failed_position;
    }
    area_free(&area);
    return good;
}

struct spec_stats fixture_stats(struct fixture *fx)
{
    struct spec_stats stats;
    memset(&stats, POISON, sizeof(stats));
    stats.struct_size = sizeof(stats);
    assert_ok(fx, fx->api->stats(fx->conn, &stats, &fx->error));
    return stats;
}

pid_t conf_fork(void)
{
    fflush(NULL);
    pid_t parent = getpid(), pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    return 0;
}

int fixture_in_child(void (*run)(void *user), void *user)
{
    pid_t pid = conf_fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        run(user);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

/* ---- Plain functions ---- */

const char *request_load(const struct spec_api *api, spec_connector *conn,
                         const struct shape *shape, const struct prompt *prompt,
                         const struct spec_lookup_result *found)
{
    struct area area = area_make(shape, LAYOUT_PACKED, found->matched_tokens);
    const char *wrong = NULL;
    for (uint32_t layer = 0; layer < shape->layers && wrong == NULL; layer++) {
        area_poison(&area);
        struct spec_important item = important(found->request, layer, &area.memory);
        if (api->begin_layer(conn, &found->request, 1, layer, NULL) != SPEC_OK)
            wrong = "begin_layer failed";
        else if (api->get_important(conn, &item, 1, NULL) != SPEC_OK)
            wrong = "get_important failed";
        else if (item.row_count != found->matched_tokens)
            wrong = "get_important delivered another number of rows than was promised";
        else if (!area_is_right(&area, shape, prompt, 0, found->matched_tokens, layer))
            wrong = "get_important delivered wrong bytes";
        else if (api->prefetch_next(conn, found->request, layer, NULL, NULL) != SPEC_OK)
            wrong = "prefetch_next failed";
    }
    area_free(&area);
    return wrong;
}

static const char *store_rest(const struct spec_api *api, spec_connector *conn,
                              const struct shape *shape, const struct prompt *prompt,
                              const struct spec_lookup_result *found, spec_status *ret_ended)
{
    uint64_t first = found->matched_tokens, count = prompt->count - first;
    struct area area = area_make(shape, LAYOUT_PACKED, count);
    const char *wrong = NULL;
    for (uint32_t layer = 0; layer < shape->layers && wrong == NULL; layer++) {
        area_fill(&area, shape, prompt, first, layer);
        struct spec_store_params params = {.struct_size = sizeof(params),
                                           .request = found->request,
                                           .layer = layer,
                                           .first_token = first,
                                           .token_count = count,
                                           .memory = &area.memory};
        spec_ticket ticket;
        if (api->store(conn, &params, 1, &ticket, NULL) != SPEC_OK)
            wrong = "store failed";
        else if (ticket != 0 &&
                 api->wait(conn, &ticket, 1, CONF_WAIT_NS, ret_ended, NULL) != SPEC_OK)
            wrong = "wait failed";
    }
    area_free(&area);
    return wrong;
}

const char *request_run(const struct spec_api *api, spec_connector *conn, const struct shape *shape,
                        const struct prompt *prompt, bool *ret_stored)
{
    spec_status ended = SPEC_PENDING;
    struct spec_lookup_params params = lookup_params(prompt);
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    if (api->lookup(conn, &params, &found, NULL) != SPEC_OK)
        return "lookup failed";
    if (found.matched_tokens >= prompt->count)
        return "lookup promises more than token_count - 1";
    const char *wrong = request_load(api, conn, shape, prompt, &found);
    if (wrong == NULL)
        wrong = store_rest(api, conn, shape, prompt, &found, &ended);
    if (api->release(conn, found.request, NULL) != SPEC_OK && wrong == NULL)
        wrong = "release failed";
    if (ret_stored != NULL)
        *ret_stored = wrong == NULL && ended == SPEC_OK;
    return wrong;
}

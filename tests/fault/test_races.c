/* Every call beside every other: threads on a writer and on another connector of its store, a
 * reader or the writer of another rank, each with requests of its own, and resets by all of them at
 * any moment.
 *
 *   thread   lookup or attach (of a lookup's lease, or a peek's) -> layers: begin_layer,
 *            prefetch_next, then the layer directly, in submissions, two requests at once, refined,
 *            scored anew, ahead -> store, aborted or not -> release
 *   between  reset, stats, maintain, poll of what is no ticket
 *   truth    a row is a function of (tokens before, epoch, layer, K or V)
 *
 * Holds: what is delivered is the row of that prefix and of the request's epoch; a status has its
 * reason: STALE a reset or a release, all else an injected fault. Where nothing was injected no
 * range counts as corrupt. Promises last longer than a run, and the disk is never full, so that how
 * fast threads are decides nothing.
 * A failure prints its seed; SC_SEED=N runs that seed alone, SC_SEEDS=N so many; what threads do
 * follows from it, when they do it does not.
 *
 * Threads: four on the writer, two on the other. */
#include "tests/unit/plugin/plugin_fixture.h"
#include "tests/unit/threads.h"

#include <inttypes.h>
#include <math.h>

#define SEEDS   12u
#define ROUNDS  16u /* of a thread */
#define WORKERS 6u
#define PROMPTS 10u
#define LONG    1100u /* tokens of the first: a worker helps to decode them */
#define TOKENS  200u
#define LAYERS  3u
#define LEASES  8u
#define WORDS   ((LONG + 63) / 64)
#define NEAR    0.0105F /* test_stress.c */
#define NEARISH 0.2F    /* V of 5 bits */
#define COMMON                                                                                     \
    "\"segment_bytes\": \"32MiB\", \"disk_bytes\": \"4GiB\", \"chunk_tokens\": 16, "               \
    "\"max_requests\": 32, \"max_request_tokens\": 2048, \"lease_ns_max\": 600000000000, "
#define KINDS 6u

#define FREE                                                                                       \
    "\"layered\": {\"bit_allocation\": \"per_channel\", \"bits_k\": 7.5, \"bits_v\": 5, "          \
    "\"exact_ppm\": 250000}"
#define KINDS_EVEN 4u

static const struct {
    const char *extra;
    bool is_layered;
} WAYS[KINDS] = {
    {COMMON
     "\"preset\": \"layered-uniform\", \"layered\": {\"bits_k\": 8, \"bits_v\": 8, \"exact_ppm\": "
     "250000}",
     true},
    {COMMON "\"preset\": \"hinted\", \"store\": {\"pruned\": \"yes\"}", false},
    {COMMON "\"preset\": \"layered-uniform\", \"store\": {\"layout\": \"split\"}, \"layered\": "
            "{\"bits_k\": "
            "8, \"bits_v\": 8, \"exact_ppm\": 250000}",
     true},
    {COMMON "\"preset\": \"as-like\", \"store\": {\"pruned\": \"yes\", \"layout\": \"split\"}",
     false},
    {COMMON "\"preset\": \"layered-uniform\", " FREE, true},
    {COMMON "\"preset\": \"layered-uniform\", \"store\": {\"layout\": \"split\"}, " FREE, true},
};

struct lease {
    uint8_t bytes[64];
    uint32_t prompt;
    bool is_made;
};

struct races {
    uint64_t seed;
    bool has_faults, is_layered, has_ranks;
    struct rig writer, other;
    struct prompt prompts[PROMPTS];
    pthread_mutex_t lock;
    struct lease leases[LEASES]; /* guarded by lock */
    _Atomic uint64_t loaded, inexact, exact, stale, failed, stored, aborted, attached, resets,
        refined;
};

struct worker {
    struct races *races;
    struct rig *rig;
    uint64_t number, random, round;
    struct area areas[2]; /* LONG + 1 rows each */
    uint8_t *query;
    struct spec_error error; /* of the last call that had one */
};

struct hold {
    uint32_t prompt;
    spec_request request;
    uint64_t matched, epoch;
    bool is_released;
    bool is_attached; /* what stands behind its match was never told */
};

/* One item and what it points to. */
struct load {
    struct spec_important item;
    struct spec_select select;
    struct spec_queries queries;
    const struct hold *hold;
    const struct area *area;
    uint32_t positions[8 * LONG]; /* a list a head, where they may differ */
    uint64_t bits[WORDS];
};

static uint64_t draw(struct worker *worker, uint64_t below)
{
    worker->random = rig_mix(worker->random);
    return worker->random % below;
}

#define COUNT(worker, member) (void)atomic_fetch_add(&(worker)->races->member, 1)

_Noreturn static void wrong(const struct worker *worker, const char *what, spec_status status)
{
    print_error("SC_SEED=%" PRIu64 " thread %" PRIu64 " round %" PRIu64 ": %s (%s: %s)\n",
                worker->races->seed, worker->number, worker->round, what, sc_status_name(status),
                worker->error.text);
    abort(); /* not the test's thread */
}

/* ---- Truth ----------------------------------------------------------------------------------- */

static void row_of(const struct rig *rig, const struct prompt *prompt, uint64_t epoch,
                   uint64_t position, uint32_t layer, uint32_t part, uint8_t *ret_row)
{
    uint64_t history = rig_mix(prompt->history[position] + epoch);
    struct prompt one = {.count = 1, .history = &history};
    rig_row(rig, &one, 0, layer, part, ret_row);
}

static float half(const uint8_t *bytes)
{
    uint32_t bits = bytes[0] | (uint32_t)bytes[1] << 8, exponent = bits >> 10 & 31;
    float value = exponent > 0 ? ldexpf((float)(1024 + (bits & 1023)), (int)exponent - 25)
                               : ldexpf((float)(bits & 1023), -24);
    return bits >> 15 != 0 ? -value : value;
}

static bool is_near(const struct worker *worker, const uint8_t *at, const uint8_t *row,
                    uint64_t bytes)
{
    float most = worker->races->seed % KINDS < KINDS_EVEN ? NEAR : NEARISH;
    for (uint64_t i = 0; i < bytes; i += 2)
        if (!(fabsf(half(at + i) - half(row + i)) <= most))
            return false;
    return true;
}

/* Every so many rows, so that a run is short where checks are slow. Of heads that have rows of
 * their own, the row of each is another. */
static void check_rows(struct worker *worker, const struct load *load)
{
    const struct rig *rig = worker->rig;
    const struct spec_important *in = &load->item;
    const struct prompt *prompt = &worker->races->prompts[load->hold->prompt];
    uint64_t heads = (in->result_flags & SPEC_IMPORTANT_FALLBACK) != 0 ? rig->heads : 1;
    uint64_t bytes = rig_part_bytes(rig), some = bytes / heads, step = 1 + in->row_count / 40;
    uint8_t row[8 * 128 * 2];
    for (uint64_t j = draw(worker, step); j < in->row_count; j += step)
        for (uint64_t n = 0; n < 2 * heads; n++) {
            uint64_t head = n / 2, position = load->positions[head * in->row_count + j];
            const uint8_t *at = n % 2 == 0 ? load->area->memory.k_base : load->area->memory.v_base;
            bool is_quantised = worker->races->is_layered && !(load->bits[j / 64] >> (j % 64) & 1);
            if (position >= load->hold->matched)
                wrong(worker, "a position behind the match", in->status);
            row_of(rig, prompt, load->hold->epoch, position, in->layer, n % 2, row);
            at += j * bytes + head * some;
            if (is_quantised ? !is_near(worker, at, row, bytes)
                             : memcmp(at, row + head * some, some) != 0)
                wrong(worker, "a row that is not what it should be", in->status);
            (void)atomic_fetch_add(is_quantised ? &worker->races->inexact : &worker->races->exact,
                                   1);
        }
}

/* What a call said of a request. true: it goes on. */
static bool judge(struct worker *worker, const struct hold *hold, spec_status status)
{
    spec_connector *conn = worker->rig->conn;
    bool is_reset = atomic_load(&conn->epoch) != hold->epoch ||
                    sc_store_epoch(conn->store) != hold->epoch; /* a reset that has not returned */
    if (status == SPEC_OK)
        return true;
    if (status == SPEC_E_STALE && (is_reset || hold->is_released))
        COUNT(worker, stale);
    else if ((status == SPEC_E_IO || status == SPEC_E_CORRUPT) && worker->races->has_faults)
        COUNT(worker, failed);
    else
        wrong(worker, "a status without a reason", status);
    return false;
}

static bool judge_load(struct worker *worker, const struct load *load)
{
    if (!judge(worker, load->hold, load->item.status))
        return false;
    check_rows(worker, load);
    COUNT(worker, loaded);
    return true;
}

/* ---- Between --------------------------------------------------------------------------------- */

static void do_reset(struct worker *worker)
{
    uint64_t before = atomic_load(&worker->rig->conn->epoch);
    spec_status status = sc_plugin_reset(worker->rig->conn, &worker->error);
    if (status != SPEC_OK && !worker->races->has_faults)
        wrong(worker, "reset", status);
    if (status == SPEC_OK && atomic_load(&worker->rig->conn->epoch) <= before)
        wrong(worker, "a reset that is none", status);
    COUNT(worker, resets);
}

static void do_else(struct worker *worker)
{
    static const uint32_t FLAGS[] = {SPEC_MAINTAIN_CHECKPOINT, SPEC_MAINTAIN_EVICT,
                                     SPEC_MAINTAIN_BUILD};
    spec_connector *conn = worker->rig->conn;
    struct spec_maintain_params params = {.struct_size = sizeof(params),
                                          .flags = FLAGS[draw(worker, 3)]};
    struct spec_stats stats = {.struct_size = sizeof(stats)};
    spec_ticket none = UINT64_C(77) << 32 | (SC_LIMIT_TICKETS - worker->number);
    spec_status status;
    switch (draw(worker, 4)) {
    case 0:
        if (worker->rig->role != SPEC_ROLE_READER) /* a reader has nothing to maintain */
            (void)sc_plugin_maintain(conn, &params, NULL);
        break;
    case 1:
        if (sc_plugin_poll(conn, &none, 1, &status, NULL) != SPEC_E_INVALID)
            wrong(worker, "a ticket that was never given out", SPEC_OK);
        break;
    case 2:
        if (worker->races->has_faults)
            sc_fault_arm(&conn->fault, SC_FAULT_READ, draw(worker, 6));
        break;
    default:
        if (spec_connector_api(SPEC_ABI_MAJOR)->stats(conn, &stats, NULL) != SPEC_OK)
            wrong(worker, "stats", SPEC_OK);
    }
}

/* ---- Loads ----------------------------------------------------------------------------------- */

static struct spec_queries ask(const struct worker *worker, const struct hold *hold)
{
    uint64_t bytes = rig_part_bytes(worker->rig);
    return (struct spec_queries){.struct_size = sizeof(struct spec_queries),
                                 .dtype = worker->rig->dtype,
                                 .data = worker->query,
                                 .byte_count = bytes,
                                 .row_count = 1,
                                 .row_stride_bytes = bytes,
                                 .head_stride_bytes = bytes / worker->rig->heads,
                                 .first_position = hold->matched};
}

static void load_make(struct worker *worker, const struct hold *hold, uint32_t layer,
                      uint32_t place, struct load *ret_load)
{
    static const uint32_t PPM[] = {0, 20000, 250000, 1000000};
    *ret_load = (struct load){.hold = hold, .area = &worker->areas[place]};
    ret_load->queries = ask(worker, hold);
    bool is_layered = worker->races->is_layered, is_all = draw(worker, 4) == 0;
    ret_load->select = (struct spec_select){.struct_size = sizeof(ret_load->select),
                                            .given = SPEC_SELECT_EXACT,
                                            .exact_ppm = is_all ? 1000000 : PPM[draw(worker, 4)]};
    if (!is_layered) {
        ret_load->select.given = SPEC_SELECT_BUDGET;
        ret_load->select.budget = SPEC_BUDGET_RATIO;
        ret_load->select.retain_ppm = 1000000;
    }
    ret_load->item =
        (struct spec_important){.struct_size = sizeof(ret_load->item),
                                .request = hold->request,
                                .layer = layer,
                                .queries = &ret_load->queries,
                                .destination = &worker->areas[place].memory,
                                .positions = ret_load->positions,
                                .position_capacity = 8 * LONG,
                                .exact_bits = is_layered ? ret_load->bits : NULL,
                                .exact_bit_words = WORDS,
                                .select = is_layered || is_all ? &ret_load->select : NULL};
}

/* Submits, and waits with or without a limit. 0: it was refused. */
static spec_ticket submit(struct worker *worker, struct load *load, struct hold *released)
{
    spec_connector *conn = worker->rig->conn;
    spec_ticket ticket = 0;
    spec_status status = sc_plugin_submit(conn, &load->item, 1, &ticket, &worker->error);
    if (status != SPEC_OK) {
        load->item.status = status;
        return 0;
    }
    if (draw(worker, 3) == 0)
        do_else(worker);
    if (released != NULL) {
        rig_release(worker->rig, released->request);
        released->is_released = true;
    }
    uint64_t limit_ns = draw(worker, 2) == 0 ? UINT64_MAX : 50000;
    do /* TIMEOUT of wait, not of an item: none has a deadline */
        status = sc_plugin_submit_wait(conn, ticket, limit_ns, &worker->error);
    while (status == SPEC_E_TIMEOUT);
    if (status != load->item.status)
        wrong(worker, "wait says something else than its item", status);
    return ticket;
}

/* Filled first, then refined: by a choice of its own where it came ahead, or is scored anew. */
static bool load_twice(struct worker *worker, struct load *load, bool is_ahead)
{
    load->select.exact_ppm = 20000;
    load->item.flags = is_ahead ? SPEC_ITEM_AHEAD : 0;
    load->item.queries = is_ahead ? NULL : load->item.queries;
    spec_ticket ticket = submit(worker, load, NULL);
    if (!judge_load(worker, load))
        return false;
    if (draw(worker, 10) == 0)
        do_reset(worker);
    bool rescores = draw(worker, 2) == 0;
    load->item.flags = rescores ? SPEC_ITEM_RESCORE : 0;
    load->item.refine_of = ticket;
    load->item.queries = is_ahead || rescores ? &load->queries : NULL;
    load->select.given |= rescores ? SPEC_SELECT_KEEP : 0; /* others than the first ones */
    load->select.keep_first = 30;
    load->select.exact_ppm = draw(worker, 2) == 0 ? 1000000 : 300000;
    if (draw(worker, 2) == 0)
        (void)submit(worker, load, NULL);
    else
        load->item.status =
            sc_plugin_get_important(worker->rig->conn, &load->item, 1, &worker->error);
    COUNT(worker, refined);
    return judge_load(worker, load);
}

/* Whichever is stale, it is this one. */
static const struct hold *older(const struct hold *hold, const struct hold *other)
{
    return hold->epoch <= other->epoch ? hold : other;
}

/* Two requests in one call. */
static bool load_both(struct worker *worker, struct load *load, const struct hold *other)
{
    static _Thread_local struct load second;
    struct spec_important items[2];
    load_make(worker, other, load->item.layer, 1, &second);
    items[0] = load->item;
    items[1] = second.item;
    spec_status status = sc_plugin_get_important(worker->rig->conn, items, 2, &worker->error);
    if (items[0].status == SPEC_PENDING || items[1].status == SPEC_PENDING)
        return judge(worker, older(load->hold, other), status); /* refused: nothing was begun */
    load->item = items[0];
    second.item = items[1];
    bool is_both = judge_load(worker, &second);
    return judge_load(worker, load) && is_both;
}

static struct hold look(struct worker *worker, uint32_t prompt)
{
    struct hold hold = {.prompt = prompt};
    struct spec_lookup_result result;
    spec_connector *conn = worker->rig->conn;
    if (rig_try_lookup(worker->rig, &worker->races->prompts[prompt], 0, RIG_MAX, &result) !=
        SPEC_OK)
        wrong(worker, "lookup", SPEC_OK);
    hold.request = result.request;
    hold.matched = result.matched_tokens;
    hold.epoch = sc_plugin_request_find_any(conn, result.request)->epoch;
    if (draw(worker, 2) == 0 && /* the lease is of no request */
        (rig_peek(worker->rig, &worker->races->prompts[prompt], 0, &result) != SPEC_OK ||
         result.request != 0))
        wrong(worker, "peek", SPEC_OK);
    if (result.lease_expiry_ns == 0)
        return hold;
    pthread_mutex_lock(&worker->races->lock);
    struct lease *lease = &worker->races->leases[draw(worker, LEASES)];
    memcpy(lease->bytes, result.lease, sizeof(lease->bytes));
    lease->prompt = prompt;
    lease->is_made = true;
    pthread_mutex_unlock(&worker->races->lock);
    return hold;
}

/* false: there is no lease, or it is stale or of what is to come. */
static bool attach(struct worker *worker, struct hold *ret_hold)
{
    pthread_mutex_lock(&worker->races->lock);
    struct lease lease = worker->races->leases[draw(worker, LEASES)];
    pthread_mutex_unlock(&worker->races->lock);
    if (!lease.is_made)
        return false;
    struct spec_lookup_result result = {.struct_size = sizeof(result)};
    struct spec_attach_params params = {.struct_size = sizeof(params), .lease = {lease.bytes, 64}};
    spec_status status = sc_plugin_attach(worker->rig->conn, &params, &result, &worker->error);
    if (status != SPEC_OK && status != SPEC_E_STALE)
        wrong(worker, "attach", status);
    if (status != SPEC_OK || result.state != SPEC_LOOKUP_HIT)
        return false;
    *ret_hold = (struct hold){.prompt = lease.prompt,
                              .request = result.request,
                              .matched = result.matched_tokens,
                              .is_attached = true};
    ret_hold->epoch = sc_plugin_request_find_any(worker->rig->conn, result.request)->epoch;
    COUNT(worker, attached);
    return true;
}

/* One layer in one of the ways there are. false: the request is of no use any more. */
static bool load_layer(struct worker *worker, struct hold *hold, const struct hold *other,
                       uint32_t layer)
{
    static _Thread_local struct load load;
    spec_connector *conn = worker->rig->conn;
    spec_request both[2] = {hold->request, other->request};
    struct spec_queries hint = ask(worker, hold);
    if (draw(worker, 2) == 0) {
        spec_status status = sc_plugin_begin_layer(conn, both, 2, layer, &worker->error);
        if (!judge(worker, older(hold, other), status))
            return false;
    }
    if (draw(worker, 40) == 0)
        do_reset(worker);
    if (draw(worker, 3) != 0 &&
        !judge(worker, hold,
               sc_plugin_prefetch_next(conn, hold->request, layer,
                                       draw(worker, 2) == 0 ? &hint : NULL, &worker->error)))
        return false;
    load_make(worker, hold, layer, 0, &load);
    switch (draw(worker, 6)) {
    case 0:
        (void)submit(worker, &load, NULL);
        return judge_load(worker, &load);
    case 1:
        if (draw(worker, 4) != 0)
            break;
        (void)submit(worker, &load, hold);
        (void)judge_load(worker, &load);
        return false;
    case 2:
    case 3:
        if (!worker->races->is_layered || hold->matched == 0)
            break;
        return load_twice(worker, &load, draw(worker, 2) == 0);
    case 4:
        return load_both(worker, &load, other);
    default:
        break;
    }
    load.item.status = sc_plugin_get_important(conn, &load.item, 1, &worker->error);
    return judge_load(worker, &load);
}

/* ---- Stores ---------------------------------------------------------------------------------- */

static spec_status store_layer(struct worker *worker, const struct hold *hold, uint32_t layer,
                               spec_ticket *ret_ticket)
{
    const struct prompt *prompt = &worker->races->prompts[hold->prompt];
    uint64_t count = prompt->count - hold->matched, bytes = rig_part_bytes(worker->rig);
    struct area *area = &worker->areas[1];
    for (uint64_t j = 0; j < count; j++)
        for (uint32_t part = 0; part < 2; part++)
            row_of(worker->rig, prompt, hold->epoch, hold->matched + j, layer, part,
                   (uint8_t *)(part == 0 ? area->memory.k_base : area->memory.v_base) + j * bytes);
    struct spec_store_params params =
        rig_store_params(hold->request, layer, hold->matched, count, &area->memory);
    if (hold->is_attached && layer == 0) {
        params.tokens = prompt->tokens + hold->matched;
        params.tokens_count = count;
    }
    return sc_plugin_store(worker->rig->conn, &params, 1, ret_ticket, &worker->error);
}

/* Whatever becomes of a pass, its tickets are answered. */
static void store(struct worker *worker, const struct hold *hold)
{
    spec_connector *conn = worker->rig->conn;
    uint32_t stop = draw(worker, 6) == 0 ? (uint32_t)draw(worker, LAYERS) : LAYERS;
    spec_status status = SPEC_OK;
    for (uint32_t layer = 0; layer < LAYERS && status == SPEC_OK; layer++) {
        spec_ticket ticket = 0;
        if (layer == stop) {
            (void)judge(worker, hold,
                        sc_plugin_store_abort(conn, hold->request, 0, &worker->error));
            COUNT(worker, aborted);
            return;
        }
        if (draw(worker, 60) == 0)
            do_reset(worker);
        status = store_layer(worker, hold, layer, &ticket);
        if (!judge(worker, hold, status))
            return;
        spec_status end = ticket != 0 ? SPEC_PENDING : SPEC_OK;
        while (end == SPEC_PENDING)
            if (draw(worker, 2) == 0)
                (void)sc_plugin_poll(conn, &ticket, 1, &end, NULL);
            else
                (void)sc_plugin_wait(conn, &ticket, 1, UINT64_MAX, &end, NULL);
        COUNT(worker, stored);
    }
}

/* ---- Runs ------------------------------------------------------------------------------------ */

static void run_round(struct worker *worker)
{
    uint32_t prompt = (uint32_t)draw(worker, PROMPTS);
    struct hold hold, other = look(worker, (uint32_t)(1 + draw(worker, PROMPTS - 1)));
    if (draw(worker, 3) != 0 || !attach(worker, &hold))
        hold = look(worker, prompt);
    bool goes_on = true;
    for (uint32_t layer = 0; layer < LAYERS && goes_on; layer++) {
        if (draw(worker, 4) == 0)
            do_else(worker);
        goes_on = load_layer(worker, &hold, &other, layer);
    }
    bool stores = worker->rig->role != SPEC_ROLE_READER && !hold.is_released &&
                  hold.matched < worker->races->prompts[hold.prompt].count;
    if (stores)
        store(worker, &hold);
    if (!hold.is_released)
        rig_release(worker->rig, hold.request);
    rig_release(worker->rig, other.request);
}

static void *work(void *user)
{
    struct worker *worker = user;
    for (worker->round = 0; worker->round < ROUNDS; worker->round++)
        run_round(worker);
    return NULL;
}

static void worker_make(struct races *races, uint64_t number, struct worker *ret_worker)
{
    *ret_worker = (struct worker){.races = races,
                                  .number = number,
                                  .error = {.struct_size = sizeof(ret_worker->error)},
                                  .rig = number < 4 ? &races->writer : &races->other,
                                  .random = rig_mix(races->seed * 100 + number)};
    uint64_t bytes = rig_part_bytes(ret_worker->rig);
    ret_worker->query = malloc(bytes);
    assert_non_null(ret_worker->query);
    rig_row(ret_worker->rig, &races->prompts[1], 0, 0, 0, ret_worker->query);
    for (uint32_t i = 0; i < 2; i++)
        ret_worker->areas[i] = rig_area(ret_worker->rig, LONG + 1);
}

static void worker_free(struct worker *worker)
{
    for (uint32_t i = 0; i < 2; i++)
        rig_area_free(&worker->areas[i]);
    free(worker->query);
}

static void races_open(struct races *races)
{
    struct rig *writer = &races->writer;
    rig_init(writer, false, WAYS[races->seed % KINDS].extra);
    writer->stage = "64MiB";
    writer->backend = races->seed / 2 % 2 == 0 ? NULL : "auto";
    writer->rank_count = races->has_ranks ? 2 : 0;
    rig_shape(writer, LAYERS, 8, 128, SPEC_DTYPE_F16);
    rig_open(writer);
    rig_open_beside(&races->other, writer, races->has_ranks ? SPEC_ROLE_WRITER : SPEC_ROLE_READER,
                    races->has_ranks ? 1 : 0);
    for (uint32_t i = 0; i < PROMPTS; i++) {
        uint64_t count = i == 0 ? LONG : 20 + rig_mix(races->seed + i) % (TOKENS - 20);
        races->prompts[i] = rig_prompt(races->seed * 10 + i % 3, count / 2, i, count);
    }
    pthread_mutex_init(&races->lock, NULL);
}

static void rig_is_whole(struct rig *rig, bool has_faults)
{
    struct sc_plugin_stats *stats = &rig->conn->stats;
    sc_fault_arm(&rig->conn->fault, SC_FAULT_READ, UINT64_MAX >> 1);
    rig_settle(rig);
    assert_int_equal(atomic_load(&stats->requests_open), 0);
    assert_int_equal(atomic_load(&stats->tickets_open), 0);
    if (!has_faults)
        assert_int_equal(atomic_load(&stats->corrupt_ranges), 0);
}

static void run(uint64_t seed, struct races *sum)
{
    static struct races races;
    struct worker workers[WORKERS];
    memset(&races, 0, sizeof(races));
    races.seed = seed;
    races.has_faults = seed % 8 >= 4;
    races.has_ranks = seed % 3 == 2;
    races.is_layered = WAYS[seed % KINDS].is_layered;
    races_open(&races);
    for (uint64_t i = 0; i < WORKERS; i++)
        worker_make(&races, i, &workers[i]);
    threads_run(work, workers, sizeof(workers[0]), WORKERS);
    for (uint64_t i = 0; i < WORKERS; i++)
        worker_free(&workers[i]);
    rig_is_whole(&races.other, races.has_faults);
    rig_is_whole(&races.writer, races.has_faults);
    rig_leave(&races.other);
    rig_done(&races.writer);
    rig_prompts_free_all(races.prompts, PROMPTS);
    pthread_mutex_destroy(&races.lock);
    sum->loaded += races.loaded;
    sum->inexact += races.inexact;
    sum->exact += races.exact;
    sum->stale += races.stale;
    sum->failed += races.failed;
    sum->stored += races.stored;
    sum->aborted += races.aborted;
    sum->attached += races.attached;
    sum->resets += races.resets;
    sum->refined += races.refined;
}

static void every_call_runs_beside_resets(void **state)
{
    (void)state;
    const char *only = getenv("SC_SEED"), *many = getenv("SC_SEEDS");
    uint64_t first = only != NULL ? strtoull(only, NULL, 10) : 0;
    uint64_t count = only != NULL ? 1 : many != NULL ? strtoull(many, NULL, 10) : SEEDS;
    static struct races sum;
    for (uint64_t seed = first; seed < first + count; seed++)
        run(seed, &sum);
    print_message("%" PRIu64 " layers loaded, %" PRIu64 " coarse and %" PRIu64
                  " exact rows seen, %" PRIu64 " stored, %" PRIu64 " aborted, %" PRIu64
                  " attached, %" PRIu64 " refined, %" PRIu64 " resets, %" PRIu64 " stale, %" PRIu64
                  " failed\n",
                  sum.loaded, sum.inexact, sum.exact, sum.stored, sum.aborted, sum.attached,
                  sum.refined, sum.resets, sum.stale, sum.failed);
    if (only == NULL) /* what follows from the seed, whoever is faster */
        assert_true(sum.loaded > count * 50 && sum.stored > 0 && sum.resets > count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_runs_beside_resets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

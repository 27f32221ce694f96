/* request_memory: memory of requests, runs of one pool sized by prompt and match.
 *
 *   text     [tokens]                        lookup, attach; stores with more tokens take a longer
 *   match    [segments | ranges | windows]   lookup, attach, peek; trimmed once the match is known
 *   choice   [lists of rows | bitmaps]       matches whose rows may be selected
 *
 * An outgrown run of tokens is kept until the request's last hold ends: commits and loads may read
 * it. Nothing is allocated after open. An unused pool has room for a request of max_request_tokens.
 * Errors: without a run long enough the call is BUSY; a store's range ends where the tokens end.
 * Threads: take, cut, grow: the call that has the request; put: the thread that ends the last hold.
 * Tests: tests/unit/plugin/test_request_memory.c */
#include "plugin/args/request_memory.h"
#include "plugin/connector.h"

#include <string.h>

#define SEGMENT_TOKENS 16u   /* a match of 131,072 tokens may have 8,192 pieces */
#define SEGMENTS_SHORT 4096u /* up to this many tokens: one segment each */

/* request_bytes auto */
#define TOGETHER_TOKENS (UINT64_C(1) << 24) /* tokens of all requests: 16,384 for each of 1,024 */
#define TOGETHER_LONG   8u                  /* requests of max_request_tokens, if that is more */

/* ---- Sizes ----------------------------------------------------------------------------------- */

uint64_t sc_plugin_segments_of(const spec_connector *conn, uint64_t tokens)
{
    uint64_t most = conn->requests.segments_max;
    return most < tokens ? most : tokens;
}

/* Returns the maximum ranges of a reader's window: the tokens of the longest window. */
static uint64_t windows_of(const spec_connector *conn, uint64_t segments)
{
    return conn->dims.window_most < segments ? conn->dims.window_most : segments;
}

static uint64_t match_bytes(const spec_connector *conn, uint64_t segments)
{
    return segments * (sizeof(struct sc_radix_segment) + sizeof(struct sc_store_range)) +
           SC_PLUGIN_READERS * windows_of(conn, segments) * sizeof(struct sc_store_range);
}

/* Needs per row of the match in the choice's run. */
struct choice {
    uint64_t lists; /* lists of row numbers: a set or ranking each, then the rows read of each */
    uint64_t maps, slab_maps; /* bitmaps of rows */
};

static struct choice choice_of(const spec_connector *conn)
{
    const struct sc_config *config = &conn->config;
    if (!conn->choice.can_select)
        return (struct choice){.lists = 0};
    bool predictions = config->predictor != SC_PREDICTOR_NONE;
    bool by_slabs =
        predictions && config->identify != SC_IDENTIFY_KEYS && config->planner == SC_PLANNER_CHUNK;
    return (struct choice){.lists = 2 + 2 * (predictions ? SC_PLUGIN_AHEAD : 0),
                           /* selection, prediction, one per head (layered: exact) */
                           .maps = 2 + conn->shape.kv_head_count,
                           .slab_maps = by_slabs ? SC_PLUGIN_AHEAD : 0};
}

static uint64_t words_of(uint64_t rows)
{
    return (rows + 63) / 64;
}

/* Returns an even number, so that the bitmaps behind the lists are aligned. */
static uint64_t list_rows(uint64_t rows)
{
    return rows + rows % 2;
}

static uint64_t choice_bytes(const spec_connector *conn, uint64_t rows)
{
    const struct choice choice = choice_of(conn);
    return choice.lists * list_rows(rows) * sizeof(uint32_t) +
           (choice.maps + choice.slab_maps) * words_of(rows) * sizeof(uint64_t);
}

/* Returns the bytes of a request of `tokens` tokens, all matched. */
static uint64_t whole_bytes(const spec_connector *conn, uint64_t tokens)
{
    return sc_run_bytes(tokens * sizeof(uint32_t)) +
           sc_run_bytes(match_bytes(conn, sc_plugin_segments_of(conn, tokens))) +
           sc_run_bytes(choice_bytes(conn, tokens));
}

/* Returns the bytes of all requests at max_request_tokens, or of as many as TOGETHER_TOKENS allow.
 * One is added because gaps between runs may be too short, and room for peeks. */
static uint64_t auto_bytes(const spec_connector *conn)
{
    uint64_t tokens = conn->config.max_request_tokens, most = conn->config.max_requests;
    uint64_t count = TOGETHER_TOKENS / tokens;
    count = count > TOGETHER_LONG ? count : TOGETHER_LONG;
    count = count < most ? count : most;
    return (count + 1) * whole_bytes(conn, tokens) +
           SC_PLUGIN_PEEKS * sc_run_bytes(match_bytes(conn, sc_plugin_segments_of(conn, tokens)));
}

/* ---- Open and close -------------------------------------------------------------------------- */

spec_status sc_plugin_request_memory_open(spec_connector *conn, struct spec_error *reterr)
{
    uint64_t tokens = conn->config.max_request_tokens, segments = tokens / SEGMENT_TOKENS;
    conn->requests.segments_max = segments > SEGMENTS_SHORT ? segments : SEGMENTS_SHORT;
    uint64_t least = whole_bytes(conn, tokens), bytes = conn->config.request_bytes;
    if (bytes == SC_CONFIG_AUTO)
        bytes = auto_bytes(conn);
    if (bytes < least)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "config: request_bytes %" PRIu64 " has no room for a request of %" PRIu64
                       " tokens (max_request_tokens), which takes %" PRIu64,
                       bytes, tokens, least);
    if (!sc_run_pool_open(&conn->requests.pool, &conn->alloc, &conn->poison, bytes))
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "request_bytes: %" PRIu64, bytes);
    for (uint32_t i = 0; i < conn->config.max_requests + SC_PLUGIN_PEEKS; i++)
        conn->requests.slots[i].memory.pool = &conn->requests.pool;
    return SPEC_OK;
}

void sc_plugin_request_memory_close(spec_connector *conn)
{
    sc_run_pool_close(&conn->requests.pool);
}

spec_status sc_plugin_request_memory_busy(spec_connector *conn, const char *call,
                                          struct spec_error *reterr)
{
    const struct sc_run_pool *pool = &conn->requests.pool;
    return sc_fail(reterr, SPEC_E_BUSY,
                   "%s: other requests use %" PRIu64 " of %" PRIu64
                   " bytes of memory (request_bytes), and no run of the rest is long enough",
                   call, sc_counted(&pool->used_bytes), pool->page_count * SC_RUN_PAGE_BYTES);
}

/* ---- Text ------------------------------------------------------------------------------------ */

static void text_set(const spec_connector *conn, struct sc_plugin_request *request,
                     const struct sc_run *text)
{
    uint64_t capacity = text->bytes / sizeof(uint32_t), most = conn->config.max_request_tokens;
    request->memory.text = *text;
    request->token_capacity = capacity < most ? capacity : most;
    request->tokens = (uint32_t *)(void *)text->at;
}

/* Adds an eighth of the prompt and a page, for an answer of usual length. */
static uint64_t text_tokens(const spec_connector *conn, uint64_t tokens)
{
    uint64_t roomy = tokens + tokens / 8 + SC_RUN_PAGE_BYTES / sizeof(uint32_t);
    uint64_t most = conn->config.max_request_tokens;
    return roomy < most ? roomy : most;
}

static bool text_take(spec_connector *conn, struct sc_plugin_request *request, uint64_t tokens)
{
    struct sc_run text;
    struct sc_run_pool *pool = request->memory.pool;
    uint64_t roomy = text_tokens(conn, tokens);
    if (!sc_run_take(pool, roomy * sizeof(uint32_t), &text) &&
        !sc_run_take(pool, tokens * sizeof(uint32_t), &text))
        return false;
    text_set(conn, request, &text);
    return true;
}

uint64_t sc_plugin_request_room(spec_connector *conn, struct sc_plugin_request *request,
                                uint64_t more)
{
    struct sc_plugin_request_memory *memory = &request->memory;
    uint64_t most = conn->config.max_request_tokens, known = request->token_count;
    uint64_t needed = more < most - known ? known + more : most;
    struct sc_run text;
    if (needed > request->token_capacity && memory->outgrown_count < SC_PLUGIN_OUTGROWN) {
        uint64_t twice = 2 * request->token_capacity;
        twice = twice < most ? twice : most;
        twice = twice > needed ? twice : needed;
        if (sc_run_take(memory->pool, twice * sizeof(uint32_t), &text) ||
            sc_run_take(memory->pool, needed * sizeof(uint32_t), &text)) {
            memcpy(text.at, request->tokens, known * sizeof(uint32_t));
            memory->outgrown[memory->outgrown_count++] = memory->text;
            text_set(conn, request, &text);
        }
    }
    return request->token_capacity - known;
}

/* ---- Match ----------------------------------------------------------------------------------- */

static bool match_take(spec_connector *conn, struct sc_plugin_request *request, uint64_t tokens)
{
    request->segment_capacity = sc_plugin_segments_of(conn, tokens);
    if (!sc_run_take(request->memory.pool, match_bytes(conn, request->segment_capacity),
                     &request->memory.match))
        return false;
    request->segments = (struct sc_radix_segment *)(void *)request->memory.match.at;
    return true;
}

bool sc_plugin_request_memory_take(spec_connector *conn, struct sc_plugin_request *request,
                                   uint64_t tokens, bool is_peek)
{
    return (is_peek || text_take(conn, request, tokens)) && match_take(conn, request, tokens);
}

void sc_plugin_request_match_cut(spec_connector *conn, struct sc_plugin_request *request,
                                 uint64_t segments)
{
    segments = segments < request->segment_capacity ? segments : request->segment_capacity;
    uint64_t windows = windows_of(conn, segments);
    request->ranges = (struct sc_store_range *)(void *)(request->segments + segments);
    for (uint32_t i = 0; i < SC_PLUGIN_READERS; i++)
        request->readers[i].window = windows > 0 ? request->ranges + segments + i * windows : NULL;
    sc_run_trim(request->memory.pool, &request->memory.match, match_bytes(conn, segments));
}

/* ---- Choice ---------------------------------------------------------------------------------- */

bool sc_plugin_request_choice_take(spec_connector *conn, struct sc_plugin_request *request)
{
    const struct choice choice = choice_of(conn);
    uint64_t rows = request->matched_tokens - request->from_token, words = words_of(rows);
    struct sc_run *run = &request->memory.choice;
    if (!sc_run_take(request->memory.pool, choice_bytes(conn, rows), run))
        return false;
    if (run->bytes == 0)
        return true;
    uint64_t each = list_rows(rows);
    uint32_t *list = (uint32_t *)(void *)run->at;
    request->list_rows = each;
    request->set = list;
    request->readers[SC_PLUGIN_REST].rows = list + each;
    for (uint64_t i = 0; i < SC_PLUGIN_AHEAD && choice.lists > 2; i++)
        request->readers[i].rows = list + (2 + i) * each;
    uint64_t *map = (uint64_t *)(void *)(list + choice.lists * each);
    request->bits = map;
    map += choice.maps * words;
    for (uint64_t i = 0; i < SC_PLUGIN_AHEAD; i++)
        request->predictions[i].slabs = choice.slab_maps > 0 ? map + i * words : NULL;
    return true;
}

/* ---- Put ------------------------------------------------------------------------------------- */

void sc_plugin_request_memory_put(struct sc_plugin_request *request)
{
    struct sc_plugin_request_memory *memory = &request->memory;
    sc_run_put(memory->pool, &memory->text);
    sc_run_put(memory->pool, &memory->match);
    sc_run_put(memory->pool, &memory->choice);
    while (memory->outgrown_count > 0)
        sc_run_put(memory->pool, &memory->outgrown[--memory->outgrown_count]);
    request->tokens = NULL;
    request->segments = NULL;
    request->ranges = NULL;
    request->set = NULL;
    request->bits = NULL;
    request->token_capacity = request->segment_capacity = request->list_rows = 0;
    for (uint32_t i = 0; i < SC_PLUGIN_READERS; i++)
        request->readers[i].rows = NULL, request->readers[i].window = NULL;
    for (uint32_t i = 0; i < SC_PLUGIN_AHEAD; i++)
        request->predictions[i].slabs = NULL;
}

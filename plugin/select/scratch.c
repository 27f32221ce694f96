/* scratch: the scratches of a connector. Contract: scratch.h. */
#include "plugin/select/scratch.h"
#include "plugin/args/request_memory.h"
#include "plugin/select/item.h"

#define SCRATCHES_MAX 8u
#define SHORT_ROWS    131072u /* rows of most scratches */
#define LONGS_MAX     2u      /* scratches for max_request_tokens, if that is more */

/* Lays out a scratch for `rows` rows; returns its bytes. memory NULL: only counts. */
static uint64_t lay_out(spec_connector *conn, uint64_t rows, uint8_t *memory,
                        struct sc_plugin_scratch *scratch)
{
    uint64_t probes = conn->choice.probe_heads;
    uint64_t at = 0, heads = probes > SC_PLUGIN_HEADS_TOGETHER ? probes : SC_PLUGIN_HEADS_TOGETHER;
    uint64_t importance = sc_kernels_importance_scratch_bytes(conn->shape.head_size, rows, rows);
    uint64_t slabs = conn->choice.reads_quant ? sc_plugin_segments_of(conn, rows) : 0;
    uint8_t *places[7];
    const uint64_t bytes[7] = {importance,
                               (heads + 1) * rows * sizeof(float),
                               rows * sizeof(float),
                               rows * sizeof(float),
                               (2 * probes + 2) * SC_KERNELS_WORDS(rows) * sizeof(uint64_t),
                               2 * rows * sizeof(uint64_t),
                               slabs * sizeof(struct sc_kernels_slab)};
    for (uint32_t i = 0; i < 7; i++) {
        places[i] = memory != NULL ? memory + at : NULL;
        at += (bytes[i] + 63) & ~UINT64_C(63); /* cache lines */
    }
    if (memory != NULL)
        *scratch = (struct sc_plugin_scratch){.conn = conn,
                                              .importance = places[0],
                                              .sums = (float *)(void *)places[1],
                                              .scores = (float *)(void *)places[2],
                                              .granules = (float *)(void *)places[3],
                                              .sets = (uint64_t *)(void *)places[4],
                                              .ranked = (uint64_t *)(void *)places[5],
                                              .slabs = (void *)places[6]};
    return at;
}

uint32_t sc_plugin_scratch_count(const spec_connector *conn)
{
    uint64_t wanted = conn->config.max_requests + UINT64_C(1); /* and one for hints */
    if (!conn->choice.can_select)
        return 0;
    return wanted < SCRATCHES_MAX ? (uint32_t)wanted : SCRATCHES_MAX;
}

spec_status sc_plugin_scratches_open(spec_connector *conn, struct spec_error *reterr)
{
    uint64_t most = conn->config.max_request_tokens, rows = most;
    uint32_t count = sc_plugin_scratch_count(conn), longs = 0;
    if (most > SHORT_ROWS && count > LONGS_MAX) {
        rows = SHORT_ROWS;
        longs = LONGS_MAX;
    }
    uint64_t each = lay_out(conn, rows, NULL, NULL), each_long = lay_out(conn, most, NULL, NULL);
    uint64_t bytes = (count - longs) * each + longs * each_long;
    conn->choice.scratches = sc_alloc_array(&conn->alloc, count, sizeof(*conn->choice.scratches));
    conn->choice.scratch_memory = sc_alloc(&conn->alloc, bytes);
    if (conn->choice.scratches == NULL || conn->choice.scratch_memory == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "%" PRIu64 " bytes to score in", bytes);
    uint8_t *memory = conn->choice.scratch_memory;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t room = i < count - longs ? rows : most;
        memory += lay_out(conn, room, memory, &conn->choice.scratches[i]);
    }
    sc_slot_pool_init(&conn->choice.scratch_slots, count - longs, conn->exec, &conn->poison);
    if (longs > 0)
        sc_slot_pool_init(&conn->choice.scratch_longs, longs, conn->exec, &conn->poison);
    return SPEC_OK;
}

void sc_plugin_scratches_close(spec_connector *conn)
{
    sc_alloc_free(&conn->alloc, conn->choice.scratches);
    sc_alloc_free(&conn->alloc, conn->choice.scratch_memory);
}

struct sc_plugin_scratch *sc_plugin_scratch_take(spec_connector *conn, uint64_t rows,
                                                 uint64_t deadline_ns)
{
    bool is_long = rows > SHORT_ROWS && conn->choice.scratch_longs.count > 0;
    struct sc_slot_pool *slots =
        is_long ? &conn->choice.scratch_longs : &conn->choice.scratch_slots;
    uint32_t slot = sc_slot_pool_take(slots, deadline_ns);
    if (slot == SC_SLOT_POOL_NONE)
        return NULL;
    return &conn->choice.scratches[slot + (is_long ? conn->choice.scratch_slots.count : 0)];
}

struct sc_plugin_scratch *sc_plugin_scratch_take_for(spec_connector *conn,
                                                     const struct sc_plugin_item *item)
{
    uint64_t rows = item->want.row_total, fresh = item->scoring.fresh.count;
    return sc_plugin_scratch_take(conn, rows > fresh ? rows : fresh, item->deadline_ns);
}

void sc_plugin_scratch_put(const struct sc_plugin_scratch *scratch)
{
    spec_connector *conn = scratch->conn;
    uint32_t slot = (uint32_t)(scratch - conn->choice.scratches);
    uint32_t shorts = conn->choice.scratch_slots.count;
    if (slot < shorts)
        sc_slot_pool_put(&conn->choice.scratch_slots, slot);
    else
        sc_slot_pool_put(&conn->choice.scratch_longs, slot - shorts);
}

/* cache_tiers: IMPRESS' dual cache over a stream. See bench/cache_tiers.h. */
#include "bench/cache_tiers.h"

#include "bench/bench.h"

#include <stdlib.h>
#include <string.h>

#define NOWHERE UINT32_MAX

struct chunk {
    struct sc_use use;
    uint64_t rank; /* in its tier */
    uint32_t tier, place;
};

struct tier {
    enum sc_policy policy;
    uint32_t *heap, count, capacity;
};

enum { DEVICE, HOST, TIERS };

struct tiers {
    struct chunk *chunks;
    struct tier tier[TIERS];
    uint64_t now, step, stamp;
};

/* ---- A heap of chunks' ranks ----------------------------------------------------------------- */

static void heap_set(struct tiers *tiers, struct tier *tier, uint32_t place, uint32_t chunk)
{
    tier->heap[place] = chunk;
    tiers->chunks[chunk].place = place;
}

static void heap_up(struct tiers *tiers, struct tier *tier, uint32_t place)
{
    uint32_t chunk = tier->heap[place];
    uint64_t rank = tiers->chunks[chunk].rank;
    while (place > 0 && tiers->chunks[tier->heap[(place - 1) / 2]].rank > rank) {
        heap_set(tiers, tier, place, tier->heap[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    heap_set(tiers, tier, place, chunk);
}

static void heap_down(struct tiers *tiers, struct tier *tier, uint32_t place)
{
    uint32_t chunk = tier->heap[place];
    for (;;) {
        uint32_t child = 2 * place + 1;
        if (child + 1 < tier->count &&
            tiers->chunks[tier->heap[child + 1]].rank < tiers->chunks[tier->heap[child]].rank)
            child++;
        if (child >= tier->count ||
            tiers->chunks[tier->heap[child]].rank >= tiers->chunks[chunk].rank)
            break;
        heap_set(tiers, tier, place, tier->heap[child]);
        place = child;
    }
    heap_set(tiers, tier, place, chunk);
}

static void tier_remove(struct tiers *tiers, uint32_t chunk)
{
    struct tier *tier = &tiers->tier[tiers->chunks[chunk].tier];
    uint32_t place = tiers->chunks[chunk].place, last = tier->heap[--tier->count];
    tiers->chunks[chunk].tier = TIERS;
    if (place == tier->count)
        return;
    heap_set(tiers, tier, place, last);
    heap_up(tiers, tier, place);
    heap_down(tiers, tier, tiers->chunks[last].place);
}

/* Enters the tier, if it is worth more than the lowest there or there is room. Returns who had to
 * leave: nobody (NOWHERE), the lowest, or the chunk itself. */
static uint32_t tier_offer(struct tiers *tiers, uint32_t number, uint32_t chunk)
{
    struct tier *tier = &tiers->tier[number];
    struct chunk *of = &tiers->chunks[chunk];
    uint32_t out = NOWHERE;
    of->rank = sc_rank_by(tier->policy, &of->use);
    if (tier->count == tier->capacity) {
        if (tier->capacity == 0 || tiers->chunks[tier->heap[0]].rank >= of->rank)
            return chunk;
        out = tier->heap[0];
        tier_remove(tiers, out);
    }
    of->tier = number;
    heap_set(tiers, tier, tier->count, chunk);
    heap_up(tiers, tier, tier->count++);
    return out;
}

/* ---- Uses ------------------------------------------------------------------------------------ */

static void chunk_use(struct tiers *tiers, uint32_t number, uint64_t rows, uint64_t chunk_rows)
{
    struct sc_use *use = &tiers->chunks[number].use;
    tiers->now += tiers->step;
    use->stamp = ++tiers->stamp;
    use->count++;
    use->heat = sc_heat_used(use->heat, tiers->now);
    use->importance =
        sc_importance_touched(use->importance, (uint32_t)(rows * 1000000 / chunk_rows));
    use->bytes = use->cost_ns = 1;
}

/* Returns where it was. */
static uint32_t chunk_get(struct tiers *tiers, uint32_t number, uint64_t rows, uint64_t chunk_rows)
{
    uint32_t was = tiers->chunks[number].tier;
    if (was != TIERS)
        tier_remove(tiers, number);
    chunk_use(tiers, number, rows, chunk_rows);
    uint32_t out = tier_offer(tiers, DEVICE, number);
    if (out != NOWHERE)
        (void)tier_offer(tiers, HOST, out);
    return was;
}

static void *zeros(uint64_t count, uint64_t bytes)
{
    void *memory = calloc(count + 1, bytes);
    if (memory == NULL)
        bench_die("no memory for chunks");
    return memory;
}

/* What the request waits for, and counts of it. */
static double request_get(struct tiers *tiers, const struct cache_tiers_params *params,
                          const struct cache_request *request, struct cache_tiers_counts *counts)
{
    const struct cache_stream *stream = params->stream;
    double ms = 0;
    for (uint64_t i = request->first; i < request->first + request->count; i++) {
        uint32_t rows = stream->rows[i];
        uint32_t was = chunk_get(tiers, stream->blocks[i], rows, params->chunk_rows);
        counts->uses++;
        counts->rows += rows;
        counts->device_rows += was == DEVICE ? rows : 0;
        counts->host_uses += was == HOST;
        counts->disk_uses += was == TIERS;
        ms += was == DEVICE ? 0 : rows * params->row_ms;
        ms += was == TIERS ? params->chunk_ms : 0;
    }
    return ms;
}

void cache_tiers_replay(const struct cache_tiers_params *params,
                        struct cache_tiers_counts *ret_counts, double *ret_ms)
{
    const struct cache_stream *stream = params->stream;
    struct tiers tiers = {.now = SC_HEAT_FIRST, .step = SC_HEAT_ONE / params->half_life + 1};
    tiers.chunks = zeros(stream->distinct, sizeof(*tiers.chunks));
    tiers.tier[DEVICE] = (struct tier){.policy = params->device_policy,
                                       .capacity = (uint32_t)params->device_chunks,
                                       .heap = zeros(params->device_chunks, sizeof(uint32_t))};
    tiers.tier[HOST] = (struct tier){.policy = params->host_policy,
                                     .capacity = (uint32_t)params->host_chunks,
                                     .heap = zeros(params->host_chunks, sizeof(uint32_t))};
    for (uint64_t i = 0; i < stream->distinct; i++)
        tiers.chunks[i].tier = TIERS;
    for (uint64_t r = 0; r < stream->request_count; r++) {
        if (r <= params->warm_count)
            *ret_counts = (struct cache_tiers_counts){0};
        double ms = request_get(&tiers, params, &stream->requests[r], ret_counts);
        if (r >= params->warm_count)
            ret_ms[r - params->warm_count] = ms;
    }
    free(tiers.tier[HOST].heap);
    free(tiers.tier[DEVICE].heap);
    free(tiers.chunks);
}

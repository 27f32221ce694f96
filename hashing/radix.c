/* radix: open, close, match and pins.
 *
 *   by hashes      chunk i + 16..23: compute the chain hashes, then prefetch the table's slots
 *                  chunk i +  8..15: read the slots, then prefetch the runs
 *                  chunk i         : confirm it by parent, mark and tokens; else by the children
 *   by prediction  chunk i + 16    : prefetch the run that the run of chunk i names
 *                  chunk i         : confirm the first child of the run before
 *
 * A run names one that is SC_RADIX_AHEAD chunks below it, only to prefetch it. While these
 * predictions are right, a match neither hashes nor reads tables. It uses hashes after prefixes
 * diverge or runs were removed, until predictions are right again.
 *
 * Invariants: a token counts only after its run was confirmed by parent and tokens. A match does
 * not allocate or wait. */
#include "hashing/radix.h"

#include "hashing/radix_internal.h"

#include <string.h>

#define GROUP_FIRST 2u
#define GROUP       8u  /* chunks: a power of two */
#define RING        32u /* >= 3 * GROUP, a power of two */
#define ACCURACY_MIN 4u
#define LINE_BYTES  64u

/* ---- open and close ------------------------------------------------------------------------ */

/* Chooses slabs so large that the directory is small, in arenas that huge pages can back. */
static void size_slabs(struct sc_radix *index)
{
    index->slab_bytes = SC_RADIX_SLAB_BYTES_MIN;
    while (index->bytes_max / index->slab_bytes > SC_RADIX_SLABS_MAX)
        index->slab_bytes *= 2;
    index->arena_slabs = 1;
    while (index->arena_slabs * index->slab_bytes < SC_RADIX_ARENA_BYTES_MAX &&
           index->arena_slabs * index->slab_bytes <= index->bytes_max / SC_RADIX_ARENA_SHARE)
        index->arena_slabs *= 2;
    uint64_t arena_bytes = index->arena_slabs * index->slab_bytes;
    index->arena_count_max = (uint32_t)(index->bytes_max / arena_bytes);
    index->granule_bits = 0;
    while ((uint64_t)SC_RADIX_GRANULE_BYTES << index->granule_bits < index->slab_bytes)
        index->granule_bits++;
    index->arena_bits = index->granule_bits;
    while (index->arena_slabs >> (index->arena_bits - index->granule_bits) > 1)
        index->arena_bits++;
}

static uint64_t directory_bytes(const struct sc_radix *index)
{
    return ((uint64_t)index->arena_count_max + 1) * sizeof(index->directory[0]);
}

static uint64_t slabs_bytes(const struct sc_radix *index)
{
    return ((uint64_t)index->arena_count_max + 1) * index->arena_slabs * sizeof(index->slabs[0]);
}

static uint64_t arenas_bytes(const struct sc_radix *index)
{
    return ((uint64_t)index->arena_count_max + 1) * sizeof(index->arenas[0]);
}

spec_status sc_radix_open(const struct sc_radix_params *params, struct sc_radix **ret_index,
                          struct spec_error *reterr)
{
    uint32_t chunk = params->chunk_tokens;
    if (chunk == 0 || chunk > SC_CHAIN_CHUNK_TOKENS_MAX || (chunk & (chunk - 1)) != 0)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "chunk_tokens %" PRIu32 " is not a power of two from 1 to %u", chunk,
                       SC_CHAIN_CHUNK_TOKENS_MAX);
    if (params->bytes_max < UINT64_C(1) << 20 || params->bytes_max > UINT64_C(64) << 30)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "index bytes_max %" PRIu64 " is not from 1 MiB to 64 GiB",
                       params->bytes_max);
    struct sc_radix *index = sc_alloc_zero(params->alloc, sizeof(*index));
    if (index == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "radix index");
    index->alloc = params->alloc;
    index->poison = params->poison;
    index->bytes_max = params->bytes_max;
    index->chunk_tokens = chunk;
    index->policy = params->policy;
    if (params->policy == SC_POLICY_VALUE)
        atomic_store_explicit(&index->written, SC_HEAT_FIRST, memory_order_relaxed);
    size_slabs(index);
    atomic_store_explicit(&index->bytes, sizeof(*index), memory_order_relaxed);
    atomic_store(&index->epoch, 1);
    index->directory = sc_radix_memory_take(index, directory_bytes(index));
    index->slabs = sc_radix_memory_take(index, slabs_bytes(index));
    index->arenas = sc_radix_memory_take(index, arenas_bytes(index));
    atomic_store(&index->chunks, sc_radix_table_new(index, SC_RADIX_TABLE_SLOTS_MIN));
    atomic_store(&index->children, sc_radix_table_new(index, SC_RADIX_TABLE_SLOTS_MIN));
    if (index->directory == NULL || index->slabs == NULL || index->arenas == NULL ||
        atomic_load(&index->chunks) == NULL || atomic_load(&index->children) == NULL ||
        !sc_radix_leaves_reserve(index)) {
        sc_radix_close(index);
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "radix index of at most %" PRIu64 " bytes",
                       params->bytes_max);
    }
    if (params->secret != NULL && sc_radix_secret_set(index, params->secret, reterr) != SPEC_OK) {
        sc_radix_close(index);
        return SPEC_E_NO_MEMORY;
    }
    *ret_index = index;
    return SPEC_OK;
}

spec_status sc_radix_secret_set(struct sc_radix *index, const uint8_t secret[SC_CHAIN_SECRET_BYTES],
                                struct spec_error *reterr)
{
    struct sc_radix_secrets *now = atomic_load(&index->secrets);
    if (now != NULL && memcmp(now->secret.secret, secret, SC_CHAIN_SECRET_BYTES) == 0)
        return SPEC_OK;
    struct sc_radix_secrets *next = sc_radix_memory_take(index, sizeof(*next));
    if (next == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "radix index: the store's secret");
    sc_chain_secret_init(&next->secret, secret);
    next->before = now;
    atomic_store(&index->secrets, next);
    return SPEC_OK;
}

const struct sc_chain_secret *sc_radix_secret(const struct sc_radix *index)
{
    const struct sc_radix_secrets *secrets =
        atomic_load_explicit(&index->secrets, memory_order_acquire);
    return secrets != NULL ? &secrets->secret : NULL;
}

static void give_secrets(struct sc_radix *index)
{
    struct sc_radix_secrets *secrets = atomic_load(&index->secrets);
    while (secrets != NULL) {
        struct sc_radix_secrets *before = secrets->before;
        sc_radix_memory_give(index, secrets, sizeof(*secrets));
        secrets = before;
    }
}

static void give_table(struct sc_radix *index, struct sc_radix_table *table)
{
    if (table != NULL)
        sc_radix_memory_give(index, table, sc_radix_table_bytes(table));
}

void sc_radix_close(struct sc_radix *index)
{
    if (index == NULL)
        return;
    for (uint32_t number = 1; number <= index->arena_fresh; number++)
        sc_radix_memory_give(index, atomic_load(&index->directory[number]),
                             index->arena_slabs * index->slab_bytes);
    sc_radix_memory_give(index, index->spare, index->arena_slabs * index->slab_bytes);
    for (uint32_t i = 0; i < 3; i++) {
        while (index->limbo[i].tables != NULL) {
            struct sc_radix_table *table = index->limbo[i].tables;
            index->limbo[i].tables = table->retired_next;
            give_table(index, table);
        }
    }
    give_table(index, atomic_load(&index->chunks));
    give_table(index, atomic_load(&index->children));
    sc_radix_leaves_close(index);
    sc_radix_memory_give(index, index->arenas, arenas_bytes(index));
    sc_radix_memory_give(index, index->slabs, slabs_bytes(index));
    sc_radix_memory_give(index, index->directory, directory_bytes(index));
    give_secrets(index);
    SC_ASSERT(index->poison, atomic_load(&index->bytes) == sizeof(*index));
    sc_alloc_free(index->alloc, index);
}

/* ---- finding ------------------------------------------------------------------------------- */

static bool key_matches(const struct sc_radix_node *node, uint64_t up,
                        const struct sc_radix_key *key)
{
    struct sc_sha256 mark;
    if (node->tokens[sc_radix_up_cut(up)] != key->token || (up & SC_RADIX_HIDDEN) != 0)
        return false;
    if (sc_radix_node_mark(node, up, &mark) != key->marked)
        return false;
    return !key->marked || sc_sha256_equal(&mark, &key->mark);
}

/* Confirms that `id` is the child of key->parent, or was by an old entry. A run that was split
 * since is below its upper part: climb to that. */
static uint32_t confirm(const struct sc_radix *index, uint32_t id, const struct sc_radix_key *key,
                        struct sc_radix_node **ret_node, uint64_t *ret_up, uint64_t *ret_steps)
{
    for (uint32_t climbed = 0; climbed <= index->chunk_tokens; climbed++) {
        struct sc_radix_node *node = sc_radix_node_at(index, id);
        uint64_t up = atomic_load(&node->up);
        ++*ret_steps;
        if (sc_radix_up_parent(up) == key->parent) {
            if (!key_matches(node, up, key))
                return 0;
            *ret_node = node;
            *ret_up = up;
            return id;
        }
        if (sc_radix_up_cut(up) == 0)
            return 0;
        id = sc_radix_up_parent(up);
    }
    return 0;
}

/* Entries of a table that match a hash's fingerprint, one after another. */
struct probe {
    const struct sc_radix_table *table;
    uint64_t hash, count;
};

/* Returns the next entry, or 0. */
static inline uint32_t probe_next(struct probe *probe, uint64_t *ret_steps)
{
    while (probe->count <= probe->table->mask) {
        uint64_t at = (probe->hash + probe->count++) & probe->table->mask;
        uint64_t word = atomic_load(&probe->table->slots[at]);
        ++*ret_steps;
        if ((uint32_t)word == 0)
            return 0;
        if ((uint32_t)word != SC_RADIX_TOMBSTONE && (word ^ probe->hash) >> 32 == 0)
            return (uint32_t)word;
    }
    return 0;
}

uint32_t sc_radix_child_find(const struct sc_radix *index, const struct sc_radix_key *key,
                             struct sc_radix_node **ret_node, uint64_t *ret_up, uint64_t *ret_steps)
{
    const struct sc_radix_node *parent = sc_radix_node_at(index, key->parent);
    uint32_t id = atomic_load(&parent->first_child);
    if (id == 0)
        return 0;
    uint32_t found = confirm(index, id, key, ret_node, ret_up, ret_steps);
    if (found != 0)
        return found;
    struct probe probe = {atomic_load(&index->children), sc_radix_key_hash(key), 0};
    while (found == 0 && (id = probe_next(&probe, ret_steps)) != 0)
        found = confirm(index, id, key, ret_node, ret_up, ret_steps);
    return found;
}

/* root: NULL, or the 32 bytes that the run, then a root, must have. */
static inline uint32_t table_find(const struct sc_radix *index, struct sc_hash hash, uint64_t end,
                                  const struct sc_sha256 *root, uint64_t *ret_steps)
{
    struct probe probe = {atomic_load(&index->chunks), sc_radix_chunk_hash(hash), 0};
    uint32_t id;
    while ((id = probe_next(&probe, ret_steps)) != 0) {
        const struct sc_radix_node *node = sc_radix_node_at(index, id);
        if (sc_hash_equal(node->hash, hash) && sc_radix_node_end(node) == end &&
            (root == NULL || sc_sha256_equal(sc_radix_root_of(node), root)))
            return id;
    }
    return 0;
}

uint32_t sc_radix_chunk_find(const struct sc_radix *index, struct sc_hash hash, uint64_t end,
                             uint64_t *ret_steps)
{
    return table_find(index, hash, end, NULL, ret_steps);
}

uint32_t sc_radix_root_find(const struct sc_radix *index, const struct sc_sha256 *root,
                            uint64_t *ret_steps)
{
    return table_find(index, sc_sha256_short(root), 0, root, ret_steps);
}

/* ---- match --------------------------------------------------------------------------------- */

struct walk {
    struct sc_radix *index;
    const struct sc_radix_query *query;
    const struct sc_chain_secret *secret; /* set before there was a root */
    struct sc_radix_segment *segments;
    uint64_t capacity;
    struct sc_radix_match match;
    uint32_t at; /* the run that ends at `position` */
    uint32_t last;
    uint64_t position;
    uint64_t mark;                /* first mark at or after position */
    uint64_t row_piece, row_next; /* piece of the last segment, and the row behind it */

    uint32_t accuracy;       /* consecutive chunks that were as predicted */
    uint32_t foretold[RING]; /* by chunk: run that the one SC_RADIX_AHEAD before names */

    uint64_t chunk_count; /* whole chunks in the query */
    uint64_t hashed;      /* chunks with a computed hash */
    uint64_t probed;      /* chunks whose slot was read */
    struct sc_hash chain; /* after `hashed` chunks */
    uint64_t hash_mark;   /* first mark at or after them */
    struct sc_hash hashes[RING];
    uint32_t ids[RING];
    uint64_t group; /* chunks hashed or probed together; grows to GROUP */
};

static bool marked_at(const struct walk *walk, uint64_t position)
{
    const struct sc_radix_query *query = walk->query;
    return walk->mark < query->marks.count && query->marks.at[walk->mark].token == position;
}

/* Prefetches the runs of a group (0: none), first lines first. A prefetch waits for its page's
 * translation, and neighbouring translations run in parallel. */
static void prefetch_runs(const struct sc_radix *index, const uint32_t *ids, uint64_t count)
{
    uintptr_t runs[GROUP];
    uint64_t run_count = 0;
    for (uint64_t i = 0; i < count; i++) {
        if (ids[i] == 0)
            continue;
        runs[run_count] = sc_radix_address(index, ids[i]);
        __builtin_prefetch((const void *)runs[run_count++]);
    }
    uint64_t bytes = SC_RADIX_HEADER_BYTES + 4 * (uint64_t)index->chunk_tokens;
    for (uint64_t i = 0; i < run_count; i++) {
        for (uint64_t line = LINE_BYTES; line < bytes; line += LINE_BYTES)
            __builtin_prefetch((const void *)(runs[i] + line));
    }
}

/* After a chunk: keeps the prediction of its run, and prefetches predicted runs by groups. */
static void foretell(struct walk *walk, uint32_t id, const struct sc_radix_node *node)
{
    uint64_t chunk = walk->position / walk->index->chunk_tokens - 1;
    walk->accuracy = walk->foretold[chunk % RING] == id ? walk->accuracy + 1 : 0;
    uint64_t later = chunk + SC_RADIX_AHEAD;
    walk->foretold[later % RING] = atomic_load_explicit(&node->ahead, memory_order_relaxed);
    if (later % GROUP == GROUP - 1 && walk->accuracy != 0)
        prefetch_runs(walk->index, &walk->foretold[(later - (GROUP - 1)) % RING], GROUP);
}

/* Counts `count` tokens of the run. Runs that were moved together are one segment. */
static void take(struct walk *walk, uint32_t id, const struct sc_radix_node *node, uint64_t up,
                 uint64_t count)
{
    struct sc_radix_match *match = &walk->match;
    struct sc_radix_segment segment;
    sc_radix_segment_of(node, id, up, &segment);
    segment.count = count;
    bool joins = sc_radix_node_joined(node) && segment.value.piece == walk->row_piece &&
                 segment.value.row_first == walk->row_next;
    walk->row_piece = segment.value.piece;
    walk->row_next = segment.value.row_first + count;
    match->segment_count += joins ? 0 : 1;
    if (match->segment_count <= walk->capacity) {
        struct sc_radix_segment *at = &walk->segments[match->segment_count - 1];
        if (joins) {
            segment.first = at->first;
            segment.count += at->count;
            segment.value.row_first = at->value.row_first;
        }
        *at = segment;
    }
    walk->position += count;
    walk->last = id;
    match->last = (struct sc_radix_ref){id, node->generation};
    if (walk->position == sc_radix_node_end(node)) {
        walk->at = id;
        match->whole = match->last;
        match->whole_end = walk->position;
    }
    const struct sc_radix_query *query = walk->query;
    while (walk->mark < query->marks.count && query->marks.at[walk->mark].token < walk->position)
        walk->mark++;
    if (walk->position % walk->index->chunk_tokens == 0)
        foretell(walk, id, node);
}

static void hash_chunk(struct walk *walk)
{
    const struct sc_radix_query *query = walk->query;
    uint32_t chunk_tokens = walk->index->chunk_tokens;
    uint64_t first = walk->hashed * chunk_tokens;
    uint64_t marks = 0;
    while (walk->hash_mark + marks < query->marks.count &&
           query->marks.at[walk->hash_mark + marks].token < first + chunk_tokens)
        marks++;
    struct sc_marks inside = {marks == 0 ? NULL : query->marks.at + walk->hash_mark, marks};
    walk->chain = sc_chain_step(walk->secret, walk->chain, first, query->tokens + first,
                                chunk_tokens, inside);
    walk->hash_mark += marks;
    walk->hashes[walk->hashed % RING] = walk->chain;
    walk->hashed++;
}

static void hash_ahead(struct walk *walk, uint64_t chunk)
{
    const struct sc_radix_table *table = atomic_load(&walk->index->chunks);
    while (walk->hashed < walk->chunk_count && walk->hashed < chunk + 2 * walk->group) {
        uint64_t from = walk->hashed;
        while (walk->hashed < walk->chunk_count && walk->hashed < from + walk->group)
            hash_chunk(walk);
        for (; from < walk->hashed; from++) {
            uint64_t hash = sc_radix_chunk_hash(walk->hashes[from % RING]);
            __builtin_prefetch(&table->slots[hash & table->mask]);
        }
    }
}

/* Looks up runs that may have the chunks' hashes, without touching their memory. */
static void probe_group(struct walk *walk)
{
    const struct sc_radix_table *table = atomic_load(&walk->index->chunks);
    uint32_t ids[GROUP];
    uint64_t count = 0;
    for (uint64_t i = 0; i < walk->group && walk->probed < walk->hashed; i++, walk->probed++) {
        uint64_t at = walk->probed % RING;
        struct probe probe = {table, sc_radix_chunk_hash(walk->hashes[at]), 0};
        walk->ids[at] = probe_next(&probe, &walk->match.steps);
        ids[count++] = walk->ids[at];
    }
    prefetch_runs(walk->index, ids, count);
}

static void probe_ahead(struct walk *walk, uint64_t chunk)
{
    while (walk->probed < walk->hashed && walk->probed < chunk + walk->group)
        probe_group(walk);
    if (walk->group < GROUP)
        walk->group *= 2;
}

static bool is_refused(const struct walk *walk, const struct sc_radix_node *node)
{
    uint32_t flags_end = walk->query->flags_end;
    return flags_end != 0 && sc_radix_node_flags(node) >= flags_end;
}

/* Returns true if the run is the whole chunk at `position`, below the last run. */
static bool is_next(const struct walk *walk, const struct sc_radix_node *node, uint64_t up)
{
    const struct sc_radix_query *query = walk->query;
    uint32_t chunk_tokens = walk->index->chunk_tokens;
    bool marked = marked_at(walk, walk->position);
    struct sc_radix_key key;
    sc_radix_key_set(&key, walk->at, query->tokens[walk->position],
                     marked ? &query->marks.at[walk->mark] : NULL);
    if (sc_radix_up_parent(up) != walk->at || sc_radix_up_cut(up) != 0 ||
        sc_radix_node_length(node) != chunk_tokens || !key_matches(node, up, &key) ||
        is_refused(walk, node))
        return false;
    uint64_t next = walk->mark + (marked ? 1 : 0);
    if (next < query->marks.count && query->marks.at[next].token < walk->position + chunk_tokens)
        return false;
    return memcmp(node->tokens, query->tokens + walk->position, 4 * (uint64_t)chunk_tokens) == 0;
}

static bool take_if_next(struct walk *walk, uint32_t id)
{
    const struct sc_radix_node *node = sc_radix_node_at(walk->index, id);
    uint64_t up = atomic_load(&node->up);
    walk->match.steps++;
    if (!is_next(walk, node, up))
        return false;
    take(walk, id, node, up, walk->index->chunk_tokens);
    return true;
}

/* Restarts hashing at the last run, which ends at a grid border. */
static void hash_from_here(struct walk *walk)
{
    walk->hashed = walk->position / walk->index->chunk_tokens;
    walk->probed = walk->hashed;
    walk->chain = sc_radix_node_at(walk->index, walk->at)->hash;
    walk->hash_mark = walk->mark;
    walk->group = GROUP_FIRST;
}

/* Takes the chunk at `position` as the last run's first child, if predictions named it and have
 * been right: it is in the cache. */
static bool take_foretold(struct walk *walk)
{
    uint64_t chunk = walk->position / walk->index->chunk_tokens;
    if (walk->accuracy < ACCURACY_MIN || chunk >= walk->chunk_count)
        return false;
    const struct sc_radix_node *node = sc_radix_node_at(walk->index, walk->at);
    uint32_t id = atomic_load(&node->first_child);
    return id != 0 && id == walk->foretold[chunk % RING] && take_if_next(walk, id);
}

/* Takes the chunk at `position`, a grid border, as the run with its chain hash. */
static bool take_chunk(struct walk *walk)
{
    uint64_t chunk = walk->position / walk->index->chunk_tokens;
    if (chunk >= walk->chunk_count)
        return false;
    if (walk->hashed < chunk)
        hash_from_here(walk);
    hash_ahead(walk, chunk);
    probe_ahead(walk, chunk);
    uint32_t id = walk->ids[chunk % RING];
    return id != 0 && take_if_next(walk, id);
}

/* Takes the next run by the last one's children. False: the match ends inside it, or there is
 * none. */
static bool take_child(struct walk *walk)
{
    const struct sc_radix_query *query = walk->query;
    bool marked = marked_at(walk, walk->position);
    struct sc_radix_key key;
    sc_radix_key_set(&key, walk->at, query->tokens[walk->position],
                     marked ? &query->marks.at[walk->mark] : NULL);
    struct sc_radix_node *node;
    uint64_t up;
    uint32_t id = sc_radix_child_find(walk->index, &key, &node, &up, &walk->match.steps);
    if (id == 0 || is_refused(walk, node))
        return false;
    uint32_t cut = sc_radix_up_cut(up);
    uint64_t length = sc_radix_node_length(node) - cut;
    uint64_t limit = query->token_count - walk->position;
    uint64_t next = walk->mark + (marked ? 1 : 0);
    if (next < query->marks.count && query->marks.at[next].token - walk->position < limit)
        limit = query->marks.at[next].token - walk->position;
    if (limit > length)
        limit = length;
    const uint32_t *stored = node->tokens + cut;
    const uint32_t *asked = query->tokens + walk->position;
    uint64_t common = 1; /* the key's token */
    while (common < limit && stored[common] == asked[common])
        common++;
    take(walk, id, node, up, common);
    return common == length;
}

/* One attempt, inside an epoch. */
static void walk_all(struct walk *walk)
{
    const struct sc_radix_query *query = walk->query;
    struct sc_radix_match fresh = {.steps = walk->match.steps};
    walk->match = fresh;
    walk->position = 0;
    walk->row_piece = UINT64_MAX;
    walk->mark = 0;
    walk->last = 0;
    walk->chunk_count = query->token_count / walk->index->chunk_tokens;
    walk->hashed = 0;
    walk->probed = 0;
    walk->hash_mark = 0;
    walk->chain = sc_sha256_short(&query->root);
    walk->group = GROUP_FIRST;
    walk->accuracy = 0;
    memset(walk->foretold, 0, sizeof(walk->foretold));
    walk->at = sc_radix_root_find(walk->index, &query->root, &walk->match.steps);
    if (walk->at == 0)
        return;
    walk->secret = sc_radix_secret(walk->index);
    while (walk->position < query->token_count) {
        if (walk->position % walk->index->chunk_tokens == 0 &&
            (take_foretold(walk) || take_chunk(walk)))
            continue;
        if (!take_child(walk))
            break;
    }
    walk->match.token_count = walk->position;
    if (walk->last == 0)
        return;
    walk->match.last_piece = sc_radix_node_piece(sc_radix_node_at(walk->index, walk->last));
    walk->match.last_flags = sc_radix_node_flags(sc_radix_node_at(walk->index, walk->last));
}

bool sc_radix_run_pin(struct sc_radix *index, uint32_t id, uint64_t tokens, uint32_t hint)
{
    struct sc_radix_node *node = sc_radix_node_at(index, id);
    uint32_t before = atomic_fetch_add(&node->pins, 1);
    if ((before & SC_RADIX_DEAD) != 0 || (atomic_load(&node->up) & SC_RADIX_HIDDEN) != 0) {
        atomic_fetch_sub(&node->pins, 1);
        return false;
    }
    sc_radix_used(index, node, sc_radix_time_read(index, tokens));
    sc_radix_hint_raise(index, node, hint);
    return true;
}

/* Pins the last run, if any. */
static bool pin_last(const struct walk *walk)
{
    return walk->last == 0 ||
           sc_radix_run_pin(walk->index, walk->last, walk->position, walk->query->hint);
}

static void match_any(struct sc_radix *index, const struct sc_radix_query *query,
                      struct sc_radix_segment *segments, uint64_t capacity, bool pin,
                      struct sc_radix_match *ret_match)
{
    struct walk walk;
    walk.index = index;
    walk.query = query;
    walk.segments = segments;
    walk.capacity = capacity;
    walk.match.steps = 0;
    sc_count(&index->matches, 1);
    bool done = false, passed = false;
    uint32_t place = sc_radix_reader_enter(index);
    if (place != UINT32_MAX) {
        for (uint32_t try = 0; try < SC_RADIX_TRIES && (!done || passed); try++) {
            if (try != 0)
                sc_count(&index->retries, 1);
            if (done && pin)
                sc_radix_unpin(index, walk.match.last);
            uint64_t replaced = atomic_load(&index->replaced);
            walk_all(&walk);
            done = !pin || pin_last(&walk);
            passed =
                walk.position < query->token_count && atomic_load(&index->replaced) != replaced;
        }
        sc_radix_reader_leave(index, place);
    }
    if (!done || passed)
        sc_count(&index->shortened, 1);
    if (!done)
        walk.match = (struct sc_radix_match){.steps = walk.match.steps};
    walk.match.shortened = !done || passed;
    *ret_match = walk.match;
}

void sc_radix_match(struct sc_radix *index, const struct sc_radix_query *query,
                    struct sc_radix_segment *segments, uint64_t capacity,
                    struct sc_radix_match *ret_match)
{
    match_any(index, query, segments, capacity, false, ret_match);
}

void sc_radix_match_pin(struct sc_radix *index, const struct sc_radix_query *query,
                        struct sc_radix_segment *segments, uint64_t capacity,
                        struct sc_radix_match *ret_match)
{
    match_any(index, query, segments, capacity, true, ret_match);
}

void sc_radix_pin(struct sc_radix *index, struct sc_radix_ref pinned)
{
    struct sc_radix_node *node = sc_radix_node_at(index, pinned.id);
    SC_ASSERT(index->poison, node->generation == pinned.generation);
    uint32_t before = atomic_fetch_add(&node->pins, 1);
    SC_ASSERT(index->poison, (before & SC_RADIX_DEAD) == 0);
}

void sc_radix_unpin(struct sc_radix *index, struct sc_radix_ref pinned)
{
    if (pinned.id == 0)
        return;
    struct sc_radix_node *node = sc_radix_node_at(index, pinned.id);
    SC_ASSERT(index->poison, node->generation == pinned.generation);
    uint32_t before = atomic_fetch_sub(&node->pins, 1);
    SC_ASSERT(index->poison, (before & ~SC_RADIX_DEAD) != 0);
}

void sc_radix_stats(const struct sc_radix *index, struct sc_radix_stats *ret_stats)
{
    *ret_stats = (struct sc_radix_stats){
        .bytes = sc_counted(&index->bytes),
        .runs = sc_counted(&index->runs),
        .roots = sc_counted(&index->roots),
        .leaves = sc_counted(&index->leaf_count),
        .tokens = sc_counted(&index->tokens),
        .hidden = sc_counted(&index->hidden),
        .matches = sc_counted(&index->matches),
        .retries = sc_counted(&index->retries),
        .shortened = sc_counted(&index->shortened),
        .splits = sc_counted(&index->splits),
        .collisions = sc_counted(&index->collisions),
    };
}

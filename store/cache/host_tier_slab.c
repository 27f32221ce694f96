/* host_tier_slab: maps ranges of pieces to slabs of the host tier. Contract:
 * store/cache/host_tier_slab.h. */
#include "store/cache/host_tier_slab.h"

#include "store/internal.h"

#include <string.h>

static uint64_t tags_bytes(const struct sc_store_shape *shape, uint64_t row_count)
{
    return sc_store_up(row_count * shape->tags_per_row * 8, 64);
}

uint64_t sc_host_slab_bytes(const struct sc_store_shape *shape, uint64_t row_count)
{
    return tags_bytes(shape, row_count) + row_count * shape->row_bytes;
}

/* Returns the key of the piece's rows. The piece's entry must be constant. */
static struct sc_host_tier_key key_of(const struct sc_store *store,
                                      const struct sc_store_piece_entry *piece, uint32_t layer)
{
    return (struct sc_host_tier_key){.copy =
                                         sc_store_table_extent(&store->table, piece->extent)->copy,
                                     .first = (uint32_t)piece->extent_row + piece->skip,
                                     .layer = layer};
}

/* Returns the key of that kind; copy 0 if the piece has no such section. */
static struct sc_host_tier_key key_of_kind(const struct sc_store *store,
                                           const struct sc_store_piece_entry *piece, uint32_t layer,
                                           uint32_t kind)
{
    const struct sc_store_extent_entry *extent =
        sc_store_table_extent(&store->table, piece->extent);
    const struct sc_store_section *codes =
        atomic_load_explicit(&extent->codes, memory_order_acquire);
    struct sc_host_tier_key key = key_of(store, piece, layer);
    key.kind = kind;
    if (kind == SC_STORE_HOST_PROBES)
        key.copy = sc_store_probes_of(extent).copy;
    if (kind == SC_STORE_HOST_QUANT)
        key.copy = codes != NULL ? codes->copy : 0;
    return key;
}

/* Returns false if the piece's slab does not cover the range. */
static bool key_set(const struct sc_store *store, uint32_t layer,
                    const struct sc_store_range *range, struct sc_host_tier_key *ret_key,
                    const struct sc_store_piece_entry **ret_piece)
{
    const struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, range->piece);
    if (piece == NULL || range->row_first < piece->skip || range->row_count == 0)
        return false;
    *ret_piece = piece;
    *ret_key = key_of(store, piece, layer);
    return true;
}

static bool chunks_key(const struct sc_store_extent_entry *extent, struct sc_host_tier_key *ret_key)
{
    const struct sc_store_section *permutation =
        atomic_load_explicit(&extent->permutation, memory_order_acquire);
    if (permutation == NULL)
        return false;
    *ret_key = (struct sc_host_tier_key){.copy = permutation->copy, .kind = SC_STORE_HOST_SLOTS};
    return true;
}

/* Returns the cached slabs of a kind; windowed: of layers with a window only. */
static uint32_t slabs_count(const struct sc_store *store, struct sc_host_tier_key key,
                            uint32_t kind, bool windowed, uint32_t *ret_risen)
{
    key.kind = kind;
    return windowed ? sc_host_tier_windowed(store->host, &key, ret_risen)
                    : sc_host_tier_layers(store->host, &key, ret_risen);
}

/* Returns the slabs of K and of V as whole ones: two are one. Adds those in the upper tier to
 * *risen. kind_k: SC_STORE_HOST_K or _SLOTS_K, V's is the next. */
static uint32_t halves_count(const struct sc_store *store, struct sc_host_tier_key key,
                             uint32_t kind_k, bool windowed, uint32_t *risen)
{
    uint32_t risen_k, risen_v;
    if (store->shape.layout != SC_STORE_SPLIT)
        return 0;
    uint32_t k = slabs_count(store, key, kind_k, windowed, &risen_k);
    uint32_t v = slabs_count(store, key, kind_k + 1, windowed, &risen_v);
    *risen += (risen_k + risen_v) / 2;
    return (k + v) / 2;
}

/* Returns the extent's cached chunks as whole layers, two halves as one chunk. */
static uint32_t chunks_layers(const struct sc_store *store,
                              const struct sc_store_extent_entry *extent, bool windowed,
                              uint32_t *ret_risen)
{
    struct sc_host_tier_key key;
    uint64_t chunk = store->params.config->chunk_tokens;
    uint64_t each = (extent->row_count + chunk - 1) / chunk;
    *ret_risen = 0;
    if (!chunks_key(extent, &key))
        return 0;
    uint32_t chunks = slabs_count(store, key, SC_STORE_HOST_SLOTS, windowed, ret_risen);
    chunks += halves_count(store, key, SC_STORE_HOST_SLOTS_K, windowed, ret_risen);
    *ret_risen = (uint32_t)(*ret_risen / each);
    return (uint32_t)(chunks / each);
}

static const struct sc_store_piece_entry *host_slab_piece(const struct sc_store *store,
                                                          uint64_t piece)
{
    return sc_host_tier_is_empty(store->host) ? NULL : sc_store_table_leased(&store->table, piece);
}

uint32_t sc_store_piece_host_layers(const struct sc_store *store, uint64_t piece,
                                    uint32_t *ret_risen)
{
    uint32_t risen = 0, promoted_chunks = 0;
    const struct sc_store_piece_entry *entry = host_slab_piece(store, piece);
    if (ret_risen != NULL)
        *ret_risen = 0;
    if (entry == NULL)
        return 0;
    struct sc_host_tier_key key = key_of(store, entry, 0);
    uint32_t layers = sc_host_tier_layers(store->host, &key, &risen);
    layers += halves_count(store, key, SC_STORE_HOST_K, false, &risen);
    layers += chunks_layers(store, sc_store_table_extent(&store->table, entry->extent), false,
                            &promoted_chunks);
    if (ret_risen != NULL)
        *ret_risen = risen + promoted_chunks;
    return layers;
}

uint32_t sc_store_piece_host_windowed(const struct sc_store *store, uint64_t piece,
                                      uint32_t *ret_risen)
{
    uint32_t promoted_chunks = 0;
    const struct sc_store_piece_entry *entry = host_slab_piece(store, piece);
    *ret_risen = 0;
    if (entry == NULL)
        return 0;
    struct sc_host_tier_key key = key_of(store, entry, 0);
    uint32_t layers = sc_host_tier_windowed(store->host, &key, ret_risen);
    layers += chunks_layers(store, sc_store_table_extent(&store->table, entry->extent), true,
                            &promoted_chunks);
    *ret_risen += promoted_chunks;
    return layers;
}

uint64_t sc_store_upper_promoted_halves(const struct sc_store *store)
{
    return sc_host_tier_promoted_halves(store->host);
}

static uint32_t kind_of(uint32_t wanted)
{
    return wanted == SC_STORE_WANT_K   ? SC_STORE_HOST_K
           : wanted == SC_STORE_WANT_V ? SC_STORE_HOST_V
                                       : SC_STORE_HOST_ROWS;
}

struct sc_host_slab sc_host_slab_get(const struct sc_store *store, uint32_t layer,
                                     const struct sc_store_range *range, uint32_t wanted)
{
    const struct sc_store_shape *shape = &store->shape;
    const struct sc_store_piece_entry *piece;
    struct sc_host_slab host_slab = {0};
    struct sc_host_tier_key key;
    if (store->host == NULL || !key_set(store, layer, range, &key, &piece))
        return host_slab;
    uint64_t rows = piece->row_count - piece->skip, row = range->row_first - piece->skip;
    key.kind = kind_of(wanted);
    if (wanted != SC_STORE_WANT_ROWS && !sc_host_tier_has(store->host, &key))
        key.kind = SC_STORE_HOST_ROWS;
    host_slab.slab = sc_host_tier_find(store->host, &key, &host_slab.tier);
    if (host_slab.slab == NULL)
        return host_slab;
    if (key.kind != SC_STORE_HOST_ROWS) {
        host_slab.bytes = sc_host_tier_bytes(store->host, host_slab.slab);
        host_slab.row_at = host_slab.v_at = row * shape->k_row_bytes;
        return host_slab;
    }
    uint64_t begin = tags_bytes(shape, rows);
    bool is_split = shape->layout == SC_STORE_SPLIT;
    host_slab.bytes = sc_host_tier_bytes(store->host, host_slab.slab);
    host_slab.tag_at = row * shape->tags_per_row * 8;
    host_slab.row_at = begin + row * (is_split ? shape->k_row_bytes : shape->row_bytes);
    host_slab.v_at = host_slab.row_at + rows * shape->k_row_bytes;
    SC_ASSERT(store->params.poison, sc_host_tier_rows(host_slab.slab) == rows);
    return host_slab;
}

struct sc_host_chunk sc_host_chunk_of(const struct sc_store *store, uint32_t layer, uint64_t copy,
                                      uint64_t row_count, uint64_t slot, uint32_t wanted)
{
    uint64_t rows = store->params.config->chunk_tokens, first = slot - slot % rows;
    uint32_t kind = wanted == SC_STORE_WANT_K   ? SC_STORE_HOST_SLOTS_K
                    : wanted == SC_STORE_WANT_V ? SC_STORE_HOST_SLOTS_V
                                                : SC_STORE_HOST_SLOTS;
    return (struct sc_host_chunk){
        .key = {.copy = copy, .first = (uint32_t)first, .layer = layer, .kind = kind},
        .first = first,
        .end = first + rows < row_count ? first + rows : row_count};
}

struct sc_host_slab sc_host_chunk_get(const struct sc_store *store,
                                      const struct sc_host_chunk *chunk)
{
    struct sc_host_slab host_slab = {0};
    struct sc_host_tier_key key = chunk->key;
    if (store->host == NULL)
        return host_slab;
    if (key.kind != SC_STORE_HOST_SLOTS && !sc_host_tier_has(store->host, &key))
        key.kind = SC_STORE_HOST_SLOTS; /* whole rows serve halves too */
    host_slab.slab = sc_host_tier_find(store->host, &key, &host_slab.tier);
    if (host_slab.slab == NULL)
        return host_slab;
    host_slab.bytes = sc_host_tier_bytes(store->host, host_slab.slab);
    if (key.kind == SC_STORE_HOST_SLOTS)
        host_slab.v_at = (chunk->end - chunk->first) * store->shape.k_row_bytes;
    SC_ASSERT(store->params.poison, sc_host_tier_rows(host_slab.slab) == chunk->end - chunk->first);
    return host_slab;
}

bool sc_host_chunk_has(const struct sc_store *store, const struct sc_host_chunk *chunk)
{
    struct sc_host_tier_key key = chunk->key;
    key.kind = SC_STORE_HOST_SLOTS;
    return sc_host_tier_has(store->host, &chunk->key) || sc_host_tier_has(store->host, &key);
}

bool sc_host_slab_has(const struct sc_store *store, uint32_t layer,
                      const struct sc_store_range *range, uint32_t wanted)
{
    const struct sc_store_piece_entry *piece;
    struct sc_host_tier_key key;
    if (store->host == NULL || !key_set(store, layer, range, &key, &piece))
        return false;
    struct sc_host_tier_key half = key;
    half.kind = kind_of(wanted);
    return sc_host_tier_has(store->host, &key) ||
           (wanted != SC_STORE_WANT_ROWS && sc_host_tier_has(store->host, &half));
}

bool sc_host_slab_wish(const struct sc_store *store, uint32_t layer,
                       const struct sc_store_range *range, struct sc_host_slab_wish *ret_wish)
{
    const struct sc_store_piece_entry *piece;
    *ret_wish =
        (struct sc_host_slab_wish){.piece = range->piece,
                                   .bytes = sc_host_slab_bytes(&store->shape, range->row_count),
                                   .row_count = range->row_count,
                                   .ops = 1};
    return key_set(store, layer, range, &ret_wish->key, &piece);
}

bool sc_host_slab_keep(const struct sc_store *store, const struct sc_host_slab_wish *wish,
                       uint64_t keeper)
{
    sc_host_tier_expire(store->host, sc_exec_now_ns(store->params.exec));
    return sc_host_tier_keep(store->host, &wish->key, keeper);
}

void sc_host_slab_forget(const struct sc_store *store, uint32_t layer,
                         const struct sc_store_range *range)
{
    static const uint32_t KINDS[] = {SC_STORE_HOST_ROWS, SC_STORE_HOST_K, SC_STORE_HOST_V};
    const struct sc_store_piece_entry *piece;
    struct sc_host_tier_key key;
    if (store->host == NULL || !key_set(store, layer, range, &key, &piece))
        return;
    for (uint32_t i = 0; i < sizeof(KINDS) / sizeof(KINDS[0]); i++) {
        key.kind = KINDS[i];
        sc_host_tier_forget(store->host, &key);
    }
}

void sc_host_slab_forget_tags(const struct sc_store *store, uint32_t layer,
                              const struct sc_store_range *range)
{
    const struct sc_store_piece_entry *piece;
    struct sc_host_tier_key key;
    if (store->host == NULL || !key_set(store, layer, range, &key, &piece))
        return;
    for (uint32_t kind = SC_STORE_HOST_QUANT; kind <= SC_STORE_HOST_TAGS; kind++) {
        key = key_of_kind(store, piece, layer, kind);
        sc_host_tier_forget(store->host, &key);
    }
}

void sc_host_slab_piece_gone(const struct sc_store *store, const struct sc_store_piece_entry *piece)
{
    const struct sc_store_extent_entry *extent =
        sc_store_table_extent(&store->table, piece->extent);
    struct sc_host_tier_key key;
    for (uint32_t kind = SC_STORE_HOST_ROWS; kind <= SC_STORE_HOST_V; kind++) {
        key = key_of_kind(store, piece, 0, kind);
        sc_host_tier_forget_layers(store->host, &key);
    }
    if (atomic_load(&extent->live_count) > 0 || !chunks_key(extent, &key))
        return;
    for (; key.kind <= SC_STORE_HOST_SLOTS_V; key.kind++)
        sc_host_tier_forget_layers(store->host, &key);
}

/* ---- Filling --------------------------------------------------------------------------------- */

/* Returns the time to read the slab again. Expires kept slabs first, which makes room. */
static uint64_t cost_of(const struct sc_store *store, uint64_t bytes, uint32_t ops)
{
    struct sc_store_device device;
    sc_store_device(store, &device);
    sc_host_tier_expire(store->host, sc_exec_now_ns(store->params.exec));
    return ops * device.op_ns + (uint64_t)((double)bytes * 1e9 / (double)device.bytes_per_s);
}

static void fill_set(const struct sc_store *store, struct sc_host_slab_fill *fill,
                     const struct sc_host_tier_key *key, uint64_t piece, uint64_t row_count)
{
    fill->bytes = fill->slab != NULL ? sc_host_tier_bytes(store->host, fill->slab) : NULL;
    fill->row_count = row_count;
    fill->piece = piece;
    fill->rows_given = 0;
    fill->key = *key;
}

bool sc_host_slab_slab_begin(const struct sc_store *store, struct sc_host_slab_fill *fill,
                             const struct sc_host_tier_key *key, uint64_t piece, uint64_t row_count,
                             uint64_t bytes, uint32_t ops)
{
    fill->slab = sc_host_tier_begin(store->host, key, (uint32_t)row_count, bytes,
                                    cost_of(store, bytes, ops));
    fill_set(store, fill, key, piece, row_count);
    return fill->slab != NULL;
}

enum sc_host_tier_begun sc_host_slab_begin_kept(const struct sc_store *store,
                                                struct sc_host_slab_fill *fill,
                                                const struct sc_host_slab_wish *wish,
                                                uint64_t keeper)
{
    enum sc_host_tier_begun begun =
        sc_host_tier_begin_kept(store->host, &wish->key, wish->row_count, wish->bytes,
                                cost_of(store, wish->bytes, wish->ops), keeper, &fill->slab);
    fill_set(store, fill, &wish->key, wish->piece, wish->row_count);
    return begun;
}

struct sc_host_tier_memory_slab *sc_host_slab_begin_stored(const struct sc_store *store,
                                                           const struct sc_host_tier_key *key,
                                                           uint64_t row_count)
{
    uint64_t bytes = sc_host_slab_bytes(&store->shape, row_count);
    return sc_host_tier_begin_stored(store->host, key, (uint32_t)row_count, bytes,
                                     cost_of(store, bytes, 1));
}

void sc_host_slab_begin(const struct sc_store *store, struct sc_host_slab_fill *fill,
                        uint32_t layer, const struct sc_store_range *range, uint32_t wanted,
                        uint64_t rows_used)
{
    const struct sc_store_piece_entry *piece;
    struct sc_host_tier_key key;
    SC_ASSERT(store->params.poison, fill->slab == NULL);
    if (store->host == NULL || !key_set(store, layer, range, &key, &piece) ||
        range->row_first != piece->skip ||
        range->row_count != (uint32_t)(piece->row_count - piece->skip))
        return;
    uint64_t bytes = wanted == SC_STORE_WANT_ROWS
                         ? sc_host_slab_bytes(&store->shape, range->row_count)
                         : range->row_count * store->shape.k_row_bytes;
    key.kind = kind_of(wanted);
    fill->slab = sc_host_tier_begin_used(store->host, &key, range->row_count, bytes,
                                         cost_of(store, bytes, 1), rows_used);
    fill_set(store, fill, &key, range->piece, range->row_count);
}

void sc_host_slab_put(const struct sc_store *store, const struct sc_host_slab_fill *fill,
                      uint64_t row, uint64_t count, const uint64_t *tags, const uint8_t *rows,
                      const uint8_t *v)
{
    const struct sc_store_shape *shape = &store->shape;
    bool is_split = shape->layout == SC_STORE_SPLIT;
    uint64_t bytes = is_split ? shape->k_row_bytes : shape->row_bytes;
    uint64_t tag_bytes = (uint64_t)shape->tags_per_row * 8;
    if (fill->slab == NULL)
        return;
    if (fill->key.kind != SC_STORE_HOST_ROWS) {
        memcpy(fill->bytes + row * bytes, rows, count * bytes);
        return;
    }
    uint8_t *dst = fill->bytes + tags_bytes(shape, fill->row_count);
    memcpy(fill->bytes + row * tag_bytes, tags, count * tag_bytes);
    memcpy(dst + row * bytes, rows, count * bytes);
    if (is_split)
        memcpy(dst + (fill->row_count + row) * bytes, v, count * bytes);
}

void sc_host_chunk_begin(const struct sc_store *store, struct sc_host_slab_fill *fill,
                         const struct sc_host_chunk *chunk, uint64_t piece, uint64_t rows_used)
{
    const struct sc_store_shape *shape = &store->shape;
    bool is_half = chunk->key.kind != SC_STORE_HOST_SLOTS;
    uint64_t count = chunk->end - chunk->first;
    uint64_t bytes = count * (is_half ? shape->k_row_bytes : shape->row_bytes);
    SC_ASSERT(store->params.poison, fill->slab == NULL);
    if (store->host == NULL)
        return;
    fill->slab = sc_host_tier_begin_used(store->host, &chunk->key, (uint32_t)count, bytes,
                                         cost_of(store, bytes, 1), rows_used);
    fill_set(store, fill, &chunk->key, piece, count);
}

void sc_host_chunk_put(const struct sc_store *store, struct sc_host_slab_fill *fill, uint64_t count,
                       const uint8_t *rows, const uint8_t *v)
{
    const struct sc_store_shape *shape = &store->shape;
    bool is_split = shape->layout == SC_STORE_SPLIT;
    uint64_t bytes = is_split ? shape->k_row_bytes : shape->row_bytes;
    if (fill->slab == NULL)
        return;
    memcpy(fill->bytes + fill->rows_given * bytes, rows, count * bytes);
    if (is_split && fill->key.kind == SC_STORE_HOST_SLOTS)
        memcpy(fill->bytes + (fill->row_count + fill->rows_given) * bytes, v, count * bytes);
    fill->rows_given += count;
}

void sc_host_slab_end(const struct sc_store *store, struct sc_host_slab_fill *fill, bool is_whole)
{
    if (fill->slab != NULL && is_whole) {
        sc_host_tier_publish(store->host, fill->slab);
        /* A piece is voided first and then forgotten, so one of the two sides sees the other. */
        if (sc_store_table_live(&store->table, fill->piece) == NULL)
            sc_host_tier_forget(store->host, &fill->key);
    } else if (fill->slab != NULL) {
        sc_host_tier_abandon(store->host, fill->slab);
    }
    fill->slab = NULL;
}

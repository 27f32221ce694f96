/* key_table: search, insertion and removal. */
#include "hashing/key_table.h"

#define XXH_INLINE_ALL
#include <string.h>
#include <xxhash.h>

#define LINE_SLOTS  8u /* the header and 7 slots */
#define LINES_MIN   64u
#define WINDOW      32u /* keys that are prefetched together */
#define FULL_OF_100 70u /* linked entries per 100 slots above which the table grows */
#define UNITS       (SC_KEY_ARENA_BYTES / 8)

/* ---- Keys ----------------------------------------------------------------------------------- */

static uint64_t key_hash(const struct sc_key_table *table, uint32_t space, const uint8_t *key,
                         uint32_t key_bytes)
{
    uint64_t hash = XXH3_64bits_withSecret(key, key_bytes, table->secret, SC_KEY_SECRET_BYTES);
    hash ^= (uint64_t)space * 0x9E3779B97F4A7C15ull;
    return hash ^ hash >> 29;
}

static const _Atomic uint64_t *key_words(const struct sc_key_table *table, uint64_t ref)
{
    uint64_t unit = ref >> 16;
    return (const _Atomic uint64_t *)(const void *)(table->arenas[unit / UNITS] + unit % UNITS * 8);
}

/* Compares a stored key. Words may change meanwhile; the caller checks the entry's word after
 * it. */
static bool key_equals(const struct sc_key_table *table, uint64_t ref, const uint8_t *key,
                       uint32_t key_bytes)
{
    if ((ref & 0xFFFF) != key_bytes)
        return false;
    const _Atomic uint64_t *words = key_words(table, ref);
    uint64_t differ = 0, wanted;
    uint32_t at = 0;
    for (; at + 8 <= key_bytes; at += 8) {
        memcpy(&wanted, key + at, 8);
        differ |= wanted ^ atomic_load_explicit(&words[at / 8], memory_order_acquire);
    }
    if (at < key_bytes) {
        wanted = 0;
        memcpy(&wanted, key + at, key_bytes - at);
        differ |= wanted ^ atomic_load_explicit(&words[at / 8], memory_order_acquire);
    }
    return differ == 0;
}

/* Allocates and writes a key; UINT64_MAX: no memory. */
static uint64_t key_take(struct sc_key_table *table, const uint8_t *key, uint32_t key_bytes)
{
    uint32_t units = (key_bytes + 7) / 8;
    uint64_t unit;
    if (table->key_free[units] != 0) {
        unit = table->key_free[units] - 1;
        const _Atomic uint64_t *first = key_words(table, unit << 16);
        table->key_free[units] = (uint32_t)atomic_load_explicit(first, memory_order_relaxed);
    } else {
        if (table->arena_count == 0 || table->arena_used + units > UNITS) {
            uint8_t *arena = NULL;
            bool fits = table->arena_count < SC_KEY_ARENAS_MAX;
            if (fits)
                arena = sc_alloc_zero(table->alloc, SC_KEY_ARENA_BYTES);
            table->lacks_memory = fits && arena == NULL;
            if (arena == NULL)
                return UINT64_MAX;
            table->arenas[table->arena_count++] = arena;
            table->bytes += SC_KEY_ARENA_BYTES;
            table->arena_used = 0;
        }
        unit = (uint64_t)(table->arena_count - 1) * UNITS + table->arena_used;
        table->arena_used += units;
    }
    _Atomic uint64_t *words = (_Atomic uint64_t *)(uintptr_t)key_words(table, unit << 16);
    for (uint32_t at = 0; at < key_bytes; at += 8) {
        uint64_t word = 0;
        memcpy(&word, key + at, key_bytes - at < 8 ? key_bytes - at : 8);
        atomic_store_explicit(&words[at / 8], word, memory_order_release);
    }
    return unit;
}

static void key_give(struct sc_key_table *table, uint64_t ref)
{
    uint32_t units = (uint32_t)((ref & 0xFFFF) + 7) / 8;
    _Atomic uint64_t *first = (_Atomic uint64_t *)(uintptr_t)key_words(table, ref);
    atomic_store_explicit(first, table->key_free[units], memory_order_release);
    table->key_free[units] = (uint32_t)(ref >> 16) + 1;
}

uint32_t sc_key_table_key(const struct sc_key_table *table, uint32_t id,
                          uint8_t ret_key[SC_KEY_BYTES_MAX])
{
    uint64_t ref = atomic_load_explicit(&sc_key_table_entry(table, id)->key, memory_order_relaxed);
    uint32_t key_bytes = (uint32_t)(ref & 0xFFFF);
    const _Atomic uint64_t *words = key_words(table, ref);
    for (uint32_t at = 0; at < key_bytes; at += 8) {
        uint64_t word = atomic_load_explicit(&words[at / 8], memory_order_relaxed);
        memcpy(ret_key + at, &word, key_bytes - at < 8 ? key_bytes - at : 8);
    }
    return key_bytes;
}

/* ---- Lines ---------------------------------------------------------------------------------- */

static struct sc_key_lines *lines_make(struct sc_key_table *table, uint64_t count)
{
    uint64_t bytes = count * LINE_SLOTS * sizeof(uint64_t);
    struct sc_key_lines *lines = sc_alloc_zero(table->alloc, sizeof(*lines));
    void *memory = lines != NULL ? sc_alloc_huge(table->alloc, bytes) : NULL;
    table->lacks_memory = memory == NULL;
    if (table->lacks_memory) {
        sc_alloc_free(table->alloc, lines);
        return NULL;
    }
    memset(memory, 0, bytes);
    lines->mask = count - 1;
    lines->lines = memory;
    table->bytes += bytes;
    return lines;
}

static uint64_t slot_of(uint64_t hash, uint32_t id)
{
    return hash >> 32 << 32 | id;
}

/* Puts the entry into the first line with a free slot, from the hash's own line on. */
static void line_put(const struct sc_key_lines *lines, uint64_t hash, uint32_t id)
{
    for (uint64_t at = hash & lines->mask;; at = (at + 1) & lines->mask) {
        _Atomic uint64_t *line = lines->lines[at];
        for (uint32_t s = 1; s < LINE_SLOTS; s++) {
            if (atomic_load_explicit(&line[s], memory_order_relaxed) != 0)
                continue;
            atomic_store_explicit(&line[s], slot_of(hash, id), memory_order_release);
            return;
        }
        atomic_fetch_add_explicit(&line[0], 1, memory_order_relaxed);
    }
}

static void line_remove(const struct sc_key_table *table, uint64_t hash, uint32_t id)
{
    const struct sc_key_lines *lines = atomic_load_explicit(&table->lines, memory_order_relaxed);
    for (uint64_t at = hash & lines->mask;; at = (at + 1) & lines->mask) {
        _Atomic uint64_t *line = lines->lines[at];
        for (uint32_t s = 1; s < LINE_SLOTS; s++) {
            if (atomic_load_explicit(&line[s], memory_order_relaxed) != slot_of(hash, id))
                continue;
            atomic_store_explicit(&line[s], 0, memory_order_release);
            return;
        }
        SC_ASSERT(table->poison, atomic_load_explicit(&line[0], memory_order_relaxed) > 0);
        atomic_fetch_sub_explicit(&line[0], 1, memory_order_release);
    }
}

/* Replaces the table by one with twice the lines. Readers of the old one find what it had. */
static bool lines_grow(struct sc_key_table *table)
{
    struct sc_key_lines *old = atomic_load_explicit(&table->lines, memory_order_relaxed);
    struct sc_key_lines *lines = lines_make(table, (old->mask + 1) * 2);
    if (lines == NULL)
        return false;
    for (uint64_t at = 0; at <= old->mask; at++)
        for (uint32_t s = 1; s < LINE_SLOTS; s++) {
            uint64_t slot = atomic_load_explicit(&old->lines[at][s], memory_order_relaxed);
            if (slot != 0)
                line_put(lines, sc_key_table_entry(table, (uint32_t)slot)->hash, (uint32_t)slot);
        }
    lines->older = old;
    atomic_store_explicit(&table->lines, lines, memory_order_release);
    return true;
}

static bool lines_have_room(struct sc_key_table *table)
{
    struct sc_key_lines *lines = atomic_load_explicit(&table->lines, memory_order_relaxed);
    uint64_t slots = (lines->mask + 1) * (LINE_SLOTS - 1);
    if ((table->linked_count + 1ull) * 100 <= slots * FULL_OF_100)
        return true;
    return lines_grow(table) || (table->linked_count + 1ull) * 100 <= slots * 90;
}

/* ---- Search --------------------------------------------------------------------------------- */

/* Returns the entry's state if it has this key, and holds it if LIVE; FREE: another key, or
 * left. */
static enum sc_key_state entry_look(const struct sc_key_table *table, uint32_t id,
                                    const struct sc_key_batch *batch, const uint8_t *key,
                                    uint32_t key_bytes, uint64_t *ret_bytes)
{
    struct sc_key_entry *entry = sc_key_table_entry(table, id);
    uint64_t word = atomic_load_explicit(&entry->word, memory_order_acquire);
    enum sc_key_state state = (enum sc_key_state)(word & 3);
    if (state != SC_KEY_LIVE && state != SC_KEY_PENDING)
        return SC_KEY_FREE;
    if (atomic_load_explicit(&entry->space, memory_order_acquire) != batch->space ||
        !key_equals(table, atomic_load_explicit(&entry->key, memory_order_acquire), key, key_bytes))
        return SC_KEY_FREE;
    *ret_bytes = atomic_load_explicit(&entry->value_bytes, memory_order_acquire);
    if (state == SC_KEY_LIVE && batch->hold_ns > 0) {
        uint64_t held = atomic_load_explicit(&entry->hold_ns, memory_order_relaxed);
        while (held < batch->hold_ns &&
               !atomic_compare_exchange_weak(&entry->hold_ns, &held, batch->hold_ns))
            ;
        if (held >= batch->hold_ns) /* also ordered with the evicting thread if already held */
            (void)atomic_fetch_add(&entry->hold_ns, 0);
    }
    return atomic_load(&entry->word) == word ? state : SC_KEY_FREE;
}

/* Returns the first entry from line *at and slot *from on whose slot has the hash's upper half, and
 * moves both behind it; 0: none. */
static uint32_t lines_next(const struct sc_key_lines *lines, uint64_t hash, uint64_t *at,
                           uint32_t *from)
{
    for (uint64_t n = 0; n <= lines->mask; n++) {
        _Atomic uint64_t *line = lines->lines[*at & lines->mask];
        for (uint32_t s = *from; s < LINE_SLOTS; s++) {
            uint64_t slot = atomic_load_explicit(&line[s], memory_order_acquire);
            if (slot != 0 && slot >> 32 == hash >> 32) {
                *from = s + 1;
                return (uint32_t)slot;
            }
        }
        if (atomic_load_explicit(&line[0], memory_order_acquire) == 0)
            return 0;
        *from = 1;
        ++*at;
    }
    return 0;
}

/* Continues the search behind a candidate with another key. */
static enum sc_key_state look_on(const struct sc_key_table *table, const struct sc_key_lines *lines,
                                 const struct sc_key_batch *batch, const uint8_t *key,
                                 uint32_t key_bytes, uint64_t hash, uint64_t *ret_bytes)
{
    uint64_t at = hash & lines->mask;
    uint32_t from = 1, id;
    while ((id = lines_next(lines, hash, &at, &from)) != 0) {
        enum sc_key_state state = entry_look(table, id, batch, key, key_bytes, ret_bytes);
        if (state != SC_KEY_FREE)
            return state;
    }
    return SC_KEY_FREE;
}

struct window {
    const uint8_t *keys[WINDOW];
    uint32_t key_bytes[WINDOW];
    uint64_t hashes[WINDOW];
    uint32_t ids[WINDOW]; /* first candidate; 0: none */
};

/* Hashes the keys and prefetches the memory of the search, level by level. */
static void window_fetch(const struct sc_key_table *table, const struct sc_key_lines *lines,
                         uint32_t space, struct window *window, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        window->hashes[i] = key_hash(table, space, window->keys[i], window->key_bytes[i]);
        __builtin_prefetch((const void *)(uintptr_t)lines->lines[window->hashes[i] & lines->mask]);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint64_t at = window->hashes[i] & lines->mask;
        uint32_t from = 1;
        window->ids[i] = lines_next(lines, window->hashes[i], &at, &from);
        if (window->ids[i] != 0)
            __builtin_prefetch(sc_key_table_entry(table, window->ids[i]));
    }
    for (uint32_t i = 0; i < count; i++) {
        if (window->ids[i] == 0)
            continue;
        uint64_t ref = atomic_load_explicit(&sc_key_table_entry(table, window->ids[i])->key,
                                            memory_order_acquire);
        const uint8_t *words = (const uint8_t *)(uintptr_t)key_words(table, ref);
        __builtin_prefetch(words);
        if (window->key_bytes[i] > 64)
            __builtin_prefetch(words + 64);
    }
}

static void found_put(struct sc_key_found *found, uint64_t i, enum sc_key_state state,
                      uint64_t bytes)
{
    if (found->states != NULL)
        found->states[i] = (int8_t)state;
    if (found->bytes != NULL)
        found->bytes[i] = state == SC_KEY_LIVE ? bytes : 0;
}

void sc_key_table_look(const struct sc_key_table *table, const struct sc_key_batch *batch,
                       struct sc_key_found *ret_found)
{
    const struct sc_key_lines *lines = atomic_load_explicit(&table->lines, memory_order_acquire);
    const uint8_t *key = batch->data;
    struct window window;
    uint32_t count;
    bool leads = true;
    ret_found->leading = ret_found->live = 0;
    for (uint32_t first = 0; first < batch->count; first += count) {
        count = batch->count - first < WINDOW ? batch->count - first : WINDOW;
        for (uint32_t i = 0; i < count; i++) {
            window.keys[i] = key;
            window.key_bytes[i] =
                batch->lengths != NULL ? batch->lengths[first + i] : batch->key_bytes;
            key += window.key_bytes[i];
        }
        if (leads || !batch->stops)
            window_fetch(table, lines, batch->space, &window, count);
        for (uint32_t i = 0; i < count; i++) {
            enum sc_key_state state = SC_KEY_FREE;
            uint64_t bytes = 0;
            if ((leads || !batch->stops) && window.ids[i] != 0) {
                state = entry_look(table, window.ids[i], batch, window.keys[i], window.key_bytes[i],
                                   &bytes);
                if (state == SC_KEY_FREE)
                    state = look_on(table, lines, batch, window.keys[i], window.key_bytes[i],
                                    window.hashes[i], &bytes);
            }
            leads = leads && state == SC_KEY_LIVE;
            state = leads || !batch->stops ? state : SC_KEY_FREE;
            ret_found->leading += leads;
            ret_found->live += state == SC_KEY_LIVE;
            found_put(ret_found, first + i, state, bytes);
        }
    }
}

void sc_key_table_use(const struct sc_key_table *table, uint32_t space, const uint8_t *key,
                      uint32_t key_bytes, uint32_t tick)
{
    const struct sc_key_lines *lines = atomic_load_explicit(&table->lines, memory_order_acquire);
    const struct sc_key_batch batch = {.space = space};
    uint64_t hash = key_hash(table, space, key, key_bytes), at = hash & lines->mask, bytes;
    uint32_t from = 1, id;
    while ((id = lines_next(lines, hash, &at, &from)) != 0)
        if (entry_look(table, id, &batch, key, key_bytes, &bytes) == SC_KEY_LIVE)
            atomic_store_explicit(&sc_key_table_entry(table, id)->used, tick, memory_order_relaxed);
}

uint32_t sc_key_table_find(const struct sc_key_table *table, uint32_t space, const uint8_t *key,
                           uint32_t key_bytes)
{
    const struct sc_key_lines *lines = atomic_load_explicit(&table->lines, memory_order_relaxed);
    uint64_t hash = key_hash(table, space, key, key_bytes), at = hash & lines->mask;
    uint32_t from = 1, id;
    while ((id = lines_next(lines, hash, &at, &from)) != 0) {
        const struct sc_key_entry *entry = sc_key_table_entry(table, id);
        if (atomic_load_explicit(&entry->space, memory_order_relaxed) == space &&
            key_equals(table, atomic_load_explicit(&entry->key, memory_order_relaxed), key,
                       key_bytes))
            return id;
    }
    return 0;
}

/* ---- Entries -------------------------------------------------------------------------------- */

static void state_set(struct sc_key_entry *entry, enum sc_key_state state)
{
    uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);
    atomic_store(&entry->word, (word >> 2 << 2) | (uint64_t)state);
}

static uint32_t entry_take(struct sc_key_table *table)
{
    uint32_t id = table->free_first;
    if (id != 0) {
        table->free_first = sc_key_table_entry(table, id)->next_free;
        return id;
    }
    id = table->entry_end;
    uint32_t slab = id / SC_KEY_SLAB;
    uint64_t bytes = SC_KEY_SLAB * sizeof(struct sc_key_entry);
    if (slab == SC_KEY_SLABS_MAX)
        return 0;
    if (table->slabs[slab] == NULL) {
        table->slabs[slab] = sc_alloc_zero(table->alloc, bytes);
        table->lacks_memory = table->slabs[slab] == NULL;
        if (table->lacks_memory)
            return 0;
        table->bytes += bytes;
    }
    table->entry_end++;
    return id;
}

static void entry_give(struct sc_key_table *table, uint32_t id)
{
    sc_key_table_entry(table, id)->next_free = table->free_first;
    table->free_first = id;
}

/* Returns an entry's memory; two slots, since lines are not full. */
static uint64_t entry_bytes(const struct sc_key_table *table, uint32_t key_bytes)
{
    return sizeof(struct sc_key_entry) + 2 * sizeof(uint64_t) + (key_bytes + 7) / 8 * 8 +
           table->owner_bytes;
}

uint32_t sc_key_table_add(struct sc_key_table *table, uint32_t space, const uint8_t *key,
                          uint32_t key_bytes)
{
    SC_ASSERT(table->poison, key_bytes > 0 && key_bytes <= SC_KEY_BYTES_MAX);
    table->lacks_memory = false;
    uint64_t bytes = entry_bytes(table, key_bytes);
    bool fits = table->used_bytes + bytes <= table->bytes_max && lines_have_room(table);
    uint32_t id = fits ? entry_take(table) : 0;
    uint64_t unit = id != 0 ? key_take(table, key, key_bytes) : UINT64_MAX;
    if (unit == UINT64_MAX) {
        if (id != 0)
            entry_give(table, id);
        return 0;
    }
    struct sc_key_entry *entry = sc_key_table_entry(table, id);
    entry->hash = key_hash(table, space, key, key_bytes);
    entry->is_linked = 1;
    atomic_store_explicit(&entry->hold_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->value_bytes, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->used, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->space, space, memory_order_release);
    atomic_store_explicit(&entry->key, unit << 16 | key_bytes, memory_order_release);
    state_set(entry, SC_KEY_PENDING);
    line_put(atomic_load_explicit(&table->lines, memory_order_relaxed), entry->hash, id);
    table->linked_count++;
    table->used_bytes += bytes;
    return id;
}

void sc_key_table_publish(struct sc_key_table *table, uint32_t id, uint64_t value_bytes,
                          uint32_t used)
{
    struct sc_key_entry *entry = sc_key_table_entry(table, id);
    SC_ASSERT(table->poison, sc_key_entry_state(entry) == SC_KEY_PENDING);
    atomic_store_explicit(&entry->value_bytes, value_bytes, memory_order_relaxed);
    atomic_store_explicit(&entry->used, used, memory_order_relaxed);
    state_set(entry, SC_KEY_LIVE);
}

bool sc_key_table_leave(struct sc_key_table *table, uint32_t id, uint64_t now_ns)
{
    struct sc_key_entry *entry = sc_key_table_entry(table, id);
    SC_ASSERT(table->poison, sc_key_entry_state(entry) == SC_KEY_LIVE);
    if (atomic_load(&entry->hold_ns) > now_ns)
        return false; /* no search missed it meanwhile */
    state_set(entry, SC_KEY_LEAVING);
    if (atomic_load(&entry->hold_ns) <= now_ns)
        return true;
    state_set(entry, SC_KEY_LIVE);
    return false;
}

void sc_key_table_expel(struct sc_key_table *table, uint32_t id)
{
    (void)table;
    state_set(sc_key_table_entry(table, id), SC_KEY_LEAVING);
}

void sc_key_table_unlink(struct sc_key_table *table, uint32_t id)
{
    struct sc_key_entry *entry = sc_key_table_entry(table, id);
    SC_ASSERT(table->poison, entry->is_linked != 0 && sc_key_entry_state(entry) == SC_KEY_LEAVING);
    line_remove(table, entry->hash, id);
    entry->is_linked = 0;
    table->linked_count--;
}

void sc_key_table_free(struct sc_key_table *table, uint32_t id)
{
    struct sc_key_entry *entry = sc_key_table_entry(table, id);
    SC_ASSERT(table->poison, entry->is_linked == 0);
    uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);
    atomic_store(&entry->word, ((word >> 2) + 1) << 2 | SC_KEY_FREE);
    uint64_t ref = atomic_load_explicit(&entry->key, memory_order_relaxed);
    table->used_bytes -= entry_bytes(table, (uint32_t)(ref & 0xFFFF));
    key_give(table, ref);
    entry_give(table, id);
}

/* ---- Open and close ------------------------------------------------------------------------- */

void sc_key_secret_make(const uint8_t *secret, uint64_t bytes,
                        uint8_t ret_secret[SC_KEY_SECRET_BYTES])
{
    for (uint32_t i = 0; i < SC_KEY_SECRET_BYTES; i += 8) {
        uint64_t word = XXH3_64bits_withSeed(secret, bytes, i + 1);
        memcpy(ret_secret + i, &word, 8);
    }
}

bool sc_key_table_init(struct sc_key_table *table, struct sc_alloc *alloc, struct sc_poison *poison,
                       const uint8_t secret[SC_KEY_SECRET_BYTES], uint64_t bytes_max,
                       uint64_t owner_bytes)
{
    *table = (struct sc_key_table){.alloc = alloc,
                                   .poison = poison,
                                   .bytes_max = bytes_max,
                                   .owner_bytes = owner_bytes,
                                   .entry_end = 1};
    memcpy(table->secret, secret, SC_KEY_SECRET_BYTES);
    table->slabs = sc_alloc_array(alloc, SC_KEY_SLABS_MAX, sizeof(*table->slabs));
    table->arenas = sc_alloc_array(alloc, SC_KEY_ARENAS_MAX, sizeof(*table->arenas));
    struct sc_key_lines *lines = lines_make(table, LINES_MIN);
    atomic_store_explicit(&table->lines, lines, memory_order_relaxed);
    return table->slabs != NULL && table->arenas != NULL && lines != NULL;
}

void sc_key_table_done(struct sc_key_table *table)
{
    if (table->alloc == NULL)
        return;
    struct sc_key_lines *lines = atomic_load_explicit(&table->lines, memory_order_relaxed);
    while (lines != NULL) {
        struct sc_key_lines *older = lines->older;
        sc_alloc_free(table->alloc, lines->lines);
        sc_alloc_free(table->alloc, lines);
        lines = older;
    }
    for (uint32_t i = 0; table->slabs != NULL && i < SC_KEY_SLABS_MAX; i++)
        sc_alloc_free(table->alloc, table->slabs[i]);
    for (uint32_t i = 0; i < table->arena_count; i++)
        sc_alloc_free(table->alloc, table->arenas[i]);
    sc_alloc_free(table->alloc, table->slabs);
    sc_alloc_free(table->alloc, table->arenas);
    *table = (struct sc_key_table){0};
}

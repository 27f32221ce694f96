/* radix_memory: slabs of runs, hash tables, and epochs for reuse.
 *
 *   arena (to 8 MiB):       | slab | slab | slab | ...      in huge pages: a lookup of 50,000
 *                                                           tokens touches 1,600 places, and TLB
 *                                                           misses were half of its time
 *   slab (64 KiB or more):  | slot | slot | slot | ...      all of one size class
 *   limbo[epoch % 3]:       unlinked in that epoch; reused when the epoch is two further
 *
 * Invariants: `bytes` counts every allocation and stays <= bytes_max. An empty slab returns to its
 * arena at once, an empty arena to the allocator: no reader can have an id into it, since its runs
 * passed limbo before.
 * Threads: writer, except enter and leave. */
#include "hashing/radix_internal.h"

#include <string.h>
#include <sys/mman.h>

#define HUGE_BYTES (UINT64_C(2) << 20) /* x86-64 and arm64 with 4 KiB pages */
#ifdef MADV_POPULATE_WRITE
#define TOUCH_ADVICE MADV_POPULATE_WRITE
#else
#define TOUCH_ADVICE 23 /* Linux 5.14; others refuse it */
#endif
#define EXPECT_SHARE 16u /* part of bytes_max that expect may take */
#define PAGE_BYTES   4096u
#define LINE_BYTES   64u
#define SLOTS_AHEAD  4u  /* slots of a slab to prefetch */
#define REHASH_AHEAD 16u /* entries: a power of two */

/* Advises huge pages for large blocks, unless they are the host's memory. */
static void *take_memory(const struct sc_radix *index, uint64_t bytes, bool is_zero)
{
    bool is_huge = index->alloc->host_alloc == NULL && bytes >= HUGE_BYTES;
    uint64_t align_bytes = is_huge ? HUGE_BYTES : LINE_BYTES;
    void *memory = is_zero ? sc_alloc_zero_aligned(index->alloc, bytes, align_bytes)
                           : sc_alloc_aligned(index->alloc, bytes, align_bytes);
    if (is_huge && memory != NULL)
        (void)madvise(memory, bytes / HUGE_BYTES * HUGE_BYTES, MADV_HUGEPAGE);
    return memory;
}

static void *take_counted(struct sc_radix *index, uint64_t bytes, bool is_zero)
{
    uint64_t used = sc_counted(&index->bytes);
    if (bytes > index->bytes_max || used > index->bytes_max - bytes)
        return NULL;
    void *memory = take_memory(index, bytes, is_zero);
    if (memory == NULL)
        return NULL;
    sc_radix_tally(&index->bytes, (int64_t)bytes);
    return memory;
}

void *sc_radix_memory_take(struct sc_radix *index, uint64_t bytes)
{
    return take_counted(index, bytes, true);
}

void sc_radix_memory_give(struct sc_radix *index, void *memory, uint64_t bytes)
{
    if (memory == NULL)
        return;
    SC_ASSERT(index->poison, sc_counted(&index->bytes) >= bytes);
    sc_radix_tally(&index->bytes, -(int64_t)bytes);
    sc_alloc_free(index->alloc, memory);
}

/* ---- slabs --------------------------------------------------------------------------------- */

static void partial_add(struct sc_radix *index, uint32_t number)
{
    struct sc_radix_slab *slab = &index->slabs[number];
    slab->prev = 0;
    slab->next = index->partial[slab->granules];
    if (slab->next != 0)
        index->slabs[slab->next].prev = number;
    index->partial[slab->granules] = number;
}

static void partial_drop(struct sc_radix *index, uint32_t number)
{
    struct sc_radix_slab *slab = &index->slabs[number];
    if (slab->prev != 0)
        index->slabs[slab->prev].next = slab->next;
    else
        index->partial[slab->granules] = slab->next;
    if (slab->next != 0)
        index->slabs[slab->next].prev = slab->prev;
}

static uint32_t slab_slots(const struct sc_radix *index, uint32_t granules)
{
    return (uint32_t)(index->slab_bytes / ((uint64_t)granules * SC_RADIX_GRANULE_BYTES));
}

static void arena_list_add(struct sc_radix *index, uint32_t number)
{
    struct sc_radix_arena *arena = &index->arenas[number];
    arena->prev = 0;
    arena->next = index->arena_partial;
    if (arena->next != 0)
        index->arenas[arena->next].prev = number;
    index->arena_partial = number;
}

static void arena_list_drop(struct sc_radix *index, uint32_t number)
{
    struct sc_radix_arena *arena = &index->arenas[number];
    if (arena->prev != 0)
        index->arenas[arena->prev].next = arena->next;
    else
        index->arena_partial = arena->next;
    if (arena->next != 0)
        index->arenas[arena->next].prev = arena->prev;
}

/* ---- a spare -------------------------------------------------------------------------------- */

static uint64_t arena_bytes(const struct sc_radix *index)
{
    return index->arena_slabs * index->slab_bytes;
}

/* The last quarter of bytes_max is for immediate needs. */
bool sc_radix_spare_take(struct sc_radix *index, struct sc_radix_spare *ret_spare)
{
    if (!index->spare_wanted)
        return false;
    uint64_t used = sc_counted(&index->bytes);
    index->spare_wanted = false;
    if (index->alloc->host_alloc == NULL && used + arena_bytes(index) <= index->bytes_max / 4 * 3)
        index->spare = take_counted(index, arena_bytes(index), false);
    *ret_spare = (struct sc_radix_spare){index->spare, arena_bytes(index)};
    return index->spare != NULL;
}

/* Faults in one huge page at a time, so that other threads can map memory in between. */
void sc_radix_spare_touch(const struct sc_radix_spare *spare)
{
    unsigned char *memory = spare->memory;
    for (uint64_t at = 0; at < spare->bytes; at += HUGE_BYTES) {
        uint64_t left = spare->bytes - at;
        if (madvise(memory + at, left < HUGE_BYTES ? left : HUGE_BYTES, TOUCH_ADVICE) != 0)
            return;
    }
}

static unsigned char *arena_memory(struct sc_radix *index)
{
    unsigned char *memory = index->spare;
    index->spare = NULL;
    index->spare_wanted = index->arena_fresh > 1 && arena_bytes(index) >= HUGE_BYTES;
    return memory != NULL ? memory : take_counted(index, arena_bytes(index), false);
}

/* ---- arenas -------------------------------------------------------------------------------- */

/* Returns an arena with a free slab; 0: none. */
static uint32_t arena_open(struct sc_radix *index)
{
    uint32_t number = index->arena_partial;
    if (number != 0)
        return number;
    number = index->arena_free;
    if (number == 0 && index->arena_fresh == index->arena_count_max)
        return 0;
    unsigned char *memory = arena_memory(index);
    if (memory == NULL)
        return 0;
    if (number != 0)
        index->arena_free = index->arenas[number].next;
    else
        number = ++index->arena_fresh;
    index->arenas[number] = (struct sc_radix_arena){.used = 0};
    atomic_store_explicit(&index->directory[number], memory, memory_order_relaxed);
    for (uint32_t i = index->arena_slabs; i-- > 0;) { /* the first is used first */
        uint32_t slab = number * index->arena_slabs + i;
        index->slabs[slab] = (struct sc_radix_slab){.next = index->arenas[number].free_slab};
        index->arenas[number].free_slab = slab;
    }
    arena_list_add(index, number);
    return number;
}

static void arena_close(struct sc_radix *index, uint32_t number)
{
    arena_list_drop(index, number);
    sc_radix_memory_give(index,
                         atomic_load_explicit(&index->directory[number], memory_order_relaxed),
                         arena_bytes(index));
    atomic_store_explicit(&index->directory[number], NULL, memory_order_relaxed);
    index->arenas[number] = (struct sc_radix_arena){.next = index->arena_free};
    index->arena_free = number;
}

/* Returns a new slab of the class, listed as partial; 0: none. */
static uint32_t slab_open(struct sc_radix *index, uint32_t granules)
{
    uint32_t arena_number = arena_open(index);
    if (arena_number == 0)
        return 0;
    struct sc_radix_arena *arena = &index->arenas[arena_number];
    uint32_t number = arena->free_slab;
    arena->free_slab = index->slabs[number].next;
    arena->used++;
    if (arena->free_slab == 0)
        arena_list_drop(index, arena_number);
    index->slabs[number] = (struct sc_radix_slab){.granules = granules};
    partial_add(index, number);
    return number;
}

static void slab_close(struct sc_radix *index, uint32_t number)
{
    uint32_t arena_number = number / index->arena_slabs;
    struct sc_radix_arena *arena = &index->arenas[arena_number];
    partial_drop(index, number);
    if (arena->free_slab == 0)
        arena_list_add(index, arena_number);
    index->slabs[number] = (struct sc_radix_slab){.next = arena->free_slab};
    arena->free_slab = number;
    arena->used--;
    if (arena->used == 0)
        arena_close(index, arena_number);
}

/* Prefetches the slot SLOTS_AHEAD further: an insertion writes all of it, and it is not cached. */
static void slot_soon(const struct sc_radix_node *node, uint32_t granules)
{
    uint64_t slot_bytes = (uint64_t)granules * SC_RADIX_GRANULE_BYTES;
    uintptr_t soon = (uintptr_t)node + SLOTS_AHEAD * slot_bytes;
    for (uint64_t at = 0; at < slot_bytes; at += LINE_BYTES)
        __builtin_prefetch((const void *)(soon + at), 1);
}

uint32_t sc_radix_node_alloc(struct sc_radix *index, uint32_t length, bool marked)
{
    uint32_t bytes = SC_RADIX_HEADER_BYTES + 4 * length + (marked ? SC_SHA256_BYTES : 0);
    uint32_t granules = (bytes + SC_RADIX_GRANULE_BYTES - 1) / SC_RADIX_GRANULE_BYTES;
    SC_ASSERT(index->poison, length <= index->chunk_tokens);
    uint32_t number = index->partial[granules];
    if (number == 0)
        number = slab_open(index, granules);
    if (number == 0)
        return 0;
    struct sc_radix_slab *slab = &index->slabs[number];
    uint32_t id = slab->free_id;
    struct sc_radix_node *node;
    if (id != 0) {
        node = sc_radix_node_at(index, id);
        slab->free_id = node->waiting_next;
    } else {
        id = number << index->granule_bits | slab->fresh++ * granules;
        node = sc_radix_node_at(index, id);
        slot_soon(node, granules);
    }
    slab->used++;
    if (slab->used == slab_slots(index, granules))
        partial_drop(index, number);
    memset(node, 0, sizeof(*node));
    index->generation += index->generation == UINT32_MAX ? 2 : 1;
    node->generation = index->generation;
    node->length = (uint16_t)(length | (marked ? SC_RADIX_MARKED : 0));
    return id;
}

void sc_radix_node_free(struct sc_radix *index, uint32_t id)
{
    if (id == 0)
        return;
    uint32_t number = id >> index->granule_bits;
    struct sc_radix_slab *slab = &index->slabs[number];
    SC_ASSERT(index->poison, slab->used != 0);
    struct sc_radix_node *node = sc_radix_node_at(index, id);
    if (slab->used == slab_slots(index, slab->granules))
        partial_add(index, number);
    node->generation = 0;
    node->waiting_next = slab->free_id;
    slab->free_id = id;
    slab->used--;
    if (slab->used == 0)
        slab_close(index, number);
}

struct sc_radix_node *sc_radix_node_of(const struct sc_radix *index, struct sc_radix_ref ref)
{
    uint32_t number = ref.id >> index->granule_bits;
    uint32_t granule = ref.id & ((UINT32_C(1) << index->granule_bits) - 1);
    if (ref.generation == 0 || number < index->arena_slabs ||
        number / index->arena_slabs > index->arena_fresh)
        return NULL;
    const struct sc_radix_slab *slab = &index->slabs[number];
    if (slab->granules == 0 || granule % slab->granules != 0 ||
        granule / slab->granules >= slab->fresh)
        return NULL;
    struct sc_radix_node *node = sc_radix_node_at(index, ref.id);
    if (node->generation != ref.generation)
        return NULL;
    uint32_t pins = atomic_load_explicit(&node->pins, memory_order_relaxed);
    return (pins & SC_RADIX_DEAD) != 0 ? NULL : node;
}

/* ---- tables -------------------------------------------------------------------------------- */

struct sc_radix_table *sc_radix_table_new(struct sc_radix *index, uint64_t slots)
{
    struct sc_radix_table *table =
        sc_radix_memory_take(index, sizeof(*table) + slots * sizeof(table->slots[0]));
    if (table == NULL)
        return NULL;
    table->mask = slots - 1;
    /* Slots are read before they are written, all over the table. A page that was only read costs a
     * second fault when it is written. */
    for (uint64_t at = 0; at < slots; at += PAGE_BYTES / sizeof(table->slots[0]))
        atomic_store_explicit(&table->slots[at], 0, memory_order_relaxed);
    return table;
}

uint64_t sc_radix_table_bytes(const struct sc_radix_table *table)
{
    return sizeof(*table) + (table->mask + 1) * sizeof(table->slots[0]);
}

void sc_radix_node_key(const struct sc_radix_node *node, struct sc_radix_key *ret_key)
{
    uint64_t up = atomic_load_explicit(&node->up, memory_order_relaxed);
    ret_key->parent = sc_radix_up_parent(up);
    ret_key->token = node->tokens[sc_radix_up_cut(up)];
    ret_key->mark = (struct sc_sha256){{0}};
    ret_key->marked = sc_radix_node_mark(node, up, &ret_key->mark);
}

static uint64_t slot_word(uint64_t hash, uint32_t id)
{
    return (hash & UINT64_C(0xffffffff00000000)) | id;
}

void sc_radix_table_put(struct sc_radix_table *table, uint64_t hash, uint32_t id)
{
    uint64_t at = hash & table->mask;
    for (;;) {
        uint32_t there = (uint32_t)atomic_load_explicit(&table->slots[at], memory_order_relaxed);
        if (there == 0 || there == SC_RADIX_TOMBSTONE) {
            table->filled += there == 0 ? 1 : 0;
            table->live++;
            atomic_store_explicit(&table->slots[at], slot_word(hash, id), memory_order_release);
            return;
        }
        at = (at + 1) & table->mask;
    }
}

static uint64_t slot_of(const struct sc_radix_table *table, uint64_t hash, uint32_t id)
{
    uint64_t at = hash & table->mask;
    for (uint64_t probe = 0; probe <= table->mask; probe++) {
        uint64_t word = atomic_load_explicit(&table->slots[at], memory_order_relaxed);
        if (word == slot_word(hash, id))
            return at;
        if ((uint32_t)word == 0)
            break;
        at = (at + 1) & table->mask;
    }
    return UINT64_MAX;
}

void sc_radix_table_replace(struct sc_radix_table *table, uint64_t hash, uint32_t id,
                            uint32_t new_id)
{
    uint64_t at = slot_of(table, hash, id);
    SC_ASSERT(NULL, at != UINT64_MAX);
    if (at != UINT64_MAX)
        atomic_store(&table->slots[at], slot_word(hash, new_id));
}

void sc_radix_table_remove(struct sc_radix_table *table, uint64_t hash, uint32_t id)
{
    uint64_t at = slot_of(table, hash, id);
    SC_ASSERT(NULL, at != UINT64_MAX);
    if (at == UINT64_MAX)
        return;
    table->live--;
    uint64_t after =
        atomic_load_explicit(&table->slots[(at + 1) & table->mask], memory_order_relaxed);
    if ((uint32_t)after != 0) {
        atomic_store(&table->slots[at], SC_RADIX_TOMBSTONE);
        return;
    }
    /* No probe passes an empty slot, so this one and the tombstones before it become empty. */
    atomic_store(&table->slots[at], 0);
    table->filled--;
    for (;;) {
        at = (at - 1) & table->mask;
        uint64_t word = atomic_load_explicit(&table->slots[at], memory_order_relaxed);
        if ((uint32_t)word != SC_RADIX_TOMBSTONE)
            return;
        atomic_store(&table->slots[at], 0);
        table->filled--;
    }
}

static uint64_t entry_hash(const struct sc_radix *index, bool is_chunks, uint32_t id)
{
    const struct sc_radix_node *node = sc_radix_node_at(index, id);
    if (is_chunks)
        return sc_radix_chunk_hash(node->hash);
    struct sc_radix_key key;
    sc_radix_node_key(node, &key);
    return sc_radix_key_hash(&key);
}

/* Copies the entries; prefetches their runs, which are all over memory. */
static void table_copy(const struct sc_radix *index, const struct sc_radix_table *old,
                       bool is_chunks, struct sc_radix_table *new_table)
{
    uint32_t ids[REHASH_AHEAD] = {0};
    for (uint64_t at = 0; at <= old->mask + REHASH_AHEAD; at++) {
        uint32_t *id = &ids[at % REHASH_AHEAD];
        if (*id != 0)
            sc_radix_table_put(new_table, entry_hash(index, is_chunks, *id), *id);
        *id = 0;
        if (at > old->mask)
            continue;
        *id = (uint32_t)atomic_load_explicit(&old->slots[at], memory_order_relaxed);
        if (*id == SC_RADIX_TOMBSTONE)
            *id = 0;
        if (*id != 0)
            __builtin_prefetch((const void *)sc_radix_address(index, *id));
    }
}

bool sc_radix_table_reserve(struct sc_radix *index, struct sc_radix_table *_Atomic *table,
                            uint64_t more)
{
    struct sc_radix_table *old = atomic_load_explicit(table, memory_order_relaxed);
    if ((old->filled + more) * 4 <= (old->mask + 1) * 3)
        return true;
    uint64_t slots = SC_RADIX_TABLE_SLOTS_MIN;
    while ((old->live + more) * 8 > slots * 5)
        slots *= 2;
    struct sc_radix_table *new_table = sc_radix_table_new(index, slots);
    if (new_table == NULL)
        return false;
    table_copy(index, old, table == &index->chunks, new_table);
    SC_ASSERT(index->poison, new_table->live == old->live);
    atomic_store(table, new_table);
    uint64_t epoch = atomic_load_explicit(&index->epoch, memory_order_relaxed);
    old->retired_next = index->limbo[epoch % 3].tables;
    index->limbo[epoch % 3].tables = old;
    return true;
}

void sc_radix_expect(struct sc_radix *index, uint64_t run_count)
{
    uint64_t slots_max = index->bytes_max / EXPECT_SHARE / sizeof(_Atomic uint64_t);
    /* The table gets the next power of two above 8/5: less than four times run_count slots. */
    uint64_t run_count_max = slots_max / 4;
    (void)sc_radix_table_reserve(index, &index->chunks,
                                 run_count < run_count_max ? run_count : run_count_max);
}

/* ---- epochs -------------------------------------------------------------------------------- */

void sc_radix_node_retire(struct sc_radix *index, uint32_t id)
{
    uint64_t epoch = atomic_load_explicit(&index->epoch, memory_order_relaxed);
    struct sc_radix_node *node = sc_radix_node_at(index, id);
    node->waiting_next = index->limbo[epoch % 3].nodes;
    index->limbo[epoch % 3].nodes = id;
}

uint32_t sc_radix_reader_enter(struct sc_radix *index)
{
    unsigned char here;
    uint64_t start = ((uint64_t)(uintptr_t)&here >> 12) * UINT64_C(0x9e3779b97f4a7c15) >> 40;
    for (uint32_t i = 0; i < SC_RADIX_READERS_MAX; i++) {
        uint32_t place = (uint32_t)((start + i) % SC_RADIX_READERS_MAX);
        uint64_t nobody = 0;
        uint64_t epoch = atomic_load(&index->epoch);
        if (atomic_compare_exchange_strong(&index->readers[place].epoch, &nobody, epoch))
            return place;
    }
    return UINT32_MAX;
}

void sc_radix_reader_leave(struct sc_radix *index, uint32_t place)
{
    atomic_store_explicit(&index->readers[place].epoch, 0, memory_order_release);
}

static bool all_at(const struct sc_radix *index, uint64_t epoch)
{
    for (uint32_t i = 0; i < SC_RADIX_READERS_MAX; i++) {
        uint64_t announced = atomic_load(&index->readers[i].epoch);
        if (announced != 0 && announced != epoch)
            return false;
    }
    return true;
}

static void limbo_free(struct sc_radix *index, struct sc_radix_limbo *limbo)
{
    while (limbo->nodes != 0) {
        uint32_t id = limbo->nodes;
        limbo->nodes = sc_radix_node_at(index, id)->waiting_next;
        sc_radix_node_free(index, id);
    }
    while (limbo->tables != NULL) {
        struct sc_radix_table *table = limbo->tables;
        limbo->tables = table->retired_next;
        sc_radix_memory_give(index, table, sc_radix_table_bytes(table));
    }
}

static bool limbo_empty(const struct sc_radix *index)
{
    for (uint32_t i = 0; i < 3; i++) {
        if (index->limbo[i].nodes != 0 || index->limbo[i].tables != NULL)
            return false;
    }
    return true;
}

void sc_radix_reclaim(struct sc_radix *index)
{
    for (uint32_t i = 0; i < 3 && !limbo_empty(index); i++) {
        uint64_t epoch = atomic_load_explicit(&index->epoch, memory_order_relaxed);
        if (!all_at(index, epoch))
            return;
        atomic_store(&index->epoch, epoch + 1);
        limbo_free(index, &index->limbo[(epoch + 2) % 3]); /* unlinked in epoch - 1 */
    }
}

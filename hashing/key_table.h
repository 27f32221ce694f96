/* key_table: a hash table from (space, key bytes) to entries, searched without a lock.
 *
 *   lines    [header | slot 1 .. slot 7] ...   64 bytes, power of two many
 *   header   number of entries that were searched for here and placed in a later line
 *   slot     upper half of the hash u32 | entry number u32; 0: free
 *   entries  slabs of 4,096 x 64 bytes         numbers from 1
 *   keys     arena of 1 MiB slabs, in units of 8 bytes, zero-padded; free lists by length
 *
 *   state    FREE -> PENDING -> LIVE <-> LEAVING -> FREE (next generation)
 *
 * A search continues to the next line only while the header is not 0, so removal needs no
 * tombstones. Keys and spaces are compared by value. The hash is keyed by a secret, so nobody can
 * choose colliding keys.
 *
 * Readers are not counted. So memory of entries and keys stays allocated while the table exists. A
 * table that a larger one replaced is kept, too; together they take at most as much again. A reader
 * loads an entry's word, compares the key, writes the hold, and loads the word again; a freed entry
 * has another generation. The evicting thread sets LEAVING before it reads the hold, so one of the
 * two sees the other. An entry that is already held stays LIVE throughout.
 *
 * Invariants: a key has at most one linked entry; entries do not move.
 * Threads: look and use: any. All others: one at a time (the owner's lock).
 * Tests: tests/unit/hashing/test_key_table.c, test_key_table_threads.c */
#ifndef SC_HASHING_KEY_TABLE_H
#define SC_HASHING_KEY_TABLE_H

#include "base/alloc.h"
#include "base/assert.h"

#define SC_KEY_SECRET_BYTES 192u
#define SC_KEY_BYTES_MAX    1024u
#define SC_KEY_SLAB         4096u        /* entries */
#define SC_KEY_SLABS_MAX    16384u       /* 64 M entries */
#define SC_KEY_ARENA_BYTES  (1ull << 20) /* bytes of a slab of keys */
#define SC_KEY_ARENAS_MAX   16384u       /* 16 GiB of keys */
#define SC_KEY_UNITS_MAX    (SC_KEY_BYTES_MAX / 8)

enum sc_key_state { SC_KEY_FREE, SC_KEY_LIVE, SC_KEY_PENDING, SC_KEY_LEAVING };

struct sc_key_entry {
    _Atomic uint64_t word;        /* generation << 2 | enum sc_key_state */
    _Atomic uint64_t hold_ns;     /* time until which it is not evicted; the caller's clock */
    _Atomic uint64_t key;         /* first unit in the arena << 16 | bytes */
    _Atomic uint64_t value_bytes; /* set by the caller; constant while LIVE */
    uint64_t hash;                /* written by the owner */
    _Atomic uint32_t space;
    _Atomic uint32_t used; /* caller's tick of the last use; relaxed */
    uint32_t next_free;    /* written by the owner */
    uint32_t is_linked;    /* written by the owner: it has a slot */
    uint64_t reserved;
};

struct sc_key_lines {
    struct sc_key_lines *older;
    uint64_t mask; /* lines - 1 */
    _Atomic uint64_t (*lines)[8];
};

struct sc_key_table {
    struct sc_alloc *alloc;
    struct sc_poison *poison;
    uint8_t secret[SC_KEY_SECRET_BYTES]; /* constant after init */
    uint64_t bytes_max, owner_bytes;
    struct sc_key_lines *_Atomic lines; /* the newest */
    struct sc_key_entry **slabs;        /* [SC_KEY_SLABS_MAX]; set before an entry is published */
    uint8_t **arenas;                   /* [SC_KEY_ARENAS_MAX] as slabs */
    /* Written by the owner. */
    uint64_t bytes;      /* memory of the table, and of the owner's additions */
    uint64_t used_bytes; /* entries that are not free, with the owner's memory per entry */
    uint32_t entry_end;  /* end of the numbers in use */
    uint32_t linked_count;
    uint32_t free_first; /* 0: none */
    uint32_t arena_count;
    bool lacks_memory;                       /* why add returned 0; false: bytes_max */
    uint64_t arena_used;                     /* units in use in the last arena */
    uint32_t key_free[SC_KEY_UNITS_MAX + 1]; /* by units: first free unit + 1; 0: none */
};

/* Keys of a search, packed one after another. */
struct sc_key_batch {
    const uint8_t *data;
    const uint32_t *lengths; /* [count]; NULL: all have key_bytes */
    uint32_t key_bytes, count, space;
    bool stops;       /* stop at the first key that is not LIVE */
    uint64_t hold_ns; /* hold LIVE entries until then; 0: no hold */
};
/* Results of a search. States are FREE, LIVE or PENDING; arrays may be NULL. */
struct sc_key_found {
    int8_t *states;  /* [count] */
    uint64_t *bytes; /* [count] value_bytes of LIVE keys, else 0 */
    uint64_t leading, live;
};

/* Derives a table's secret from a shorter one. */
void sc_key_secret_make(const uint8_t *secret, uint64_t bytes,
                        uint8_t ret_secret[SC_KEY_SECRET_BYTES]);
/* Initialises the table. add refuses when used_bytes would exceed bytes_max. Memory follows the
 * peak use; a freed key's memory is reused for keys of its length only. owner_bytes: the owner's
 * memory per entry. False: no memory; done frees what was allocated. */
bool sc_key_table_init(struct sc_key_table *table, struct sc_alloc *alloc, struct sc_poison *poison,
                       const uint8_t secret[SC_KEY_SECRET_BYTES], uint64_t bytes_max,
                       uint64_t owner_bytes);
void sc_key_table_done(struct sc_key_table *table);

/* Searches a batch. Any thread; never blocks. */
void sc_key_table_look(const struct sc_key_table *table, const struct sc_key_batch *batch,
                       struct sc_key_found *ret_found);

/* Sets the tick of the last use of a LIVE key. Any thread; never blocks. */
void sc_key_table_use(const struct sc_key_table *table, uint32_t space, const uint8_t *key,
                      uint32_t key_bytes, uint32_t tick);

/* ---- The owner's calls ---------------------------------------------------------------------- */

/* Returns the linked entry of a key, LIVE or PENDING; 0: none. */
uint32_t sc_key_table_find(const struct sc_key_table *table, uint32_t space, const uint8_t *key,
                           uint32_t key_bytes);
/* Links a new PENDING entry of a key that has none. 0: bytes_max, or no memory (lacks_memory). */
uint32_t sc_key_table_add(struct sc_key_table *table, uint32_t space, const uint8_t *key,
                          uint32_t key_bytes);
/* PENDING -> LIVE. */
void sc_key_table_publish(struct sc_key_table *table, uint32_t id, uint64_t value_bytes,
                          uint32_t used);
/* LIVE -> LEAVING. Returns false, and leaves it LIVE, if its hold is later than now_ns. Only
 * entries that were not held before may be missed by searches meanwhile. */
bool sc_key_table_leave(struct sc_key_table *table, uint32_t id, uint64_t now_ns);
/* LIVE or PENDING -> LEAVING, despite holds. */
void sc_key_table_expel(struct sc_key_table *table, uint32_t id);
/* Removes a LEAVING entry's slot. */
void sc_key_table_unlink(struct sc_key_table *table, uint32_t id);
/* Frees the number of an unlinked entry for reuse. */
void sc_key_table_free(struct sc_key_table *table, uint32_t id);
/* Copies the key of an entry that is not FREE; returns its length in bytes. */
uint32_t sc_key_table_key(const struct sc_key_table *table, uint32_t id,
                          uint8_t ret_key[SC_KEY_BYTES_MAX]);

static inline struct sc_key_entry *sc_key_table_entry(const struct sc_key_table *table, uint32_t id)
{
    return &table->slabs[id / SC_KEY_SLAB][id % SC_KEY_SLAB];
}

static inline enum sc_key_state sc_key_entry_state(const struct sc_key_entry *entry)
{
    return (enum sc_key_state)(atomic_load_explicit(&entry->word, memory_order_acquire) & 3);
}

#endif

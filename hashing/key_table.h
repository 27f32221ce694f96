/* key_table: a hash table from (space, key bytes) to entries, searched without a lock.
 *
 *   lines    [header | slot 1 .. slot 7] ...   64 bytes, power of two many
 *   header   entries whose place was searched for here and found in a later line
 *   slot     upper half of the hash u32 | entry number u32; 0: free
 *   entries  slabs of 4,096 x 64 bytes         numbers from 1
 *   keys     arena of 1 MiB slabs, in units of 8 bytes, zero-padded; free lists by length; where
 *            bytes_max allows no more and much is free of other lengths, all keys move together
 *
 *   state    FREE -> PENDING -> LIVE <-> LEAVING -> FREE (next generation)
 *
 * A search goes on to the next line only while the header is not 0, so removal needs no tombstones.
 * Keys and spaces are compared by value. The hash takes a secret, so nobody can choose keys that
 * collide.
 *
 * Readers are not counted, so memory of entries and keys is never returned while the table lives,
 * and a table that was replaced by a larger one is kept (together at most as much again). A reader
 * loads an entry's word, compares the key, writes the hold, and loads the word again: an entry that
 * was freed meanwhile has another generation. Whoever evicts sets LEAVING first and looks at the
 * hold then, so that one of the two sees the other.
 *
 * Holds: a key has at most one linked entry; entries do not move.
 * Does not: lock, decide what to evict, do I/O, read a clock.
 * Threads: look from any; all else by one thread at a time (the owner's lock).
 * Tests: tests/unit/hashing/test_key_table.c */
#ifndef SC_HASHING_KEY_TABLE_H
#define SC_HASHING_KEY_TABLE_H

#include "base/alloc.h"
#include "base/assert.h"

#define SC_KEY_SECRET_BYTES 192u
#define SC_KEY_BYTES_MAX    1024u
#define SC_KEY_SLAB         4096u        /* entries */
#define SC_KEY_SLABS_MAX    16384u       /* 64 M entries */
#define SC_KEY_ARENA_BYTES  (1ull << 20) /* of a slab of keys */
#define SC_KEY_ARENAS_MAX   16384u       /* 16 GiB of keys */
#define SC_KEY_UNITS_MAX    (SC_KEY_BYTES_MAX / 8)

enum sc_key_state { SC_KEY_FREE, SC_KEY_LIVE, SC_KEY_PENDING, SC_KEY_LEAVING };

struct sc_key_entry {
    _Atomic uint64_t word;        /* generation << 2 | enum sc_key_state */
    _Atomic uint64_t hold_ns;     /* not evicted before; the caller's clock */
    _Atomic uint64_t key;         /* first unit in the arena << 16 | bytes */
    _Atomic uint64_t value_bytes; /* the caller's; constant while LIVE */
    uint64_t hash;                /* the owner's */
    _Atomic uint32_t space;
    _Atomic uint32_t used; /* the caller's tick of the last use; relaxed */
    uint32_t next_free;    /* the owner's */
    uint32_t is_linked;    /* the owner's: it has a slot */
    uint64_t reserved;
};

struct sc_key_lines { /* one table of lines */
    struct sc_key_lines *older;
    uint64_t mask; /* lines - 1 */
    _Atomic uint64_t (*lines)[8];
};

struct sc_key_table {
    struct sc_alloc *alloc;
    struct sc_poison *poison;
    uint8_t secret[SC_KEY_SECRET_BYTES]; /* constant after init */
    uint64_t bytes_max;
    struct sc_key_lines *_Atomic lines; /* the newest */
    struct sc_key_entry **slabs;        /* [SC_KEY_SLABS_MAX]; set before an entry is published */
    uint8_t **arenas;                   /* [SC_KEY_ARENAS_MAX] likewise */
    /* The owner's. */
    uint64_t bytes;     /* memory of all of it */
    uint32_t entry_end; /* numbers in use are below */
    uint32_t linked_count;
    uint32_t free_first; /* 0: none */
    uint32_t arena_count;
    uint32_t arena_at;                       /* that is being filled; those behind it are empty */
    uint64_t arena_used;                     /* units of that one */
    uint64_t void_units;                     /* of it and those before: nobody's */
    uint32_t key_free[SC_KEY_UNITS_MAX + 1]; /* by units: first free unit + 1; 0: none */
};

/* Keys of a search, packed one behind another. */
struct sc_key_batch {
    const uint8_t *data;
    const uint32_t *lengths; /* [count]; NULL: all have key_bytes */
    uint32_t key_bytes, count, space;
    bool stops;       /* at the first key that is not LIVE */
    uint64_t hold_ns; /* what is LIVE is held until then; 0: it is not */
};
/* Results of a search. state: enum sc_key_state, FREE, LIVE or PENDING; members may be NULL. */
struct sc_key_found {
    int8_t *states;  /* [count] */
    uint64_t *bytes; /* [count] value_bytes of LIVE keys, else 0 */
    uint64_t leading, live;
};

/* A table's secret from a shorter one. */
void sc_key_secret_make(const uint8_t *secret, uint64_t bytes,
                        uint8_t ret_secret[SC_KEY_SECRET_BYTES]);
/* bytes_max: add refuses beyond it. false: no memory; done frees what there is. */
bool sc_key_table_init(struct sc_key_table *table, struct sc_alloc *alloc, struct sc_poison *poison,
                       const uint8_t secret[SC_KEY_SECRET_BYTES], uint64_t bytes_max);
void sc_key_table_done(struct sc_key_table *table);

/* Searches a batch. Any thread; no lock, no wait. */
void sc_key_table_look(const struct sc_key_table *table, const struct sc_key_batch *batch,
                       struct sc_key_found *ret_found);

/* Sets the tick of the last use, if the key is LIVE. Any thread; no lock, no wait. */
void sc_key_table_use(const struct sc_key_table *table, uint32_t space, const uint8_t *key,
                      uint32_t key_bytes, uint32_t tick);

/* ---- The owner's calls ---------------------------------------------------------------------- */

/* The linked entry of a key, LIVE or PENDING; 0: none. */
uint32_t sc_key_table_find(const struct sc_key_table *table, uint32_t space, const uint8_t *key,
                           uint32_t key_bytes);
/* Links a new PENDING entry; the key has none. 0: no memory, or bytes_max. */
uint32_t sc_key_table_add(struct sc_key_table *table, uint32_t space, const uint8_t *key,
                          uint32_t key_bytes);
/* PENDING -> LIVE. */
void sc_key_table_publish(struct sc_key_table *table, uint32_t id, uint64_t value_bytes,
                          uint32_t used);
/* LIVE -> LEAVING, unless its hold is later than now_ns: then false, and it is LIVE again. */
bool sc_key_table_leave(struct sc_key_table *table, uint32_t id, uint64_t now_ns);
/* LIVE or PENDING -> LEAVING whatever holds it. */
void sc_key_table_expel(struct sc_key_table *table, uint32_t id);
/* It is not found any more. LEAVING. */
void sc_key_table_unlink(struct sc_key_table *table, uint32_t id);
/* The number may be given again. Unlinked. */
void sc_key_table_free(struct sc_key_table *table, uint32_t id);
/* Copies the key of an entry that is not FREE; returns its bytes. */
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

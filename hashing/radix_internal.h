/* radix_internal: the index's structures, for its files and tests only.
 *
 *   id (32 bit):  arena number | slab inside it | granule (32 bytes) inside that      0: none
 *
 *   run in a slab:   header 96 | tokens 4 x length | mark digest 32, if any; a size class per 32
 *   root:            header 96 | its 32 bytes                    (in place of the mark)
 *
 *   split at 3:      before   parent ----------------> C [cut 0]  0 1 2 3 4 5 6 7
 *                    after    parent --> U  0 1 2 ---> C [cut 3]  . . . 3 4 5 6 7
 *
 * Readers and the writer share it without locks:
 * - A run's tokens, hash and length never change after it is published. A split changes one 64-bit
 *   word of C, `up`: parent, cut and hidden, so that one load is one state. Piece and row of a run
 *   are one word too, which sc_radix_move changes.
 * - U is complete before C.up names it. A reader that finds C by an old entry and sees another
 *   parent than expected climbs to U.
 * - Links (tables, first_child, up) are loaded and unlinked sequentially consistent: a reader that
 *   has announced its epoch sees every unlink that the writer did before it looked at the readers.
 *   New links are released: a reader that sees the link sees the run.
 * - Unlinked memory is reused two epochs later. The epoch advances only when every reader inside
 *   has announced the newest one.
 * - A pin is a count in the run. The writer closes it (SC_RADIX_DEAD) by compare-and-swap from 0,
 *   so either the pin or the removal wins.
 *
 * Invariants: a child is in the children's table, or is its parent's first_child, or both.
 * Threads: as marked at the members. */
#ifndef SC_HASHING_RADIX_INTERNAL_H
#define SC_HASHING_RADIX_INTERNAL_H

#include "base/counter.h"
#include "base/policy.h"
#include "hashing/radix.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>

#define SC_RADIX_GRANULE_BYTES   32u
#define SC_RADIX_SLAB_BYTES_MIN  (64u << 10)
#define SC_RADIX_SLABS_MAX       65536u
#define SC_RADIX_ARENA_BYTES_MAX (8u << 20) /* four huge pages */
#define SC_RADIX_ARENA_SHARE     256u /* an arena is at most 1/128 of bytes_max, or one slab */
#define SC_RADIX_HEADER_BYTES    96u
#define SC_RADIX_CLASSES                                                                           \
    ((SC_RADIX_HEADER_BYTES + 4u * SC_CHAIN_CHUNK_TOKENS_MAX + SC_SHA256_BYTES) /                  \
         SC_RADIX_GRANULE_BYTES +                                                                  \
     2u)
#define SC_RADIX_TABLE_SLOTS_MIN 64u
#define SC_RADIX_TOMBSTONE       UINT32_MAX
#define SC_RADIX_DEAD            0x80000000u /* in pins */
#define SC_RADIX_MARKED          0x8000u     /* in length: a mark digest follows the tokens */
#define SC_RADIX_HIDDEN          (UINT64_C(1) << 48) /* in up */
#define SC_RADIX_JOINED          (UINT64_C(1) << 63) /* in value */
#define SC_RADIX_ROWS_MAX        (UINT32_C(1) << 31) /* of a piece */
#define SC_RADIX_AHEAD           16u
#define SC_RADIX_TRIES           4u   /* attempts of one match */
#define SC_RADIX_ROOTS_KNOWN     256u /* remembered roots of runs: a power of two */

enum sc_radix_flag {
    SC_RADIX_IN_CHUNKS = 1,
    SC_RADIX_IN_CHILDREN = 2,
    SC_RADIX_IS_ROOT = 4,
    SC_RADIX_DOOMED = 8,   /* top of a waiting removal */
    SC_RADIX_NEWER = 16,   /* root in the list of findable ones */
    SC_RADIX_OLD = 32,     /* root in the list of those being cleared */
    SC_RADIX_DOUBTED = 64, /* another prefix may have its chain hash */
    SC_RADIX_MOVED = 128,  /* run whose piece sc_radix_move changed */
    /* 8..10: heap of leaves */
};

#define SC_RADIX_HEAPS      8u /* one per priority, lowest first; then retained leaves */
#define SC_RADIX_HEAP_KEPT  7u
#define SC_RADIX_HEAP_USUAL 3u
#define SC_RADIX_HEAP_SHIFT 8u

/* Leaves by `listed`, lowest first. Writer. */
struct sc_radix_heap {
    uint32_t *ids; /* [capacity]; NULL: its leaves are in the usual heap */
    uint64_t count, capacity;
};

struct sc_radix_node {
    /* Constant while a reader can see the run. */
    struct sc_hash hash; /* chain hash at the end; root: first half of its 32 bytes */

    /* Piece 0..31 | row of tokens[0] 32..62 | joined to the run above 63. Stored by the writer. */
    _Atomic uint64_t value;
    _Atomic uint64_t up; /* parent 0..31 | cut 32..47 | hidden 48; stored by the writer */

    _Atomic uint32_t pins; /* any thread */
    /* Constant while a reader can see the run. */
    uint32_t generation;
    uint32_t base_first; /* position of tokens[0] */
    uint16_t length;     /* length of tokens[] | SC_RADIX_MARKED */

    uint16_t flags; /* writer */

    _Atomic uint32_t value_flags; /* stored by the writer, relaxed */

    _Atomic uint32_t first_child; /* stored by the writer */

    /* Writer. */
    uint32_t next, prev; /* siblings (the parent's first_child is the head); roots of a list */
    uint32_t leaf_at;    /* position in its heap of leaves + 1; 0: not in one */

    _Atomic uint32_t
        hint; /* priority 0..2 | end of retention 8..31 (radix_hint.c); any thread, relaxed */

    _Atomic uint64_t rank; /* the lowest leaf is evicted first (base/policy.h); any thread,
                            * relaxed */

    /* Writer. */
    uint64_t listed;       /* rank under which its heap has it; a root's number */
    uint32_t waiting_next; /* waiting removals; retired runs */

    /* Prefetch hint: a run SC_RADIX_AHEAD chunks below, or 0; it may be removed by now. */
    _Atomic uint32_t ahead;
    uint32_t tokens[];
};
_Static_assert(sizeof(struct sc_radix_node) == SC_RADIX_HEADER_BYTES, "128 bytes a chunk hold");

/* Open addressing, linear probing, tombstones: no entry moves. */
struct sc_radix_table {
    uint64_t mask;   /* slots - 1 */
    uint64_t live;   /* writer */
    uint64_t filled; /* writer: live and tombstones */
    struct sc_radix_table *retired_next;
    _Atomic uint64_t slots[]; /* fingerprint 32..63 | id 0..31 */
};

struct sc_radix_slab {
    uint32_t granules; /* size of a slot; 0: the slab is free */
    uint32_t used;
    uint32_t fresh;      /* slots used at least once */
    uint32_t free_id;    /* list through waiting_next */
    uint32_t next, prev; /* slabs of the class with free slots, or free slabs */
};

struct sc_radix_arena {
    uint32_t used;       /* slabs in use */
    uint32_t free_slab;  /* list through next */
    uint32_t next, prev; /* arenas with free slabs, or free numbers */
};

/* A present or former secret. Readers may still hash with it, so it stays until close. */
struct sc_radix_secrets {
    struct sc_chain_secret secret;
    struct sc_radix_secrets *before;
};

struct sc_radix_known { /* cache of a run's root, by the run's id */
    struct sc_radix_ref run;
    uint32_t root;
};

struct sc_radix_limbo {
    uint32_t nodes; /* list through waiting_next */
    struct sc_radix_table *tables;
};

struct sc_radix_reader {
    alignas(64) _Atomic uint64_t epoch; /* 0: nobody */
};

struct sc_radix {
    /* Set by open, constant after. */
    struct sc_alloc *alloc;
    struct sc_poison *poison;
    uint64_t bytes_max;
    uint64_t slab_bytes;
    uint32_t chunk_tokens;
    enum sc_policy policy;
    uint32_t granule_bits;
    uint32_t arena_slabs;
    uint32_t arena_count_max;
    uint32_t arena_bits;
    unsigned char *_Atomic *directory; /* [arena_count_max + 1], by arena; stored by the writer */

    /* Stored by the writer, loaded by readers. */
    struct sc_radix_table *_Atomic chunks;   /* chain hash at a grid border; roots at 0 */
    struct sc_radix_table *_Atomic children; /* (parent, first token, mark) */
    _Atomic uint64_t epoch;
    struct sc_radix_secrets *_Atomic secrets; /* newest; NULL: none */

    /* Writer. */
    struct sc_radix_slab *slabs;   /* [(arena_count_max + 1) * arena_slabs], by slab number */
    struct sc_radix_arena *arenas; /* [arena_count_max + 1] */
    uint64_t piece_next;           /* above the highest piece of any inserted run */
    uint32_t arena_fresh;          /* numbers used at least once */
    uint32_t arena_free;           /* list through next */
    uint32_t arena_partial;
    unsigned char *spare;       /* memory of the next arena, or NULL */
    bool spare_wanted;          /* no spare, and the last arena was begun */
    struct sc_radix_ref newest; /* last run entered as a chunk's; may be removed */
    uint32_t newest_above;      /* run SC_RADIX_AHEAD chunks above it; 0: unknown */
    uint32_t partial[SC_RADIX_CLASSES];
    struct sc_radix_limbo limbo[3];
    struct sc_radix_heap heaps[SC_RADIX_HEAPS];
    uint32_t kept_now;              /* present time in a hint's units: retention until then has
                                     * ended */
    uint32_t waiting;               /* first waiting removal */
    uint32_t root_first, root_last; /* findable roots, by number */
    uint64_t root_next;             /* number of the next root */
    uint32_t old_first;             /* roots being cleared */
    uint32_t clear_at;              /* position of the clearing; 0: at the root */
    bool clear_back;                /* all below clear_at was examined */
    uint32_t generation;
    struct sc_radix_known roots_known[SC_RADIX_ROOTS_KNOWN];

    /* Stored by the writer, loaded by any thread, relaxed: statistics. */
    _Atomic uint64_t bytes, runs, roots, leaf_count, tokens, hidden, splits, collisions;

    _Atomic uint64_t written; /* writer's part of the time: sc_radix_time_write */

    /* Incremented while a run and its better replacement both exist: a concurrent table search may
     * pass the new one's slot before it is set, and the old one's after. */
    _Atomic uint64_t replaced;

    /* Any thread. */
    alignas(64) _Atomic uint64_t clock; /* readers' part of the time: sc_radix_time_read */
    _Atomic uint32_t heaps_wanted;      /* bit per heap that hints need */
    _Atomic uint64_t matches, retries, shortened;
    struct sc_radix_reader readers[SC_RADIX_READERS_MAX];
};

/* ---- words --------------------------------------------------------------------------------- */

static inline uint32_t sc_radix_node_flags(const struct sc_radix_node *node)
{
    return atomic_load_explicit(&node->value_flags, memory_order_relaxed);
}

static inline uint64_t sc_radix_value_make(uint64_t piece, uint32_t row_first)
{
    return (uint64_t)row_first << 32 | piece;
}

static inline uint64_t sc_radix_value_piece(uint64_t value)
{
    return value & UINT32_MAX;
}

static inline uint32_t sc_radix_value_row(uint64_t value)
{
    return (uint32_t)(value >> 32) & (SC_RADIX_ROWS_MAX - 1);
}

static inline uint64_t sc_radix_node_piece(const struct sc_radix_node *node)
{
    return sc_radix_value_piece(atomic_load(&node->value));
}

static inline bool sc_radix_node_joined(const struct sc_radix_node *node)
{
    return (atomic_load_explicit(&node->value, memory_order_relaxed) & SC_RADIX_JOINED) != 0;
}

static inline uint32_t sc_radix_up_parent(uint64_t up)
{
    return (uint32_t)up;
}

static inline uint32_t sc_radix_up_cut(uint64_t up)
{
    return (uint32_t)(up >> 32) & 0xffffu;
}

static inline uint64_t sc_radix_up_make(uint32_t parent, uint32_t cut)
{
    return (uint64_t)cut << 32 | parent;
}

/* Read by the writer, which alone changes it. */
static inline uint64_t sc_radix_up(const struct sc_radix_node *node)
{
    return atomic_load_explicit(&node->up, memory_order_relaxed);
}

static inline uint32_t sc_radix_first_child(const struct sc_radix_node *node)
{
    return atomic_load_explicit(&node->first_child, memory_order_relaxed);
}

static inline uint32_t sc_radix_node_length(const struct sc_radix_node *node)
{
    return node->length & ~SC_RADIX_MARKED;
}

static inline uint64_t sc_radix_node_end(const struct sc_radix_node *node)
{
    return (uint64_t)node->base_first + sc_radix_node_length(node);
}

/* Returns the address of a present or former run, for prefetching. */
static inline uintptr_t sc_radix_address(const struct sc_radix *index, uint32_t id)
{
    const unsigned char *arena =
        atomic_load_explicit(&index->directory[id >> index->arena_bits], memory_order_relaxed);
    uint64_t granule = id & ((UINT32_C(1) << index->arena_bits) - 1);
    return (uintptr_t)arena + granule * SC_RADIX_GRANULE_BYTES;
}

static inline struct sc_radix_node *sc_radix_node_at(const struct sc_radix *index, uint32_t id)
{
    return (struct sc_radix_node *)sc_radix_address(index, id);
}

static inline struct sc_radix_ref sc_radix_ref_of(const struct sc_radix *index, uint32_t id)
{
    return (struct sc_radix_ref){id, sc_radix_node_at(index, id)->generation};
}

static inline bool sc_radix_is_root(const struct sc_radix_node *node)
{
    return (node->flags & SC_RADIX_IS_ROOT) != 0;
}

static inline bool sc_radix_is_hidden(const struct sc_radix_node *node)
{
    return (sc_radix_up(node) & SC_RADIX_HIDDEN) != 0;
}

/* Returns the position of the run's first token. */
static inline uint64_t sc_radix_node_first(const struct sc_radix_node *node)
{
    return (uint64_t)node->base_first + sc_radix_up_cut(sc_radix_up(node));
}

static inline uint32_t sc_radix_parent(const struct sc_radix_node *node)
{
    return sc_radix_up_parent(sc_radix_up(node));
}

static inline struct sc_radix_node *sc_radix_node_above(const struct sc_radix *index,
                                                        const struct sc_radix_node *node)
{
    return sc_radix_node_at(index, sc_radix_parent(node));
}

/* Returns the mark that begins at the run's first token, if any. `up` is a state of the run. */
static inline bool sc_radix_node_mark(const struct sc_radix_node *node, uint64_t up,
                                      struct sc_sha256 *ret_digest)
{
    if ((node->length & SC_RADIX_MARKED) == 0 || sc_radix_up_cut(up) != 0)
        return false;
    __builtin_memcpy(ret_digest, node->tokens + sc_radix_node_length(node), SC_SHA256_BYTES);
    return true;
}

/* Returns a root's 32 bytes. */
static inline const struct sc_sha256 *sc_radix_root_of(const struct sc_radix_node *root)
{
    return (const struct sc_sha256 *)(const void *)root->tokens;
}

struct sc_radix_key {
    uint32_t parent;
    uint32_t token;
    bool marked;
    struct sc_sha256 mark;
};

/* Mixes a child's key to 64 bits: low ones choose the slot, high ones are the fingerprint. */
static inline uint64_t sc_radix_key_hash(const struct sc_radix_key *key)
{
    uint64_t x = ((uint64_t)key->parent << 32 | key->token) * UINT64_C(0x9e3779b97f4a7c15);
    if (key->marked)
        x ^= sc_sha256_short(&key->mark).lo + UINT64_C(0xd1b54a32d192ed03);
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

/* Returns the same form for a chain hash. */
static inline uint64_t sc_radix_chunk_hash(struct sc_hash hash)
{
    return (hash.hi & UINT64_C(0xffffffff00000000)) | (hash.lo & UINT64_C(0xffffffff));
}

/* mark: the one that begins at the token, or NULL. */
static inline void sc_radix_key_set(struct sc_radix_key *key, uint32_t parent, uint32_t token,
                                    const struct sc_mark *mark)
{
    key->parent = parent;
    key->token = token;
    key->marked = mark != NULL;
    key->mark = mark != NULL ? mark->digest : (struct sc_sha256){{0}};
}

/* Changes a statistic. Writer. */
static inline void sc_radix_tally(_Atomic uint64_t *counter, int64_t by)
{
    atomic_store_explicit(counter, sc_counted(counter) + (uint64_t)by, memory_order_relaxed);
}

static inline uint64_t sc_radix_rank(const struct sc_radix_node *node)
{
    return atomic_load_explicit(&node->rank, memory_order_relaxed);
}

static inline void sc_radix_rank_set(struct sc_radix_node *node, uint64_t rank)
{
    atomic_store_explicit(&node->rank, rank, memory_order_relaxed);
}

/* Returns how far a use of so many tokens advances time: with value, their share of all stored
 * tokens, in half-lives. */
static inline uint64_t sc_radix_step(const struct sc_radix *index, uint64_t tokens)
{
    uint64_t stored = atomic_load_explicit(&index->tokens, memory_order_relaxed);
    if (index->policy != SC_POLICY_VALUE)
        return 1;
    return tokens < stored ? tokens * (SC_HEAT_ONE / 2) / stored * 2 + 1 : SC_HEAT_ONE;
}

/* Time is the sum of two clocks, so the writer needs no locked instruction. Such an instruction
 * would wait for the cache lines of all earlier stores. */
static inline uint64_t sc_radix_time_read(struct sc_radix *index, uint64_t tokens)
{
    uint64_t step = sc_radix_step(index, tokens);
    return atomic_fetch_add_explicit(&index->clock, step, memory_order_relaxed) + step +
           atomic_load_explicit(&index->written, memory_order_relaxed);
}

/* Writer. */
static inline uint64_t sc_radix_time_write(struct sc_radix *index, uint64_t tokens)
{
    sc_radix_tally(&index->written, (int64_t)sc_radix_step(index, tokens));
    return sc_counted(&index->written) + atomic_load_explicit(&index->clock, memory_order_relaxed);
}

/* Ranks a run as used. */
static inline void sc_radix_used(const struct sc_radix *index, struct sc_radix_node *node,
                                 uint64_t now)
{
    sc_radix_rank_set(node, sc_rank_used(index->policy, sc_radix_rank(node), now));
}

/* Ranks a run that is in use as passed over. Writer. */
static inline void sc_radix_node_pass_over(struct sc_radix *index, struct sc_radix_node *node)
{
    uint64_t now = sc_radix_time_write(index, 0);
    sc_radix_rank_set(node, sc_rank_passed(index->policy, sc_radix_rank(node), now));
}

/* ---- radix_hint.c --------------------------------------------------------------------------- */

/* Returns the better of both, part by part. */
uint32_t sc_radix_hint_best(uint32_t a, uint32_t b);
/* Requests the hint's heap, which the next insertion creates. */
void sc_radix_hint_want(struct sc_radix *index, uint32_t hint);
/* Any thread that has pinned the run, or the writer. */
void sc_radix_hint_raise(struct sc_radix *index, struct sc_radix_node *node, uint32_t hint);
/* Returns the heap in which a leaf belongs now. */
uint32_t sc_radix_heap_of(const struct sc_radix *index, const struct sc_radix_node *node);

static inline uint32_t sc_radix_node_hint(const struct sc_radix_node *node)
{
    return atomic_load_explicit(&node->hint, memory_order_relaxed);
}

/* Returns the end of retention, in units. */
static inline uint32_t sc_radix_hint_until(uint32_t hint)
{
    return hint >> 8;
}

/* ---- radix_memory.c: slabs, tables, epochs -------------------------------------------------- */

/* Returns zeroed memory from bytes_max, or NULL. */
void *sc_radix_memory_take(struct sc_radix *index, uint64_t bytes);
void sc_radix_memory_give(struct sc_radix *index, void *memory, uint64_t bytes);
/* Allocates a run of `length` tokens; 0: none. The header is zeroed except generation and
 * length. */
uint32_t sc_radix_node_alloc(struct sc_radix *index, uint32_t length, bool marked);
/* Frees a run that nobody can see. */
void sc_radix_node_free(struct sc_radix *index, uint32_t id);
/* Frees a run when the readers that might see it have left. */
void sc_radix_node_retire(struct sc_radix *index, uint32_t id);
/* Returns NULL if stale. Writer. */
struct sc_radix_node *sc_radix_node_of(const struct sc_radix *index, struct sc_radix_ref ref);

struct sc_radix_table *sc_radix_table_new(struct sc_radix *index, uint64_t slots);
uint64_t sc_radix_table_bytes(const struct sc_radix_table *table);
/* Makes room for `more` entries, in a new table if needed. False: no memory, nothing changed. */
bool sc_radix_table_reserve(struct sc_radix *index, struct sc_radix_table *_Atomic *table,
                            uint64_t more);
void sc_radix_table_put(struct sc_radix_table *table, uint64_t hash, uint32_t id);
void sc_radix_table_replace(struct sc_radix_table *table, uint64_t hash, uint32_t id,
                            uint32_t new_id);
void sc_radix_table_remove(struct sc_radix_table *table, uint64_t hash, uint32_t id);
/* Returns the run's key in the children's table. */
void sc_radix_node_key(const struct sc_radix_node *node, struct sc_radix_key *ret_key);

/* Returns a reader's place; UINT32_MAX: all are taken. */
uint32_t sc_radix_reader_enter(struct sc_radix *index);
void sc_radix_reader_leave(struct sc_radix *index, uint32_t place);
/* Frees what no reader can see any more. Writer. */
void sc_radix_reclaim(struct sc_radix *index);

/* ---- radix_run.c: what is read off one run --------------------------------------------------- */

void sc_radix_segment_of(const struct sc_radix_node *node, uint32_t id, uint64_t up,
                         struct sc_radix_segment *ret_segment);
/* Returns the first visible run among `id` and the siblings behind it; 0: none. */
uint32_t sc_radix_visible_from(const struct sc_radix *index, uint32_t id);
/* Returns the run after `id` in the subtree of `top`, parents first; 0: none. Writer. */
uint32_t sc_radix_after_in(const struct sc_radix *index, uint32_t top, uint32_t id);
/* Returns true below a root that is being cleared. */
bool sc_radix_is_old(const struct sc_radix *index, uint32_t id);

/* ---- radix_leaves.c: the heap of leaves ------------------------------------------------------ */

bool sc_radix_leaves_reserve(struct sc_radix *index);
void sc_radix_leaves_add(struct sc_radix *index, uint32_t id);
void sc_radix_leaves_drop(struct sc_radix *index, uint32_t id);
void sc_radix_leaves_close(struct sc_radix *index);

/* ---- radix.c: finding ------------------------------------------------------------------------ */

/* Finds the visible child with this key; ret_up is the state in which it was one. 0: none. */
uint32_t sc_radix_child_find(const struct sc_radix *index, const struct sc_radix_key *key,
                             struct sc_radix_node **ret_node, uint64_t *ret_up,
                             uint64_t *ret_steps);
/* Pins a run found by the caller's walk, as a use of so many tokens. False: it is being removed or
 * hidden. Any thread, inside an epoch. */
bool sc_radix_run_pin(struct sc_radix *index, uint32_t id, uint64_t tokens, uint32_t hint);
/* Finds the run that ends at `end` with this chain hash; 0: none. */
uint32_t sc_radix_chunk_find(const struct sc_radix *index, struct sc_hash hash, uint64_t end,
                             uint64_t *ret_steps);
/* Finds the findable root with these 32 bytes; 0: none. */
uint32_t sc_radix_root_find(const struct sc_radix *index, const struct sc_sha256 *root,
                            uint64_t *ret_steps);

/* ---- radix_insert.c -------------------------------------------------------------------------- */

/* Computes the chain at the end of a run, from the grid border at or before `grid` on its path. */
void sc_radix_chain_to(const struct sc_radix *index, uint32_t id, uint64_t grid,
                       struct sc_chain *ret_chain);

/* ---- radix_remove.c -------------------------------------------------------------------------- */

/* Removes a run without children; an empty root above is removed too. False: it is pinned. */
bool sc_radix_leaf_remove(struct sc_radix *index, uint32_t id,
                          const struct sc_radix_removal *removal);
/* Makes a run invisible to new matches; runs below it are hidden before or next. */
void sc_radix_run_hide(struct sc_radix *index, uint32_t id);
void sc_radix_chunks_leave(struct sc_radix *index, uint32_t id);
/* Queues a hidden subtree for sweeps. */
void sc_radix_wait(struct sc_radix *index, uint32_t top);
/* Updates a parent that lost a visible child. rank: the highest of the child and those below it. */
void sc_radix_parent_settle(struct sc_radix *index, uint32_t parent_id, uint64_t rank);

/* ---- radix_roots.c: which roots there are ---------------------------------------------------- */

void sc_radix_root_list(struct sc_radix *index, uint32_t id);
/* Takes the root out of its list, if any. */
void sc_radix_root_unlist(struct sc_radix *index, uint32_t id);
/* Resets the clearing if it is at this removed run. */
void sc_radix_root_forget(struct sc_radix *index, uint32_t id);
/* Returns a run's root, which never changes. */
uint32_t sc_radix_root_above(struct sc_radix *index, uint32_t id);
/* Remembers the root of an inserted run. */
void sc_radix_root_know(struct sc_radix *index, uint32_t id, uint32_t root);

#endif

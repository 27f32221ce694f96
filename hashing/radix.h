/* radix: the index of stored token prefixes and where their rows are.
 *
 *   root(32 bytes)                   one per (namespace, salt, LoRA); created by the first insert
 *     +-- [0..64)                    a run (node): consecutive tokens inside ONE chunk of the grid
 *           +-- [64..90)             a run may begin and end at any token
 *           |     +-- [90..128)      was one run [64..128) until another prompt diverged at 90
 *           |     +-- [90..101)
 *           +-- [64..128)  other tokens, or another mark (extra keys) at token 64
 *
 * A run has its token ids, the mark that begins at its first token, the chain hash at its end, and
 * the caller's value: a piece, and the row of its first token in it. A run is found from its parent
 * by (first token, mark). A run that ends at a grid border is also found by its chain hash, so that
 * a long lookup computes hashes ahead and prefetches; each step is confirmed by parent and tokens.
 * A root is found by the first half of its 32 bytes and compared whole.
 *
 * Invariants: roots, marks and tokens are compared by value; hashes only locate. A run never
 * crosses a grid border and never has a mark after its first token. No two children of a run begin
 * with the same (token, mark). The parent of a found run is found. A chain hash at a grid border
 * names at most one run; a second one is refused (a miss). Allocated bytes stay <= bytes_max. A
 * `ref` always ends at the same token: a split gives its leading tokens to a new run above it.
 * Threads: match, unpin and stats: any, without waiting or allocating. All others ("Writer"): one
 * at a time, under the caller's lock. A reader that meets a change retries a bounded number of
 * times, then may return a shorter match, which is counted.
 * Tests: tests/unit/hashing/test_radix.c, and test_radix_*.c: attach, chunk, random, replace,
 * roots, threads */
#ifndef SC_HASHING_RADIX_H
#define SC_HASHING_RADIX_H

#include "base/alloc.h"
#include "base/assert.h"
#include "base/policy.h"
#include "base/status.h"
#include "hashing/chain.h"

#define SC_RADIX_ASIDE       64u
#define SC_RADIX_READERS_MAX 128u /* concurrent matches; one more returns 0 tokens */

struct sc_radix;

struct sc_radix_params {
    struct sc_alloc *alloc;
    struct sc_poison *poison; /* NULL: asserts only abort */
    uint32_t chunk_tokens;    /* a power of two, 1 .. SC_CHAIN_CHUNK_TOKENS_MAX */
    uint64_t bytes_max;       /* limit of all memory of the index; 1 MiB .. 64 GiB */
    const uint8_t *secret;    /* [SC_CHAIN_SECRET_BYTES], copied; NULL: set later */
    enum sc_policy policy;    /* eviction order */
};

/* The caller's data of a run. A split advances row_first. If two values have the same tokens, the
 * one with larger flags is worse. */
struct sc_radix_value {
    uint64_t piece;     /* < 2^32 */
    uint32_t row_first; /* row in the piece of the run's first token */
    uint32_t flags;
};

/* Names a run. All zero: none. Stale after the run was removed. */
struct sc_radix_ref {
    uint32_t id;
    uint32_t generation;
};

struct sc_radix_segment {
    struct sc_radix_value value; /* row_first: the row of token `first` */
    uint64_t first;              /* absolute position */
    uint64_t count;              /* tokens that match; the run may be longer */
    struct sc_radix_ref node;
    struct sc_hash hash; /* chain hash at the run's end */
};

struct sc_radix_query {
    struct sc_sha256 root;
    const uint32_t *tokens; /* from position 0 */
    uint64_t token_count;
    struct sc_marks marks; /* marks at or after token_count are ignored */
    uint32_t flags_end;    /* not 0: the match ends before the first run with flags >= this */
    uint32_t hint;         /* sc_radix_hint that a pinning match raises its last run to */
};

/* Returns a hint: priority and retention. Hints only raise runs. priority: -SC_RADIX_PRIORITY_MAX
 * .. SC_RADIX_PRIORITY_MAX, 0: usual. until_s: end of retention on a clock of the caller that began
 * at most 2^28 s ago, rounded up to 16 s; 0: none. A run inherits the best hints of removed runs
 * below it. */
#define SC_RADIX_PRIORITY_MAX 3
uint32_t sc_radix_hint(int32_t priority, uint64_t until_s);
/* Returns the position of a hint in the eviction order: priorities, lowest first, then retained
 * ones by the end of retention. */
uint64_t sc_radix_place(uint32_t hint);
#define SC_RADIX_PLACE_KEPT (2u * SC_RADIX_PRIORITY_MAX + 1u) /* first position of retained runs */
/* Returns true if any hint so far puts a run behind that place. Any thread. */
bool sc_radix_has_later(const struct sc_radix *index, uint64_t place);
/* Sets the present time for victims. Writer. */
void sc_radix_clock_set(struct sc_radix *index, uint64_t now_s);

struct sc_radix_match {
    uint64_t token_count;      /* leading tokens that are stored */
    uint64_t segment_count;    /* of the whole match, also beyond the capacity */
    struct sc_radix_ref last;  /* run with the last matched token; none if 0 tokens */
    struct sc_radix_ref whole; /* deepest run that matches to its end; none: the root */
    uint64_t whole_end;        /* end of `whole`; insert continues there */
    uint64_t last_piece;       /* piece of `last`; 0 if 0 tokens */
    uint32_t last_flags;
    uint64_t steps;     /* table slots and runs examined */
    uint32_t shortened; /* 1: a concurrent change or a full reader table shortened the match */
};

/* Errors: INVALID (chunk_tokens, bytes_max), NO_MEMORY. */
spec_status sc_radix_open(const struct sc_radix_params *params, struct sc_radix **ret_index,
                          struct spec_error *reterr);
/* Sets the secret of all later chains. Called before the first insertion, or when nothing stored
 * under the old secret will be matched again. The same secret changes nothing. Errors: NO_MEMORY,
 * nothing changed. Writer. */
spec_status sc_radix_secret_set(struct sc_radix *index, const uint8_t secret[SC_CHAIN_SECRET_BYTES],
                                struct spec_error *reterr);
/* Returns the secret, valid until close; NULL: not set. Threads: any. */
const struct sc_chain_secret *sc_radix_secret(const struct sc_radix *index);
/* Frees everything, pinned or not. No reader is inside. Takes NULL. */
void sc_radix_close(struct sc_radix *index);

/* Finds the leading tokens that are stored, token-exact. Allocates nothing. Threads: any.
 *   segments  [capacity]  the first ones, in order; NULL if capacity is 0 */
void sc_radix_match(struct sc_radix *index, const struct sc_radix_query *query,
                    struct sc_radix_segment *segments, uint64_t capacity,
                    struct sc_radix_match *ret_match);
/* As sc_radix_match, and pins match.last if token_count > 0: nothing on its path to the root is
 * removed until sc_radix_unpin. Counts as a use for the eviction order. Threads: any. */
void sc_radix_match_pin(struct sc_radix *index, const struct sc_radix_query *query,
                        struct sc_radix_segment *segments, uint64_t capacity,
                        struct sc_radix_match *ret_match);
/* Adds a pin to a run that the caller has pinned, or that the writer just inserted. */
void sc_radix_pin(struct sc_radix *index, struct sc_radix_ref pinned);
/* Removes one pin; ignores a none ref. Threads: any. */
void sc_radix_unpin(struct sc_radix *index, struct sc_radix_ref pinned);

/* A branch: tokens below a run that are not a prompt's (a recurrent state). They are equal except
 * for the last, which marks the branch as whole; the first has a mark that no prompt has. It is
 * inserted like other tokens. */
struct sc_radix_branch {
    uint32_t token, end_token;
    uint64_t count; /* tokens with the last one; 0: any number */
    struct sc_sha256 mark;
    uint64_t above, most; /* it hangs on a run that ends at above < end <= most, */
    uint64_t multiple_of; /* where end is a multiple of this; 0 means 1 */
    uint32_t flags_end;   /* not 0: runs with flags >= this do not count */
    uint32_t hint;        /* as of a pinning match */
};
/* Finds the deepest whole branch at or above a run that the caller has pinned, and pins the
 * branch's last run. Examines the runs up to the root, one child each. Allocates nothing. Threads:
 * any.
 *   segments   [capacity] of the branch; a branch with more is skipped; NULL: not written
 *   ret_match  token_count: end of the run that it hangs on; last; segment_count */
bool sc_radix_branch_pin(struct sc_radix *index, struct sc_radix_ref pinned,
                         const struct sc_radix_branch *branch, struct sc_radix_segment *segments,
                         uint64_t capacity, struct sc_radix_match *ret_match);

/* Called once for every removed run, parents before children unless stated. Must not call the
 * index. */
struct sc_radix_removal {
    void (*removed)(const struct sc_radix_segment *segment, void *user); /* may be NULL */
    void *user;
};

/* An insertion: rows of the tokens [run_first, first + token_count), inside one chunk, in one
 * piece. */
struct sc_radix_insertion {
    struct sc_sha256 root;     /* also that of `after` */
    struct sc_radix_ref after; /* run in front of tokens[0]; none: the root */
    uint64_t first;            /* position of tokens[0]: the end of `after`, or 0 */
    const uint32_t *tokens;    /* [token_count] */
    uint64_t token_count;
    uint64_t run_first;    /* first token of the value's rows; those before it must be stored */
    struct sc_marks marks; /* marks of the whole prompt */
    const struct sc_hash *end_hash; /* chain hash after the last token, if known; NULL: it is
                                     * computed */
    struct sc_radix_value value;    /* row_first: the row of token run_first */
    uint32_t hint;                  /* sc_radix_hint of the added runs; raises existing ones */
    /* Not NULL: a run at or behind run_first with larger flags is replaced, with all below it. The
     * new runs are found before the old ones are removed, so that no match ends early. Pinned runs
     * are removed later. */
    const struct sc_radix_removal *replaces;
    /* Called before with the topmost replaced run, which it may pin. May be NULL; user: that of
     * replaces. */
    void (*replacing)(struct sc_radix_ref top, void *user);
    /* If all tokens exist, from run_first on in runs of several pieces with the value's flags, the
     * value replaces theirs as in sc_radix_move; replaces is called. */
    bool merges;
};

struct sc_radix_inserted {
    uint64_t new_count;        /* trailing tokens that now have the value; 0: others have them */
    struct sc_radix_ref last;  /* run with the last token */
    struct sc_radix_ref whole; /* deepest run on the path that ends at or before the last token */
    uint64_t whole_end;        /* end of `whole`: `first` of the next insertion */
};

/* Adds the missing tokens. Existing tokens keep their value (the first wins), or with `replaces`
 * the better one. Writer.
 * Errors, nothing changed: INVALID (empty, beyond 2^32 tokens, not inside one chunk, run_first or
 * first wrong); STALE (`after` was removed or has another root, or tokens before run_first are not
 * stored: an orphan); NO_MEMORY (allocator or bytes_max); CORRUPT (another run has the chain hash:
 * a 128-bit collision). */
spec_status sc_radix_insert(struct sc_radix *index, const struct sc_radix_insertion *insertion,
                            struct sc_radix_inserted *ret_inserted, struct spec_error *reterr);

/* Returns the run that ends at the grid border `end` > 0 with this chain hash; none if absent or
 * doubted. For recovery, where records name parents by hash. Writer. */
struct sc_radix_ref sc_radix_find(struct sc_radix *index, struct sc_hash hash, uint64_t end);
/* Makes sc_radix_find ignore the run that ends at `end` with this hash, if any: data stored behind
 * another prefix with that hash would be taken for this one's. Matches and insertions ignore it.
 * Writer. */
void sc_radix_doubt(struct sc_radix *index, struct sc_hash hash, uint64_t end);
/* Returns true if the run is `top` or below it; false if one is stale. Writer. */
bool sc_radix_is_below(struct sc_radix *index, struct sc_radix_ref run, struct sc_radix_ref top);
/* Returns a ref's whole run; false: stale. Writer. */
bool sc_radix_get(struct sc_radix *index, struct sc_radix_ref ref,
                  struct sc_radix_segment *ret_segment);

/* The runs of one chunk, from its beginning down to one of them. */
struct sc_radix_chunk {
    uint64_t first; /* first token of the chunk */
    struct sc_sha256 root;
    struct sc_hash border;  /* chain hash there */
    uint64_t segment_count; /* one per run */
    struct sc_radix_segment segments[SC_CHAIN_CHUNK_TOKENS_MAX];
    uint64_t beside[SC_CHAIN_CHUNK_TOKENS_MAX]; /* lowest piece of the other visible children of a
                                                 * segment's run; UINT64_MAX: none */
    uint32_t tokens[SC_CHAIN_CHUNK_TOKENS_MAX];
    uint64_t mark_count;
    struct sc_mark marks[SC_CHAIN_CHUNK_TOKENS_MAX];
};
/* Fills the chunk of a run. False: the run was removed or hidden, or its root is being cleared.
 * Writer. */
bool sc_radix_chunk_of(struct sc_radix *index, struct sc_radix_ref last,
                       struct sc_radix_chunk *ret_chunk);
/* Gives the runs from token `first` (the beginning of one of them, in the same chunk) to the end
 * of `last` another value; row_first is that of `first`. Runs and what is below them stay. A
 * concurrent match finds either value of each run; a later match finds the new one, as one
 * segment. replaced (may be NULL) is called with each old run. False: no such runs, nothing
 * changed. Writer. */
bool sc_radix_move(struct sc_radix *index, struct sc_radix_ref last, uint64_t first,
                   const struct sc_radix_value *value, const struct sc_radix_removal *replaced);

enum sc_radix_scope {
    SC_RADIX_RUN,  /* the run and all below it */
    SC_RADIX_PIECE /* from the topmost run of its piece on the path, and all below */
};
/* Removes runs; an empty root is removed too. No new match finds them. If any is pinned, all are
 * hidden until sc_radix_sweep finds them free. Allocates nothing. Writer.
 * Returns SPEC_OK; SPEC_PENDING (hidden, waits for pins); STALE (nothing changed). */
spec_status sc_radix_remove(struct sc_radix *index, struct sc_radix_ref ref,
                            enum sc_radix_scope scope, const struct sc_radix_removal *removal);
/* Removes hidden runs whose pins ended; returns how many removals still wait. Writer. */
uint64_t sc_radix_sweep(struct sc_radix *index, const struct sc_radix_removal *removal);

/* Which leaves may be evicted. */
struct sc_radix_among {
    uint64_t piece_end; /* pieces from here on are spared for others of their place */
    uint64_t place_end; /* only places (sc_radix_place) below it; UINT64_MAX: all */
};

static inline struct sc_radix_among sc_radix_below(uint64_t piece_end)
{
    return (struct sc_radix_among){.piece_end = piece_end, .place_end = UINT64_MAX};
}

/* Finds the unpinned leaf (a run without children) to evict first. Writer.
 * - Order: the lowest priority first, retained leaves last, by the end of retention; among equals
 *   by base/policy.h. A run's rank is the highest of its own and of those below it, removed ones
 *   included.
 * - Only pieces below piece_end count. Newer pieces are found only if their place is lower than
 *   that of the first leaf below piece_end; if there is no such leaf, none is found.
 * - A pinned leaf that is met is ranked behind all others (lru), or as two uses now.
 * - False: none, or (value, lfu) none soon: SC_RADIX_ASIDE leaves of each priority that are not
 *   below piece_end come before it.
 * O(log leaves), amortised. If more than SC_RADIX_ASIDE leaves in use come before it, each is
 * examined. */
bool sc_radix_victim_below(struct sc_radix *index, struct sc_radix_among among,
                           struct sc_radix_segment *ret_segment);
/* Returns the present time of the order of use: later uses have a later one. Any thread. */
uint64_t sc_radix_time(const struct sc_radix *index);
/* Returns the time of the last use that a run's rank tells of: with value later, if it was used
 * often. Stale: 0. Writer. */
uint64_t sc_radix_time_of(const struct sc_radix *index, struct sc_radix_ref run);
/* Ranks a run as used once more at `then`, a time of sc_radix_time, if its rank tells of no use
 * since. False: it does, or the run is stale. Writer. */
bool sc_radix_used_then(struct sc_radix *index, struct sc_radix_ref run, uint64_t then);
/* Ranks a run as a pinned leaf that victim_below meets. Stale: no effect. Writer. */
void sc_radix_pass_over(struct sc_radix *index, struct sc_radix_ref run);
/* As victim_below, for any piece. */
bool sc_radix_victim(struct sc_radix *index, struct sc_radix_segment *ret_segment);
/* As victim_below, but the runs stored last (a 16th of all) are found only if no other of their
 * priority may be. Orders that count uses would otherwise evict what was just written. No effect
 * with lru. */
bool sc_radix_victim_old(struct sc_radix *index, struct sc_radix_among among,
                         struct sc_radix_segment *ret_segment);
/* As victim_below, but examines only the first unpinned leaf of each priority. */
bool sc_radix_victim_first(struct sc_radix *index, struct sc_radix_among among,
                           struct sc_radix_segment *ret_segment);
/* Calls look for each piece that may be evicted whole while only places below place_end are: from
 * unpinned leaves up, while nothing else hangs on a run. Ends if look returns false, or after
 * steps_max runs. Returns false if everything was examined. Writer. */
bool sc_radix_evictable(struct sc_radix *index, uint64_t place_end, uint64_t steps_max,
                        bool (*look)(uint64_t piece, void *user), void *user);

/* Returns the run above, whole; false: the ref is stale or directly below the root. ret_is_alone:
 * it has no other child. Writer. */
bool sc_radix_above(struct sc_radix *index, struct sc_radix_ref ref,
                    struct sc_radix_segment *ret_segment, bool *ret_is_alone);
/* Returns true if the run or one below it is pinned. A match that pins later reads the caller's
 * flags after this call. Stale: false. Writer. */
bool sc_radix_is_pinned(struct sc_radix *index, struct sc_radix_ref top);

struct sc_radix_evicted {
    struct sc_radix_segment segment; /* removed run */
    struct sc_radix_ref rest; /* run above it with the same piece, where the rest of the piece ends;
                               * none: nothing is left */
};
/* Removes a leaf, and runs above it that were moved with it (sc_radix_move), while nothing else
 * hangs on them. False, nothing changed: no leaf, or pinned. Writer. */
bool sc_radix_evict_leaf(struct sc_radix *index, struct sc_radix_ref leaf,
                         struct sc_radix_evicted *ret_evicted);
/* Evicts the leaf that sc_radix_victim finds. False: none. Writer. */
bool sc_radix_evict(struct sc_radix *index, struct sc_radix_evicted *ret_evicted);

/* Returns a number that grows with each new root. Writer. */
uint64_t sc_radix_root_mark(const struct sc_radix *index);
/* Removes the roots that are older than the mark, with all below them. The first call makes them
 * unfindable, O(roots); each call examines at most `step_count_max` runs. Pinned runs stay until
 * sc_radix_sweep finds them free. A match that began before may still pin an old run. Insertions
 * continue below newer roots, also of the same hash. Allocates nothing. Writer.
 *   removal  called for every removed run, here children before parents
 * Returns true while another call is needed. */
bool sc_radix_remove_roots(struct sc_radix *index, uint64_t mark, uint64_t step_count_max,
                           const struct sc_radix_removal *removal);

/* Names a prefix without its tokens: the content of a lease. */
struct sc_radix_place {
    struct sc_hash border; /* chain hash at the last grid border <= length; at 0 the root's */
    struct sc_hash end;    /* chain hash after `length` tokens */
    uint64_t length;
};

/* Computes the place after `length` tokens of a match, with at most one hash. Threads: any.
 *   segments  [segment_count]  those that the match filled; they reach `length`
 *   length    1 .. the match's tokens */
void sc_radix_place_of(const struct sc_radix *index, const struct sc_radix_query *query,
                       const struct sc_radix_segment *segments, uint64_t segment_count,
                       uint64_t length, struct sc_radix_place *ret_place);

/* A claim: the prefix of the place, whose last token's row is in the piece, or was until its runs
 * were moved to another. */
struct sc_radix_claim {
    struct sc_radix_ref run; /* last run that the piece has or had; stale or none: STALE */
    uint64_t piece;
    uint64_t piece_first; /* first token of its rows; limits the moved runs that were its own */
    struct sc_radix_place place;
    bool is_kept; /* the caller has pinned it, or above: a waiting removal does not matter */
};

/* Buffers for a claim's prefix. A failed claim may have written some. */
struct sc_radix_room {
    uint32_t *tokens; /* [token_capacity] all tokens; >= the place's length */
    uint64_t token_capacity;
    struct sc_mark *marks; /* [mark_capacity] the first ones, ascending; NULL if 0 */
    uint64_t mark_capacity;
    struct sc_radix_segment *segments; /* [segment_capacity] as of a match; NULL if 0 */
    uint64_t segment_capacity;
};
struct sc_radix_attached {
    struct sc_radix_match match; /* as of a match of the prefix */
    struct sc_sha256 root;
    uint64_t mark_count; /* of the prefix, also beyond the capacity */
};

/* Returns a claim's prefix by value. Errors, nothing changed: STALE (the piece is absent, or its
 * prefix has other hashes than the place); INVALID (length 0, token_capacity). Writer. */
spec_status sc_radix_recall(struct sc_radix *index, const struct sc_radix_claim *claim,
                            const struct sc_radix_room *room,
                            struct sc_radix_attached *ret_attached, struct spec_error *reterr);
/* As sc_radix_recall, and pins match.last; counts as a use. */
spec_status sc_radix_attach(struct sc_radix *index, const struct sc_radix_claim *claim,
                            const struct sc_radix_room *room,
                            struct sc_radix_attached *ret_attached, struct spec_error *reterr);

/* Memory for later insertions. The writer's first write to a page waits for the kernel to clear it;
 * sc_radix_spare_touch lets another thread do that before. */
struct sc_radix_spare {
    void *memory;
    uint64_t bytes;
};
/* Allocates it, counted in stats.bytes: once after insertions began to fill the last arena of an
 * index with huge arenas. False: not now, bytes_max is near, or memory is the host's. Writer. */
bool sc_radix_spare_take(struct sc_radix *index, struct sc_radix_spare *ret_spare);
/* Faults the pages in without changing them: the writer may use or free the memory meanwhile.
 * Threads: any. */
void sc_radix_spare_touch(const struct sc_radix_spare *spare);

/* Reserves space for about run_count more runs that end at a grid border. Advice: it takes at most
 * a 16th of bytes_max. Writer. */
void sc_radix_expect(struct sc_radix *index, uint64_t run_count);
/* Prefetches what an insertion that ends in this chain hash will read. Writer. */
void sc_radix_insert_soon(const struct sc_radix *index, struct sc_hash hash);

struct sc_radix_stats {
    uint64_t bytes; /* allocated, with retired and spare memory */
    uint64_t runs;  /* without roots */
    uint64_t roots;
    uint64_t leaves;
    uint64_t tokens; /* sum of the runs' lengths */
    uint64_t hidden; /* removals that wait for pins */
    uint64_t matches;
    uint64_t retries;   /* matches repeated because of a concurrent change */
    uint64_t shortened; /* matches that are shorter because of one */
    uint64_t splits;
    uint64_t collisions; /* insertions refused because of an equal chain hash */
};
/* Threads: any; each number is consistent by itself. */
void sc_radix_stats(const struct sc_radix *index, struct sc_radix_stats *ret_stats);

#endif

/* The radix index: which token prefixes are stored, and where their rows are.
 *
 *   root(32 bytes)                   one per (namespace, salt, LoRA); made by the first insert
 *     +-- [0..64)                    a run: consecutive tokens inside ONE chunk of the grid
 *           +-- [64..90)             a run may begin and end at any token
 *           |     +-- [90..128)      what was one run [64..128) until another prompt parted at 90
 *           |     +-- [90..101)
 *           +-- [64..128)  other tokens, or another mark (extra keys) at token 64
 *
 * A run holds its token ids (compared by value), the mark that begins at its first token, the chain
 * hash at its end, and the caller's value: the piece and the row of the run's first token in it.
 * Two ways lead to a run: from its parent by (first token, mark), and, when it ends at a grid
 * border, from the chain hash there. A root is found by the first half of its 32 bytes, and is it
 * by all of them. The second lets a long lookup compute hashes ahead and prefetch; every step is
 * confirmed by the parent and by the tokens.
 *
 * Holds: roots, marks and tokens are compared by value; a hash only says where to look.
 * A run never crosses a grid border, and never has a mark after its first token. No two
 * children of a run begin with the same (token, mark). The parent of a run that is found is found.
 * A chain hash at a grid border names at most one run (a second one is refused: a miss). The bytes
 * allocated stay <= bytes_max. A `ref` keeps its meaning over splits: it always ends at the same
 * token (a split gives its leading tokens to a new run above it).
 * Does not: I/O, read a clock, take a lock, allocate on a match.
 * Threads: match, unpin and stats: any number, at any time, without waiting. All others ("writer"):
 * one at a time; the caller serialises them with its own lock. A reader that meets a change in
 * progress retries a bounded number of times and may then answer a shorter match, which is counted.
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
#define SC_RADIX_READERS_MAX 128u /* matches at the same moment; one more answers 0 tokens */

struct sc_radix;

struct sc_radix_params {
    struct sc_alloc *alloc;
    struct sc_poison *poison; /* NULL: asserts only abort */
    uint32_t chunk_tokens;    /* a power of two, 1 .. SC_CHAIN_CHUNK_TOKENS_MAX */
    uint64_t bytes_max;       /* all memory of the index; 1 MiB .. 64 GiB */
    const uint8_t *secret;    /* [SC_CHAIN_SECRET_BYTES], copied; NULL: it is set later */
    enum sc_policy policy;    /* of eviction */
};

/* What the caller stores with a run. Opaque here, except that a split advances row_first, and that
 * of two values for the same tokens the one with larger flags is the worse. */
struct sc_radix_value {
    uint64_t piece;     /* < 2^32 */
    uint32_t row_first; /* row in the piece of the run's first token */
    uint32_t flags;
};

/* Names a run. All zero: none. Stale once the run was removed. */
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
    struct sc_marks marks; /* those at or after token_count do not matter */
    uint32_t flags_end; /* not 0: the match ends before the first run with these flags or larger */
    uint32_t hint;      /* sc_radix_hint: a match that pins raises its last run to it */
};

/* How long, and before whom, runs are kept: what runs are raised to, never lowered by. A priority
 * is -SC_RADIX_PRIORITY_MAX .. that; 0, of a run, a match or an insertion, is the usual one.
 * until_s: kept until then, on a clock of the caller's that began at most 2^28 s ago (0: not); it
 * is rounded up to 16 s. A run is as good as the best of those below it that have gone. */
#define SC_RADIX_PRIORITY_MAX 3
uint32_t sc_radix_hint(int32_t priority, uint64_t until_s);
/* Where a run with the hint stands in the order of eviction: by priority, the lowest first; then,
 * of what is kept for some time, by the end of that. */
uint64_t sc_radix_place(uint32_t hint);
#define SC_RADIX_PLACE_KEPT (2u * SC_RADIX_PRIORITY_MAX + 1u) /* the first of what is kept */
/* Whether a run may stand behind that place: a hint was given that says so, ever. Any thread. */
bool sc_radix_has_later(const struct sc_radix *index, uint64_t place);
/* What time it is for victims. Writer. */
void sc_radix_clock_set(struct sc_radix *index, uint64_t now_s);

struct sc_radix_match {
    uint64_t token_count;      /* leading tokens that are stored */
    uint64_t segment_count;    /* segments of the whole match, also beyond the capacity */
    struct sc_radix_ref last;  /* the run that holds the last matched token; none when 0 tokens */
    struct sc_radix_ref whole; /* the deepest run that matches to its end; none: the root */
    uint64_t whole_end;        /* where it ends; insert continues there */
    uint64_t last_piece;       /* of the value of `last`; 0 when 0 tokens */
    uint32_t last_flags;
    uint64_t steps;     /* table slots and runs looked at: a measure of the work */
    uint32_t shortened; /* 1: a concurrent change or a full reader table cut the answer */
};

/* Errors: INVALID (chunk_tokens, bytes_max), NO_MEMORY. */
spec_status sc_radix_open(const struct sc_radix_params *params, struct sc_radix **ret_index,
                          struct spec_error *reterr);
/* What chains are keyed by from now on; before the first insertion, or when what is stored belongs
 * to a secret that is over, and is never matched again. The same once more does nothing. Errors:
 * NO_MEMORY, nothing changed. Writer. */
spec_status sc_radix_secret_set(struct sc_radix *index, const uint8_t secret[SC_CHAIN_SECRET_BYTES],
                                struct spec_error *reterr);
/* It, good until close; NULL: none was set yet. Threads: any. */
const struct sc_chain_secret *sc_radix_secret(const struct sc_radix *index);
/* Frees everything; nobody is inside, pins do not matter any more. Takes NULL. */
void sc_radix_close(struct sc_radix *index);

/* The leading tokens that are stored, token-exact.
 *   segments  [capacity]  the first ones, in order; NULL when capacity is 0
 * Allocates nothing. Threads: any. */
void sc_radix_match(struct sc_radix *index, const struct sc_radix_query *query,
                    struct sc_radix_segment *segments, uint64_t capacity,
                    struct sc_radix_match *ret_match);
/* The same, and match.last is pinned when token_count > 0: nothing on its path to the root is
 * removed until sc_radix_unpin. Counts as a use for eviction order. Threads: any. */
void sc_radix_match_pin(struct sc_radix *index, const struct sc_radix_query *query,
                        struct sc_radix_segment *segments, uint64_t capacity,
                        struct sc_radix_match *ret_match);
/* One more pin on a run that the caller holds a pin on (or that the writer just inserted). */
void sc_radix_pin(struct sc_radix *index, struct sc_radix_ref pinned);
/* Takes one pin back. A none ref is ignored. Threads: any. */
void sc_radix_unpin(struct sc_radix *index, struct sc_radix_ref pinned);

/* What may hang on a run beside the tokens that prompts go on with: tokens that are all the same,
 * but for the last one, which says that the branch is whole; the first has a mark that no prompt
 * has there. It is inserted as any tokens are. */
struct sc_radix_branch {
    uint32_t token, end_token;
    uint64_t count; /* of them, with the last one; 0: however many */
    struct sc_sha256 mark;
    uint64_t above, most; /* it hangs on a run that ends there: above < end <= most, */
    uint64_t multiple_of; /* and so many tokens are a whole number of these; 0 as 1 */
    uint32_t flags_end;   /* not 0: a run with these flags or larger is none of it */
    uint32_t hint;        /* as of a match that pins */
};
/* The deepest one that is whole, of those that hang on the run that the caller holds a pin on, or
 * above. Its last run is pinned, as by sc_radix_match_pin.
 *   segments   [capacity] of it: one that has more is passed over; NULL: they are not written
 *   ret_match  token_count: where the run ends that it hangs on; last; segment_count
 * Looks at the runs up to there, one child each. Allocates nothing. Threads: any. */
bool sc_radix_branch_pin(struct sc_radix *index, struct sc_radix_ref pinned,
                         const struct sc_radix_branch *branch, struct sc_radix_segment *segments,
                         uint64_t capacity, struct sc_radix_match *ret_match);

/* Called once for every run that is removed, parents before children where nothing else is said;
 * must not call the index. */
struct sc_radix_removal {
    void (*removed)(const struct sc_radix_segment *segment, void *user); /* may be NULL */
    void *user;
};

/* What is inserted: rows for the tokens [run_first, first + token_count), inside one chunk of the
 * grid, in one piece. */
struct sc_radix_insertion {
    struct sc_sha256 root;     /* that of `after`, too */
    struct sc_radix_ref after; /* the run that tokens[0] follows; none: the root */
    uint64_t first;            /* position of tokens[0]: the end of `after`, 0 for the root */
    const uint32_t *tokens;    /* [token_count] */
    uint64_t token_count;
    uint64_t run_first;    /* where the value's rows begin; tokens before it must be stored */
    struct sc_marks marks; /* of the whole prompt; those in the inserted range are used */
    const struct sc_hash *end_hash; /* chain hash after the last token, when it is known for sure;
                                     * NULL: it is computed */
    struct sc_radix_value value;    /* row_first: the row of token run_first */
    uint32_t hint;                  /* sc_radix_hint, of the added runs; raises what is there */
    /* Not NULL: a run at or behind run_first with larger flags makes way, with all below it. The
     * new runs are found before the old ones go, so that no match ends early between. What is
     * pinned goes later. */
    const struct sc_radix_removal *replaces;
    /* Called before with the first of them; may pin it. May be NULL; user: that of replaces. */
    void (*replacing)(struct sc_radix_ref top, void *user);
    /* Where all tokens are there already, from run_first on in runs of several pieces whose flags
     * are the value's, the value takes the place of theirs, as sc_radix_move does it; replaces is
     * told. */
    bool merges;
};

struct sc_radix_inserted {
    uint64_t new_count;       /* trailing tokens that have the value now; 0: others have them */
    struct sc_radix_ref last; /* the run that holds the last token */
    struct sc_radix_ref
        whole;          /* the deepest run on the path that ends at or before the last token */
    uint64_t whole_end; /* where it ends: `first` of the next insertion */
};

/* Adds what is missing below what is there; tokens that are there keep their value (the first
 * wins), or with `replaces` the better. `value` is used for the added runs only. Writer.
 * Errors, nothing changed: INVALID (empty, beyond 2^32 tokens, not inside one chunk, run_first or
 * first wrong); STALE (`after` was removed or has another root, or the tokens before run_first are
 * not stored: an orphan); NO_MEMORY (allocator or bytes_max); CORRUPT (another run already owns the
 * chain hash: a collision of 128 bits). */
spec_status sc_radix_insert(struct sc_radix *index, const struct sc_radix_insertion *insertion,
                            struct sc_radix_inserted *ret_inserted, struct spec_error *reterr);

/* The run that ends at the grid border `end` with this chain hash, end > 0. None when there is
 * none, or it is doubted. For recovery, where a record names its parent by hash. Writer. */
struct sc_radix_ref sc_radix_find(struct sc_radix *index, struct sc_hash hash, uint64_t end);
/* From now on sc_radix_find does not find the run that ends at `end` with this hash, if there is
 * one: what is stored behind another prefix with that hash would pass for what follows this one.
 * Matches and insertions do not mind. Writer. */
void sc_radix_doubt(struct sc_radix *index, struct sc_hash hash, uint64_t end);
/* Whether the run is `top` or below it; false when one of them is stale. Writer. */
bool sc_radix_is_below(struct sc_radix *index, struct sc_radix_ref run, struct sc_radix_ref top);
/* What a ref names, whole: false when it is stale. Writer. */
bool sc_radix_get(struct sc_radix *index, struct sc_radix_ref ref,
                  struct sc_radix_segment *ret_segment);

/* The runs of one chunk from its beginning on, down to one of them. */
struct sc_radix_chunk {
    uint64_t first; /* where the chunk begins */
    struct sc_sha256 root;
    struct sc_hash border;  /* chain hash there */
    uint64_t segment_count; /* one a run */
    struct sc_radix_segment segments[SC_CHAIN_CHUNK_TOKENS_MAX];
    uint64_t beside[SC_CHAIN_CHUNK_TOKENS_MAX]; /* the lowest piece of the visible runs that hang on
                                                 * a segment's run, but for the next segment's;
                                                 * UINT64_MAX: none */
    uint32_t tokens[SC_CHAIN_CHUNK_TOKENS_MAX];
    uint64_t mark_count;
    struct sc_mark marks[SC_CHAIN_CHUNK_TOKENS_MAX];
};
/* false: the run was removed, is hidden, or is of a root that is being cleared. Writer. */
bool sc_radix_chunk_of(struct sc_radix *index, struct sc_radix_ref last,
                       struct sc_radix_chunk *ret_chunk);
/* Gives the runs that have the tokens from `first` (in the same chunk, where one of them begins) to
 * the end of `last` another value, row_first being that of `first`. What hangs on them stays, and
 * so do the runs: a match that goes on meanwhile finds either value of each. A match that begins
 * later finds the new one, and all that was moved together as one segment. replaced (may be NULL)
 * is called for each run as it was. false: no such runs, nothing changed. Writer. */
bool sc_radix_move(struct sc_radix *index, struct sc_radix_ref last, uint64_t first,
                   const struct sc_radix_value *value, const struct sc_radix_removal *replaced);

enum sc_radix_scope {
    SC_RADIX_RUN,  /* the run and all below it */
    SC_RADIX_PIECE /* from the first run above it with the same piece, and all below */
};
/* Removes; a root that is left without runs goes too. No new match finds it; where anything in it
 * is pinned, all goes when sc_radix_sweep finds it free. Allocates nothing. Writer.
 * Returns SPEC_OK; SPEC_PENDING (hidden, waits for pins); STALE (the ref; nothing changed). */
spec_status sc_radix_remove(struct sc_radix *index, struct sc_radix_ref ref,
                            enum sc_radix_scope scope, const struct sc_radix_removal *removal);
/* Removes what waited and is not pinned any more; returns how many removals still wait. Writer. */
uint64_t sc_radix_sweep(struct sc_radix *index, const struct sc_radix_removal *removal);

/* Which leaves may be evicted. */
struct sc_radix_among {
    uint64_t piece_end; /* those of pieces from here on are spared for those of their own place */
    uint64_t place_end; /* those whose place (sc_radix_place) is below it; UINT64_MAX: all */
};

static inline struct sc_radix_among sc_radix_below(uint64_t piece_end)
{
    return (struct sc_radix_among){.piece_end = piece_end, .place_end = UINT64_MAX};
}

/* The unpinned leaf (a run without children) that goes first: of the lowest priority, what is not
 * kept for some time; then, of those that are, whose time is over first. Among equals by
 * base/policy.h, those of pieces below piece_end alone; a run's rank is the highest of its own and
 * of those below it, also of removed ones. If leaves of pieces from piece_end on stand in front of
 * the first one below it, they go first all the same; if none is below it, none goes. A pinned leaf
 * that is met is passed over: it goes behind all others (lru), or what is worth less than two uses
 * now. False: none; or none is found soon, by value and lfu, behind SC_RADIX_ASIDE others of each
 * priority that are not below piece_end. Writer. O(log leaves), amortised; each is looked at where
 * more than SC_RADIX_ASIDE are in use and go before. */
bool sc_radix_victim_below(struct sc_radix *index, struct sc_radix_among among,
                           struct sc_radix_segment *ret_segment);
/* Of any piece. */
bool sc_radix_victim(struct sc_radix *index, struct sc_radix_segment *ret_segment);
/* The same as victim_below, but of those that were stored last (as many as a 16th of the runs) only
 * if none else of the priority may go: what has just been written would go first, by an order that
 * counts uses, where all else was used since it was stored. By lru it is the last anyway. */
bool sc_radix_victim_old(struct sc_radix *index, struct sc_radix_among among,
                         struct sc_radix_segment *ret_segment);
/* The same as victim_below, but of each priority the first unpinned leaf alone is looked at. */
bool sc_radix_victim_first(struct sc_radix *index, struct sc_radix_among among,
                           struct sc_radix_segment *ret_segment);
/* Calls look for each piece all of which may be evicted while only what stands below place_end
 * is: from unpinned leaves up, as far as nothing else hangs on a run. Ends when look returns false,
 * or after steps_max runs. Returns false when all was looked at, true if there may be more.
 * Writer. */
bool sc_radix_evictable(struct sc_radix *index, uint64_t place_end, uint64_t steps_max,
                        bool (*look)(uint64_t piece, void *user), void *user);

/* The run above, whole; false: the ref is stale, or stands below the root. ret_is_alone: nothing
 * else hangs on that run. Writer. */
bool sc_radix_above(struct sc_radix *index, struct sc_radix_ref ref,
                    struct sc_radix_segment *ret_segment, bool *ret_is_alone);
/* Whether the run, or one below it, is pinned now; a match that pins later has not looked at the
 * caller's flags and words before this call. Stale: false. Writer. */
bool sc_radix_is_pinned(struct sc_radix *index, struct sc_radix_ref top);

struct sc_radix_evicted {
    struct sc_radix_segment segment; /* the run that was removed */
    struct sc_radix_ref rest; /* the run above it with the same piece: what is left of the piece
                               * ends there; none: nothing of the piece is left */
};
/* Removes the leaf, and above it what was moved together with it (sc_radix_move), as far as nothing
 * else hangs on that. False, nothing changed: it is no leaf (any more), or is pinned. Writer. */
bool sc_radix_evict_leaf(struct sc_radix *index, struct sc_radix_ref leaf,
                         struct sc_radix_evicted *ret_evicted);
/* That of the one that sc_radix_victim gives. False: there is none. Writer. */
bool sc_radix_evict(struct sc_radix *index, struct sc_radix_evicted *ret_evicted);

/* A number that grows with each root that is made. Writer. */
uint64_t sc_radix_root_mark(const struct sc_radix *index);
/* Removes the roots that were made before the mark was taken, with all below them. The first call
 * makes them unfindable, O(roots); each call looks at no more than `step_count_max` runs. What is
 * pinned stays for its holders, and goes when sc_radix_sweep finds it free. Insertions go on
 * meanwhile, below roots made since, also of the same root hash. A match that began before may
 * still pin one of the old runs.
 *   removal  called for every run that is removed, here children before parents
 * Returns true while there is more to do: call again. Writer. Allocates nothing. */
bool sc_radix_remove_roots(struct sc_radix *index, uint64_t mark, uint64_t step_count_max,
                           const struct sc_radix_removal *removal);

/* Names a prefix without its tokens: what a lease carries to another process. */
struct sc_radix_place {
    struct sc_hash border; /* chain hash at the last grid border <= length; the root's hash at 0 */
    struct sc_hash end;    /* chain hash after `length` tokens */
    uint64_t length;
};

/* The place after `length` tokens of a match. Looks at no run; one hash at most. Threads: any.
 *   segments  [segment_count]  those that the match filled; they reach `length`
 *   length    1 .. the match's tokens */
void sc_radix_place_of(const struct sc_radix *index, const struct sc_radix_query *query,
                       const struct sc_radix_segment *segments, uint64_t segment_count,
                       uint64_t length, struct sc_radix_place *ret_place);

/* What is claimed: the prefix of the place, whose last token's row is in the piece, or was until
 * its runs were moved to another. */
struct sc_radix_claim {
    struct sc_radix_ref run; /* the last one that the piece has or had; stale or none: STALE */
    uint64_t piece;
    uint64_t
        piece_first; /* where its rows begin: of what has moved, those up to the run were its */
    struct sc_radix_place place;
    bool is_kept; /* the caller holds a pin on it, or above: it will do though a removal waits */
};

/* Where a claim's prefix is written. Of one that fails, some may be. */
struct sc_radix_room {
    uint32_t *tokens; /* [token_capacity] all tokens; >= the place's length */
    uint64_t token_capacity;
    struct sc_mark *marks; /* [mark_capacity] the first ones, ascending; NULL when 0 */
    uint64_t mark_capacity;
    struct sc_radix_segment *segments; /* [segment_capacity] as a match fills them; NULL when 0 */
    uint64_t segment_capacity;
};
struct sc_radix_attached {
    struct sc_radix_match match; /* as of a match of the prefix */
    struct sc_sha256 root;
    uint64_t mark_count; /* marks of the prefix, also beyond the capacity */
};

/* Gives a claim's prefix by value. Errors, nothing changed: STALE (the piece is not here, or its
 * prefix has other hashes than the place); INVALID (length 0, token_capacity). Writer. */
spec_status sc_radix_recall(struct sc_radix *index, const struct sc_radix_claim *claim,
                            const struct sc_radix_room *room,
                            struct sc_radix_attached *ret_attached, struct spec_error *reterr);
/* The same, and match.last is pinned; counts as a use. */
spec_status sc_radix_attach(struct sc_radix *index, const struct sc_radix_claim *claim,
                            const struct sc_radix_room *room,
                            struct sc_radix_attached *ret_attached, struct spec_error *reterr);

/* Memory that insertions will need next. A run's memory is first written by the writer, who then
 * waits for the kernel to clear its pages; sc_radix_spare_touch has them cleared by another thread
 * before. */
struct sc_radix_spare {
    void *memory;
    uint64_t bytes;
};
/* Takes it, and counts it in stats.bytes: once after insertions began to fill what they had, of an
 * index so large that clearing takes long. False: not now, or bytes_max is near, or the memory
 * would be the host's. Writer. */
bool sc_radix_spare_take(struct sc_radix *index, struct sc_radix_spare *ret_spare);
/* Has the pages ready. Changes no content, so that the writer may use the memory meanwhile, or give
 * it back. Threads: any. */
void sc_radix_spare_touch(const struct sc_radix_spare *spare);

/* Makes room for about so many more runs in the table of those that end at a grid border, which
 * else grows by and by. Advice: it takes a sixteenth of bytes_max at most. Writer. */
void sc_radix_expect(struct sc_radix *index, uint64_t run_count);
/* Fetches what an insertion that ends in this chain hash will look at. Writer. */
void sc_radix_insert_soon(const struct sc_radix *index, struct sc_hash hash);

struct sc_radix_stats {
    uint64_t bytes; /* allocated, retired and spare memory included */
    uint64_t runs;  /* without roots */
    uint64_t roots;
    uint64_t leaves;
    uint64_t tokens; /* sum of the runs' lengths */
    uint64_t hidden; /* removals that wait for pins */
    uint64_t matches;
    uint64_t retries;   /* matches begun again because of a concurrent change */
    uint64_t shortened; /* matches that answered less because of one */
    uint64_t splits;
    uint64_t collisions; /* insertions refused because of an equal chain hash */
};
/* Threads: any; each number is right by itself. */
void sc_radix_stats(const struct sc_radix *index, struct sc_radix_stats *ret_stats);

#endif

/* Where bytes of segments are free: a bitmap a segment, one bit a 4 KiB page. Knows nothing of
 * files; the store's segments (store/space/segment.c) carry the same indices.
 *
 *   segment 0  [1 1 1 0 0 1 1 ...]      1: taken by an extent
 *   segment 1  [0 0 ...]
 *
 * First fit, lowest segment first; neighbours coalesce by being bits. A scan touches 64 pages a
 * word and skips segments whose largest free run is known to be too short.
 *
 * Holds: a page is taken once (asserted on take and on free); free_pages equals the zero bits.
 * Does not: lock (the caller holds the space lock), allocate after init, remember owners.
 * Threads: the caller's lock.
 * Tests: tests/unit/store/test_space.c */
#ifndef SC_STORE_SPACE_PAGE_MAP_H
#define SC_STORE_SPACE_PAGE_MAP_H

#include "base/alloc.h"
#include "base/assert.h"

#define SC_STORE_SPACE_PAGE_BYTES 4096u

struct sc_store_space_segment {
    uint64_t page_count; /* 0: this index is unused */
    uint64_t free_pages;
    uint64_t run_max;                         /* no free run is longer (it may be shorter) */
    uint64_t fit_bytes, fit_count, fit_pages; /* the last whole answer of fit; fit_bytes 0: none */
};

struct sc_store_space {
    struct sc_alloc *alloc;
    struct sc_poison *poison;
    struct sc_store_space_segment *segments;
    uint64_t *words; /* [segment_max][segment_words] */
    uint64_t segment_max, segment_words;
};

/* false: no memory. pages_max: of the longest segment. */
bool sc_store_space_init(struct sc_store_space *space, struct sc_alloc *alloc,
                         struct sc_poison *poison, uint64_t segment_max, uint64_t pages_max);
void sc_store_space_done(struct sc_store_space *space);

/* A segment appears, all free; or leaves, all free again (asserted). */
void sc_store_space_add(struct sc_store_space *space, uint64_t index, uint64_t page_count);
void sc_store_space_remove(struct sc_store_space *space, uint64_t index);

/* Takes the first free run of `pages` in the segment; false: there is none. pages > 0. */
bool sc_store_space_take(struct sc_store_space *space, uint64_t index, uint64_t pages,
                         uint64_t *ret_page);
/* Takes exactly [page, page + pages); false, and nothing taken, when any is taken or outside. */
bool sc_store_space_take_at(struct sc_store_space *space, uint64_t index, uint64_t page,
                            uint64_t pages);
/* Length of the longest free run of the segment, exact. */
uint64_t sc_store_space_run_max(struct sc_store_space *space, uint64_t index);
/* How many things of `bytes` fit into the segment's free runs, none across two; counts up to `most`
 * of them. ret_pages: of the runs that hold one, if all were looked at. Asked again before anything
 * changed, it answers at once. */
uint64_t sc_store_space_fit(struct sc_store_space *space, uint64_t index, uint64_t bytes,
                            uint64_t most, uint64_t *ret_pages);
void sc_store_space_free(struct sc_store_space *space, uint64_t index, uint64_t page,
                         uint64_t pages);

/* A map of its own that says what this one says now; all_taken: every page is taken. false: no
 * memory. */
bool sc_store_space_copy(const struct sc_store_space *space, bool all_taken,
                         struct sc_store_space *ret_copy);
/* The first free run at or behind `page`, at most pages_max of it; 0: there is none. */
uint64_t sc_store_space_run(struct sc_store_space *space, uint64_t index, uint64_t page,
                            uint64_t pages_max, uint64_t *ret_page);

#endif

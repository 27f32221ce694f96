/* page_map: free pages of segments: a bitmap per segment, one bit per 4 KiB page.
 *
 *   segment 0  [1 1 1 0 0 1 1 ...]      1: taken by an extent
 *   segment 1  [0 0 ...]
 *
 * First fit, lowest segment first. A scan covers 64 pages per word and skips segments whose longest
 * free run is known to be too short. Indices are those of store/space/segment.c.
 *
 * Invariants: a page is taken once (asserted); free_pages equals the zero bits.
 * Threads: caller holds the space lock. No allocation after init.
 * Tests: tests/unit/store/test_space.c */
#ifndef SC_STORE_SPACE_PAGE_MAP_H
#define SC_STORE_SPACE_PAGE_MAP_H

#include "base/alloc.h"
#include "base/assert.h"

#define SC_STORE_SPACE_PAGE_BYTES 4096u

struct sc_store_space_segment {
    uint64_t page_count; /* 0: unused index */
    uint64_t free_pages;
    uint64_t run_max;                         /* upper bound of the longest free run */
    uint64_t fit_bytes, fit_count, fit_pages; /* last complete answer of fit; fit_bytes 0: none */
};

struct sc_store_space {
    struct sc_alloc *alloc;
    struct sc_poison *poison;
    struct sc_store_space_segment *segments;
    uint64_t *words; /* [segment_max][segment_words] */
    uint64_t segment_max, segment_words;
};

/* false: no memory. pages_max: longest segment. */
bool sc_store_space_init(struct sc_store_space *space, struct sc_alloc *alloc,
                         struct sc_poison *poison, uint64_t segment_max, uint64_t pages_max);
void sc_store_space_done(struct sc_store_space *space);

/* Adds a segment, all free; removes one, all free (asserted); makes all of one free. */
void sc_store_space_add(struct sc_store_space *space, uint64_t index, uint64_t page_count);
void sc_store_space_clear(struct sc_store_space *space, uint64_t index);
void sc_store_space_remove(struct sc_store_space *space, uint64_t index);

/* Takes the first free run of `pages` > 0; false: none. */
bool sc_store_space_take(struct sc_store_space *space, uint64_t index, uint64_t pages,
                         uint64_t *ret_page);
/* Takes [page, page + pages); false: a page is taken or outside. */
bool sc_store_space_take_at(struct sc_store_space *space, uint64_t index, uint64_t page,
                            uint64_t pages);
/* Returns the exact length of the longest free run. */
uint64_t sc_store_space_run_max(struct sc_store_space *space, uint64_t index);
/* Returns how many blocks of `bytes` fit the free runs, none across two, up to `most`. ret_pages:
 * pages of runs that hold one, if all were examined. Cached until the segment changes. */
uint64_t sc_store_space_fit(struct sc_store_space *space, uint64_t index, uint64_t bytes,
                            uint64_t most, uint64_t *ret_pages);
void sc_store_space_free(struct sc_store_space *space, uint64_t index, uint64_t page,
                         uint64_t pages);

/* Makes a copy of the map; all_taken: with every page taken. false: no memory. */
bool sc_store_space_copy(const struct sc_store_space *space, bool all_taken,
                         struct sc_store_space *ret_copy);
/* Returns the length of the first free run at or after `page`, at most pages_max; 0: none. */
uint64_t sc_store_space_run(struct sc_store_space *space, uint64_t index, uint64_t page,
                            uint64_t pages_max, uint64_t *ret_page);

#endif

/* permute_queue: determines an extent's row permutation, and holds permuted copies that wait for
 * their records.
 *
 *   next      scores of each layer -> slots (store/rows/row_permutation.h); of a permuted extent,
 *             if too many of the best rows are apart by now (store.h, repeat_ppm)
 *   add       a copy is written and found; it waits until older loads have ended
 *   settle    commits the copies that have waited long enough (permute_extent.c)
 *
 * Invariants: a run of build_sections.c without permutations takes no memory. An extent has at most
 * two copies of its rows on the disk: while an older one is left, it is not permuted again.
 * Threads: build_sections.c's task.
 * Tests: tests/unit/store/test_reorder.c */
#ifndef SC_STORE_SECTION_PERMUTE_QUEUE_H
#define SC_STORE_SECTION_PERMUTE_QUEUE_H

#include "store/internal.h"

struct sc_store_permute_queue {
    struct sc_store *store; /* constant */
    struct sc_alloc *alloc; /* constant */
    uint16_t *slots;        /* [words of all layers * 4] */
    uint64_t words;         /* allocated for slots, 8 bytes each */
    uint16_t *rows;         /* [SC_STORE_ROWS_MAX] */
    uint16_t *judge;        /* [3 * (SC_STORE_ROWS_MAX + 1)] scratch */
    float *told, *scores;   /* [SC_STORE_ROWS_MAX] in the order of the ranges; of the extent */
    uint32_t first;         /* waiting copies, by their extents; 0: none */
    bool has_told;          /* a failure was logged; reset by a commit */
};

/* Returns true if the extent may be permuted, or permuted again: it has its other sections, and no
 * older permuted copy. Log lock held. */
bool sc_store_permute_queue_lack(const struct sc_store *store,
                                 const struct sc_store_extent_entry *extent);
/* Determines the slots of an extent whose live rows are `ranges`. Errors: UNSUPPORTED, no scores,
 * no rows, more than permutation.bytes_max, or a permutation that is good enough. */
spec_status sc_store_permute_queue_next(struct sc_store_permute_queue *permute_queue,
                                        struct sc_store_extent_entry *extent,
                                        const struct sc_store_range *ranges, uint64_t range_count,
                                        const uint16_t **ret_slots, struct spec_error *reterr);
void sc_store_permute_queue_leave(struct sc_store_permute_queue *permute_queue); /* frees memory */
/* Adds an extent's copy, which is found from now on. */
void sc_store_permute_queue_add(struct sc_store_permute_queue *permute_queue, uint64_t extent_id);
void sc_store_permute_queue_settle(struct sc_store_permute_queue *permute_queue);

#endif

/* Which order an extent's rows get, and editions whose records are still to come.
 *
 *   choose    scores of each layer, asked for -> slots (store/rows/row_permutation.h)
 *   add       a copy of the rows is written and found: it waits for a moment without older loads
 *   settle    records of those that have waited long enough (permute_extent.c)
 *
 * Holds: a run of build_sections.c that asks for none takes no memory.
 * Threads: build_sections.c's task; waits: any.
 * Tests: tests/unit/store/test_reorder.c */
#ifndef SC_STORE_SECTION_PERMUTE_QUEUE_H
#define SC_STORE_SECTION_PERMUTE_QUEUE_H

#include "store/internal.h"

struct sc_store_permute_queue {
    struct sc_store *store; /* constant */
    struct sc_alloc *alloc; /* likewise */
    uint16_t *slots;        /* [words of all layers * 4] */
    uint64_t words;         /* of memory */
    uint16_t *rows;         /* [SC_STORE_ROWS_MAX] */
    float *told, *scores;   /* likewise: in the order of the ranges, and of the extent */
    uint32_t first;         /* editions that wait, by their extents; 0: none */
    bool has_told;          /* the log knows that they do; until one has its record */
};

/* Log lock held. Whether the extent may get another order: it has what else it is to get. */
bool sc_store_permute_queue_lack(const struct sc_store *store,
                                 const struct sc_store_extent_entry *extent);
/* The slots of the extent, of which ranges [range_count] are all live rows. UNSUPPORTED: nobody
 * knows, or a layer is more than order.bytes_max. */
spec_status sc_store_permute_queue_next(struct sc_store_permute_queue *permute_queue,
                                        const struct sc_store_extent_entry *extent,
                                        const struct sc_store_range *ranges, uint64_t range_count,
                                        const uint16_t **ret_slots, struct spec_error *reterr);
void sc_store_permute_queue_leave(struct sc_store_permute_queue *permute_queue); /* the memory */
/* The extent's copy of the rows is found from now on. */
void sc_store_permute_queue_add(struct sc_store_permute_queue *permute_queue, uint64_t extent_id);
void sc_store_permute_queue_settle(struct sc_store_permute_queue *permute_queue);

#endif

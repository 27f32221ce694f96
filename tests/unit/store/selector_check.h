/* Sketches under test: matches of the twin's pieces, and what a selector of them must give.
 *
 * Threads: one test thread beside the executor's. */
#ifndef SC_TESTS_UNIT_STORE_SELECTOR_CHECK_H
#define SC_TESTS_UNIT_STORE_SELECTOR_CHECK_H

#include "store/internal.h"
#include "store/rows/tag.h"
#include "tests/unit/store/store_fixture.h"

#define SELECTOR_ROWS_MAX 2048u

struct sc_store_selector *selector_make(struct world *world);

/* Ranges of the twin, at most 64. */
struct match {
    struct sc_store_range ranges[64];
    const struct world_piece *twins[64];
    uint64_t count, rows;
};

void match_add(struct match *match, const struct world_piece *twin, uint32_t first, uint32_t rows);
void match_key(const struct world *world, struct match *match, uint64_t key);
struct match match_of(const struct world *world, uint64_t key); /* all pieces of one key */

/* The number of the extent that has the piece. */
uint64_t copy_of(const struct world *world, uint64_t piece);

/* Every key of the selector is what the twin says, and (tags_too) every tag. */
void match_check(const struct world *world, const struct match *match, uint32_t layer,
                 uint64_t wanted, const struct sc_store_selector *selector, bool tags_too);

/* sc_store_selector_begin of the match's probe keys and tags, or of its quantised rows. */
bool keys_begin(struct sc_store_selector *selector, const struct match *match, uint32_t layer,
                enum sc_io_class io_class, uint64_t probe_row_bytes);
bool quantised_begin(struct sc_store_selector *selector, const struct match *match, uint32_t layer,
                     enum sc_io_class io_class);

spec_status match_load(const struct match *match, struct sc_store_selector *selector,
                       uint32_t layer, uint64_t wanted);

/* Keys and tags of the match are right, in all layers. */
void match_load_ok(const struct world *world, const struct match *match,
                   struct sc_store_selector *selector, uint64_t wanted);

/* An extent with holes: a piece that was never committed, and rows that were skipped. */
void holes_store(struct world *world);

/* What is left of it once its second piece was dropped. */
struct match holes_match(const struct world *world);

#endif

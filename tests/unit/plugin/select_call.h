/* One get_important of a world, its destination and its positions.
 *
 * Threads: any, a call each. */
#ifndef SC_TESTS_UNIT_PLUGIN_SELECT_CALL_H
#define SC_TESTS_UNIT_PLUGIN_SELECT_CALL_H

#include "tests/unit/plugin/select_fixture.h"

#define CALL_ROWS_MAX 700u

struct select_call {
    struct spec_important item;
    struct spec_select select;
    struct area area;
    struct pass pass;
    uint32_t *positions;
};

struct select_call call_make(const struct world *world, spec_request request, uint32_t layer,
                             uint64_t from);
/* Points the item to the structure's own members: it must not move afterwards. */
void call_aim(struct select_call *shot);
void call_free(struct select_call *shot);
spec_status call_fire(struct world *world, struct select_call *shot);
/* Asserts that the rows at `positions` were delivered as they were stored, bit for bit. */
void call_assert_rows(const struct world *world, const struct select_call *shot);
/* Fires for a request of its own, and releases it. */
void call_alone(struct world *world, uint32_t layer, struct select_call *shot);

#endif

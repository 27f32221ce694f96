/* Followers under test: what they were told of, which must be what the writer has.
 *
 * Threads: the fixture's. */
#ifndef SC_TESTS_UNIT_STORE_FOLLOWER_FIXTURE_H
#define SC_TESTS_UNIT_STORE_FOLLOWER_FIXTURE_H

#include "store/internal.h"
#include "tests/unit/store/store_fixture.h"

#define TOLD_MAX 4096u

struct told {
    uint64_t id, mark;
    struct world_piece piece;
};

struct follower {
    struct world *world; /* the writer's: disk, executor, memory */
    struct sc_store_params params;
    struct sc_store *store;
    struct spec_error error;
    struct told told[TOLD_MAX];
    uint32_t told_count;
    uint64_t mark_next, epoch, drops, epochs;
    uint64_t refuse_id;
    uint64_t piece_ns; /* time that passes while it is told of a piece */
};

/* Not open yet. A peer is of another rank's model. */
struct follower *follower_make(struct world *world, uint32_t role);
void follower_open(struct follower *follower);
struct follower *follower_new(struct world *world, uint32_t role); /* made, and open */
void follower_free(struct follower *follower);
/* Follows to the log's end, as a tick does. */
void follow(struct follower *follower);
/* The follower was told of the pieces that the writer holds, and of no others. */
void check_same(const struct follower *follower);
/* Every row of the pieces that a reader was told of is right. */
void check_rows_told(struct follower *follower);

#endif

/* What is built beside the rows of extents (probe rows, codes, editions), under faults and power
 * cuts, and seen by a follower: the same trials for each kind.
 *
 * Holds: nothing that was stored is lost, pages are accounted for, what is there is right, and what
 * is missing is built afterwards.
 * Threads: one test thread beside the executor's. */
#ifndef SC_TESTS_UNIT_STORE_BUILD_TRIAL_H
#define SC_TESTS_UNIT_STORE_BUILD_TRIAL_H

#include "tests/unit/store/build_check.h"

#define BUILD_SETUPS 5u
/* On sim and on files, paired and split, short rows and long ones; with probe rows. */
extern const struct world_setup build_setups[BUILD_SETUPS];

struct build_trial {
    const struct world_setup *setup;
    /* Opened by who builds nothing by itself. */
    struct world *(*bare)(const struct world_setup *setup, uint64_t seed);
    /* Opens it, once it is closed, as who builds what is tried. */
    void (*open)(struct world *world);
    void (*build)(struct world *world); /* NULL: build_all */
    /* How much of it the key has, all of it right. is_cut: power failed, so it may be damaged. */
    uint64_t (*had)(struct world *world, uint64_t key, bool is_cut);
    /* Asserts that the key has all of it; NULL: where that is not known. */
    void (*is_whole)(struct world *world, uint64_t key);
    uint64_t fault_step; /* every so many-th operation fails; 0: each */
};

#ifndef SC_SANITIZED_THREAD /* one thread: nothing to find there, and it takes minutes for it */

/* Every n-th allocation, read, write, completion and reservation of a build failed once. */
void build_trial_faults(const struct build_trial *trial);

/* Power is cut at any write of a build of two keys, a few times each. all: what both have when all
 * is there; 0: not known. There are cuts with nothing, and cuts with all (or something). */
void build_trial_cuts(const struct build_trial *trial, uint64_t all);

#endif

/* Built while a follower looks, and read by it again from its start. */
void build_trial_follower(const struct build_trial *trial);

#endif

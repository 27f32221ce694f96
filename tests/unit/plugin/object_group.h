/* Several processes over the objects of a rank, as handles in one process: each with an executor of
 * its own (the seeded loop), on one simulated disk.
 *
 *   twin   of each domain and number: the life that all must find, or 0. Lives are numbered for the
 *          key, and no life comes back. A value's bytes and size tell its life, so bytes of another
 *          key or life are noticed
 *
 * A call that needs the device is submitted, and the members' tasks are stepped until it ends.
 * Invariants: bytes that are delivered are compared. group_free asserts that the host got all its
 * memory back.
 * Threads: one. */
#ifndef SC_TESTS_UNIT_PLUGIN_OBJECT_GROUP_H
#define SC_TESTS_UNIT_PLUGIN_OBJECT_GROUP_H

#include "plugin/objects/objects.h"
#include "store/internal.h"
#include "tests/sim/io_sim.h"
#include "tests/sim/sim_memory.h"
#include "tests/unit/cases.h"

#include <inttypes.h>

#define GROUP_MEMBERS 4u
#define GROUP_DOMAINS 2u
#define GROUP_KEYS    24u
#define GROUP_LIVES   4000u
#define GROUP_ROOM    (128u << 10) /* more than any value */

struct member {
    spec_objects *store; /* NULL: closed */
    spec_domain domains[GROUP_DOMAINS];
    uint64_t events_from;
    struct spec_error error;
};

struct twin {
    uint32_t life;  /* 0: none */
    uint32_t lives; /* that were begun */
};

struct group {
    struct sc_alloc disk_alloc;
    struct sc_io_sim_disk *disk;
    const char *extra; /* members of the configuration, or "" */
    _Atomic uint64_t live_blocks;
    const struct spec_objects_api *api;
    struct member members[GROUP_MEMBERS];
    struct twin twins[GROUP_DOMAINS][GROUP_KEYS];
    struct work *works; /* submitted, not ended */
    uint64_t random;
    bool is_damaged; /* files were: puts and gets may fail, and wait 30 s at most */
};

/* A key of a submitted put or get. */
struct work {
    struct work *next;
    struct spec_keys keys;
    struct spec_pieces pieces;
    struct spec_transfer_params params;
    uint8_t key;
    uint64_t address, size;
    int32_t status;
    uint32_t member, domain, number, life;
    bool is_put, is_noted; /* the twin knows what came of the put */
    bool is_polled;        /* its completion was returned */
    spec_operation operation;
    uint8_t memory[GROUP_ROOM];
};

uint64_t draw(uint64_t *random, uint64_t below);

/* A disk, and all members open, beside each other. */
struct group *group_new(const char *extra, uint64_t seed);
/* A group on another disk, which it closes: the twins are the same, and nobody has it open. */
struct group *group_on(const struct group *group, struct sc_io_sim_disk *disk);
void group_free(struct group *group);
spec_status member_try_open(struct group *group, uint32_t member);
void member_open(struct group *group, uint32_t member);
/* Ends its submitted work, too. */
void member_close(struct group *group, uint32_t member);
/* Closes a domain and opens it again, unless it has work there. */
void domain_reopen(struct group *group, uint32_t member, uint32_t domain);
/* As if the process had ended at this moment. */
void member_kill(struct group *group, uint32_t member);

/* The member reads the log to its end. */
void follow(struct group *group, uint32_t member);
void follow_all(struct group *group);
/* Steps a task of the member. */
void step(struct group *group, uint32_t member);
/* The twin learns of puts that have ended: before another member removes what they stored. */
void puts_note(struct group *group);
bool is_pending(const struct work *work);

/* Submits a put of a new life, or a get of what the member finds. A get of an absent key ends at
 * once. */
struct work *put_submit(struct group *group, uint32_t member, uint32_t domain, uint32_t number);
struct work *get_submit(struct group *group, uint32_t member, uint32_t domain, uint32_t number);
/* Steps tasks of all members until it ends. Returns its status, and frees it. A value that is
 * delivered is compared. */
int32_t work_end(struct group *group, struct work *work);
/* Steps its member alone until it is not pending. */
void step_to_end(struct group *group, const struct work *work);
/* Steps its member until its value is written, and only the record is missing. */
void put_write(struct group *group, struct work *work);

/* put_submit or get_submit, and work_end. */
int32_t put(struct group *group, uint32_t member, uint32_t domain, uint32_t number);
int32_t get(struct group *group, uint32_t member, uint32_t domain, uint32_t number);
void put_done(struct group *group, uint32_t member, uint32_t domain, uint32_t number);
int8_t remove_key(struct group *group, uint32_t member, uint32_t domain, uint32_t number);
void clear(struct group *group, uint32_t member, uint32_t domain);
void checkpoint(struct group *group, uint32_t member);
/* Returns the life that the member finds, or 0. */
uint32_t found(struct group *group, uint32_t member, uint32_t domain, uint32_t number);
/* The number of the key's entry; 0: none. */
uint32_t entry_of(struct group *group, uint32_t member, uint32_t domain, uint32_t number);
/* Reads the members' events: the twin learns what they have evicted. Nothing may be damaged. */
void events_read(struct group *group);

/* All have read on; each finds what the twin has, and no more; each page of their maps has the
 * object that the index says, and their maps are equal. */
void all_agree(struct group *group);
/* The same by an open of a copy of the disk. */
void an_open_agrees(struct group *group);

#endif

/* Objects by key under test, linked statically, on the simulated disk and in the executor's seeded
 * loop, with the truth about every key.
 *
 *   twin    of each domain and number: which lives may be found. A key's value in another life,
 * after it was removed and put again, has other bytes and another size state   NONE: it must be
 * absent; SURE: it must be delivered; MAYBE: it may be either, since a call failed, or it was
 * evicted
 *
 * Holds: bytes that are delivered are compared, with guard bytes behind them; rig_free asserts that
 * the host got all its memory back.
 * Threads: one. */
#ifndef SC_TESTS_UNIT_PLUGIN_OBJECT_RIG_H
#define SC_TESTS_UNIT_PLUGIN_OBJECT_RIG_H

#include "plugin/objects/objects.h"
#include "tests/sim/io_sim.h"
#include "tests/sim/sim_memory.h"
#include "tests/unit/cases.h"

#include <inttypes.h>

#define RIG_DOMAINS 2u
#define RIG_KEYS    32u
#define RIG_LIVES   256u
#define RIG_BATCH   16u

enum rig_state { RIG_NONE, RIG_SURE, RIG_MAYBE };

struct rig_twin {
    enum rig_state state;
    uint32_t life;  /* of what was put last */
    uint32_t lives; /* that were begun */
};

struct rig {
    struct sc_alloc disk_alloc;
    struct sc_io_sim_disk *disk;
    const struct sc_io_custom *custom; /* NULL: the disk's */
    const char *extra;                 /* members of the configuration, or "" */
    _Atomic uint64_t live_blocks, live_bytes, refused;
    _Atomic int64_t countdown; /* of the host's allocator: < 0: none fails */
    const struct spec_objects_api *api;
    spec_objects *store;
    spec_domain domains[RIG_DOMAINS];
    struct spec_error error;
    struct rig_twin twins[RIG_DOMAINS][RIG_KEYS];
    uint64_t events_from;
    bool may_lie;      /* the power went: older lives may be found, or damaged values */
    bool may_fail;     /* a fault is armed: calls may fail */
    bool loses_power;  /* and it may be for good: puts wait in vain */
    uint64_t failures; /* calls and keys that did */
};

/* journal: as of sc_io_sim_disk_params. Closed. */
void rig_make(struct rig *rig, const char *extra, uint32_t journal);
/* Another disk, whose faults are drawn by the seed. Closed. */
void rig_disk_new(struct rig *rig, uint64_t seed, uint32_t journal);
/* Closes what is open. */
void rig_free(struct rig *rig);
/* Opens, and the domains; an error leaves it closed. */
spec_status rig_try_open(struct rig *rig);
void rig_open(struct rig *rig);
void rig_close(struct rig *rig);
/* As kill -9 does: what was written stays, and nothing that close does has an effect. */
void rig_kill(struct rig *rig);
/* Lets virtual time pass. */
void rig_pass_ns(struct rig *rig, uint64_t ns);

uint64_t rig_value_bytes(uint32_t domain, uint32_t number, uint32_t life);
uint32_t rig_key(uint32_t domain, uint32_t number, uint8_t key[64]);

/* Keys [first, first + count) of a domain, count <= RIG_BATCH. The twin learns what came of it; a
 * status that no fault explains fails the test. */
void rig_put(struct rig *rig, uint32_t domain, uint32_t first, uint32_t count);
void rig_get(struct rig *rig, uint32_t domain, uint32_t first, uint32_t count);
void rig_remove(struct rig *rig, uint32_t domain, uint32_t first, uint32_t count, uint32_t flags);
void rig_clear(struct rig *rig, uint32_t domain, uint32_t flags);
/* Reads the events: what was evicted or damaged may be absent from now on. */
void rig_events(struct rig *rig);
void rig_checkpoint(struct rig *rig);

/* Every key is as its twin says, by exists, get, and list. */
void rig_check(struct rig *rig);
/* What was found is what is true from now on: after a reopen. */
void rig_settle(struct rig *rig);
/* Without faults: keys are put, got, removed, and found after a reopen. */
void rig_works(struct rig *rig);

#endif

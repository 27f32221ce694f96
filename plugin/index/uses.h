/* uses: which prefixes other processes use, for the eviction order (uses.c).
 *
 * A member notes in shared memory the second in which a piece was used (sc_store_use): the last
 * piece of a match, and of a request while it is open. The evictor of any member looks its
 * candidates up there.
 *
 * Threads: per call. Tests: tests/unit/plugin/test_uses.c, tests/fault/test_many_processes.c */
#ifndef SC_PLUGIN_INDEX_USES_H
#define SC_PLUGIN_INDEX_USES_H

#include "abi/spec_connector.h"
#include "hashing/radix.h"

#include <stdbool.h>
#include <stdint.h>

#define SC_PLUGIN_USE_LEVELS  6u
#define SC_PLUGIN_USE_MOMENTS 64u

struct sc_plugin_request;

struct sc_plugin_uses {
    /* Guarded by index.lock: the index's time at the first look in each 1, 8, 64 .. s. */
    struct sc_plugin_moment {
        uint64_t time; /* sc_radix_time */
        uint32_t second;
    } moments[SC_PLUGIN_USE_LEVELS][SC_PLUGIN_USE_MOMENTS];

    /* The tick's. */
    uint64_t renew_ns; /* executor's clock: open requests renew their uses then */
};

/* One step's looks at leaves. */
struct sc_plugin_looks {
    uint32_t left;
    uint32_t raised, spared; /* leaves that others used later; that were used within a lease */
    bool spares;
    uint32_t before_s; /* leaves used from this second on stay; 0: none for that */
    uint64_t given;    /* bytes of evicted pieces */
};

/* Notes that the request uses the piece, and renews that while it is open. Any thread; never
 * blocks. */
void sc_plugin_uses_add(spec_connector *conn, struct sc_plugin_request *request, uint32_t which,
                        uint64_t piece);
/* Renews the uses of open requests, and keeps moments. Tick. */
void sc_plugin_uses_tick(spec_connector *conn);
/* Keeps the present moment. Index lock held. */
void sc_plugin_uses_now(spec_connector *conn);
/* Returns the second (wall clock) of a leaf's last use by any process, as far as it is known. One
 * from before this process opened the store counts as at its opening. Index lock held. */
uint32_t sc_plugin_uses_second(spec_connector *conn, const struct sc_radix_segment *leaf);
/* Returns true if another process's use keeps the leaf for now: it was ranked anew, or, if
 * looks->spares, used within a lease. Index lock held. */
bool sc_plugin_uses_keep(spec_connector *conn, const struct sc_radix_segment *leaf,
                         struct sc_plugin_looks *looks);

#endif

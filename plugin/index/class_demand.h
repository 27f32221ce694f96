/* What each class of passes took of the disk in the last lease's time, or would have taken.
 *
 *   ring   [ 1/16 lease | 1/16 | ... | now ]   bytes of each class in each
 *
 * A class is a place in the order of eviction (plugin/index/evict.h). The store measures the demand
 * of all classes together (store/space/reserve.c); what of it is of lower classes evicts nothing
 * that stands higher.
 *
 * Holds: the ring is as long as the store's, so the sums are of the same time.
 * Threads: the job of eviction.
 * Tests: tests/unit/plugin/test_hints.c */
#ifndef SC_PLUGIN_INDEX_CLASS_DEMAND_H
#define SC_PLUGIN_INDEX_CLASS_DEMAND_H

#include "hashing/radix.h"

#include <stdint.h>

/* Each priority, and all that is retained. */
#define SC_PLUGIN_CLASSES      (SC_RADIX_PLACE_KEPT + 1u)
#define SC_PLUGIN_DEMAND_SLOTS 17u

struct sc_plugin_class_demand {
    uint64_t slot; /* the newest: time in sixteenths of a lease */
    uint64_t bytes[SC_PLUGIN_DEMAND_SLOTS][SC_PLUGIN_CLASSES];
};

static inline uint32_t sc_plugin_class_of(uint64_t place)
{
    return place < SC_RADIX_PLACE_KEPT ? (uint32_t)place : SC_RADIX_PLACE_KEPT;
}

/* Empties the slots that no time was spent in. Comes before the calls below. */
void sc_plugin_class_demand_move(struct sc_plugin_class_demand *demand, uint64_t now_ns,
                                 uint64_t lease_ns);
void sc_plugin_class_demand_add(struct sc_plugin_class_demand *demand, uint32_t class_of,
                                uint64_t bytes);
/* Of classes below this one. */
uint64_t sc_plugin_class_demand_below(const struct sc_plugin_class_demand *demand,
                                      uint32_t class_of);

#endif

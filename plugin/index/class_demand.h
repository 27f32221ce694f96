/* class_demand: disk bytes that each class of passes took, or lacked, within the last lease time.
 *
 *   ring   [ 1/16 lease | 1/16 | ... | now ]   bytes of each class in each
 *
 * A class is a place in the eviction order (plugin/index/evict.h). store/space/reserve.c measures
 * the demand of all classes with a ring of the same length. Demand of lower classes evicts nothing
 * that is placed higher. Threads: the eviction job. Tests: tests/unit/plugin/test_hints.c */
#ifndef SC_PLUGIN_INDEX_CLASS_DEMAND_H
#define SC_PLUGIN_INDEX_CLASS_DEMAND_H

#include "hashing/radix.h"

#include <stdint.h>

/* Each priority, and all that is retained. */
#define SC_PLUGIN_CLASSES      (SC_RADIX_PLACE_KEPT + 1u)
#define SC_PLUGIN_DEMAND_SLOTS 17u

struct sc_plugin_class_demand {
    uint64_t slot; /* newest slot: time in sixteenths of a lease */
    uint64_t bytes[SC_PLUGIN_DEMAND_SLOTS][SC_PLUGIN_CLASSES];
};

static inline uint32_t sc_plugin_class_of(uint64_t place)
{
    return place < SC_RADIX_PLACE_KEPT ? (uint32_t)place : SC_RADIX_PLACE_KEPT;
}

/* Empties the slots of elapsed time. Call it before the calls below. */
void sc_plugin_class_demand_move(struct sc_plugin_class_demand *demand, uint64_t now_ns,
                                 uint64_t lease_ns);
void sc_plugin_class_demand_add(struct sc_plugin_class_demand *demand, uint32_t class_of,
                                uint64_t bytes);
/* Returns the bytes of all lower classes. */
uint64_t sc_plugin_class_demand_below(const struct sc_plugin_class_demand *demand,
                                      uint32_t class_of);

#endif

/* class_demand: disk demand by class. Contract: class_demand.h. */
#include "plugin/index/class_demand.h"

#include <string.h>

#define LEASE_NS_MIN UINT64_C(1000000) /* shorter leases count as this long */

void sc_plugin_class_demand_move(struct sc_plugin_class_demand *demand, uint64_t now_ns,
                                 uint64_t lease_ns)
{
    uint64_t span_ns = lease_ns > LEASE_NS_MIN ? lease_ns : LEASE_NS_MIN;
    uint64_t slot = now_ns / (span_ns / (SC_PLUGIN_DEMAND_SLOTS - 1));
    uint64_t gone = slot > demand->slot ? slot - demand->slot : 0;
    demand->slot += gone;
    gone = gone < SC_PLUGIN_DEMAND_SLOTS ? gone : SC_PLUGIN_DEMAND_SLOTS;
    for (uint64_t i = 0; i < gone; i++)
        memset(demand->bytes[(demand->slot - i) % SC_PLUGIN_DEMAND_SLOTS], 0,
               sizeof(demand->bytes[0]));
}

void sc_plugin_class_demand_add(struct sc_plugin_class_demand *demand, uint32_t class_of,
                                uint64_t bytes)
{
    demand->bytes[demand->slot % SC_PLUGIN_DEMAND_SLOTS][class_of] += bytes;
}

uint64_t sc_plugin_class_demand_below(const struct sc_plugin_class_demand *demand,
                                      uint32_t class_of)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < SC_PLUGIN_DEMAND_SLOTS; i++)
        for (uint32_t k = 0; k < class_of; k++)
            bytes += demand->bytes[i][k];
    return bytes;
}

/* upper_bus: transfer times of the modelled bus. Contract: upper_bus.h. */
#include "plugin/select/upper_bus.h"
#include "plugin/select/item.h"

void sc_plugin_bus_open(spec_connector *conn)
{
    struct sc_store_stats stats;
    sc_store_stats(conn->store, &stats);
    conn->bus.bytes_per_s = stats.upper_bytes_max > 0 ? conn->config.upper_bus_bytes_per_s : 0;
}

/* Returns when the bytes have crossed the bus, after all that was sent before. */
static uint64_t send(spec_connector *conn, uint64_t bytes)
{
    struct sc_plugin_bus *bus = &conn->bus;
    uint64_t took_ns = (uint64_t)((double)bytes * 1e9 / (double)bus->bytes_per_s);
    uint64_t now_ns = sc_exec_now_ns(conn->exec), free_ns = atomic_load(&bus->free_ns), end_ns;
    do {
        end_ns = (free_ns > now_ns ? free_ns : now_ns) + took_ns;
    } while (!atomic_compare_exchange_weak(&bus->free_ns, &free_ns, end_ns));
    sc_count(&conn->stats.upper_bus_bytes, bytes);
    sc_count(&conn->stats.upper_bus_ns, took_ns);
    return end_ns;
}

void sc_plugin_bus_took(spec_connector *conn, struct sc_plugin_item *item, uint32_t tier,
                        uint64_t rows, uint64_t row_bytes)
{
    bool is_afar = item->memory.target != &sc_plugin_target_host;
    if (tier == SPEC_TIER_UPPER && is_afar)
        tier = SPEC_TIER_HOST;
    item->taken[tier] += rows;
    if (conn->bus.bytes_per_s > 0 && tier != SPEC_TIER_UPPER && !is_afar && rows > 0)
        item->over_ns = send(conn, rows * row_bytes);
}

void sc_plugin_bus_end(spec_connector *conn, const struct sc_plugin_item *item)
{
    struct sc_plugin_bus *bus = &conn->bus;
    _Atomic uint32_t never = 0;
    if (bus->bytes_per_s == 0)
        return;
    if (sc_exec_is_loop(conn->exec) && item->over_ns > sc_exec_now_ns(conn->exec))
        (void)sc_exec_wait(conn->exec, &never, 0, item->over_ns);
    uint64_t risen = sc_store_upper_promoted_halves(conn->store);
    uint64_t charged = atomic_exchange(&bus->promoted_halves, risen);
    if (risen > charged) /* else another thread charges it */
        (void)send(conn, (risen - charged) * conn->dims.k_row_bytes);
}

/* route: chooses whether values are transferred directly or through staging.
 *
 *   epoch     64 MiB of values that end while no transfer has the other route; the 16 MiB before,
 *             while the device changes over, do not count
 *   rate      their bytes by the time with transfers in flight
 *   trial     one epoch on the other route: at first, and after 1 GiB; each trial that changes
 *             nothing doubles the distance to the next, to at most 16 GiB
 *
 * Direct transfers save a copy. But memory of small pages is thousands of segments to a device.
 * Some disks of virtual machines read 1 MiB in 256 segments at a third of their rate for one
 * segment, which only measurement shows. Staging has huge pages; it is used if it is an eighth
 * faster.
 *
 * Each domain has a route for gets and one for puts. Only values that could be direct count.
 * Threads: `lock`. Tests: tests/unit/plugin/test_objects_route.c */
#include "plugin/objects/objects.h"

#define SETTLE_BYTES    (16ull << 20)
#define EPOCH_BYTES     (64ull << 20) /* with less, a pause of the device would decide */
#define TRIAL_BYTES     (1ull << 30)
#define TRIAL_BYTES_MAX (16ull << 30)

bool sc_objects_route_begin(const spec_objects *objects, struct sc_object_route *route,
                            uint64_t now_ns)
{
    if (objects->config.objects_staging != SC_STAGING_AUTO)
        return objects->config.objects_staging == SC_STAGING_ALWAYS;
    if (route->active++ == 0)
        route->busy_since_ns = now_ns;
    return route->is_staged;
}

/* Restarts measuring; transfers in flight on the other route do not count. */
static void epoch_begin(struct sc_object_route *route, bool is_staged, uint64_t now_ns)
{
    route->others = 0;
    if (route->is_staged != is_staged) {
        route->others = route->active;
        route->settle_bytes = SETTLE_BYTES;
    }
    route->is_staged = is_staged;
    route->bytes = route->busy_ns = 0;
    route->busy_since_ns = now_ns;
}

/* Chooses the route by both rates, and the time of the next trial. */
static bool trial_end(struct sc_object_route *route)
{
    bool was_staged = !route->is_staged;
    bool is_staged = route->rates[1] > route->rates[0] + route->rates[0] / 8;
    uint64_t twice = route->trial_bytes * 2;
    route->is_trial = false;
    route->since_bytes = 0;
    route->trial_bytes = is_staged != was_staged || twice == 0 ? TRIAL_BYTES
                         : twice < TRIAL_BYTES_MAX             ? twice
                                                               : TRIAL_BYTES_MAX;
    return is_staged;
}

/* Computes the epoch's rate, and returns to or tries a route. */
static void epoch_end(struct sc_object_route *route, uint64_t now_ns)
{
    bool is_staged = route->is_staged;
    route->rates[is_staged ? 1 : 0] = route->bytes * 1000 / (route->busy_ns / 1000 + 1);
    route->since_bytes += route->bytes;
    if (route->is_trial) {
        is_staged = trial_end(route);
    } else if (route->since_bytes >= route->trial_bytes) {
        is_staged = !is_staged;
        route->is_trial = true;
    }
    epoch_begin(route, is_staged, now_ns);
}

void sc_objects_route_end(const spec_objects *objects, struct sc_object_route *route,
                          bool was_staged, uint64_t bytes, uint64_t now_ns)
{
    if (objects->config.objects_staging != SC_STAGING_AUTO)
        return;
    route->active--;
    if (was_staged != route->is_staged) {
        if (route->others > 0 && --route->others == 0)
            epoch_begin(route, route->is_staged, now_ns);
        return;
    }
    if (route->others > 0) /* the device serves both kinds */
        return;
    if (route->settle_bytes > 0) {
        route->settle_bytes -= bytes < route->settle_bytes ? bytes : route->settle_bytes;
        route->busy_since_ns = now_ns;
        return;
    }
    route->bytes += bytes;
    if (route->active == 0 || route->bytes >= EPOCH_BYTES) {
        route->busy_ns += now_ns - route->busy_since_ns;
        route->busy_since_ns = now_ns;
    }
    if (route->bytes >= EPOCH_BYTES)
        epoch_end(route, now_ns);
}

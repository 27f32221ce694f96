/* Rows of the host tier that the device reads where they are: the tier's memory is registered, and
 * a pinned buffer names its rows instead of having them.
 *
 *   tier --kernel, over the bus--> places
 *
 * Holds: a slab whose rows a pinned buffer names stays as it is until the device is through with
 * the pinned buffer.
 *   Memory that the driver does not register is read by the processor, into pinned buffers.
 * Does not: verify (who places rows did).
 * Threads: open and close: attach's. A pinned buffer's slabs: who fills it, then the flight that
 * gives it.
 * Tests: tests/unit/plugin/test_device_direct.c */
#ifndef SC_PLUGIN_DEVICE_DIRECT_H
#define SC_PLUGIN_DEVICE_DIRECT_H

#include "plugin/device/device_tables.h"

/* Attach and detach of a device call these. Memory that is refused is no error: it is logged. */
void sc_plugin_direct_open(struct sc_plugin_device *device);
void sc_plugin_direct_close(struct sc_plugin_device *device);

/* Whether the device can read all these rows: they lie in a slab of the tier. */
static inline bool sc_plugin_direct_has(const struct sc_plugin_device *device,
                                        const struct sc_store_rows *rows)
{
    return device->direct.device != NULL && rows->slab != NULL;
}
/* The pinned buffer keeps the slab. false: it keeps as many others as it can. */
bool sc_plugin_direct_hold(struct sc_plugin_pinned *pinned, struct sc_host_tier_memory_slab *slab);
/* The pinned buffer's slabs are let go. */
void sc_plugin_direct_leave(struct sc_plugin_pinned *pinned);

#endif

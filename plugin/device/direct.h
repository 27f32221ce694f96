/* direct: lets kernels read rows of the host tier in place: its memory is registered with the
 * driver, and pinned buffers reference its rows instead of copying them.
 *
 * Invariants: a slab that a pinned buffer references does not change until the device has finished
 * with the buffer. If the driver refuses the memory, rows are copied to pinned buffers by the CPU.
 * The caller has verified the rows.
 * Threads: open and close: those of attach. A pinned buffer's slabs: its filler, then the ring
 * entry that gives it back.
 * Tests: tests/unit/plugin/test_device_direct.c */
#ifndef SC_PLUGIN_DEVICE_DIRECT_H
#define SC_PLUGIN_DEVICE_DIRECT_H

#include "plugin/device/device_tables.h"

/* Called by attach and detach. A refusal is logged and is no error. */
void sc_plugin_direct_open(struct sc_plugin_device *device);
void sc_plugin_direct_close(struct sc_plugin_device *device);

/* Tells whether the device can read all these rows, because they are in a slab of the host tier. */
static inline bool sc_plugin_direct_has(const struct sc_plugin_device *device,
                                        const struct sc_store_rows *rows)
{
    return device->direct.device != NULL && rows->slab != NULL;
}
/* Holds the slab in the pinned buffer. Returns false if the buffer holds its maximum. */
bool sc_plugin_direct_hold(struct sc_plugin_pinned *pinned, struct sc_host_tier_memory_slab *slab);
void sc_plugin_direct_leave(struct sc_plugin_pinned *pinned);

#endif

/* Keys and codes on the device: the memory that sketches stand in has a twin there, and a run of it
 * goes up once, in one copy from where it was read to.
 *
 *   host     sketches' memory   [ run a ........ ][ run b .... ][ . . . ]      pinned
 *                                      | one copy
 *   device   twin               [ run a ........ ][ . . . . .  ][ . . . ]      byte by byte
 *
 * Scores and decoders read the twin where they would have read what boxes bring; tables, turns and
 * descriptors still go in boxes.
 *
 * Holds: who is told that a run is up finds all of it in the twin, in whatever its slot's kernels
 * do behind what its copies were given: a run goes up when it is whole, is held until it has, and
 * its twin is written by nobody else for as long as it is held (by the caller, say, or by a box).
 * Does not: choose what goes up; wait for a host's stream.
 * Threads: any. No lock of its own: of a slot, who enqueues there.
 * Tests: tests/unit/plugin/test_device_mirror.c, test_device_mirror_orders.c, test_device_orders.c,
 * tests/fault/test_device_mirror_races.c */
#ifndef SC_PLUGIN_MIRROR_H
#define SC_PLUGIN_MIRROR_H

#include "plugin/device/device.h"

/* Attach and detach of a device call these. Takes half of what open made, or nothing. */
spec_status sc_plugin_mirror_open(struct sc_plugin_device *device, struct spec_error *reterr);
void sc_plugin_mirror_close(struct sc_plugin_device *device);

/* The run that has the byte, which the caller holds, is up, or on its way on this slot's copies,
 * which the slot's kernels have yet to follow. false: it goes in boxes (no sketch's memory, another
 * slot brings it up at the moment, or never_waits and the slot's flights are all in the air).
 * The device is attached; the slot is not locked. */
bool sc_plugin_mirror_up(struct sc_plugin_device *device, uint32_t slot, const uint8_t *at,
                         bool never_waits, struct sc_store_run *ret_run);
/* Where the twin has the byte. */
static inline uint64_t sc_plugin_mirror_of(const struct sc_plugin_device *device, const void *at)
{
    return device->mirror.range.at + (uint64_t)((const uint8_t *)at - device->mirror.base);
}
/* Runs and slabs that the device is through with are let go: before memory for another is asked
 * for. Device open. */
void sc_plugin_mirror_reap(struct sc_plugin_device *device);

#endif

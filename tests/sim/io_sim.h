/* The simulated disk: a back end (struct sc_io_custom) of files in memory, with a device model on
 * the executor's clock, seeded faults and crash images. The whole plugin runs on it unchanged; with
 * an executor in loop mode a run depends on its seeds alone.
 *
 * The disk outlives the connector, so that a test closes or crashes and opens again:
 *
 *   disk = names and files as programs see them ("now")
 *        + the same at the last sync ("base")  + journal: every change since, in order
 *
 * Power cut. What a successful sync covered is there afterwards: the file's data, and every name
 * made or removed before (as on a file system with a journal). Of what came later a seeded part is:
 * one of {nothing, everything, a prefix whose last write is torn at a sector, any subset of the
 * writes, any subset of their 512-byte sectors}; names, a prefix. Dropping older and keeping newer
 * sectors is what a reordering device does, so every order since the last sync is among them.
 *
 * Device. Lanes are served demand first; a transfer of n bytes occupies the device for
 * n / bytes_per_s, at least for 1 / ops_per_s, and completes op_ns after that: latency overlaps,
 * bandwidth is shared. Blocking calls take no time. bytes_per_s, ops_per_s 0: no limit.
 *
 * Holds: the journal keeps order; faults are drawn in the order in which the device starts
 * operations; a fork shares nothing with its origin.
 * Does not: keep permissions or times; count sparse parts as free (a file occupies its size).
 * Threads: any (one lock, rank 70; executor and callbacks are called with it released). crash,
 * fork, peek and poke: while nothing is in flight.
 * Tests: tests/unit/store/test_io_sim.c */
#ifndef SC_TESTS_SIM_IO_SIM_H
#define SC_TESTS_SIM_IO_SIM_H

#include "base/config.h"
#include "store/io/io.h"

#define SC_IO_SIM_SECTOR_BYTES 512u

struct sc_io_sim_disk;

struct sc_io_sim_disk_params {
    struct sc_alloc *alloc;  /* of the handle; contents are the simulated device's: libc's memory,
                                so that a sealed allocator sees none of it */
    uint64_t seed;           /* of the faults, and of sc_io_random */
    uint64_t capacity_bytes; /* 0: 1 TiB */
    uint32_t journal;        /* 0: none, crash and fork refuse; 1: since the last sync; 2: since the
                                disk was made, so that fork can go back to any event */
};

spec_status sc_io_sim_disk_open(const struct sc_io_sim_disk_params *params,
                                struct sc_io_sim_disk **ret_disk, struct spec_error *reterr);
/* Every back end on it is closed (asserted). Takes NULL. */
void sc_io_sim_disk_close(struct sc_io_sim_disk *disk);

/* What the disk is like; copies and forks are like their origin. A new one has no limits. */
struct sc_io_sim_device {
    uint64_t bytes_per_s, op_ns, ops_per_s;
    uint64_t loop_seed; /* of a connector's executor */
};
/* While nothing is in flight. */
void sc_io_sim_disk_device(struct sc_io_sim_disk *disk, const struct sc_io_sim_device *device);
/* From the next transfer on; at any time. */
void sc_io_sim_disk_rate(struct sc_io_sim_disk *disk, uint64_t bytes_per_s);

/* What sc_io_open, sc_store_open and sc_plugin_open_on take, as long as the disk is there. Any
 * number of back ends may be open on a disk at a time. NULL for NULL. */
const struct sc_io_custom *sc_io_sim_custom(struct sc_io_sim_disk *disk);

/* In the setups of tests, beside those that a configuration can name: the custom back end. */
enum { SC_BACKEND_SIM = SC_BACKEND_PREAD + 1 };

/* ---- Faults --------------------------------------------------------------------------------- */

enum sc_io_sim_fault {
    SC_SIM_READ_EIO,    /* a read fails; no byte moved */
    SC_SIM_WRITE_EIO,   /* a write fails; no byte moved */
    SC_SIM_NO_SPACE,    /* a write or a reserve fails with ENOSPC */
    SC_SIM_SYNC_EIO,    /* a sync fails, and a seeded part of what it covered will never last */
    SC_SIM_SHORT,       /* an operation is transferred in two parts; succeeds */
    SC_SIM_TORN,        /* a write stops at a sector; says success */
    SC_SIM_FLIP,        /* a read returns one flipped bit; the disk is right */
    SC_SIM_MISDIRECTED, /* a write lands elsewhere in its file; says success */
    SC_SIM_LOST,        /* a write has no effect; says success */
    SC_SIM_LATE,        /* an operation completes late_ns later (default 50 ms) */
    SC_SIM_NEVER,       /* an operation takes effect and does not complete until release_all */
    SC_SIM_STALE,       /* pages of a write keep what they held, a seeded part of those that held
                         * anything or all of them; says success */
    SC_SIM_WRITE_PART,  /* a write fails, and a seeded part of its bytes is there, or all of them */
    SC_SIM_CUT_EIO,     /* a truncate fails; nothing changed */
    SC_SIM_FAULTS
};
/* SHORT, LATE and NEVER concern operations only; the others blocking calls too. */

/* Each operation of the kind has the fault with a chance of ppm in a million. 0: none. */
void sc_io_sim_fault_ppm(struct sc_io_sim_disk *disk, enum sc_io_sim_fault fault, uint64_t ppm);
/* The n-th operation of the kind from now (0: the next) has it, once. */
void sc_io_sim_fault_nth(struct sc_io_sim_disk *disk, enum sc_io_sim_fault fault, uint64_t n);
/* Only files whose path contains text have faults; NULL: all. The text is kept by pointer. */
void sc_io_sim_fault_scope(struct sc_io_sim_disk *disk, const char *text);
void sc_io_sim_fault_late_ns(struct sc_io_sim_disk *disk, uint64_t late_ns);
uint64_t sc_io_sim_fault_fired(struct sc_io_sim_disk *disk, enum sc_io_sim_fault fault);
/* Completes every operation that SC_SIM_NEVER holds back; returns how many. */
uint64_t sc_io_sim_release_all(struct sc_io_sim_disk *disk);

/* From now on everything fails with EIO and has no effect, until crash. So a test cuts the power,
 * closes the connector (release_all first, when something is held back), crashes, opens again. */
void sc_io_sim_power_off(struct sc_io_sim_disk *disk);
/* The same by itself after n more changes (writes, reserves, truncates, syncs, names). */
void sc_io_sim_power_off_after(struct sc_io_sim_disk *disk, uint64_t n);

/* ---- Crash images --------------------------------------------------------------------------- */

/* The disk becomes what is found after a power cut now; power is on, no faults are armed, locks are
 * gone, the journal is empty. No file is open (asserted).
 * Errors: SPEC_E_INVALID (journal 0), SPEC_E_NO_MEMORY (the disk is unchanged). */
spec_status sc_io_sim_disk_crash(struct sc_io_sim_disk *disk, uint64_t seed,
                                 struct spec_error *reterr);
/* Journal events so far: with journal 2, all since the disk was made. */
uint64_t sc_io_sim_disk_events(struct sc_io_sim_disk *disk);
/* A new disk: what would be found after a power cut when `events` events had happened. Files may
 * be open on the origin. The new disk's journal is as the origin's.
 * Errors: SPEC_E_INVALID (journal 0; more events than there are), SPEC_E_NO_MEMORY. */
spec_status sc_io_sim_disk_fork(struct sc_io_sim_disk *disk, uint64_t events, uint64_t seed,
                                struct sc_io_sim_disk **ret_disk, struct spec_error *reterr);
/* A new disk with all that programs see now, as if synced: a copy. */
spec_status sc_io_sim_disk_copy(struct sc_io_sim_disk *disk, struct sc_io_sim_disk **ret_disk,
                                struct spec_error *reterr);

/* ---- Looking and damaging, past faults and journal ------------------------------------------ */

/* Calls on_file for each file, in the order in which they were made. */
void sc_io_sim_disk_files(struct sc_io_sim_disk *disk,
                          void (*on_file)(const char *path, uint64_t bytes, void *user),
                          void *user);
/* False: no such file, or the range is not inside it. What poke and resize do is not in the
 * journal: a later crash forgets it, so damage a disk that was copied, forked or crashed. */
bool sc_io_sim_disk_peek(struct sc_io_sim_disk *disk, const char *path, uint64_t offset,
                         void *buffer, uint64_t bytes);
bool sc_io_sim_disk_poke(struct sc_io_sim_disk *disk, const char *path, uint64_t offset,
                         const void *buffer, uint64_t bytes);
/* Cuts or extends a file. */
bool sc_io_sim_disk_resize(struct sc_io_sim_disk *disk, const char *path, uint64_t bytes);

#endif

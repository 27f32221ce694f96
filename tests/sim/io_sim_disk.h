/* The simulated disk from inside: what its files share.
 *
 *   io_sim.c         the back end: files by name, sync, rename, lists
 *   io_sim_device.c  the device: when an operation's bytes move, and when it completes
 *   io_sim_disk.c    the disk: bytes and names, each change journaled, each with its fault
 *   io_sim_crash.c   what a test does to a disk from outside: crash, fork, peek, poke
 *   io_sim_image.c   images and journals, without locks
 *
 * Threads: the lock (rank 70), per member below.
 * Tests: tests/unit/store/test_io_sim.c */
#ifndef SC_TESTS_SIM_IO_SIM_DISK_H
#define SC_TESTS_SIM_IO_SIM_DISK_H

#include "store/io/io_backend.h"
#include "tests/sim/io_sim.h"
#include "tests/sim/io_sim_image.h"

#include <pthread.h>

struct sc_io_sim_disk {
    /* Set by open, constant after. */
    struct sc_alloc *alloc;
    struct sc_alloc content; /* libc's */
    uint64_t seed;
    uint64_t capacity_bytes;
    uint32_t journal_mode;
    struct sc_io_custom custom;

    /* Constant while anything is in flight. */
    struct sc_io_sim_device device;

    /* Guarded by lock (rank 70). */
    pthread_mutex_t lock;
    struct sc_sim_image now, base;
    struct sc_sim_journal journal;
    uint64_t next_inode;
    struct sc_sim_file *open_files;
    struct sc_sim_map *maps; /* kept until the disk is closed; no part of images */
    uint64_t attached; /* back ends */

    uint64_t random; /* of the faults */
    uint64_t drawn;  /* of sc_io_random: goes on in copies and forks */
    uint64_t ppm[SC_SIM_FAULTS];
    int64_t nth[SC_SIM_FAULTS]; /* < 0: unarmed */
    uint64_t fired[SC_SIM_FAULTS];
    const char *scope;
    uint64_t late_ns;
    uint32_t is_off;
    uint64_t changes_left; /* until the power goes off */

    struct {
        struct sc_io_op *head, *tail;
    } queue[SC_IO_CLASSES];
    uint32_t is_busy;
    struct sc_io_op *held; /* SC_SIM_NEVER */
};

struct sc_sim_map { /* memory that all who map a file share */
    struct sc_sim_map *next;
    uint64_t inode, bytes;
    _Alignas(16) uint8_t memory[];
};

struct sc_sim_file { /* file->own; guarded by the lock */
    uint64_t inode;
    struct sc_sim_file *next_open;
    bool holds_lock, is_sharing;
    uint32_t places; /* bits of those it has (sc_io_file_join) */
};

static inline struct sc_io_sim_disk *sc_sim_disk_of(const struct sc_io *io)
{
    return io->own;
}

static inline uint64_t sc_sim_inode_of(const struct sc_io_file *file)
{
    return ((const struct sc_sim_file *)file->own)->inode;
}

static inline void sc_sim_lock(struct sc_io_sim_disk *disk)
{
    (void)pthread_mutex_lock(&disk->lock);
}

static inline void sc_sim_unlock(struct sc_io_sim_disk *disk)
{
    (void)pthread_mutex_unlock(&disk->lock);
}

/* ---- The disk (io_sim_disk.c): lock held ---------------------------------------------------- */

/* No fault is armed, the power is on. Or nobody else has the disk. */
void sc_sim_disarm(struct sc_io_sim_disk *disk);
bool sc_sim_fault_hits(struct sc_io_sim_disk *disk, enum sc_io_sim_fault fault, const char *path);
/* Every change asks first: after the power went, nothing has an effect. */
bool sc_sim_power_is_off(struct sc_io_sim_disk *disk);
/* In the image and in the journal, or in neither. Returns an errno. */
int sc_sim_change(struct sc_io_sim_disk *disk, uint32_t kind, uint64_t inode, uint64_t offset,
                  uint64_t bytes, const void *data);
uint64_t sc_sim_size_of(const struct sc_io_sim_disk *disk, uint64_t inode);
/* Whether the file may grow up to there. */
bool sc_sim_fits(const struct sc_io_sim_disk *disk, uint64_t inode, uint64_t end);
/* With their faults. Return an errno. */
int sc_sim_disk_write(struct sc_io_sim_disk *disk, const struct sc_io_file *file, uint64_t offset,
                      const uint8_t *data, uint64_t bytes);
int sc_sim_disk_read(struct sc_io_sim_disk *disk, const struct sc_io_file *file, uint64_t offset,
                     uint8_t *data, uint64_t bytes);

/* ---- The back end (io_sim.c) ---------------------------------------------------------------- */

/* A custom back end's open; user is the disk. */
spec_status sc_sim_open(struct sc_io *io, void *user, struct spec_error *reterr);

/* ---- The device (io_sim_device.c) ----------------------------------------------------------- */

/* A back end's submit. */
void sc_sim_submit(struct sc_io *io, struct sc_io_op *ops);

#endif

/* What a simulated disk holds at one moment, and the journal of changes between two moments.
 *
 *   image: names[] path -> inode (or directory); inodes[] size and blocks, NULL where all zero
 *   journal: event, event, ...  (create 3 "/d/log") (write 3 @0 80 bytes) (sync 3) ...
 *
 * An inode's number is the same in every image of a disk and is never used again, so an event can
 * be applied to any of them.
 *
 * Holds: bytes at or past an inode's size are zero; used_bytes is the sum of the sizes of inodes;
 * a failed call (ENOMEM) has changed nothing visible.
 * Does not: lock, draw faults.
 * Threads: the disk's lock guards all of it.
 * Tests: tests/unit/store/test_io_sim.c */
#ifndef SC_TESTS_SIM_IO_SIM_IMAGE_H
#define SC_TESTS_SIM_IO_SIM_IMAGE_H

#include "base/alloc.h"

#include <stdbool.h>
#include <stdint.h>

#define SC_SIM_BLOCK_BYTES 16384u
#define SC_SIM_NO_INODE    UINT64_MAX /* the name is a directory, or there is none */

struct sc_sim_inode {
    uint8_t **blocks;
    uint64_t block_count; /* entries of blocks */
    uint64_t bytes;       /* the file's size */
    uint64_t changes;     /* of bytes or size: as a time that never stands */
};

struct sc_sim_name {
    char *path;
    uint64_t inode; /* SC_SIM_NO_INODE: a directory */
};

struct sc_sim_image {
    struct sc_alloc *alloc;
    struct sc_sim_inode *inodes;
    uint64_t inode_count, inode_room;
    struct sc_sim_name *names;
    uint64_t name_count, name_room;
    uint64_t
        name_found; /* where the one that was looked for last may be: often it is meant again */
    uint64_t used_bytes;
    uint64_t name_changes; /* of any directory */
};

enum sc_sim_event_kind {
    SC_SIM_EVENT_MKDIR,
    SC_SIM_EVENT_CREATE,
    SC_SIM_EVENT_UNLINK,
    SC_SIM_EVENT_RENAME,
    SC_SIM_EVENT_WRITE,
    SC_SIM_EVENT_RESIZE, /* truncate and reserve */
    SC_SIM_EVENT_SYNC    /* of SC_SIM_NO_INODE: of a directory, names alone */
};

struct sc_sim_event {
    uint32_t kind;
    uint32_t forsaken; /* a sync that covered it failed: it will never last */
    uint64_t inode;
    uint64_t offset;
    uint64_t bytes;
    void *data; /* WRITE: the bytes; RENAME: both paths, a NUL after each; MKDIR, CREATE, UNLINK:
                   the path */
};

struct sc_sim_journal {
    struct sc_alloc *alloc;
    struct sc_sim_event *events;
    uint64_t count, room;
};

void sc_sim_image_init(struct sc_sim_image *image, struct sc_alloc *alloc);
void sc_sim_image_done(struct sc_sim_image *image);
/* An empty, initialised image becomes a copy. 0 or ENOMEM (then it is still to be done). */
int sc_sim_image_copy(struct sc_sim_image *image, const struct sc_sim_image *from);
/* NULL: no such name. */
struct sc_sim_name *sc_sim_image_find(struct sc_sim_image *image, const char *path);
int sc_sim_image_name(struct sc_sim_image *image, const char *path, uint64_t inode);
void sc_sim_image_unname(struct sc_sim_image *image, const char *path);
/* Makes the inode's entry when absent: size 0. */
int sc_sim_image_inode(struct sc_sim_image *image, uint64_t inode);
/* Gives the file another name, in place of what had it. No such file: nothing happens. */
int sc_sim_image_rename(struct sc_sim_image *image, const char *from, const char *to);
/* Extends the file when the range ends past it. */
int sc_sim_image_write(struct sc_sim_image *image, uint64_t inode, uint64_t offset,
                       const uint8_t *data, uint64_t bytes);
/* The range is inside the file. */
void sc_sim_image_read(const struct sc_sim_image *image, uint64_t inode, uint64_t offset,
                       uint8_t *data, uint64_t bytes);
int sc_sim_image_resize(struct sc_sim_image *image, uint64_t inode, uint64_t bytes);
/* Frees the inodes that have no name and for which is_kept (may be NULL) says false. */
void sc_sim_image_sweep(struct sc_sim_image *image,
                        bool (*is_kept)(uint64_t inode, const void *user), const void *user);
/* Applies an event whole. */
int sc_sim_image_apply(struct sc_sim_image *image, const struct sc_sim_event *event);

void sc_sim_journal_init(struct sc_sim_journal *journal, struct sc_alloc *alloc);
void sc_sim_journal_done(struct sc_sim_journal *journal);
/* Copies what data points to. 0 or ENOMEM. */
int sc_sim_journal_add(struct sc_sim_journal *journal, uint32_t kind, uint64_t inode,
                       uint64_t offset, uint64_t bytes, const void *data);
/* A sync of an inode without history: its events and all names go into base and leave the journal.
 * SC_SIM_NO_INODE: names alone.
 * 0 or ENOMEM (base then holds a part twice applied by the next try, to the same effect). */
int sc_sim_journal_collapse(struct sc_sim_journal *journal, struct sc_sim_image *base,
                            uint64_t inode);
/* What a failed sync leaves: a seeded half of the inode's events since its last sync will never
 * last. */
void sc_sim_journal_forsake(struct sc_sim_journal *journal, uint64_t inode, uint64_t seed);
/* The image found after a power cut: base plus what sync covers among the first `count` events plus
 * a seeded part of the rest. ret_image: empty and initialised. 0 or ENOMEM. */
int sc_sim_journal_crash(const struct sc_sim_journal *journal, const struct sc_sim_image *base,
                         uint64_t count, uint64_t seed, struct sc_sim_image *ret_image);

/* The generator behind every seeded choice (splitmix64: one addition and three shifts). */
uint64_t sc_sim_random(uint64_t *state);
/* Uniform enough below bound (> 0) for choosing faults. */
uint64_t sc_sim_random_below(uint64_t *state, uint64_t bound);

#endif

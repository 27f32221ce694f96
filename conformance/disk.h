/* disk: finds and changes rows in a store's files by the bytes of the truth, without knowing a
 * format.
 *
 * Rows that are not found are not changed; the count says how often they were found. Only files
 * below the directory are opened.
 * Threads: one. Tests: conformance/test_failure.c, test_field_reports.c, test_layered.c,
 * test_copies.c, bit_tables.c, and callers of quantised_damage */
#ifndef CONFORMANCE_DISK_H
#define CONFORMANCE_DISK_H

#include "conformance/fixture.h"

struct disk_row { /* one token of one layer */
    const struct prompt *prompt;
    uint64_t position;
    uint32_t layer;
};

enum disk_damage {
    DISK_FLIP, /* a bit of V, wherever the row lies */
    DISK_CUT   /* the file ends in the middle of V */
};

uint64_t disk_damage(const struct fixture *fx, struct disk_row row, enum disk_damage how);
/* Puts the bytes of one row where the other lies, and the other way round, K and V each. False: one
 * of them was not found. */
bool disk_exchange(const struct fixture *fx, struct disk_row one, struct disk_row other);
/* Flips a bit of the byte that stands `at` bytes behind the start of these, wherever they lie; it
 * may be behind their end. */
uint64_t disk_flip(const struct fixture *fx, const uint8_t *bytes, uint64_t byte_count,
                   uint64_t at);
/* All files below the store as they are now, which a closed connector left; freed by the caller. */
struct disk_kept;
struct disk_kept *disk_keep(const struct fixture *fx);
void disk_kept_free(struct disk_kept *kept);
/* Where these bytes stand next in what was kept, behind `at` (NULL: first), with so many bytes
 * before and behind them in their file. NULL: nowhere. */
const uint8_t *disk_kept_find(const struct disk_kept *kept, const uint8_t *at,
                              const uint8_t *bytes, uint64_t byte_count, uint64_t before,
                              uint64_t behind);
/* As if no write had reached them since: files that hold the row's K get back the bytes that were
 * kept of them, and zeros behind those. Other files stay. Returns how many there were. */
uint64_t disk_put_back(const struct fixture *fx, const struct disk_kept *kept, struct disk_row row);
/* Every byte of every file becomes another. */
void disk_overwrite(const struct fixture *fx);
/* Allocated blocks of all files below the store, in bytes. */
uint64_t disk_bytes(const struct fixture *fx);

#endif

/* Tables of widths, each once: as blocks have them (half a byte a channel), and as kernels want
 * them. Blocks name none: a table is found by what it says.
 *
 * Holds: what find or add returned stays, unchanged, until close. find takes no lock.
 * Does not: allocate after open: as many tables as fit, and further ones are not to be had.
 * Threads: find any; add any, one at a time by its lock.
 * Tests: tests/unit/plugin/test_quant.c */
#ifndef SC_PLUGIN_QUANT_BIT_TABLES_H
#define SC_PLUGIN_QUANT_BIT_TABLES_H

#include "abi/spec_connector.h"
#include "base/alloc.h"
#include "kernels/bitplanes.h"

#include <pthread.h>

struct sc_plugin_table {
    struct sc_kernels_bitplanes planes;
    const uint8_t *packed; /* half a byte a channel, the lower channel in the low half */
};

struct sc_plugin_tables {
    uint64_t head_count, head_size, packed_bytes, slot_bytes;
    uint64_t capacity, place_mask;
    _Atomic uint32_t *places;           /* 0: free; else the table's number + 1 */
    uint8_t *slots;                     /* [capacity] */
    uint64_t others_most;               /* tables that others made: the rest is our own's */
    uint64_t count, others;             /* lock held */
    const struct sc_plugin_table *none; /* of no bits */
    pthread_mutex_t lock;
};

/* Bytes of memory that each of the capacity takes; of what is not used none are touched. */
uint64_t sc_plugin_tables_slot_bytes(uint64_t head_count, uint64_t head_size);
/* capacity 0: none can be had; else beside them the table of no bits, which is there. Until
 * others_most is set less, others' may be as many. */
spec_status sc_plugin_tables_open(struct sc_plugin_tables *tables, struct sc_alloc *alloc,
                                  uint64_t head_count, uint64_t head_size, uint64_t capacity,
                                  struct spec_error *reterr);
void sc_plugin_tables_close(struct sc_plugin_tables *tables, struct sc_alloc *alloc);
/* packed [channels / 2]. NULL: it was never added. */
const struct sc_plugin_table *sc_plugin_tables_find(struct sc_plugin_tables *tables,
                                                    const uint8_t *packed);
/* NULL: it is no table, its rows have not row_bytes, or there is no room. */
const struct sc_plugin_table *sc_plugin_tables_add(struct sc_plugin_tables *tables,
                                                   const uint8_t *packed, uint64_t row_bytes);
/* The same of a table that another process made. */
const struct sc_plugin_table *sc_plugin_tables_add_other(struct sc_plugin_tables *tables,
                                                         const uint8_t *packed, uint64_t row_bytes);
/* to [channels] -> ret_packed [channels / 2] */
void sc_plugin_table_pack(const uint8_t *to, uint64_t channels, uint8_t *ret_packed);

#endif

/* bit_tables: stores each table of bits per channel once: packed, as blocks have it (half a byte a
 * channel), and in the form of the kernels. Tables are found by content; blocks do not name them.
 *
 * Invariants: a table that find or add returned stays unchanged until close. Nothing is allocated
 * after open: further tables are refused when the capacity is used.
 * Threads: any; find takes no lock, add takes `lock`.
 * Tests: tests/unit/plugin/test_quant.c */
#ifndef SC_PLUGIN_QUANT_BIT_TABLES_H
#define SC_PLUGIN_QUANT_BIT_TABLES_H

#include "abi/spec_connector.h"
#include "base/alloc.h"
#include "kernels/bitplanes.h"

#include <pthread.h>

struct sc_plugin_table {
    struct sc_kernels_bitplanes planes;
    const uint8_t *packed; /* half a byte a channel, lower channel in the low half */
};

struct sc_plugin_tables {
    uint64_t head_count, head_size, packed_bytes, slot_bytes;
    uint64_t capacity, place_mask;
    _Atomic uint32_t *places;           /* 0: free; else the table's number + 1 */
    uint8_t *slots;                     /* [capacity] */
    uint64_t others_most;               /* maximum tables of other processes; the rest for ours */
    uint64_t count, others;             /* guarded by lock */
    const struct sc_plugin_table *none; /* table of 0 bits */
    pthread_mutex_t lock;
};

/* Returns the memory per unit of capacity; unused slots are never touched. */
uint64_t sc_plugin_tables_slot_bytes(uint64_t head_count, uint64_t head_size);
/* capacity 0: no tables; else one more is made, of 0 bits. others_most is the capacity until the
 * caller lowers it. */
spec_status sc_plugin_tables_open(struct sc_plugin_tables *tables, struct sc_alloc *alloc,
                                  uint64_t head_count, uint64_t head_size, uint64_t capacity,
                                  struct spec_error *reterr);
void sc_plugin_tables_close(struct sc_plugin_tables *tables, struct sc_alloc *alloc);
/* Finds packed [channels / 2]. NULL: never added. */
const struct sc_plugin_table *sc_plugin_tables_find(struct sc_plugin_tables *tables,
                                                    const uint8_t *packed);
/* Returns NULL if it is invalid, its rows do not have row_bytes, or there is no room. */
const struct sc_plugin_table *sc_plugin_tables_add(struct sc_plugin_tables *tables,
                                                   const uint8_t *packed, uint64_t row_bytes);
/* Does the same for a table from another process. */
const struct sc_plugin_table *sc_plugin_tables_add_other(struct sc_plugin_tables *tables,
                                                         const uint8_t *packed, uint64_t row_bytes);
/* Packs to [channels] into ret_packed [channels / 2]. */
void sc_plugin_table_pack(const uint8_t *to, uint64_t channels, uint8_t *ret_packed);

#endif

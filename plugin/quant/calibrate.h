/* Which widths rows are coded by: a table a layer and part, from what was seen of its rows and of
 * the queries that scored them.
 *
 *   weight of a channel   E[q^2] * E[span^2]     both of a rotary pair alike, where keys are turned
 *                                                back; V: by spans alone
 *   table                 kernels/allot.h; the first: by the first slab that is coded
 *   next one              where it is expected to make the error smaller by a tenth
 *
 * Rows that the first positions have (sinks) do not count in the first slab, from which a table is
 * made: few rows would decide it.
 *
 * Holds: a table that was given stays valid until close; others may follow, at most
 * SC_PLUGIN_TABLES_A_LAYER. What is learnt changes how exact codes are, never whether they are
 * right.
 * Does not: wait: what cannot be noted at once is not.
 * Threads: any.
 * Tests: tests/unit/plugin/test_quant.c */
#ifndef SC_PLUGIN_QUANT_CALIBRATE_H
#define SC_PLUGIN_QUANT_CALIBRATE_H

#include "kernels/importance.h"
#include "plugin/quant/bit_tables.h"
#include "plugin/quant/rope.h"

#define SC_PLUGIN_SLABS_NEXT     8u /* are seen until a table is looked at again */
#define SC_PLUGIN_TABLES_A_LAYER 8u /* of each part, that one process makes */

struct sc_plugin_learnt {                        /* of a layer and part */
    const struct sc_plugin_table *_Atomic table; /* NULL: none yet */
    _Atomic bool is_due; /* queries came for the first time: the table is looked at before a slab */
    /* Lock held. */
    uint64_t slabs, rows;   /* that were seen: slabs of them, rows of queries */
    uint64_t rows_noted;    /* of rows: that a note had, from which `queries` was filled */
    uint64_t slabs_next;    /* of slabs: the table is looked at again */
    uint32_t tables;        /* made here */
    float *spans, *queries; /* [channels] sums of squares */
};

struct sc_plugin_learning {
    const struct sc_kernels *kernels;
    struct sc_plugin_tables *tables;
    uint64_t head_count, head_size, layer_count, query_group;
    struct sc_kernels_rotary rotary; /* of K; turned 0: it is not turned back */
    uint64_t row_bytes[2];           /* of K's codes and V's; 0: they have no table */
    struct sc_plugin_learnt *learnt; /* [layer_count][2] */
    pthread_mutex_t lock;            /* tables.lock is taken inside */
    float *sums, *weights;           /* lock held: [layer_count][2][2][channels], [channels] */
    void *scratch;
    uint8_t *to, *packed;
};

/* What of the rest is 0 or NULL is set. */
spec_status sc_plugin_learning_open(struct sc_plugin_learning *learning, struct sc_alloc *alloc,
                                    struct spec_error *reterr);
void sc_plugin_learning_close(struct sc_plugin_learning *learning, struct sc_alloc *alloc);

/* The table that the layer's part is coded by; NULL: none yet. part 0: K, 1: V */
const struct sc_plugin_table *sc_plugin_learnt_table(const struct sc_plugin_learning *learning,
                                                     uint32_t layer, uint32_t part);
/* The same, and the first of all is made of these spans: scales of a slab, f16 as blocks have them.
 * NULL: there is no room for it. */
const struct sc_plugin_table *sc_plugin_calibrate_first(struct sc_plugin_learning *learning,
                                                        uint32_t layer, uint32_t part,
                                                        const uint8_t *spans);
/* In front of a slab: the table knows of queries that came for the first time since the last one.
 */
void sc_plugin_calibrate_due(struct sc_plugin_learning *learning, uint32_t layer, uint32_t part);
/* A slab was coded. */
void sc_plugin_calibrate_slab(struct sc_plugin_learning *learning, uint32_t layer, uint32_t part,
                              const uint8_t *spans);
/* Of so many rows of queries every which one is looked at, from the first on; 0: none is now. */
uint64_t sc_plugin_calibrate_step(struct sc_plugin_learning *learning, uint32_t layer,
                                  uint64_t count);
/* Queries scored keys of the layer: [row][query head], those rows. */
void sc_plugin_calibrate_queries(struct sc_plugin_learning *learning, uint32_t layer,
                                 const struct sc_kernels_queries *queries);

/* ---- As words of a note in the store's log (calibration_record.c) ---- */

/* How many; 0: one note does not hold them, or there is nothing to learn. */
uint64_t sc_plugin_learnt_words(const struct sc_plugin_learning *learning);
/* false: nothing is new since *written (0: since the note that was loaded last, if any was), or
 * layers are without a table yet. */
bool sc_plugin_learnt_put(struct sc_plugin_learning *learning, uint32_t kind, uint64_t *written,
                          uint16_t *ret_words);
/* The last one that is loaded counts. */
void sc_plugin_learnt_load(struct sc_plugin_learning *learning, uint32_t kind,
                           const uint16_t *words, uint64_t count);

#endif

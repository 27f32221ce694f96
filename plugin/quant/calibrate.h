/* calibrate: chooses bits per channel, a table per layer and part, from observed rows and queries.
 *
 *   weight of a channel   E[q^2] * E[span^2]     equal in a rotary pair if keys are rotated back;
 *                                                V: by spans only
 *   first table           kernels/allot.h, from the first slab that is quantised
 *   next table            if it is expected to reduce the error by a tenth
 *
 * Rows of the first positions (sinks) are ignored in that first slab, where they would dominate.
 *
 * Invariants: a table stays valid until close; a process makes at most SC_PLUGIN_TABLES_A_LAYER per
 * part. Calibration affects the accuracy of quantised rows, never their validity. Nothing waits: an
 * observation is dropped if the lock is taken.
 * Threads: any. Tests: tests/unit/plugin/test_quant.c */
#ifndef SC_PLUGIN_QUANT_CALIBRATE_H
#define SC_PLUGIN_QUANT_CALIBRATE_H

#include "kernels/importance.h"
#include "plugin/quant/bit_tables.h"
#include "plugin/quant/rope.h"

#define SC_PLUGIN_SLABS_NEXT     8u /* slabs between reconsiderations of a table */
#define SC_PLUGIN_TABLES_A_LAYER 8u /* tables per part that one process makes */

struct sc_plugin_learnt {                        /* of a layer and part */
    const struct sc_plugin_table *_Atomic table; /* NULL: none yet */
    _Atomic bool is_due; /* first queries arrived: reconsider the table before the next slab */
    /* Lock held. */
    uint64_t slabs, rows;   /* slabs observed; query rows observed */
    uint64_t rows_noted;    /* part of `rows` that came from a loaded note */
    uint64_t slabs_next;    /* value of `slabs` at which to reconsider the table */
    uint32_t tables;        /* tables made by this process */
    float *spans, *queries; /* [channels] sums of squares */
};

struct sc_plugin_learning {
    const struct sc_kernels *kernels;
    struct sc_plugin_tables *tables;
    uint64_t head_count, head_size, layer_count, query_group;
    struct sc_kernels_rotary rotary; /* of K; turned 0: not rotated back */
    uint64_t row_bytes[2];           /* of quantised K and V; 0: no table */
    struct sc_plugin_learnt *learnt; /* [layer_count][2] */
    pthread_mutex_t lock;            /* tables.lock is taken inside */
    float *sums, *weights;           /* under lock: [layer_count][2][2][channels], [channels] */
    void *scratch;
    uint8_t *to, *packed;
};

/* The caller has set the other members; unused ones are 0 or NULL. */
spec_status sc_plugin_learning_open(struct sc_plugin_learning *learning, struct sc_alloc *alloc,
                                    struct spec_error *reterr);
void sc_plugin_learning_close(struct sc_plugin_learning *learning, struct sc_alloc *alloc);

/* Returns the table of the layer's part; NULL: none yet. part 0: K, 1: V */
const struct sc_plugin_table *sc_plugin_learnt_table(const struct sc_plugin_learning *learning,
                                                     uint32_t layer, uint32_t part);
/* Returns the same, and makes the first table from these spans: f16 scales of a slab, as in blocks.
 * NULL: no room. */
const struct sc_plugin_table *sc_plugin_calibrate_first(struct sc_plugin_learning *learning,
                                                        uint32_t layer, uint32_t part,
                                                        const uint8_t *spans);
/* Call before a slab: reconsiders the table if queries have arrived for the first time. */
void sc_plugin_calibrate_due(struct sc_plugin_learning *learning, uint32_t layer, uint32_t part);
void sc_plugin_calibrate_slab(struct sc_plugin_learning *learning, uint32_t layer, uint32_t part,
                              const uint8_t *spans);
/* Returns the step with which to sample `count` query rows, from the first on; 0: none now. */
uint64_t sc_plugin_calibrate_step(struct sc_plugin_learning *learning, uint32_t layer,
                                  uint64_t count);
/* Observes queries that scored keys of the layer: [row][query head]. */
void sc_plugin_calibrate_queries(struct sc_plugin_learning *learning, uint32_t layer,
                                 const struct sc_kernels_queries *queries);

/* ---- As words of a note in the store's log (calibration_record.c) ---- */

/* Returns the number of words; 0: one note cannot hold them, or there is nothing to calibrate. */
uint64_t sc_plugin_learnt_words(const struct sc_plugin_learning *learning);
/* Returns false if nothing is new since *written (0: since the last note loaded, if any), or if
 * layers have no table yet. */
bool sc_plugin_learnt_put(struct sc_plugin_learning *learning, uint32_t kind, uint64_t *written,
                          uint16_t *ret_words);
/* Loads a note; the last one loaded wins. */
void sc_plugin_learnt_load(struct sc_plugin_learning *learning, uint32_t kind,
                           const uint16_t *words, uint64_t count);

#endif

/* quant: quantises rows and decodes quantised rows: format, bits per channel, rotation.
 *
 *   save   rows of a slab --> calibrate.c: the layer's table --> kernels --> [table][scales][codes]
 *   load   block --> table, known or new (bit_tables.h) --> quantised_k, quantised_v --> kernels
 *
 * A block is self-describing, except for the model's rotary parameters, which belong to the
 * namespace. So lost, late or foreign calibration cannot make codes decode wrongly.
 *
 * Invariants: a block that sc_store_quant.reads accepted can be decoded until close.
 * Threads: any.
 * Tests: tests/unit/plugin/test_quant.c, conformance (abi_150_* .. abi_156_*, abi_196_*) */
#ifndef SC_PLUGIN_QUANT_QUANT_H
#define SC_PLUGIN_QUANT_QUANT_H

#include "kernels/codec.h"
#include "plugin/quant/bit_tables.h"
#include "plugin/quant/calibrate.h"
#include "plugin/quant/rope.h"
#include "store/load.h"

struct sc_plugin_quant {
    struct sc_store_codec_shape
        /* Format of new quantised rows; bits_k 0: none are made. */
        made;
    struct sc_plugin_rope rope;
    struct sc_plugin_tables tables;
    struct sc_plugin_learning learning;
    pthread_mutex_t write_lock; /* guards the two below */
    uint16_t *words;            /* buffer of a note; NULL: none is written */
    uint64_t written;           /* calibration state at the last write */
};

spec_status sc_plugin_quant_open(spec_connector *conn, const struct spec_model *model,
                                 struct spec_error *reterr);
void sc_plugin_quant_close(spec_connector *conn);
/* Writes the calibration to the log if it has changed. Background threads and close. */
void sc_plugin_quant_write(spec_connector *conn);
struct sc_store_quant sc_plugin_quant_params(spec_connector *conn);
/* Returns a slab's K or V for kernels; position: of the first of row_count rows. */
struct sc_kernels_quantised sc_plugin_quant_k(const spec_connector *conn,
                                              const struct sc_store_slab *slab, uint64_t position,
                                              uint64_t row_count);
struct sc_kernels_quantised sc_plugin_quant_v(const spec_connector *conn,
                                              const struct sc_store_slab *slab);

#endif

/* How this connector codes rows, and reads codes: which format, by which widths, turned or not.
 *
 *   save   rows of a slab --> calibrate.c: the layer's table --> kernels --> [table][scales][codes]
 *   load   block --> table, known or new (bit_tables.h) --> quantised_k, quantised_v --> kernels
 *
 * A block says all that is needed to decode it beside the model's rotary parameters, which are the
 * namespace's; so nothing that is lost, late or another process's makes codes lie.
 *
 * Holds: what sc_store_quant.reads said yes to can be decoded until close.
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
        made; /* of what is stored from now on; bits_k 0: nothing is coded */
    struct sc_plugin_rope rope;
    struct sc_plugin_tables tables;
    struct sc_plugin_learning learning;
    pthread_mutex_t write_lock; /* of the two below */
    uint16_t *words;            /* of a note; NULL: none is written */
    uint64_t written;           /* what was known when it was written last */
};

spec_status sc_plugin_quant_open(spec_connector *conn, const struct spec_model *model,
                                 struct spec_error *reterr);
void sc_plugin_quant_close(spec_connector *conn);
/* What was learnt, to the log, where something is new. Background threads and close. */
void sc_plugin_quant_write(spec_connector *conn);
/* What the store asks of it. */
struct sc_store_quant sc_plugin_quant_params(spec_connector *conn);
/* A slab's K or V as kernels take them; position: of its first row, of row_count. */
struct sc_kernels_quantised sc_plugin_quant_k(const spec_connector *conn,
                                              const struct sc_store_slab *slab, uint64_t position,
                                              uint64_t row_count);
struct sc_kernels_quantised sc_plugin_quant_v(const spec_connector *conn,
                                              const struct sc_store_slab *slab);

#endif

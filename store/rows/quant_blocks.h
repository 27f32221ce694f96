/* Blocks of codes: where they stand in a layer of an extent's codes, how one is made and checked.
 *
 *   layer   [K block of piece 0][K block of piece 1] .. [V block of piece 0][V block of piece 1] ..
 *   block   [head 8][table][scales][codes, a row behind the other][checksum 8]
 *   head    type u8 (3 K, 4 V), bits u8, form u8 (of its part: 0, 1 a table, 3 and turned back),
 *           raw u8 (0 or 1), rows u16, 0 u16
 *   table   where the form says so: widths of channels 2 i (low half) and 2 i + 1 in byte i
 *
 * A piece's number in its extent is the difference of two chunk numbers, so its place follows from
 * the piece alone. Rows that it skips have no codes. What stands behind the blocks is not read: in
 * derived sections of versions before 0.3 there may be more than zeros.
 *
 * Holds: a block that is believed was made of this piece's rows, for this derived section, at this
 * layer, with these bits.
 * Does not: know what codes mean (the plugin's encoder and decoder do).
 * Threads: any.
 * Tests: tests/unit/store/test_quant.c */
#ifndef SC_STORE_ROWS_QUANT_BLOCKS_H
#define SC_STORE_ROWS_QUANT_BLOCKS_H

#include "store/internal.h"

#define SC_STORE_BLOCK_HEAD_BYTES 8u
#define SC_STORE_BLOCK_BYTES      16u /* of a block, beside scales and codes */

/* Bytes of a layer: its blocks of all pieces, those that are gone too; rounded up to 64. position,
 * row_count: of the extent. */
uint64_t sc_store_quant_layer_bytes(const struct sc_store *store,
                                    const struct sc_store_codec_shape *shape, uint64_t position,
                                    uint64_t row_count);

/* The same of an extent that is stored now; 0: it gets no codes. */
uint64_t sc_store_quant_layer_new(const struct sc_store *store, uint64_t position,
                                  uint64_t row_count);

struct sc_store_blocks { /* of a piece */
    uint64_t k_at, v_at; /* from the layer's start */
    uint64_t k_bytes, v_bytes;
    uint64_t position, row_count; /* of the rows that are coded */
    uint64_t copy;                /* of the derived section: of the checksums */
    const uint8_t *piece_hash;    /* the piece's own */
};
void sc_store_quant_blocks(const struct sc_store *store, const struct sc_store_extent_entry *extent,
                           uint64_t copy, const struct sc_store_codec_shape *shape,
                           const struct sc_store_piece_entry *piece,
                           struct sc_store_blocks *ret_blocks);

/* Whether they stand inside the layer. */
static inline bool sc_store_quant_fit(const struct sc_store_section *derived,
                                      const struct sc_store_blocks *blocks)
{
    return blocks->v_at + blocks->v_bytes <= derived->stride;
}

/* Bytes of blocks, or of row tags, that one read takes, each section of them rounded out to pages:
 * what a frame has room for. They are more than a piece's K and V blocks where these were made, but
 * io.op_bytes may be less today; and more than the tags of any piece. */
uint64_t sc_store_quant_frame_bytes(const struct sc_store *store);

/* Makes K's or V's block (part) of the rows. */
void sc_store_block_make(const struct sc_store *store, const struct sc_store_blocks *blocks,
                         uint32_t layer, uint32_t part, const uint8_t *const *rows, uint8_t *block);

enum sc_store_block_state {
    SC_STORE_BLOCK_QUANTISED,
    SC_STORE_BLOCK_OTHER, /* raw, of other bits or rows, or none that this process can read */
    SC_STORE_BLOCK_BAD    /* it fails its checksum */
};
/* Checks K's block of a layer, and V's unless it is NULL. Returns the worse of their states. */
enum sc_store_block_state sc_store_blocks_check(const struct sc_store *store,
                                                const struct sc_store_blocks *blocks,
                                                const struct sc_store_codec_shape *shape,
                                                uint32_t layer, const uint8_t *k, const uint8_t *v);

#endif

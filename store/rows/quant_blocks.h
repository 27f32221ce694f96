/* quant_blocks: blocks of quantised rows: their place in a layer, how they are made and verified.
 *
 *   layer   [K block of piece 0][K block of piece 1] .. [V block of piece 0][V block of piece 1] ..
 *   block   [head 8][table][scales][codes, row by row][checksum 8]
 *   head    type u8 (3 K, 4 V), bits u8, form u8 (of its part: 0, 1 a table, 3 before rope too),
 *           raw u8 (0 or 1), rows u16, 0 u16
 *   table   if the form has one: bits of channels 2 i (low half) and 2 i + 1 in byte i
 *
 * A piece's number in its extent is the difference of two chunk numbers, so its place follows from
 * the piece alone. Skipped rows have no codes. Bytes behind the blocks are not read (versions
 * before 0.3 stored bit planes there).
 *
 * Invariants: a valid block was made of this piece's rows, for this derived section, layer and
 * bits. Encoding and decoding are the plugin's.
 * Threads: any.
 * Tests: tests/unit/store/test_quant.c */
#ifndef SC_STORE_ROWS_QUANT_BLOCKS_H
#define SC_STORE_ROWS_QUANT_BLOCKS_H

#include "store/internal.h"

#define SC_STORE_BLOCK_HEAD_BYTES 8u
#define SC_STORE_BLOCK_BYTES      16u /* without table, scales and codes */

/* Bytes of a layer's blocks, void pieces' included; rounded up to 64. position: the extent's. */
uint64_t sc_store_quant_layer_bytes(const struct sc_store *store,
                                    const struct sc_store_codec_shape *shape, uint64_t position,
                                    uint64_t row_count);

/* The same for an extent stored now; 0: it is not quantised. */
uint64_t sc_store_quant_layer_new(const struct sc_store *store, uint64_t position,
                                  uint64_t row_count);

struct sc_store_blocks { /* of a piece */
    uint64_t k_at, v_at; /* from the layer's start */
    uint64_t k_bytes, v_bytes;
    uint64_t position, row_count; /* quantised rows */
    uint64_t copy;                /* the derived section's, in the checksums */
    const uint8_t *piece_hash;
};
void sc_store_quant_blocks(const struct sc_store *store, const struct sc_store_extent_entry *extent,
                           uint64_t copy, const struct sc_store_codec_shape *shape,
                           const struct sc_store_piece_entry *piece,
                           struct sc_store_blocks *ret_blocks);

/* Returns true if the blocks are inside the layer. */
static inline bool sc_store_quant_fit(const struct sc_store_section *derived,
                                      const struct sc_store_blocks *blocks)
{
    return blocks->v_at + blocks->v_bytes <= derived->stride;
}

/* Returns the bytes of blocks or row tags that fit one read, each section rounded out to pages.
 * More than any piece's tags; a piece's blocks may exceed it if io.op_bytes was larger before. */
uint64_t sc_store_quant_frame_bytes(const struct sc_store *store);

/* Makes the rows' K or V block (part). */
void sc_store_block_make(const struct sc_store *store, const struct sc_store_blocks *blocks,
                         uint32_t layer, uint32_t part, const uint8_t *const *rows, uint8_t *block);

enum sc_store_block_state {
    SC_STORE_BLOCK_QUANTISED,
    SC_STORE_BLOCK_OTHER, /* raw, other bits or rows, or unreadable here */
    SC_STORE_BLOCK_BAD    /* wrong checksum */
};
/* Verifies a layer's K block, and V block unless NULL. Returns the worse state. */
enum sc_store_block_state sc_store_blocks_check(const struct sc_store *store,
                                                const struct sc_store_blocks *blocks,
                                                const struct sc_store_codec_shape *shape,
                                                uint32_t layer, const uint8_t *k, const uint8_t *v);

#endif

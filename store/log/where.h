/* where: maps a layer of an extent to its place in a segment file.
 *
 *   part      [layer f][layer f + 1] ...      whole layers in one segment, a stride apart
 *   layer     [probe rows][their tags][tags][rows]    sections; the extent's record has their
 *                                                     offsets from the layer's first byte
 *   derived section     [probe rows][their tags]        or codes: parts and a stride of its own
 *
 * Invariants: a new layer's rows begin at their alignment.
 * Threads: any.
 * Tests: tests/unit/store/test_store.c */
#ifndef SC_STORE_LOG_WHERE_H
#define SC_STORE_LOG_WHERE_H

#include "store/io/io.h"
#include "store/store.h"

struct sc_store_extent_entry;
struct sc_store_piece_entry;

struct sc_store_part { /* whole layers, contiguous, in one segment */
    uint64_t offset;   /* bytes from the segment's start; a multiple of 4 KiB */
    uint32_t segment;  /* file number; in memory an index of the open store */
    uint32_t layer_first, layer_count;
};

#define SC_STORE_NOTE_KINDS 4u

struct sc_store_noted { /* newest note of a kind */
    uint64_t serial;    /* 0: none */
    uint64_t bytes;     /* bytes of its frame */
};

struct sc_store_shape {
    uint8_t digest[SC_STORE_HASH_BYTES];
    uint32_t layer_count, layout;
    uint64_t k_row_bytes, row_bytes;
    uint32_t tags_per_row; /* 1 paired, 2 split */
    uint32_t id;           /* namespace record's id; 0: none */
    uint64_t record_bytes; /* upper bound of that record's size */
    /* Writer: pieces that hold pages. Any thread. */
    _Atomic uint64_t held;
    /* Writer, log lock: the running checkpoint drops the record; a checkpoint dropped it; the last
     * one kept it although nothing is held. */
    bool is_leaving, is_left_out, was_kept;
    uint8_t family[SC_STORE_HASH_BYTES];
    bool is_own;             /* our namespace; a peer's: any of our family */
    uint64_t epoch;          /* log lock */
    uint64_t epoch_sequence; /* replay: pieces in earlier frames are void */
    /* Pieces with smaller ids are void, if the store keeps the space. Set under the log lock before
     * their states; read by any thread. */
    _Atomic uint64_t void_end;
    struct sc_store_noted notes[SC_STORE_NOTE_KINDS]; /* log lock */
};

struct sc_store_where {
    uint32_t segment; /* as in the part */
    uint64_t offset;  /* bytes from the segment's start */
};

void sc_store_shape_set(struct sc_store_shape *shape, const struct sc_store_namespace *space);
/* Section offsets and stride of a layer in a new extent. Readers use the extent's record. */
struct sc_store_place {
    uint64_t probe_tag_offset, tag_offset, row_offset, stride;
};
struct sc_store_place sc_store_shape_place(const struct sc_store_shape *shape,
                                           uint64_t probe_row_bytes, uint64_t row_count);
uint64_t sc_store_part_pages(const struct sc_store_part *part, uint64_t stride);
/* Returns the part that holds a layer; parts cover all layers. */
const struct sc_store_part *sc_store_part_of(const struct sc_store_part *parts, uint32_t part_count,
                                             uint32_t layer);
/* Returns a layer's first byte, from its part's segment start. */
static inline uint64_t sc_store_part_at(const struct sc_store_part *part, uint64_t stride,
                                        uint32_t layer)
{
    return part->offset + (layer - part->layer_first) * stride;
}
struct sc_store_where sc_store_layer_where(const struct sc_store_part *parts, uint32_t part_count,
                                           uint64_t stride, uint32_t layer);

/* The rows of a piece in a layer of its extent. Half h of row r (0: the row, or K if split; 1: V)
 * is at base[h] + slot * stride in the segment, its tags at tags + r * tag_stride. Pieces of
 * consecutive rows have equal members, except split halves. */
struct sc_store_slab_where {
    uint32_t segment, half_count;
    uint64_t rows; /* start of the extent's rows */
    uint64_t base[2], stride, tags, tag_stride;
    const uint16_t *slots; /* the layer's (row_permutation.h); NULL: row r is in slot r */
    uint64_t slots_copy;   /* unique number of the permuted copy with these slots */
};
static inline uint64_t sc_store_slot_of(const struct sc_store_slab_where *where, uint64_t row)
{
    return where->slots != NULL ? where->slots[row] : row;
}
void sc_store_slab_where(const struct sc_store_shape *shape,
                         const struct sc_store_extent_entry *extent, uint32_t layer,
                         const struct sc_store_piece_entry *piece,
                         struct sc_store_slab_where *ret_where);
/* Switches to another piece of the extent in the same copy of the rows. */
void sc_store_slab_move(struct sc_store_slab_where *where,
                        const struct sc_store_piece_entry *piece);

/* Bytes [start, end) of a segment, rounded out to pages for a direct read. */
struct sc_store_pages {
    uint64_t offset, bytes;
    uint64_t in; /* offset of start within */
};
static inline struct sc_store_pages sc_store_pages_of(uint64_t start, uint64_t end)
{
    uint64_t offset = start - start % SC_IO_PAGE_BYTES;
    uint64_t pages = (end - offset + SC_IO_PAGE_BYTES - 1) / SC_IO_PAGE_BYTES;
    return (struct sc_store_pages){offset, pages * SC_IO_PAGE_BYTES, start - offset};
}

#endif

/* Where the bytes of a layer are: the one way from an extent's parts to a place in a file.
 *
 *   part      [layer f][layer f + 1] ...      whole layers in one segment, a stride apart
 *   layer     [probe rows][their tags][tags][rows]    sections; the extent's record has their
 *                                                     offsets from the layer's first byte
 *   derived section     [probe rows][their tags]        or codes: parts and a stride of its own
 *
 * Holds: a layer that is written now begins on a border of its rows' alignment.
 * Does not: know what is free, or any file.
 * Threads: any.
 * Tests: tests/unit/store/test_store.c */
#ifndef SC_STORE_ROWS_WHERE_H
#define SC_STORE_ROWS_WHERE_H

#include "store/io/io.h"
#include "store/store.h"

struct sc_store_extent_entry;
struct sc_store_piece_entry;

struct sc_store_part { /* whole layers, contiguous, in one segment */
    uint64_t offset;   /* bytes from the segment's start, a multiple of 4 KiB */
    uint32_t segment;  /* the file's number; an index of the open store once replayed */
    uint32_t layer_first, layer_count;
};

/* Geometry of a namespace, as recorded. */
#define SC_STORE_NOTE_KINDS 4u

struct sc_store_noted { /* the newest note of a kind */
    uint64_t serial;    /* 0: there is none */
    uint64_t bytes;     /* of its frame */
};

struct sc_store_shape {
    uint8_t digest[SC_STORE_HASH_BYTES];
    uint32_t layer_count, layout;
    uint64_t k_row_bytes, row_bytes;
    uint32_t tags_per_row; /* 1 paired, 2 split */
    uint32_t id;           /* of the namespace record; 0: none */
    uint64_t record_bytes; /* of that record, at most */
    /* Writer: its pieces that hold pages. Any thread. */
    _Atomic uint64_t held;
    /* Writer, log lock: the checkpoint that runs leaves the record out; one has; the last one found
     * something of it, though nothing is held. */
    bool is_leaving, is_left_out, was_kept;
    uint8_t family[SC_STORE_HASH_BYTES];
    bool is_own;             /* ours; for a peer, any of our family */
    uint64_t epoch;          /* log lock */
    uint64_t epoch_sequence; /* replay: pieces of frames before it are void */
    uint64_t void_end;       /* writer, log lock: its pieces with ids below are void */
    struct sc_store_noted notes[SC_STORE_NOTE_KINDS]; /* log lock */
};

struct sc_store_where {
    uint32_t segment; /* as the part names it */
    uint64_t offset;  /* bytes from the segment's start */
};

void sc_store_shape_set(struct sc_store_shape *shape, const struct sc_store_namespace *space);
/* Where the sections of a layer begin, and how far layers are apart, for an extent that is written
 * now; probe rows stand first. Readers take it from the extent's record. */
struct sc_store_place {
    uint64_t probe_tag_offset, tag_offset, row_offset, stride;
};
struct sc_store_place sc_store_shape_place(const struct sc_store_shape *shape,
                                           uint64_t probe_row_bytes, uint64_t row_count);
uint64_t sc_store_part_pages(const struct sc_store_part *part, uint64_t stride);
/* The part that holds a layer; parts cover all layers. */
const struct sc_store_part *sc_store_part_of(const struct sc_store_part *parts, uint32_t part_count,
                                             uint32_t layer);
/* The first byte of a layer, from the start of the segment of the part that holds it. */
static inline uint64_t sc_store_part_at(const struct sc_store_part *part, uint64_t stride,
                                        uint32_t layer)
{
    return part->offset + (layer - part->layer_first) * stride;
}
/* The first byte of a layer. */
struct sc_store_where sc_store_layer_where(const struct sc_store_part *parts, uint32_t part_count,
                                           uint64_t stride, uint32_t layer);

/* The rows of a piece in a layer of its extent. Row r of the extent has its half h (0: the row, or
 * K of a split layout; 1: V of that) at base[h] + slot * stride of the segment, and its tags at
 * tags + r * tag_stride. Rows of pieces that lie in a row agree, but for halves. */
struct sc_store_slab_where {
    uint32_t segment, half_count;
    uint64_t rows; /* where those of the extent begin */
    uint64_t base[2], stride, tags, tag_stride;
    const uint16_t *slots; /* of the layer: row_permutation.h; NULL: row r stands in slot r */
    uint64_t slots_copy; /* of slots: of their copy of the rows, a number that never comes again */
};
static inline uint64_t sc_store_slot_of(const struct sc_store_slab_where *where, uint64_t row)
{
    return where->slots != NULL ? where->slots[row] : row;
}
void sc_store_slab_where(const struct sc_store_shape *shape,
                         const struct sc_store_extent_entry *extent, uint32_t layer,
                         const struct sc_store_piece_entry *piece,
                         struct sc_store_slab_where *ret_where);
/* From a piece to another of the extent, in the same copy of the rows: to be found anew, it may be
 * in one that was found meanwhile. */
void sc_store_slab_move(struct sc_store_slab_where *where,
                        const struct sc_store_piece_entry *piece);

/* Bytes [start, end) of a segment, rounded out to what a direct read takes. */
struct sc_store_pages {
    uint64_t offset, bytes;
    uint64_t in; /* where start is in it */
};
static inline struct sc_store_pages sc_store_pages_of(uint64_t start, uint64_t end)
{
    uint64_t offset = start - start % SC_IO_PAGE_BYTES;
    uint64_t pages = (end - offset + SC_IO_PAGE_BYTES - 1) / SC_IO_PAGE_BYTES;
    return (struct sc_store_pages){offset, pages * SC_IO_PAGE_BYTES, start - offset};
}

#endif

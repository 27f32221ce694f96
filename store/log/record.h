/* Records of the log: framing (record_frame.c), encoding (record_encode.c), strict decoding
 * (record.c; pieces, which nearly all are: record_piece.c). Pure functions over memory.
 *
 *   frame   magic "SCL1" | payload bytes u32 | sequence u64 | checksum u64 | payload
 *   chain   checksum = XXH3-64(payload, seed = XXH3-64(first 16 bytes of the frame, seed = checksum
 *           of the frame before)), integers little-endian; the first frame's seed is the log's own
 *   payload one msgpack map: "v" version, "t" type, "id", and what the type has
 *
 * A frame is believed only behind all frames before it, so that the stale tail of a log that was
 * cut and written on can never join the new records.
 *
 * Encoding is msgpack-c's packer into the caller's buffer. Decoding is a cursor of our own
 * (store/log/record_decode.h): it allocates nothing, whatever lengths the bytes claim, and reads
 * each byte once.
 *
 * The first record of a log is its head (a checkpoint's number, and which numbering of ids it has).
 * Ids of extents and pieces ascend, with gaps where a checkpoint left records out.
 *
 * Holds: a decoded record has every key of its type once, in range by itself (what needs the rest
 * of the store, such as free space, is the caller's); unknown keys are skipped.
 * Does not: allocate, do I/O.
 * Threads: any.
 * Tests: tests/unit/store/test_record.c, test_log.c, tests/fuzz/fuzz_log.c */
#ifndef SC_STORE_LOG_RECORD_H
#define SC_STORE_LOG_RECORD_H

#include "base/limits.h"
#include "store/rows/where.h"
#include "store/store.h"

#define SC_STORE_FRAME_BYTES       24u
#define SC_STORE_PAYLOAD_BYTES_MAX (256u << 10) /* 16,384 tokens, 4,096 marks: 224 KiB */
#define SC_STORE_DESCRIPTOR_BYTES  (64u << 10)
#define SC_STORE_ROWS_MAX          16384u /* rows of an extent: bounds the tags a reader holds */
#define SC_STORE_MARKS_MAX         SC_LIMIT_EXTRA_KEYS /* of one piece */
#define SC_STORE_POSITION_MAX      (UINT64_C(1) << 48)
#define SC_STORE_SEGMENT_NUMBERS   (1u << 24) /* numbers of segment files are below */
#define SC_STORE_RECORD_VERSION    1u
#define SC_STORE_IDS               UINT64_C(0xFFFFFFFF) /* of extents and pieces: ids are below */
#define SC_STORE_QUANT_BYTES_MAX       (SC_STORE_PAYLOAD_BYTES_MAX - 64u) /* of an average record */
#define SC_STORE_PERMUTATION_BYTES_MAX (SC_STORE_PAYLOAD_BYTES_MAX - 128u) /* of `slots` */
#define SC_STORE_K_ROW_BYTES_MAX   (16u << 20) /* 1,024 heads of 4,096 four-byte elements */

enum sc_store_record_type {
    SC_STORE_RECORD_NAMESPACE = 1,
    SC_STORE_RECORD_EXTENT = 2,
    SC_STORE_RECORD_PIECE = 3,
    SC_STORE_RECORD_DROP = 4,
    SC_STORE_RECORD_EPOCH = 5,
    SC_STORE_RECORD_HEAD = 6,
    SC_STORE_RECORD_AVERAGE = 7,
    SC_STORE_RECORD_SECTION = 8,
    SC_STORE_RECORD_ROWS_GONE = 9, /* of earlier versions, id: of an extent without rows */
    SC_STORE_RECORD_PERMUTATION = 10,
    SC_STORE_RECORD_TYPE_MAX = SC_STORE_RECORD_PERMUTATION
};

enum sc_store_section_kind {
    SC_STORE_SECTION_PROBES = 1,
    SC_STORE_SECTION_QUANT = 3,
    SC_STORE_SECTION_RETIRED = 5,    /* versions before 0.3 wrote it; nothing is read of it */
    SC_STORE_SECTION_PERMUTATION = 6 /* all of a layer, rows in another order (row_permutation.h) */
};

struct sc_store_record_space {
    struct sc_store_namespace space; /* descriptor: not NUL-ended, descriptor_bytes long */
    uint64_t descriptor_bytes;
};

struct sc_store_record_extent {
    uint64_t space; /* id of a namespace record */
    uint64_t copy;  /* that its tags are made with: no other extent or derived section has it */
    uint64_t row_count;
    /* From a layer's start to the first of each. */
    uint64_t probe_offset, probe_tag_offset; /* mean something when probe_row_bytes does */
    uint64_t tag_offset, row_offset;
    uint64_t probe_row_bytes;              /* 0: no probe rows */
    uint64_t stride;                       /* from layer to layer */
    struct sc_store_codec_shape codec_shape; /* of a derived section; bits_k 0: it has no codes */
    bool is_retired; /* of a derived section: it counts for nothing, and its pages are free */
    bool is_order; /* of a derived section: a copy of the rows; its sections as an extent's, and */
    uint64_t permuted_at_ns; /* since when the one before it is void (wall clock) */
    struct sc_store_provenance provenance;
    bool leaves_ids; /* the ids behind its own and behind its last piece's are left free */
    struct sc_store_salt salt;
    uint32_t part_count;
    struct sc_store_part *parts; /* [SC_LIMIT_LAYERS], the caller's */
};

/* The first record of a log. Ids that the log once had are below piece_next and extent_next, also
 * those that a checkpoint left out: they are not given again under the same numbering. */
struct sc_store_record_head {
    uint64_t number;    /* of the checkpoint that made the log; 0: none did */
    uint64_t numbering; /* another: every id may mean something else */
    uint64_t piece_next, extent_next;
    uint64_t space_next; /* likewise of namespaces; 0: all that it had are in the log */
};

struct sc_store_record_drop { /* id: of the piece, or of an extent without rows */
    uint64_t at_ns;           /* wall clock */
};

/* id: of an extent, of whose copy of the rows to come these are the slots of some layers. */
struct sc_store_record_permutation {
    uint64_t copy;        /* of that derived section */
    uint64_t layer_first; /* the layers are as many as there are slots for */
    const uint8_t *slots; /* u16 each, little-endian; in the payload */
    uint64_t slots_bytes;
};

struct sc_store_record_epoch { /* id: of a namespace */
    uint64_t epoch, at_ns;
};

struct sc_store_record_average { /* id: of the piece */
    uint64_t requests;
    const uint8_t *codes; /* u16 each, little-endian; in the payload */
    uint64_t quant_bytes;
};

struct sc_store_record {
    uint64_t version, type, id;
    struct sc_store_record_head head;
    struct sc_store_record_drop drop;
    struct sc_store_record_epoch epoch;
    struct sc_store_record_average average;
    struct sc_store_record_permutation permutation;
    struct sc_store_record_space space;
    struct sc_store_record_extent
        extent; /* a derived section too: its probe members, stride and parts */
    struct sc_store_piece piece;          /* tokens, marks: the two arrays below; no provenance */
    uint32_t *tokens;                     /* [SC_STORE_ROWS_MAX], the caller's */
    struct sc_store_mark *marks;          /* [SC_STORE_MARKS_MAX], the caller's */
};

struct sc_store_writer { /* an encoder's target */
    uint8_t *bytes;
    uint64_t used, capacity;
    bool overflow; /* nothing is written past capacity */
};

/* ---- Frames --------------------------------------------------------------------------------- */

enum sc_store_frame_state {
    SC_STORE_FRAME_OK,
    SC_STORE_FRAME_SHORT, /* more bytes are needed: ret_bytes says how many in all */
    SC_STORE_FRAME_BAD
};

/* Seed of a log's first frame. */
uint64_t sc_store_frame_seed(const uint8_t store_id[16], uint32_t rank, uint32_t rank_count);

/* Judges the frame at bytes. OK: ret_bytes is the whole frame's size, *chain moves on. */
enum sc_store_frame_state sc_store_frame_check(const uint8_t *bytes, uint64_t count,
                                               uint64_t sequence, uint64_t *chain,
                                               uint64_t *ret_bytes);
/* Of a frame that was judged: its size, and the chain behind it. */
uint64_t sc_store_frame_bytes(const uint8_t *frame);
uint64_t sc_store_frame_chain(const uint8_t *frame);
/* A damaged frame, as check refused it, is restored where its own checksum says that it can be
 * (frame_recover.c has the rules). bytes: from its first on; SC_STORE_RECOVER_BYTES are enough.
 * sequence: its own; chain: the checksum of the frame before. scratch: of the smaller of count and
 * SC_STORE_FRAME_BYTES_MAX bytes. searches_left: for a wrong byte; counted down. */
#define SC_STORE_FRAME_BYTES_MAX ((uint64_t)SC_STORE_FRAME_BYTES + SC_STORE_PAYLOAD_BYTES_MAX)
#define SC_STORE_RECOVER_BYTES   (2 * SC_STORE_FRAME_BYTES_MAX)
#define SC_STORE_SEARCHES_MAX    64u   /* in one reading of a log */
#define SC_STORE_DAMAGED_MAX     4096u /* frames; a log with more of them ends there */

struct sc_store_recovered {
    uint64_t frame_bytes;   /* the next frame begins behind them */
    uint64_t chain;         /* its checksum */
    const uint8_t *payload; /* in the scratch buffer, as it was written */
};

/* false: nothing from there on can be believed. */
bool sc_store_frame_recover(const uint8_t *bytes, uint64_t count, uint64_t sequence, uint64_t chain,
                            uint8_t *scratch, uint32_t *searches_left,
                            struct sc_store_recovered *ret_recovered);
/* Whether two frames of sequences above this one stand one behind the other somewhere in these
 * bytes: then they are no torn end, though nothing there can be believed. */
bool sc_store_frame_is_ahead(const uint8_t *bytes, uint64_t count, uint64_t sequence);

/* A frame is written as: begin, encode a payload, end. end fills the header in. */
uint64_t sc_store_frame_begin(struct sc_store_writer *writer);
void sc_store_frame_end(struct sc_store_writer *writer, uint64_t begin, uint64_t sequence,
                        uint64_t *chain);

/* ---- Payloads ------------------------------------------------------------------------------- */

void sc_store_record_encode_space(struct sc_store_writer *writer, uint64_t id,
                                  const struct sc_store_namespace *space);
void sc_store_record_encode_extent(struct sc_store_writer *writer, uint64_t id,
                                   const struct sc_store_record_extent *extent);
void sc_store_record_encode_piece(struct sc_store_writer *writer,
                                  const struct sc_store_piece *piece);
void sc_store_record_encode_drop(struct sc_store_writer *writer, uint64_t piece, uint64_t at_ns);
/* slots: of all layers (store/rows/row_permutation.h), of which layer_count from layer_first on are
 * put. */
void sc_store_record_encode_permutation(struct sc_store_writer *writer, uint64_t extent,
                                        uint64_t copy, uint32_t layer_first, const uint16_t *slots,
                                        uint64_t row_count, uint32_t layer_count);
/* All pieces of the namespace that stand before it are void. */
void sc_store_record_encode_epoch(struct sc_store_writer *writer, uint64_t space, uint64_t epoch,
                                  uint64_t at_ns);
void sc_store_record_encode_head(struct sc_store_writer *writer,
                                 const struct sc_store_record_head *head);
void sc_store_record_encode_average(struct sc_store_writer *writer, uint64_t piece,
                                    uint64_t requests, const uint16_t *codes, uint64_t code_count);
/* Sections of an extent that lie elsewhere. extent: its probe members, stride and parts. */
void sc_store_record_encode_section(struct sc_store_writer *writer, uint64_t extent_id,
                                    const struct sc_store_record_extent *derived);

struct sc_store_identity {
    uint64_t version;
    uint8_t store_id[16];
    uint8_t secret[SC_STORE_SECRET_BYTES]; /* keys chains; nobody is shown it */
    uint64_t created_ns;
};
void sc_store_record_encode_identity(struct sc_store_writer *writer,
                                     const struct sc_store_identity *identity);
/* false: not an identity. A newer one has its version and nothing else that is believed, an older
 * one no secret. */
bool sc_store_record_get_identity(const uint8_t *payload, uint64_t bytes,
                                  struct sc_store_identity *ret_identity);

/* version, type and id only. false: no such map. (What else is wrong with it, decode finds.) */
bool sc_store_record_peek(const uint8_t *payload, uint64_t bytes, struct sc_store_record *record);
/* The whole record, of a type and version that peek accepted. false: it lies. */
bool sc_store_record_decode(const uint8_t *payload, uint64_t bytes, struct sc_store_record *record);
/* Both for a piece of our version without marks, laid out as put_piece does: what nearly all
 * records are. Its tokens stay in the payload, of which peek can still read what it reads, but are
 * moved by up to three bytes. false: it is something else, or short; nothing was changed. */
bool sc_store_record_decode_plain(uint8_t *payload, uint64_t bytes,
                                  struct sc_store_piece *ret_piece);

/* Whether the sections of a layer, of tags_per_row tags a row and of rows of 2 * k_row_bytes, stand
 * in order, one behind the other and inside the stride. (Of a decoded record, so nothing
 * overflows.) */
bool sc_store_record_extent_fits(const struct sc_store_record_extent *extent, uint64_t tags_per_row,
                                 uint64_t k_row_bytes);

/* The same of a derived section to an extent of so many rows. */
bool sc_store_record_section_fits(const struct sc_store_record_extent *derived, uint64_t row_count,
                                  uint64_t tags_per_row, uint64_t k_row_bytes);

/* Upper bounds of whole frames, for reserving log space: a key of k characters is k + 1 bytes, an
 * integer 9, a bin header 5. */
#define SC_STORE_DROP_BYTES  (SC_STORE_FRAME_BYTES + 48u)
#define SC_STORE_EPOCH_BYTES (SC_STORE_FRAME_BYTES + 64u)
#define SC_STORE_HEAD_BYTES  (SC_STORE_FRAME_BYTES + 112u)
#define SC_STORE_MARK_BYTES  40u

static inline uint64_t sc_store_record_bytes_space(uint64_t descriptor_bytes)
{
    return SC_STORE_FRAME_BYTES + 192 + descriptor_bytes;
}

static inline uint64_t
sc_store_record_bytes_parts(uint64_t part_count) /* extent, derived section */
{
    return SC_STORE_FRAME_BYTES + 256 + part_count * 25;
}

/* Layers that one record of slots has. */
static inline uint32_t sc_store_record_permutation_layers(uint64_t row_count)
{
    return (uint32_t)(SC_STORE_PERMUTATION_BYTES_MAX / (row_count * 2));
}

/* What a copy of the rows's records of slots take. */
static inline uint64_t sc_store_record_bytes_permutation(uint64_t row_count, uint64_t layer_count)
{
    uint64_t each = sc_store_record_permutation_layers(row_count);
    return (layer_count + each - 1) / each * (SC_STORE_FRAME_BYTES + 128) +
           layer_count * row_count * 2;
}

static inline uint64_t sc_store_record_bytes_piece(uint64_t token_count, uint64_t mark_count)
{
    return SC_STORE_FRAME_BYTES + 256 + token_count * 4 + mark_count * SC_STORE_MARK_BYTES;
}

static inline uint64_t sc_store_record_bytes_average(uint64_t code_count)
{
    return SC_STORE_FRAME_BYTES + 64 + code_count * 2;
}

#endif

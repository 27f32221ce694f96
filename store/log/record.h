/* record: records of the log: framing, encoding, strict decoding. Pure functions over memory.
 *
 *   frame   magic "SCL2" | payload bytes u32 | place u48 | resets u16 | chain u64 | checksum u64 |
 *           payload, integers little-endian
 *   place   the frame's offset in the file for which it was written. Its writer had read all bytes
 *           before. A frame that stands elsewhere lost its race and is not believed
 *   chain   checksum of the believed frame before it; the first one's: the log's seed
 *   resets  records so far, this one included, that void all before them
 *   checksum XXH3-64(payload, seed = XXH3-64(first 24 bytes of the frame, the log's seed))
 *   payload one msgpack map: "v" version, "t" type, "id", and what the type has
 *
 * Logs of store format 4 have shorter frames ("SCL1"), which may only stand before those above;
 * identities have them still.
 *
 * Files: record_frame.c, record_encode.c (msgpack-c's packer), record.c and record_piece.c
 * (decoding by store/log/record_decode.h). The first record is the log's head.
 * Ids of extents and pieces ascend, with gaps left by checkpoints.
 *
 * Invariants: a decoded record has every key of its type once and in range; conditions on the rest
 * of the store are the caller's. Unknown keys are skipped. No allocation, no I/O.
 * Threads: any.
 * Tests: tests/unit/store/test_record.c, test_log.c, tests/fuzz/fuzz_log.c */
#ifndef SC_STORE_LOG_RECORD_H
#define SC_STORE_LOG_RECORD_H

#include "base/limits.h"
#include "store/log/where.h"
#include "store/store.h"

#define SC_STORE_FRAME_BYTES       32u          /* of its header */
#define SC_STORE_OLD_FRAME_BYTES   24u          /* store format 4 */
#define SC_STORE_PAYLOAD_BYTES_MAX (256u << 10) /* 16,384 tokens, 4,096 marks: 224 KiB */
#define SC_STORE_DESCRIPTOR_BYTES  (64u << 10)
#define SC_STORE_ROWS_MAX          16384u /* rows of an extent; bounds a reader's tags */
#define SC_STORE_MARKS_MAX         SC_LIMIT_EXTRA_KEYS /* per piece */
#define SC_STORE_POSITION_MAX      (UINT64_C(1) << 48)
#define SC_STORE_SEGMENT_NUMBERS   (1u << 24) /* segment file numbers are below */
#define SC_STORE_RECORD_VERSION    1u
#define SC_STORE_IDS               UINT64_C(0xFFFFFFFF) /* extent and piece ids are below */
/* codes of an average record */
#define SC_STORE_QUANT_BYTES_MAX (SC_STORE_PAYLOAD_BYTES_MAX - 64u)
/* slots of a permutation record */
#define SC_STORE_PERMUTATION_BYTES_MAX (SC_STORE_PAYLOAD_BYTES_MAX - 128u)
#define SC_STORE_K_ROW_BYTES_MAX       (16u << 20) /* 1,024 heads of 4,096 four-byte elements */

enum sc_store_record_type {
    SC_STORE_RECORD_NAMESPACE = 1,
    SC_STORE_RECORD_EXTENT = 2,
    SC_STORE_RECORD_PIECE = 3,
    SC_STORE_RECORD_DROP = 4,
    SC_STORE_RECORD_EPOCH = 5,
    SC_STORE_RECORD_HEAD = 6,
    SC_STORE_RECORD_AVERAGE = 7,
    SC_STORE_RECORD_SECTION = 8,
    SC_STORE_RECORD_ROWS_GONE = 9, /* of earlier versions; id: an extent without rows */
    SC_STORE_RECORD_PERMUTATION = 10,
    /* 11 to 14 are records of objects (store/object/object_record.h). */
    SC_STORE_RECORD_SEGMENT = 15, /* id: a segment's number */
    SC_STORE_RECORD_LIMITS = 16,
    SC_STORE_RECORD_SEAL = 17, /* the log's last one: another file goes on */
    SC_STORE_RECORD_TYPE_MAX = SC_STORE_RECORD_SEAL
};

/* Returns true if a log of rows may have records of this type. */
static inline bool sc_store_record_is_of_rows(uint64_t type)
{
    return (type >= SC_STORE_RECORD_NAMESPACE && type <= SC_STORE_RECORD_PERMUTATION) ||
           (type >= SC_STORE_RECORD_SEGMENT && type <= SC_STORE_RECORD_TYPE_MAX);
}

enum sc_store_section_kind {
    SC_STORE_SECTION_PROBES = 1,
    SC_STORE_SECTION_QUANT = 3,
    SC_STORE_SECTION_RETIRED = 5,     /* written before 0.3; ignored */
    SC_STORE_SECTION_PERMUTATION = 6, /* another copy of the rows, permuted (row_permutation.h) */
    SC_STORE_SECTION_REPLACED = 7     /* one that a later copy replaced; its pages are free */
};

struct sc_store_record_space {
    struct sc_store_namespace space; /* descriptor: not NUL-terminated */
    uint64_t descriptor_bytes;
};

struct sc_store_record_extent {
    uint64_t space; /* id of a namespace record */
    uint64_t copy;  /* copy number in the tags (copy_number.c) */
    uint64_t row_count;
    /* Offsets from a layer's start. */
    uint64_t probe_offset, probe_tag_offset; /* valid if probe_row_bytes > 0 */
    uint64_t tag_offset, row_offset;
    uint64_t probe_row_bytes;                /* 0: no probe rows */
    uint64_t stride;                         /* from layer to layer */
    struct sc_store_codec_shape codec_shape; /* a derived section's; bits_k 0: no quantised rows */
    bool is_retired;         /* derived section without effect; its pages are free */
    bool is_order;           /* derived section: a copy of the rows, with an extent's sections */
    bool is_replaced;        /* of such copies: a later one replaced it */
    uint64_t permuted_at_ns; /* wall clock; the copy before it is void since */
    struct sc_store_provenance provenance;
    bool leaves_ids; /* ids behind its own and its last piece's stay free */
    struct sc_store_salt salt;
    uint32_t part_count;
    struct sc_store_part *parts; /* [SC_LIMIT_LAYERS], owned by the caller */
};

/* The first record of a log. piece_next and extent_next exceed all ids that the log ever had, so
 * none is given again under one numbering. */
struct sc_store_record_head {
    uint64_t number;    /* checkpoint that made the log; 0: none */
    uint64_t numbering; /* changes when ids are given anew */
    uint64_t piece_next, extent_next;
    uint64_t space_next; /* as piece_next, of namespaces; 0: all are in the log */
};

struct sc_store_record_drop { /* id: a piece, or an extent without rows */
    uint64_t at_ns;           /* wall clock */
};

/* Slots of some layers of an extent's next copy of the rows. id: the extent. */
struct sc_store_record_permutation {
    uint64_t copy;        /* the derived section's */
    uint64_t layer_first; /* as many layers as slots allow */
    const uint8_t *slots; /* u16 little-endian, in the payload */
    uint64_t slots_bytes;
};

struct sc_store_record_epoch { /* id: a namespace */
    uint64_t epoch, at_ns;
};

struct sc_store_record_average { /* id: a piece */
    uint64_t requests;
    const uint8_t *codes; /* u16 little-endian, in the payload */
    uint64_t quant_bytes;
};

/* Where the log goes on after a seal: in another file, which was complete when it was sealed. */
struct sc_store_record_seal {
    uint64_t place; /* of the member that wrote the file: part of its first name */
    uint64_t first; /* checksum of its first frame, which no other file has */
    uint64_t bytes, sequence, chain, resets; /* its end (struct sc_store_log_end) */
    uint64_t pieces;                         /* piece records in it */
    struct sc_store_record_head head;
};

struct sc_store_record {
    uint64_t version, type, id;
    uint64_t segment_bytes; /* of a segment's record */
    uint64_t disk_bytes;    /* of the limits' */
    struct sc_store_record_seal seal;
    struct sc_store_record_head head;
    struct sc_store_record_drop drop;
    struct sc_store_record_epoch epoch;
    struct sc_store_record_average average;
    struct sc_store_record_permutation permutation;
    struct sc_store_record_space space;
    struct sc_store_record_extent
        extent;                  /* also a derived section's probe members, stride and parts */
    struct sc_store_piece piece; /* tokens, marks: the arrays below; no provenance */
    uint32_t *tokens;            /* [SC_STORE_ROWS_MAX], owned by the caller */
    struct sc_store_mark *marks; /* [SC_STORE_MARKS_MAX], owned by the caller */
};

struct sc_store_writer { /* an encoder's target */
    uint8_t *bytes;
    uint64_t used, capacity;
    bool overflow; /* nothing is written beyond capacity */
};

/* ---- Frames --------------------------------------------------------------------------------- */

/* Where the believed frames of a log end. */
struct sc_store_log_end {
    uint64_t seed;     /* the log's own; constant */
    uint64_t offset;   /* behind the last frame; where the next is meant to stand, for a writer */
    uint64_t sequence; /* frames so far, lost ones of a damaged range counted as one */
    uint64_t chain;    /* checksum of the last frame; none: the seed */
    uint16_t resets;   /* as in that frame */
    bool is_old;       /* it is of store format 4, or there is none */
};

struct sc_store_frame {
    uint64_t bytes;
    const uint8_t *payload;
    uint64_t payload_bytes;
};

enum sc_store_frame_state {
    SC_STORE_FRAME_OK,
    SC_STORE_FRAME_SHORT, /* more bytes are needed */
    SC_STORE_FRAME_LOST,  /* whole, but it lost its race: ret_frame->bytes are skipped */
    SC_STORE_FRAME_BAD
};

/* Sets the start of a log. */
void sc_store_log_begin(struct sc_store_log_end *end, const uint8_t store_id[16], uint32_t rank,
                        uint32_t rank_count);
/* Validates the frame at bytes, which are at `at` in the file. OK: advances *end. */
enum sc_store_frame_state sc_store_frame_check(const uint8_t *bytes, uint64_t count, uint64_t at,
                                               struct sc_store_log_end *end,
                                               struct sc_store_frame *ret_frame);
/* Return size, payload and checksum of a whole frame of either format. */
uint64_t sc_store_frame_bytes(const uint8_t *frame);
const uint8_t *sc_store_frame_payload(const uint8_t *frame);
uint64_t sc_store_frame_chain(const uint8_t *frame);
/* Returns true if the frame is in its place. */
bool sc_store_frame_stands(const uint8_t *frame, uint64_t at);

#define SC_STORE_FRAME_BYTES_MAX ((uint64_t)SC_STORE_FRAME_BYTES + SC_STORE_PAYLOAD_BYTES_MAX)

/* A search behind bytes that are not believed. */
struct sc_store_frame_search {
    uint64_t offset;   /* in the file: of the bytes given; then of the frame, or where to go on */
    bool has_junk;     /* since the end of the log there were bytes that are no whole frame */
    uint64_t junk;     /* the first of them */
    bool misses;       /* result: frames before this one are missing */
    uint64_t previous; /* result: the chain that the frame names */
    uint16_t resets;   /* result */
};
/* Finds the next frame that is believed: whole, in its place, and continuing the log, or behind
 * damage that can have been what it continues. bytes: at search->offset; is_rest: up to the file's
 * end. Returns false if there is none that begins in them; search->offset: where to go on. */
bool sc_store_frame_search(const uint8_t *bytes, uint64_t count, bool is_rest,
                           const struct sc_store_log_end *end,
                           struct sc_store_frame_search *search);
/* Moves the end in front of the frame that was found, so that check accepts it. */
void sc_store_log_jump(struct sc_store_log_end *end, const struct sc_store_frame_search *found);
/* Returns true if a reset may be among what is missing. Call before the jump. */
bool sc_store_jump_loses_resets(const struct sc_store_log_end *end,
                                const struct sc_store_frame_search *found);

/* Nothing is believed behind a log's end, and `at` is the first byte that is of no whole frame.
 * Returns true if an append that was torn explains that: its header stands there, as a writer at
 * the log's end makes it for a record that is no reset, or a beginning of it and zeros. Else what
 * stood there may have been a reset. bytes: at `at`, to the file's end or SC_STORE_TAIL_BYTES. */
#define SC_STORE_TAIL_BYTES (UINT64_C(1) << 20)
bool sc_store_tail_is_torn(const uint8_t *bytes, uint64_t count, uint64_t at,
                           const struct sc_store_log_end *end);

/* Restores a frame that check refused, if its checksum proves it (frame_recover.c). bytes: at `at`
 * in the file, to its end or SC_STORE_RECOVER_BYTES; next: what a search found behind it, or NULL;
 * scratch: min(count, SC_STORE_FRAME_BYTES_MAX) bytes; searches_left: counted down per search.
 * Advances *end. false: not restored. */
#define SC_STORE_RECOVER_BYTES (2 * SC_STORE_FRAME_BYTES_MAX)
#define SC_STORE_SEARCHES_MAX  64u   /* per scan of a log */
#define SC_STORE_DAMAGED_MAX   4096u /* restored frames and damaged ranges; no more are restored */
bool sc_store_frame_recover(const uint8_t *bytes, uint64_t count, uint64_t at,
                            const struct sc_store_frame_search *next, struct sc_store_log_end *end,
                            uint8_t *scratch, uint32_t *searches_left,
                            struct sc_store_frame *ret_frame);

/* Write a frame: begin, encode a payload, end (fills the header). The frame is for end->offset;
 * resets: it voids what is before it. Advances *end. */
uint64_t sc_store_frame_begin(struct sc_store_writer *writer);
void sc_store_frame_end(struct sc_store_writer *writer, uint64_t begin, bool resets,
                        struct sc_store_log_end *end);

/* Frames of store format 4, and of identities (sequence 0, chain 0). */
enum sc_store_frame_state sc_store_old_frame_check(const uint8_t *bytes, uint64_t count,
                                                   uint64_t sequence, uint64_t *chain,
                                                   struct sc_store_frame *ret_frame);
uint64_t sc_store_old_frame_begin(struct sc_store_writer *writer);
void sc_store_old_frame_end(struct sc_store_writer *writer, uint64_t begin, uint64_t sequence,
                            uint64_t *chain);

/* ---- Payloads ------------------------------------------------------------------------------- */

void sc_store_record_encode_space(struct sc_store_writer *writer, uint64_t id,
                                  const struct sc_store_namespace *space);
void sc_store_record_encode_extent(struct sc_store_writer *writer, uint64_t id,
                                   const struct sc_store_record_extent *extent);
void sc_store_record_encode_piece(struct sc_store_writer *writer,
                                  const struct sc_store_piece *piece);
void sc_store_record_encode_drop(struct sc_store_writer *writer, uint64_t piece, uint64_t at_ns);
/* Encodes layer_count layers of slots from layer_first on (store/rows/row_permutation.h). */
void sc_store_record_encode_permutation(struct sc_store_writer *writer, uint64_t extent,
                                        uint64_t copy, uint32_t layer_first, const uint16_t *slots,
                                        uint64_t row_count, uint32_t layer_count);
/* Voids all pieces of the namespace recorded before. */
void sc_store_record_encode_epoch(struct sc_store_writer *writer, uint64_t space, uint64_t epoch,
                                  uint64_t at_ns);
void sc_store_record_encode_head(struct sc_store_writer *writer,
                                 const struct sc_store_record_head *head);
void sc_store_record_encode_segment(struct sc_store_writer *writer, uint32_t number,
                                    uint64_t bytes);
void sc_store_record_encode_limits(struct sc_store_writer *writer, uint64_t disk_bytes);
void sc_store_record_encode_seal(struct sc_store_writer *writer,
                                 const struct sc_store_record_seal *seal);
void sc_store_record_encode_average(struct sc_store_writer *writer, uint64_t piece,
                                    uint64_t requests, const uint16_t *codes, uint64_t code_count);
/* Encodes a derived section's probe members, stride and parts. */
void sc_store_record_encode_section(struct sc_store_writer *writer, uint64_t extent_id,
                                    const struct sc_store_record_extent *derived);

struct sc_store_identity {
    uint64_t version;
    uint8_t store_id[16];
    uint8_t secret[SC_STORE_SECRET_BYTES]; /* keys the chains; never shown */
    uint64_t created_ns;
};
void sc_store_record_encode_identity(struct sc_store_writer *writer,
                                     const struct sc_store_identity *identity);
/* false: not an identity. A newer version has only `version` set, an older one no secret. */
bool sc_store_record_get_identity(const uint8_t *payload, uint64_t bytes,
                                  struct sc_store_identity *ret_identity);

/* Reads version, type and id only. false: not such a map. */
bool sc_store_record_peek(const uint8_t *payload, uint64_t bytes, struct sc_store_record *record);
/* Decodes a record that peek accepted. false: invalid. */
bool sc_store_record_decode(const uint8_t *payload, uint64_t bytes, struct sc_store_record *record);
/* peek and decode for a piece of our version without marks, laid out by our encoder (nearly all
 * records). Tokens stay in the payload, moved by up to three bytes; peek still works. false:
 * something else or short; nothing was changed. */
bool sc_store_record_decode_plain(uint8_t *payload, uint64_t bytes,
                                  struct sc_store_piece *ret_piece);

/* Checks that a layer's sections are in order, disjoint and inside the stride, for tags_per_row
 * tags and 2 * k_row_bytes bytes a row. A decoded record cannot overflow. */
bool sc_store_record_extent_fits(const struct sc_store_record_extent *extent, uint64_t tags_per_row,
                                 uint64_t k_row_bytes);

/* The same for a derived section of an extent with row_count rows. */
bool sc_store_record_section_fits(const struct sc_store_record_extent *derived, uint64_t row_count,
                                  uint64_t tags_per_row, uint64_t k_row_bytes);

/* Upper bounds of frames: k + 1 bytes for a key of k characters, 9 an integer, 5 a bin head. */
#define SC_STORE_DROP_BYTES    (SC_STORE_FRAME_BYTES + 48u)
#define SC_STORE_EPOCH_BYTES   (SC_STORE_FRAME_BYTES + 64u)
#define SC_STORE_HEAD_BYTES    (SC_STORE_FRAME_BYTES + 112u)
#define SC_STORE_MARK_BYTES    40u
#define SC_STORE_SEGMENT_BYTES (SC_STORE_FRAME_BYTES + 48u)
#define SC_STORE_SEAL_BYTES    (SC_STORE_FRAME_BYTES + 256u)

static inline uint64_t sc_store_record_bytes_space(uint64_t descriptor_bytes)
{
    return SC_STORE_FRAME_BYTES + 192 + descriptor_bytes;
}

static inline uint64_t
sc_store_record_bytes_parts(uint64_t part_count) /* extent, derived section */
{
    return SC_STORE_FRAME_BYTES + 256 + part_count * 25;
}

/* Layers in one permutation record. */
static inline uint32_t sc_store_record_permutation_layers(uint64_t row_count)
{
    return (uint32_t)(SC_STORE_PERMUTATION_BYTES_MAX / (row_count * 2));
}

/* All permutation records of a copy of the rows. */
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

/* The store of one rank: rows on disk, found again after any crash, or missed; never wrong.
 *
 *   DIR/store.msgpack                    identity: magic, format version, store id
 *      /store.lock                       held while the identity is made
 *   DIR/rank-RRRR-of-NNNN/lock           one writer; names its holder
 *                        /log            framed msgpack records, appended in order; a checkpoint
 *                                        puts a shorter one in its place
 *                        /notify           what readers say to the writer
 *                        /seg-SSSSSSSS   preallocated segments that hold extents
 *
 *   extent = what one pass stored, layer-major, immutable:
 *     [layer 0: probe rows[n] | probe tags[n] | tags[n] | pad | rows[n]] [layer 1: ...] ...
 *               when probe keys are kept              stride the same for every layer
 *   piece  = the rows of one chunk inside one extent: the unit of the log and of the index
 *
 * A row is K then V of one token and layer, all KV heads of the rank ("paired"), or a slab is K
 * rows then V rows ("split"). Every row has a 64-bit tag, XXH3-64 seeded with its identity
 * (namespace, piece hash, copy, layer, part, logical position), so any row range is verifiable
 * without reading the rest, and a stale, permuted or misdirected row fails, also one of an earlier
 * copy of the same tokens.
 *
 * Holds: a piece is in the log only after every byte of all its layers was written; a record that
 * fails its checksum ends the log (what follows is forgotten, never believed); allocated blocks of
 * segments and log stay <= disk_bytes; pages of live pieces are never reused, of dropped ones not
 * before lease_ns_max has passed.
 * Does not: know tokens' meaning, match prefixes (hashing/), or choose rows (plugin/).
 * Threads: as each call says. Locks inside: store/internal.h.
 * Tests: tests/unit/store/, tests/fault/ */
#ifndef SC_STORE_STORE_H
#define SC_STORE_STORE_H

#include "base/assert.h"
#include "base/config.h"
#include "store/io/io.h"
#include "store/rows/tag.h"

#define SC_STORE_FORMAT_VERSION 4u
#define SC_STORE_IDENTITY_NAME  "store.msgpack"
#define SC_STORE_HASH_BYTES     16u
#define SC_STORE_SHA256_BYTES   32u
#define SC_STORE_SECRET_BYTES   32u
#define SC_STORE_BITE_BYTES     (16ull << 10) /* packed or verified at once: stays in a L1 cache */

struct sc_store;
struct sc_store_extent; /* one pass's rows being written; from a pool made at open */

enum sc_store_layout { SC_STORE_PAIRED, SC_STORE_SPLIT };

/* One model's KV: rows of one shape. Its digest: docs/reference/hashing.md. */
struct sc_store_namespace {
    uint8_t digest[SC_STORE_HASH_BYTES];
    uint32_t layer_count;
    uint32_t layout;                     /* enum sc_store_layout */
    uint64_t k_row_bytes;                /* all KV heads of one token's K; V has as many. Who never
                                          * asks for K or V alone, nor codes: half of a row */
    uint8_t family[SC_STORE_HASH_BYTES]; /* digest without what differs between ranks of one model;
                                          * chain roots come from it, so that ranks compare */
    const char *descriptor; /* canonical JSON text, kept so that `why` can name a differing field */
};

/* What rows were computed on: `prov` of the extent's record (docs/reference/store-format.md). */
#define SC_STORE_COMPUTED_MAX 2u       /* 0 exact, 1 lossy, 2 pruned */
#define SC_STORE_PPM_MAX      1000000u /* of exact_ppm, retain_ppm */
struct sc_store_provenance {
    uint32_t computed_on;
    uint32_t bits_k, bits_v, exact_ppm, retain_ppm, metric, reserved;
};

/* Extra keys that begin at a token (hashing/chain.h), as the log keeps them. */
struct sc_store_mark {
    uint64_t token; /* absolute position */
    uint8_t digest[SC_STORE_SHA256_BYTES];
};

/* A piece as the log tells it. Ids ascend in log order, from 1, with gaps; 0 is "none". */
struct sc_store_piece {
    uint64_t id;
    uint64_t extent;
    uint64_t first_position; /* of the piece's first row */
    uint64_t chunk_first;    /* where its chunk begins on the token grid */
    uint32_t extent_row;     /* first row inside the extent */
    uint32_t row_count;
    uint32_t skip; /* leading rows that another piece holds: not reachable here */
    uint32_t mark_count;
    uint8_t root[SC_STORE_SHA256_BYTES];     /* chain root: secret, family, epoch, salt, LoRA */
    uint8_t chunk_hash[SC_STORE_HASH_BYTES]; /* chain hash at chunk_first: names the parent */
    uint8_t hash[SC_STORE_HASH_BYTES]; /* chain hash after the piece's last row: binds the tags */
    const uint32_t *tokens; /* [first_position + row_count - chunk_first]: from the chunk's start,
                             * so that a replay can find where the piece parts; valid during the
                             * call */
    const struct sc_store_mark *marks; /* [mark_count]: extra keys that begin in those tokens */
    struct sc_store_provenance provenance;
};

/* Under which salt rows were stored: what erases them finds them by it (store/erase.h). */
enum sc_store_salt_state {
    SC_STORE_SALT_UNKNOWN, /* an older version's record, which does not say */
    SC_STORE_SALT_NONE,
    SC_STORE_SALT_KNOWN
};
struct sc_store_salt {
    uint8_t digest[SC_STORE_HASH_BYTES]; /* zeros unless it is KNOWN */
    uint32_t state;                      /* enum sc_store_salt_state */
};

enum sc_store_role {
    SC_STORE_WRITER, /* owns the rank's directory */
    SC_STORE_READER, /* follows its writer's log, in another process or this one; loads rows */
    SC_STORE_PEER    /* follows it and loads nothing: no staging, no extents */
};

/* How slabs are coded (kernels/codec.h, bitplanes.h); bits_k 0: they are not. */
#define SC_STORE_FORM_K_PER_CHANNEL 1u /* a block begins with a table, of half a byte a channel */
#define SC_STORE_FORM_K_TURNED 2u /* of those alone: before the rotary turn */
#define SC_STORE_FORM_V_PER_CHANNEL 4u
struct sc_store_codec_shape {
    uint32_t bits_k, bits_v;           /* of a value; of free widths on average, rounded down */
    uint64_t scale_bytes;              /* of K or of V of a slab */
    uint64_t k_row_bytes, v_row_bytes; /* codes of a row */
    uint32_t form;                     /* SC_STORE_FORM_* */
    uint32_t reserved;                 /* 0: shapes are compared as bytes */
};
/* Of a block's table: half a byte for what has 4 bytes of scales. */
static inline uint64_t sc_store_quant_table_bytes(const struct sc_store_codec_shape *shape,
                                                  bool is_k)
{
    uint32_t is_free = is_k ? SC_STORE_FORM_K_PER_CHANNEL : SC_STORE_FORM_V_PER_CHANNEL;
    return (shape->form & is_free) != 0 ? shape->scale_bytes / 8 : 0;
}

/* K's or V's rows of a slab, to be coded. */
struct sc_store_encode {
    uint32_t layer, part;       /* SC_STORE_PART_K, SC_STORE_PART_V */
    uint64_t position;          /* of the first row */
    const uint8_t *const *rows; /* [row_count] */
    uint64_t row_count;
    uint8_t *table, *scales, *codes; /* written whole; table: as many bytes as the shape says */
};
struct sc_store_quant {
    struct sc_store_codec_shape shape;
    bool with_rows; /* made while rows are stored, from memory, where that goes; else afterwards */
    /* false: the slab has no codes. Executor thread. */
    bool (*encode)(void *user, const struct sc_store_encode *what);
    /* Whether codes of this shape, which the log tells of, are any that rows of this namespace can
     * have; those that are not are not believed. NULL: all may be. Whoever reads the log. */
    bool (*fits)(void *user, const struct sc_store_codec_shape *shape);
    /* Whether a block with this table, of rows from this position on, can be decoded; others' codes
     * are not used. NULL: any can. Any thread, never blocks long. */
    bool (*reads)(void *user, uint32_t part, const struct sc_store_codec_shape *shape,
                  const uint8_t *table, uint64_t position, uint64_t row_count);
    void *user;
};

/* In which order the rows of an extent stand (store/rows/row_permutation.h). */
struct sc_store_range;
#define SC_STORE_PERMUTATION_ROWS_MAX 16384u /* rows of the ranges, together */
struct sc_store_permutation {
    uint64_t span_rows; /* no row leaves its span of so many; 0: extents get no other order */
    uint64_t bytes_max; /* of a layer, which is held in memory while it is written */
    /* What the rows of a layer are worth, 0: not known, in the order of the ranges, which are all
     * rows that the extent has. false: too little is known yet. Executor thread. */
    bool (*scores)(void *user, const struct sc_store_range *ranges, uint64_t range_count,
                   uint32_t layer, float *ret_scores);
    /* A moment, and whether all has ended since that could have begun to load before it: what was
     * planned by then may read pages that are to go. Executor thread. */
    uint64_t (*moment)(void *user);
    bool (*is_quiet)(void *user, uint64_t moment);
    void *user;
};

struct sc_store_average;

struct sc_store_params {
    struct sc_alloc *alloc;
    struct sc_exec *exec;
    struct sc_log *log;
    struct sc_fault *fault;
    struct sc_poison *poison;
    const struct sc_config *config; /* path, sizes, back end; constant while open */
    const struct sc_io_custom *custom;
    uint32_t rank, rank_count;
    uint32_t role;                   /* enum sc_store_role */
    bool is_objects;                 /* store/object/object.h: no rows, no model */
    struct sc_store_namespace space; /* this connector's; recorded when new */
    /* [space.layer_count] tokens that a query of the layer sees, 0: all; NULL: none has a window.
     * Not copied. */
    const uint64_t *windows;
    uint64_t extents_more;     /* extents that are written at one time, beyond those of passes
                                * of rows; a reader has none */
    uint64_t selector_bytes_max; /* memory of selectors that are begun, all together: taken at
                                * open, in blocks of 64 KiB; a peer takes none */
    /* Probe keys of a token that new extents get, <= k_row_bytes, a multiple of 2; 0: none. */
    uint64_t probe_row_bytes;
    struct sc_store_quant codes;             /* that extents get, in the background */
    struct sc_store_permutation permutation; /* likewise, when it is asked for */
    /* The store was found: its secret, before a piece of it is told of. A follower is told again
     * where another store has come to the same path. An error ends open or sc_store_follow. May be
     * NULL. */
    spec_status (*on_secret)(const uint8_t secret[SC_STORE_SECRET_BYTES], void *user,
                             struct spec_error *reterr);
    /* Called for every live piece of this namespace (PEER: of its family) and of its current epoch,
     * in log order, parents before children: during open, and for a follower in sc_store_follow.
     * ret_mark: a number of the caller's that stays with the piece (0 unless set). false: the piece
     * is not believed (its chain does not fit); a writer drops it. */
    bool (*on_piece)(const struct sc_store_piece *piece, uint64_t *ret_mark, void *user);
    /* Whether the piece's tokens and marks give its hashes; on_piece is told of no other. It looks
     * at nothing but the piece (whose extent and id are those of the log, and whose provenance is
     * not set), on any thread, during open and sc_store_follow. NULL: they all do. */
    bool (*piece_holds)(const struct sc_store_piece *piece, void *user);
    /* During open: on_piece may be told of about so many pieces from now on. May be NULL. */
    void (*on_pieces_soon)(uint64_t count, void *user);
    /* During open: on_piece will soon be told of a piece, or not, whose hash is this. A good moment
     * to fetch memory. May be NULL. */
    void (*on_piece_soon)(const uint8_t hash[SC_STORE_HASH_BYTES], void *user);
    /* A piece that was told is void: for a follower in sc_store_follow. A writer that sets it hears
     * during open of pieces that a later record drops; one that does not is never told of those,
     * and its log is read twice. */
    void (*on_drop)(uint64_t piece, uint64_t mark, void *user);
    /* During open (when it is not 0), and for a follower in sc_store_follow: the namespace's epoch
     * is this now; all pieces that were told are void, without an on_drop each. */
    void (*on_epoch)(uint64_t epoch, void *user);
    /* Averages of a piece that was told (may be NULL). The last of a piece counts. */
    void (*on_average)(const struct sc_store_average *average, void *user);
    /* What a writer of this namespace, or for a peer of this family, noted last of a kind (may be
     * NULL): words of the caller's, of which the store knows the kind alone; they may be those of
     * another version. */
    void (*on_note)(const uint16_t *words, uint64_t count, void *user);
    /* Called on an executor thread once an extent's layers are all on disk (status SPEC_OK) or it
     * failed, and never before the writer is through with it: after the put_layer of the last
     * layer, a put_layer that returned an error, or an abort. (A write that fails earlier lets the
     * next put_layer answer its status.) The callee answers with sc_store_extent_commit or
     * _discard, once, now or later. */
    void (*on_written)(struct sc_store_extent *extent, spec_status status, void *extent_user,
                       void *user);
    void *user;
};

struct sc_store_stats {
    uint64_t disk_bytes_max, disk_bytes_used; /* allocated blocks: segments and log */
    uint64_t extent_bytes;                    /* live extents, alignment included */
    uint64_t log_bytes, piece_count, extent_count;
    uint64_t read_bytes, read_ops, write_bytes, write_ops;
    uint64_t verify_ns; /* spent on tags while loading, caller's thread; with rows that are moved,
                         * the copy too */
    uint64_t corrupt_rows, corrupt_records, io_errors, no_space, stage_full;
    uint64_t staging_bytes_used;
    uint64_t quarantine_bytes; /* dropped, not yet reusable; counted in disk_bytes_used */
    uint64_t checkpoints, evicted_pieces;
    uint64_t selectors_refused;         /* not begun, because no memory was free */
    uint64_t built_pieces, built_bytes; /* that got probe rows or codes since open; of those */
    uint64_t bad_blocks;                /* of codes, that failed verification */
    uint64_t quantised_bytes;           /* taken by codes, alignment included */
    uint64_t permuted_pieces;           /* written anew in another order since open */
    bool is_building;                   /* what extents lack is being made */
    /* Of the host tier: levels, whole pages; counts of slabs that loads asked for. */
    uint64_t host_bytes_max, host_bytes_used, host_bytes_kept;
    uint64_t host_hits, host_misses, host_evictions;
    /* Likewise of the tier above it; slabs that rose into it, and sank from it into host memory. */
    uint64_t upper_bytes_max, upper_bytes_used, upper_hits;
    uint64_t upper_promoted, upper_demoted;
    /* Written since open, beside rows: with write_bytes' derived sections and merges. */
    uint64_t quantised_write_bytes, compaction_write_bytes, log_write_bytes, checkpoint_write_bytes;
    uint64_t stored_row_bytes; /* of rows that passes stored, bare */
    uint64_t budget_left;      /* bytes that may be written now; 0 too where there is no budget */
};

/* Opens or makes the store, replays the log; a reader or peer makes nothing, and what is not there
 * yet comes with sc_store_follow. Blocks. Errors: SPEC_E_IO (missing parent directory,
 * read-only), SPEC_E_VERSION (foreign directory, newer format: the text says which), SPEC_E_LOCKED,
 * SPEC_E_NO_SPACE, SPEC_E_NO_MEMORY. On error nothing of an existing store was changed. */
spec_status sc_store_open(const struct sc_store_params *params, struct sc_store **ret_store,
                          struct spec_error *reterr);
/* Waits for what is in flight; extents not committed are discarded by their owners before. */
void sc_store_close(struct sc_store *store);
void sc_store_stats(struct sc_store *store, struct sc_store_stats *ret_stats);
/* What names the store wherever it lies. false: a follower has not found it yet. Open, or the
 * thread that follows. */
bool sc_store_id(const struct sc_store *store, uint8_t ret_id[16]);

/* ---- Writing -------------------------------------------------------------------------------- */

struct sc_store_piece_plan { /* what a pass intends to store, one a chunk */
    uint64_t first_position;
    uint64_t chunk_first;
    uint32_t row_count;
    uint8_t chunk_hash[SC_STORE_HASH_BYTES]; /* as in struct sc_store_piece */
    uint8_t hash[SC_STORE_HASH_BYTES];
};

#define SC_STORE_PASS_EXTENTS 256u /* of one pass that there is place for, at least */

/* Frames of staging that the extents of one pass hold and may still lose. Zero before the first
 * pass; it lives until the last extent of its passes was committed or discarded. */
struct sc_store_pass_share {
    _Atomic int64_t frames;
};

struct sc_store_pass {
    const struct sc_store_piece_plan *pieces; /* [piece_count] their rows are consecutive; copied */
    uint64_t piece_count;
    struct sc_store_provenance provenance; /* unless the commit says another */
    struct sc_store_salt salt;
    bool is_background; /* no host is waited for: it ends soon, whatever hosts do */
    void *user;         /* on_written's extent_user */
    /* NULL: its writes go to the device as they come. Else they are queued, those of whole extents
     * first, then by `permutation`; and when staging has no free frame, the extent of greatest
     * order of the pass that holds most frames is cancelled, unless it is firm: its next put_layer
     * is BUSY.
     */
    struct sc_store_pass_share *share;
    uint64_t order; /* tokens of its pass before it */
    bool is_part;   /* one of several extents of its pass; those of one extent go before it */
    bool is_firm;
};
/* Frames of staging that writes may have, when nobody else has any; and their bytes. Constant. */
uint64_t sc_store_write_frames(const struct sc_store *store);
uint64_t sc_store_write_bytes(const struct sc_store *store);
/* Reserves disk space for the pieces' rows, at most sc_store_extent_rows_max, over all layers.
 * Never blocks on the device (segment files are made by a task before the first write into
 * them). Errors: SPEC_E_NO_SPACE (disk_bytes), SPEC_E_BUSY (no extent object, too many pieces). */
spec_status sc_store_extent_begin(struct sc_store *store, const struct sc_store_pass *pass,
                                  struct sc_store_extent **ret_extent, struct spec_error *reterr);
/* The largest read or write: io.op_bytes, or less where staging_bytes is small. Constant. */
uint64_t sc_store_op_bytes(const struct sc_store *store);
/* The longest pass that one extent can hold; the plugin cuts longer ones on the chunk grid. */
uint64_t sc_store_extent_rows_max(const struct sc_store *store);
/* How many rows the extents of a pass of row_count rows may have, so that all of them find room
 * now: row_count, or a half of it, or a half of that .. rounded up to chunks, when what is free
 * lies in shorter runs; 0: there is no room for all. Another's extent may be faster. Any thread. */
uint64_t sc_store_extent_rows_fit(struct sc_store *store, uint64_t row_count);

/* Addresses of the spans of rows [row, row + count): [count][row_bytes / span_bytes], a row's bytes
 * in that order. Allocates nothing, waits for nothing. */
#define SC_STORE_SPANS_MAX 512u /* of a row */
typedef void sc_store_spans(void *user, uint64_t row, uint64_t count, uint8_t **ret_spans);

/* Packs one part (enum sc_store_tag_part) of rows, one behind the other: ROW a paired row, K or V
 * the half of a split one, PROBE its first sc_store_probe_row_bytes bytes of keys. */
typedef void sc_store_pack(void *user, uint32_t part, uint64_t row_first, uint64_t row_count,
                           uint8_t *dst);
struct sc_store_source {
    sc_store_pack *pack;
    sc_store_spans *spans;  /* NULL: rows are packed, too; else they go past the caches */
    uint64_t span_bytes;    /* half a row is a multiple of it */
    uint64_t rows_least;    /* packed at once, if there are as many; 0: as many as stay in cache */
    uint64_t wait_until_ns; /* while staging is full; 0: not at all */
    void *user;
};
/* Packs one layer: calls pack or spans for runs of rows, in order, straight into staging, computes
 * tags, queues writes. Probe rows, when the extent has them, come first; then ROW, or of a split
 * layout K and V of one piece after the other. Layers ascend by one from 0 (SPEC_E_INVALID
 * otherwise); one thread at a time for one extent. Waits for frames until source->wait_until_ns,
 * then gives up extents of passes that have a share; SPEC_E_BUSY when staging is full, or was and
 * the extent was cancelled (it is then failed and on_written says SPEC_E_BUSY). After the last
 * layer, on_written follows. */
spec_status sc_store_extent_put_layer(struct sc_store_extent *extent, uint32_t layer,
                                      const struct sc_store_source *source,
                                      struct spec_error *reterr);
/* Whether staging has frames for a whole layer of the extent now, or never will, because none is on
 * its way back. Others may take them first. Any thread. */
bool sc_store_extent_has_room(const struct sc_store_extent *extent);
/* Of every new extent; 0: none. */
uint64_t sc_store_probe_row_bytes(const struct sc_store *store);
/* Gives up an extent before its last layer; on_written follows with SPEC_E_DROPPED. */
void sc_store_extent_abort(struct sc_store_extent *extent);

struct sc_store_commit {
    uint32_t piece_first; /* pieces before this one are not committed (present elsewhere) */
    uint32_t skip;        /* rows of piece piece_first that are present elsewhere */
    uint8_t root[SC_STORE_SHA256_BYTES];
    uint64_t token_first; /* position of tokens[0]: at most where the first piece's chunk begins */
    const uint32_t *tokens;            /* as far as the last piece goes */
    const struct sc_store_mark *marks; /* [mark_count] of the whole prompt, ascending */
    uint64_t mark_count;
    const struct sc_store_provenance *provenance; /* NULL: what begin was given */
    uint64_t behind; /* not 0: of an extent of one piece, which gets the ids that the commit of this
                      * piece left free (sc_store_piece_place), so that it stands before what hangs
                      * on that one. One commit of those at a time. */
};
/* Appends the records (one buffered write); the pieces get ids ret_first_id, +1, ... The extent
 * object returns to its pool. Executor thread. On error nothing is visible and the space is free.
 */
spec_status sc_store_extent_commit(struct sc_store_extent *extent,
                                   const struct sc_store_commit *commit, uint64_t *ret_first_id,
                                   struct spec_error *reterr);
void sc_store_extent_discard(struct sc_store_extent *extent);

/* Tombstones: the pieces are void at every layer, here and after reopen. Their pages (those that
 * hold rows of dropped pieces only) are reusable lease_ns_max later, also after a reopen: until
 * then another process may read them on a lease. Any thread; one buffered write for all. Unknown
 * ids are ignored. When the record cannot be written, the pieces are void all the same, and their
 * space stays taken until a later call can write it, one with count 0 too. Follower: void here
 * only. */
void sc_store_pieces_drop(struct sc_store *store, const uint64_t *pieces, uint64_t count);
void sc_store_piece_drop(struct sc_store *store, uint64_t piece); /* the same for one */
/* The caller's number of a piece (on_piece's ret_mark); 0 for unknown ids. Set under the caller's
 * own lock; read from any thread. */
void sc_store_piece_set_mark(struct sc_store *store, uint64_t piece, uint64_t mark);
uint64_t sc_store_piece_mark(const struct sc_store *store, uint64_t piece);
/* The piece's hash when it is live; false: it is not. Any thread. */
bool sc_store_piece_hash(const struct sc_store *store, uint64_t piece,
                         uint8_t ret_hash[SC_STORE_HASH_BYTES]);
/* What the piece was computed on. false: unknown id. Any thread. */
bool sc_store_piece_provenance(const struct sc_store *store, uint64_t piece,
                               struct sc_store_provenance *ret_provenance);
/* Where a live piece stands. */
struct sc_store_piece_place {
    uint64_t first_position;
    uint32_t row_count, skip;
    bool leaves_ids; /* ids behind it are free, for a commit `behind` it: its rows end a chunk that
                      * others began, and it was its extent's last */
};
/* false: it is not live. Any thread but for leaves_ids, which is of the thread that commits. */
bool sc_store_piece_place(const struct sc_store *store, uint64_t piece,
                          struct sc_store_piece_place *ret_place);
/* Where the rows begin that the piece has, or had until it was dropped; UINT64_MAX: it is not
 * known. Any thread. */
uint64_t sc_store_piece_first(const struct sc_store *store, uint64_t piece);
/* Whether the log left the id free, and nobody has it yet: a piece may come under it, though those
 * behind it have come. Any thread. */
bool sc_store_piece_is_left(const struct sc_store *store, uint64_t piece);
/* Rows of a live piece; 0: it is not. Any thread. */
uint32_t sc_store_piece_rows(const struct sc_store *store, uint64_t piece);
/* Id of the next piece that the log will have: a follower knows all pieces below it. */
uint64_t sc_store_piece_next(struct sc_store *store);
/* The first id from this one on that a piece may have: ids leave gaps of any length. UINT64_MAX:
 * none. Any thread. */
uint64_t sc_store_piece_from(const struct sc_store *store, uint64_t piece);

/* ---- Room, eviction, epochs, checkpoints (writer) ------------------------------------------- */

struct sc_store_free_space {
    uint64_t bytes_max;        /* this rank's share of disk_bytes, but what the log may take */
    uint64_t free_bytes;       /* free pages in runs that hold a chunk's layer, and segments that
                                * may still be made */
    uint64_t quarantine_bytes; /* dropped pages that are not reusable yet */
    uint64_t demand_bytes;     /* stored, or missed, within lease_ns_max or a 16th more */
    uint64_t piece_new; /* pieces from this one on were stored within an 8th of it; UINT64_MAX:
                         * none */
    uint64_t log_pieces_over; /* pieces that shall go because the log has no room, the oldest */
    bool is_paused;           /* sc_store_is_paused */
};
void sc_store_free_space(struct sc_store *store, struct sc_store_free_space *ret_room);
/* Its bytes_max alone, without a look at every segment. Any thread. */
uint64_t sc_store_free_space_most(struct sc_store *store);
/* The device failed lately: extents are refused, whatever is free. Any thread. */
bool sc_store_is_paused(struct sc_store *store);
/* So many rows would have been stored, had there been room: they count as demand. Any thread. */
void sc_store_free_space_missed(struct sc_store *store, uint64_t rows);
/* Bytes of pages that an extent of so many rows takes; room_bytes: with its codes. */
uint64_t sc_store_free_space_bytes(const struct sc_store *store, uint64_t rows);
uint64_t sc_store_rows_bytes(const struct sc_store *store, uint64_t rows);
/* How many tokens of a pass [first, first + count) the write budget allows now: all of them, or up
 * to a chunk's end. Their bytes are taken from it until they are given back, once the pass's
 * extents have begun, which take their own. Any thread. */
uint64_t sc_store_budget_take(struct sc_store *store, uint64_t first, uint64_t count,
                              uint64_t *ret_bytes);
/* The same of rows of which all are stored or none; false: it does not allow them, and nothing was
 * taken. */
bool sc_store_budget_take_whole(struct sc_store *store, uint64_t count, uint64_t *ret_bytes);
void sc_store_budget_give(struct sc_store *store, uint64_t bytes);
/* How long what is written anew in the background waits, so that passes go first; 0: not. */
uint64_t sc_store_budget_wait_ns(struct sc_store *store);
/* Bytes of pages that dropping the piece gives back, all layers: at least those of its rows; where
 * they are gone, its share of what the last piece of the extent gives back. */
uint64_t sc_store_piece_bytes(const struct sc_store *store, uint64_t piece);
/* Drops pieces that no lookup of this connector can find (other namespaces', earlier epochs'), the
 * oldest first, until about `bytes` are given back; returns how many were. Executor thread. */
uint64_t sc_store_evict_unreachable(struct sc_store *store, uint64_t bytes);

/* Begins to build the probe rows (params.probe_row_bytes), then the codes, that extents of this
 * namespace lack, in the background, reading no more than bytes_per_s (0: as fast as it goes); once
 * more, when it runs already. Sketches find those of an extent as soon as they are whole. Never
 * blocks. A follower: no effect. */
void sc_store_build_start(struct sc_store *store, uint64_t bytes_per_s);
/* The same for codes alone, of what was stored since the last run, when extents get codes at all;
 * as fast as it goes. What a run passed over waits for the next start, or open. */
void sc_store_build_quant(struct sc_store *store);
/* Begins to write anew, with rows in descending score (params.permutation), what extents of this
 * namespace it is known of, each once, in the background, reading no more than bytes_per_s; behind
 * what runs already. An extent whose rows are written anew, and nobody loads as they were any more,
 * gives their pages back once leases on them have ended. Never blocks. A follower: no effect. */
void sc_store_build_permutation(struct sc_store *store, uint64_t bytes_per_s);
/* Somebody has ended who may have loaded rows as they were: if editions wait for that, those that
 * have waited long enough get their records. Any thread; never blocks. */
void sc_store_build_settle(struct sc_store *store);
/* Whether what is built waits, extent by extent: one that is being read or written ends first. Any
 * thread. */
void sc_store_build_rest(struct sc_store *store, bool rests);

/* ---- Pieces that become one (compactor.c) ---------------------------------------------------- */

struct sc_store_compact {
    const uint64_t *pieces; /* [piece_count] live ones, whose rows follow each other
                             * in one chunk, but for those that the first skips; copied */
    uint64_t piece_count;
    struct sc_store_piece_plan plan; /* what they become */
    struct sc_store_provenance provenance;
    uint64_t bytes_per_s; /* that are read at most; 0: as fast as it goes */
    /* On an executor thread, once, but not when the store is closed before: extent NULL: status
     * says why (CORRUPT: rows cannot be had). Else it is the callee's, to be committed or
     * discarded, now or later; the pieces are as they were. */
    void (*done)(struct sc_store_extent *extent, spec_status status, void *user);
    void *user;
};
/* Reads the pieces' rows, verified, and writes them as one extent's, in the background. One merge
 * at a time. Never blocks. Errors: BUSY (one runs), NO_MEMORY, NO_SPACE, and those of extent_begin.
 */
spec_status sc_store_compact_begin(struct sc_store *store, const struct sc_store_compact *merge,
                                   struct spec_error *reterr);
/* What the log says now stays, whatever becomes of the machine. Blocks. A writer's. */
spec_status sc_store_log_sync(struct sc_store *store, struct spec_error *reterr);
/* What was written of it stays, whatever becomes of the machine: what its pieces take the place of
 * may go once they are committed. Blocks. */
spec_status sc_store_extent_sync(struct sc_store_extent *extent, struct spec_error *reterr);

/* A namespace's epoch counts its resets, from 0. */
uint64_t sc_store_epoch(struct sc_store *store);
/* A writer's: whether a reader has its log open now. For a moment after a checkpoint readers have
 * the log before. Any thread; a system call. */
bool sc_store_is_followed(struct sc_store *store);
/* Moves it on (not beyond: no effect): one record, after which all pieces stored before are void,
 * here and after reopen; their space goes as that of dropped pieces does. No on_drop is called.
 * Blocks for one buffered write. Errors: IO, NO_SPACE; then nothing changed. */
spec_status sc_store_epoch_set(struct sc_store *store, uint64_t epoch, struct spec_error *reterr);

/* Writes what the log says now into a shorter one, syncs it, and puts it in the old one's place.
 * Commits go on meanwhile, but for a moment at its end. Executor thread, one at a time; blocks on
 * the device. An error leaves the old log. sc_store_close does it too when the log has grown. */
spec_status sc_store_checkpoint(struct sc_store *store, struct spec_error *reterr);
/* The log grew by store.checkpoint_bytes and by as much as the last checkpoint left. */
bool sc_store_checkpoint_due(struct sc_store *store);

/* ---- Following (reader, peer) --------------------------------------------------------------- */

/* Applies what the writer has appended since the last call, at most about 1 MiB of it (*ret_more:
 * call again now). A directory, log or segment that is not there yet is waited for: SPEC_OK. A log
 * that was put in place by a checkpoint is read from its start; pieces that it lacks are void. One
 * thread at a time, not at the same time as sc_store_close; blocks on the file system. */
spec_status sc_store_follow(struct sc_store *store, bool *ret_more, struct spec_error *reterr);
/* Wall clock (ns) at which what is known now was certainly all that the log held; 0: never yet. A
 * promise made from it is good until that time + lease_ns_max. Any thread. */
uint64_t sc_store_follow_ns(const struct sc_store *store);
/* The same on the executor's clock, for how long ago that was. */
uint64_t sc_store_follow_now_ns(const struct sc_store *store);

/* ---- Mail: what readers and other ranks say to a writer -------------------------------------- */

enum sc_store_notify_kind {
    SC_STORE_NOTIFY_EPOCH = 1, /* the namespace family's epoch is at least `epoch` */
    SC_STORE_NOTIFY_FAILED = 2 /* piece `piece` with `hash` failed verification */
};
struct sc_store_notify {
    uint32_t kind; /* enum sc_store_notify_kind */
    uint64_t epoch, piece;
    uint8_t hash[SC_STORE_HASH_BYTES];
    uint8_t family[SC_STORE_HASH_BYTES];
};
/* Appends one record to the notification of a rank's writer. Executor thread; blocks for one small
 * append.
 * Errors: IO, NO_SPACE (the notification is full); SPEC_PENDING: ask again (that rank has no
 * directory yet, or somebody else writes into its notification now). */
spec_status sc_store_notify_post(struct sc_store *store, uint32_t rank,
                                 const struct sc_store_notify *notify, struct spec_error *reterr);
/* Writer: calls on_notify for every record that came since the last call (the first: since the
 * notification was made or cut) and is whole; what an earlier writer took may come again. Executor
 * thread or open, one at a time. */
spec_status sc_store_notify_take(struct sc_store *store,
                                 void (*on_notify)(const struct sc_store_notify *notify,
                                                   void *user),
                                 void *user, struct spec_error *reterr);

/* ---- The epoch of the weights, for all configurations of a directory ------------------------- */

/* The highest epoch that was put for these weights; 0: none. Executor thread or open; lists one
 * directory. Errors: IO. */
spec_status sc_store_weights_epoch(struct sc_store *store,
                                   const uint8_t weights[SC_STORE_HASH_BYTES], uint64_t *ret_epoch,
                                   struct spec_error *reterr);
/* Puts an epoch, durably. ret_is_new: false, somebody had put it before. Any role may. Executor
 * thread, open or a host's reset; makes a file. Errors: IO, NO_SPACE. */
spec_status sc_store_weights_epoch_put(struct sc_store *store,
                                       const uint8_t weights[SC_STORE_HASH_BYTES], uint64_t epoch,
                                       bool *ret_is_new, struct spec_error *reterr);

/* ---- Average importance --------------------------------------------------------------------- */

/* Records the averages of pieces: codes [layer_count][row_count of the piece], and over how many
 * requests. The newest record of a piece counts. Pieces that are not live are left out. Executor
 * thread; one buffered write for up to 1 MiB of records. Told at open and while following by
 * on_average. Errors: INVALID (row_count is not the piece's, requests is 0, or layers * rows * 2
 * exceed SC_STORE_AVERAGE_BYTES_MAX: nothing was recorded), IO, NO_SPACE, NO_MEMORY (a first part
 * may be), UNSUPPORTED (a follower). */
#define SC_STORE_AVERAGE_BYTES_MAX 262080u
struct sc_store_average {
    uint64_t piece;
    uint32_t requests; /* >= 1 */
    uint32_t row_count;
    /* Of the share x = imp / sum imp (0 .. 1) of a row: 0 for x < 2^-32, else 65535 +
     * round(2047.96875 * log2(x)), at least 1; so 65535 is 1 and a step is .034 %. Valid during the
     * call. */
    const uint16_t *codes;
};
spec_status sc_store_average_put(struct sc_store *store, const struct sc_store_average *averages,
                                 uint64_t count, struct spec_error *reterr);

/* Records a note of this namespace, in words of the caller's, told by on_note at open and while
 * following; the newest of a kind counts, which is the first word's high byte, 1 ..
 * SC_STORE_NOTE_KINDS (store/rows/where.h). words: [SC_STORE_NOTE_HEAD + count], the head is
 * the store's. Nothing happens before something was stored. Executor thread. Errors: as
 * average_put's. */
#define SC_STORE_NOTE_HEAD      2u
#define SC_STORE_NOTE_WORDS_MAX 65536u
spec_status sc_store_note_put(struct sc_store *store, uint16_t *words, uint64_t count,
                              struct spec_error *reterr);

/* Whether something of this namespace was stored, so that a note is recorded. Any thread. */
bool sc_store_takes_notes(const struct sc_store *store);

/* In a forked child: closes inherited descriptors, touches no lock and no memory. */
void sc_store_fork_close(struct sc_store *store);

#endif

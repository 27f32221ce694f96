/* store: one rank's rows on disk: found again after any crash, or missed; never wrong.
 *
 *   DIR/store.msgpack                    identity: magic, format version, store id
 *      /store.lock                       held while the identity is created
 *   DIR/rank-RRRR-of-NNNN/lock           one writer; names its holder
 *                        /log            framed msgpack records, appended in order; a checkpoint
 *                                        replaces it by a shorter one
 *                        /mail           messages from readers to the writer
 *                        /seg-SSSSSSSS   preallocated segments that hold extents
 *
 *   extent = rows stored by one pass, layer-major, immutable:
 *     [layer 0: probe rows[n] | probe tags[n] | tags[n] | pad | rows[n]] [layer 1: ...] ...
 *               if probe keys are kept                stride the same for every layer
 *   piece  = the rows of one chunk inside one extent: the unit of the log and of the index
 *
 * A row is one token's K then V in one layer, all KV heads of the rank ("paired"). In the "split"
 * layout a slab is its K rows, then its V rows. Each row has a 64-bit tag, XXH3-64 seeded with its
 * identity (namespace, piece hash, copy, layer, part, position). So any row range is verifiable
 * alone, and stale, permuted or misdirected rows fail, also those of an earlier copy of the same
 * tokens.
 *
 * Invariants: a piece is in the log only after all its layers were written. A record with a wrong
 * checksum ends the log unless it can be restored. Allocated blocks of segments and log stay <=
 * disk_bytes. Pages of live pieces are never reused, of dropped ones not before lease_ns_max.
 * Threads: as each call says. Locks: store/internal.h.
 * Tests: tests/unit/store/, tests/fault/ */
#ifndef SC_STORE_STORE_H
#define SC_STORE_STORE_H

#include "base/assert.h"
#include "base/config.h"
#include "store/io/io.h"
#include "store/rows/tag.h"

#define SC_STORE_FORMAT_VERSION 5u /* of the files; this and the oldest are read */
#define SC_STORE_FORMAT_OLDEST  4u
#define SC_STORE_ROWS_FORMAT    4u /* of rows, tags, sections: part of a namespace's identity */
#define SC_STORE_IDENTITY_NAME  "store.msgpack"
#define SC_STORE_HASH_BYTES     16u
#define SC_STORE_SHA256_BYTES   32u
#define SC_STORE_SECRET_BYTES   32u
#define SC_STORE_BITE_BYTES     (16ull << 10) /* packed or verified at once: fits the L1 cache */

struct sc_store;
struct sc_store_extent; /* one pass's rows being written; pooled */

enum sc_store_layout { SC_STORE_PAIRED, SC_STORE_SPLIT };

/* One model's KV: rows of one shape. Its digest: docs/reference/hashing.md. */
struct sc_store_namespace {
    uint8_t digest[SC_STORE_HASH_BYTES];
    uint32_t layer_count;
    uint32_t layout;                     /* enum sc_store_layout */
    uint64_t k_row_bytes;                /* one token's K, all KV heads; V is equal. If K, V and
                                          * quantised rows are never read alone: half a row */
    uint8_t family[SC_STORE_HASH_BYTES]; /* digest without rank-dependent fields; root of the
                                          * chains */
    const char *descriptor; /* canonical JSON, so that `why` can name a differing field */
};

/* How rows were computed: `prov` of the extent's record (docs/reference/store-format.md). */
#define SC_STORE_COMPUTED_MAX 2u       /* 0 exact, 1 lossy, 2 pruned */
#define SC_STORE_PPM_MAX      1000000u /* maximum of exact_ppm, retain_ppm */
struct sc_store_provenance {
    uint32_t computed_on;
    uint32_t bits_k, bits_v, exact_ppm, retain_ppm, metric, reserved;
};

/* Extra keys that begin at a token (hashing/chain.h), as recorded. */
struct sc_store_mark {
    uint64_t token; /* absolute position */
    uint8_t digest[SC_STORE_SHA256_BYTES];
};

/* A piece as recorded. Ids ascend in log order from 1, with gaps; 0: none. */
struct sc_store_piece {
    uint64_t id;
    uint64_t extent;
    uint64_t first_position; /* of the piece's first row */
    uint64_t chunk_first;    /* start of its chunk on the token grid */
    uint32_t extent_row;     /* first row inside the extent */
    uint32_t row_count;
    uint32_t skip; /* leading rows that another piece holds; unreachable here */
    uint32_t mark_count;
    uint8_t root[SC_STORE_SHA256_BYTES];     /* chain root: secret, family, epoch, salt, LoRA */
    uint8_t chunk_hash[SC_STORE_HASH_BYTES]; /* chain hash at chunk_first: names the parent */
    uint8_t hash[SC_STORE_HASH_BYTES]; /* chain hash after the piece's last row: binds the tags */
    /* Tokens [first_position + row_count - chunk_first] from the chunk's start, so that a replay
     * finds where pieces diverge. Valid during the call. */
    const uint32_t *tokens;
    const struct sc_store_mark *marks; /* [mark_count] extra keys that begin in those tokens */
    struct sc_store_provenance provenance;
};

/* Salt under which rows were stored; erasures select by it (store/erase.h). */
enum sc_store_salt_state {
    SC_STORE_SALT_UNKNOWN, /* record of an older version, without a salt */
    SC_STORE_SALT_NONE,
    SC_STORE_SALT_KNOWN
};
struct sc_store_salt {
    uint8_t digest[SC_STORE_HASH_BYTES]; /* zeros unless it is KNOWN */
    uint32_t state;                      /* enum sc_store_salt_state */
};

enum sc_store_role {
    SC_STORE_WRITER, /* owns the rank's directory */
    SC_STORE_READER, /* follows its writer's log, in any process; loads rows */
    SC_STORE_PEER,   /* follows it, loads nothing: no staging, no extents */
    SC_STORE_HEIR    /* a reader that keeps all a writer needs, and may become it (_take_over) */
};

/* Format of quantised rows (kernels/codec.h, bitplanes.h); bits_k 0: none. */
#define SC_STORE_FORM_K_PER_CHANNEL 1u /* blocks begin with a table of 4 bits per channel */
#define SC_STORE_FORM_K_TURNED      2u /* with K_PER_CHANNEL: keys before rope */
#define SC_STORE_FORM_V_PER_CHANNEL 4u
struct sc_store_codec_shape {
    uint32_t bits_k, bits_v;           /* per value; per-channel bits: average, rounded down */
    uint64_t scale_bytes;              /* K's or V's, of a slab */
    uint64_t k_row_bytes, v_row_bytes; /* codes of a row */
    uint32_t form;                     /* SC_STORE_FORM_* */
    uint32_t reserved;                 /* 0: shapes are compared bytewise */
};
/* Bytes of a block's table: 4 bits per channel, which has 4 bytes of scales. */
static inline uint64_t sc_store_quant_table_bytes(const struct sc_store_codec_shape *shape,
                                                  bool is_k)
{
    uint32_t is_free = is_k ? SC_STORE_FORM_K_PER_CHANNEL : SC_STORE_FORM_V_PER_CHANNEL;
    return (shape->form & is_free) != 0 ? shape->scale_bytes / 8 : 0;
}

/* K or V rows of a slab to be quantised. */
struct sc_store_encode {
    uint32_t layer, part;       /* SC_STORE_PART_K, SC_STORE_PART_V */
    uint64_t position;          /* first row's */
    const uint8_t *const *rows; /* [row_count] */
    uint64_t row_count;
    uint8_t *table, *scales, *codes; /* filled completely; table: size by the shape */
};
struct sc_store_quant {
    struct sc_store_codec_shape shape;
    bool with_rows; /* quantise from memory while rows are stored if possible; else later */
    /* false: the slab is not quantised. Executor thread. */
    bool (*encode)(void *user, const struct sc_store_encode *what);
    /* Returns true if rows of this namespace can have this recorded shape; others are ignored.
     * NULL: all. Any thread that reads the log. */
    bool (*fits)(void *user, const struct sc_store_codec_shape *shape);
    /* Returns true if a block with this table and first position can be decoded; others are not
     * used. NULL: all. Any thread, never blocks long. */
    bool (*reads)(void *user, uint32_t part, const struct sc_store_codec_shape *shape,
                  const uint8_t *table, uint64_t position, uint64_t row_count);
    void *user;
};

/* Row permutation of extents (store/rows/row_permutation.h). */
struct sc_store_range;
#define SC_STORE_PERMUTATION_ROWS_MAX 16384u /* rows of the ranges in total */
struct sc_store_permutation {
    uint64_t span_rows; /* rows stay within spans of this length; 0: no permutation */
    uint64_t bytes_max; /* bytes of a layer, held in memory while it is written */
    /* Sets scores of a layer's rows (0: unknown) in range order; the ranges are all rows of the
     * extent. false: too little is known yet. Executor thread. */
    bool (*scores)(void *user, const struct sc_store_range *ranges, uint64_t range_count,
                   uint32_t layer, float *ret_scores);
    /* Rows are permuted again if this share of the quarter with the highest scores, in millionths,
     * is outside the chunks that a new permutation would gather them in, of all layers (0: never),
     * and if repeat_requests more requests scored a row, on average, than when that was last
     * judged. */
    uint64_t repeat_ppm, repeat_requests;
    /* Returns how many requests scored a row, on average. Executor thread. */
    uint64_t (*requests)(void *user, const struct sc_store_range *ranges, uint64_t range_count);
    /* moment returns a time stamp; is_quiet tells if all loads begun before it have ended: their
     * plans may read pages to be freed. Executor thread. */
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
    uint32_t role;   /* enum sc_store_role */
    bool is_objects; /* store/object/object.h: no rows, no model */
    bool shares;     /* with HEIR: a member, which stores beside others that do (log/turn.h); with
                      * WRITER: leaves the store so that members find what they need */
    struct sc_store_namespace space; /* this connector's; recorded if new */
    /* [space.layer_count] windows in tokens, 0: all; NULL: no windows. Not copied. */
    const uint64_t *windows;
    uint64_t extents_more;       /* concurrent extents beyond those of passes; unused by readers */
    uint64_t selector_bytes_max; /* memory of all selectors, taken at open; peers: none */
    /* Bytes of probe keys per token in new extents, <= k_row_bytes, a multiple of 2; 0: none. */
    uint64_t probe_row_bytes;
    struct sc_store_quant codes;             /* of extents, made in the background */
    struct sc_store_permutation permutation; /* the same, on request */
    /* Reports the store's secret before any piece. A follower reports again if another store
     * appears at the path. An error ends open or sc_store_follow. Optional. */
    spec_status (*on_secret)(const uint8_t secret[SC_STORE_SECRET_BYTES], void *user,
                             struct spec_error *reterr);
    /* Called for every live piece of this namespace (PEER: family) and current epoch, in log order,
     * parents before children, during open and in sc_store_follow. ret_mark: the caller's number
     * for the piece (default 0). false: its chain does not fit; a writer drops it. */
    bool (*on_piece)(const struct sc_store_piece *piece, uint64_t *ret_mark, void *user);
    /* Returns true if the piece's tokens and marks give its hashes; others are not reported. Reads
     * only the piece (extent and id as recorded, provenance unset). Any thread, during open and
     * sc_store_follow. NULL: all do. */
    bool (*piece_holds)(const struct sc_store_piece *piece, void *user);
    /* During open: estimate of pieces still to be reported. Optional. */
    void (*on_pieces_soon)(uint64_t count, void *user);
    /* During open: a piece with this hash may follow; prefetch memory for it. Optional. */
    void (*on_piece_soon)(const uint8_t hash[SC_STORE_HASH_BYTES], void *user);
    /* Reports that a piece became void, in sc_store_follow. A writer that sets it also gets drops
     * during open; otherwise dropped pieces are never reported and the log is read twice. */
    void (*on_drop)(uint64_t piece, uint64_t mark, void *user);
    /* Reports the namespace's epoch, during open (if not 0) and in sc_store_follow: all reported
     * pieces are void, without on_drop. */
    void (*on_epoch)(uint64_t epoch, void *user);
    /* Averages of a reported piece; the last of a piece counts. Optional. */
    void (*on_average)(const struct sc_store_average *average, void *user);
    /* The last note of a kind from a writer of this namespace (peer: family). Optional. The store
     * knows only the kind; the words may be another version's. */
    void (*on_note)(const uint16_t *words, uint64_t count, void *user);
    /* Called on an executor thread when all layers are on disk (SPEC_OK) or the extent failed, and
     * only after the writer has finished: its last put_layer, a failed one, or an abort. (After an
     * earlier write error the next put_layer returns it.) The callee calls sc_store_extent_commit
     * or _discard once, now or later. */
    void (*on_written)(struct sc_store_extent *extent, spec_status status, void *extent_user,
                       void *user);
    void *user;
};

struct sc_store_stats {
    uint64_t disk_bytes_max, disk_bytes_used; /* allocated: segments and log */
    uint64_t extent_bytes;                    /* live extents with alignment */
    uint64_t log_bytes, piece_count, extent_count;
    uint64_t read_bytes, read_ops, write_bytes, write_ops;
    uint64_t verify_ns; /* tag verification of loads, and copies made with it */
    uint64_t corrupt_rows, corrupt_records, io_errors, no_space, stage_full;
    uint64_t staging_bytes_used;
    uint64_t quarantine_bytes; /* dropped, not reusable yet; part of disk_bytes_used */
    uint64_t checkpoints, evicted_pieces;
    uint64_t selectors_refused;         /* no memory was free */
    uint64_t built_pieces, built_bytes; /* pieces with probe or quantised rows built since open */
    uint64_t bad_blocks;                /* quantised blocks that failed verification */
    uint64_t quantised_bytes;           /* with alignment */
    uint64_t permuted_pieces;           /* permuted since open */
    uint64_t permuted_again;            /* of these, permuted before */
    bool is_building;                   /* derived sections are being made */
    /* Host tier: bytes are gauges, whole pages; counters of slabs that loads requested. */
    uint64_t host_bytes_max, host_bytes_used, host_bytes_kept;
    uint64_t host_hits, host_misses, host_evictions;
    /* The same for the tier above; slabs promoted to and demoted from it. */
    uint64_t upper_bytes_max, upper_bytes_used, upper_hits;
    uint64_t upper_promoted, upper_demoted;
    /* Bytes written since open besides rows; write_bytes includes derived sections and
     * compaction. */
    uint64_t quantised_write_bytes, compaction_write_bytes, log_write_bytes, checkpoint_write_bytes;
    uint64_t permuted_write_bytes; /* in quantised_write_bytes */
    uint64_t stored_row_bytes;     /* rows of passes alone */
    uint64_t budget_left;          /* bytes that may be written now; 0 also without a budget */
};

/* Opens or creates the store and replays the log. Readers and peers create nothing; sc_store_follow
 * finds later what is missing. Blocks. Errors: SPEC_E_IO (no parent directory, read-only),
 * SPEC_E_VERSION (foreign directory, other format; the text says which), SPEC_E_LOCKED,
 * SPEC_E_NO_SPACE, SPEC_E_NO_MEMORY. An error leaves an existing store unchanged. */
spec_status sc_store_open(const struct sc_store_params *params, struct sc_store **ret_store,
                          struct spec_error *reterr);
/* Waits for operations in flight. Owners have discarded uncommitted extents before. */
void sc_store_close(struct sc_store *store);
void sc_store_stats(struct sc_store *store, struct sc_store_stats *ret_stats);
/* Returns the store's id. false: not found by a follower yet. Open, or the following thread. */
bool sc_store_id(const struct sc_store *store, uint8_t ret_id[16]);
/* Returns true if this process stores: a writer, an heir that took over, or a member. Any
 * thread. */
bool sc_store_stores(const struct sc_store *store);
/* A member: takes the turn and reads the log on to its end, so that the caller can decide on the
 * present state; until _end no other thread of the process appends or reads on. Nests. Before every
 * lock that a callback of sc_store_follow takes. Others: no effect. */
void sc_store_turn_begin(struct sc_store *store);
void sc_store_turn_end(struct sc_store *store);
/* A member: says for five seconds that it stores the chunk with this hash. false: another member
 * has said so. Any thread; never blocks. A wrong answer costs a copy, or a miss. */
bool sc_store_intend(struct sc_store *store, uint64_t hash);
/* A member: notes that `key` (a piece's id, an object's copy number) is used now, so that no member
 * evicts it as unused. Others: no effect. Any thread; one relaxed store once a second. */
void sc_store_use(struct sc_store *store, uint64_t key);
/* Returns the second (wall clock, never in the future) of the last use that any member noted, or of
 * another key's that shares its word; 0: none is known. A wrong answer costs a wrong victim. Any
 * thread. */
uint32_t sc_store_used_s(const struct sc_store *store, uint64_t key);
/* A member: says that it lives, so that members of other models do not evict its rows as
 * unreachable, and the second (wall clock) of the last use of what it would evict first; 0:
 * nothing. Returns true if members of other models live. Once a second. Any thread. */
bool sc_store_models_say(struct sc_store *store, uint32_t coldest_s);
/* Asks another model's member to evict so many bytes that were used before a second, if its coldest
 * rows were: true. Any thread. */
bool sc_store_models_ask(struct sc_store *store, uint64_t bytes, uint32_t before_s);
/* Takes what another model's member asked of this one; 0: nothing. Any thread. */
uint64_t sc_store_models_asked(struct sc_store *store, uint32_t *ret_before_s);
/* Gives back claims that are not needed, takes others, and reads the log on. Returns true if some
 * were taken. Executor thread, no lock held; blocks on files. Cheap if nothing is due. */
bool sc_store_claims_tick(struct sc_store *store);
/* A member that found no place, and can evict nothing: claims all that others leave, and asks them
 * for more, for a second. Others: no effect. Any thread. */
void sc_store_claims_stuck(struct sc_store *store);

/* ---- Writing -------------------------------------------------------------------------------- */

struct sc_store_piece_plan { /* a chunk that a pass will store */
    uint64_t first_position;
    uint64_t chunk_first;
    uint32_t row_count;
    uint8_t chunk_hash[SC_STORE_HASH_BYTES]; /* as in struct sc_store_piece */
    uint8_t hash[SC_STORE_HASH_BYTES];
};

#define SC_STORE_PASS_EXTENTS 256u /* extents of one pass that are available at least */

/* Staging frames held by a pass's extents and still revocable. Zero before the first pass; lives
 * until its last extent was committed or discarded. */
struct sc_store_pass_share {
    _Atomic int64_t frames;
};

struct sc_store_pass {
    const struct sc_store_piece_plan *pieces; /* [piece_count] consecutive rows; copied */
    uint64_t piece_count;
    struct sc_store_provenance provenance; /* default for the commit */
    struct sc_store_salt salt;
    bool is_background; /* ends soon without waiting for a host */
    void *user;         /* on_written's extent_user */
    /* NULL: writes are submitted at once. Else they are queued: whole extents first, then by
     * `order`. If staging is full, the pass that holds most frames loses its extent of greatest
     * order, unless it is firm: its next put_layer returns BUSY. */
    struct sc_store_pass_share *share;
    uint64_t order; /* tokens of its pass before it */
    bool is_part;   /* one of several extents of its pass; whole passes are written first */
    bool is_firm;
};
/* Staging frames available to writes alone; their bytes. Constant. */
uint64_t sc_store_write_frames(const struct sc_store *store);
uint64_t sc_store_write_bytes(const struct sc_store *store);
/* Reserves disk space for all layers of the pieces' rows, at most sc_store_extent_rows_max. Does
 * not wait for the device: a task creates segment files before the first write. Errors:
 * SPEC_E_NO_SPACE (disk_bytes), SPEC_E_BUSY (no extent object, too many pieces). */
spec_status sc_store_extent_begin(struct sc_store *store, const struct sc_store_pass *pass,
                                  struct sc_store_extent **ret_extent, struct spec_error *reterr);
/* Returns the largest read or write: io.op_bytes, or less if staging_bytes is small. Constant. */
uint64_t sc_store_op_bytes(const struct sc_store *store);
/* Returns the rows that one extent can hold; the plugin cuts longer passes on the chunk grid. */
uint64_t sc_store_extent_rows_max(const struct sc_store *store);
/* Returns rows per extent with which a pass of row_count rows fits now: row_count, or halved until
 * it fits the free runs, rounded up to chunks; 0: no room. Any thread. */
uint64_t sc_store_extent_rows_fit(struct sc_store *store, uint64_t row_count);

/* Sets addresses of the spans of rows [row, row + count): [count][row_bytes / span_bytes], in a
 * row's byte order. Must not allocate or wait. */
#define SC_STORE_SPANS_MAX 512u /* per row */
typedef void sc_store_spans(void *user, uint64_t row, uint64_t count, uint8_t **ret_spans);

/* Packs one part (enum sc_store_tag_part) of consecutive rows: ROW a paired row, K or V half a
 * split one, PROBE its first sc_store_probe_row_bytes bytes of keys. */
typedef void sc_store_pack(void *user, uint32_t part, uint64_t row_first, uint64_t row_count,
                           uint8_t *dst);
struct sc_store_source {
    sc_store_pack *pack;
    sc_store_spans *spans;  /* NULL: use pack; else rows are copied past the caches */
    uint64_t span_bytes;    /* half a row is a multiple of it */
    uint64_t rows_least;    /* packed at once if available; 0: as fits in cache */
    uint64_t wait_until_ns; /* deadline while staging is full; 0: do not wait */
    void *user;
};
/* Packs one layer: calls pack or spans for runs of rows in order, straight into staging, computes
 * tags and queues writes. Probe rows come first; then ROW, or if split K and V piece by piece.
 * Layers ascend by one from 0 (else SPEC_E_INVALID); one thread at a time per extent.
 * Waits for frames until source->wait_until_ns, then cancels extents of passes with a share.
 * SPEC_E_BUSY: staging is full, or the extent was cancelled (on_written gets SPEC_E_BUSY).
 * on_written follows the last layer. */
spec_status sc_store_extent_put_layer(struct sc_store_extent *extent, uint32_t layer,
                                      const struct sc_store_source *source,
                                      struct spec_error *reterr);
/* Returns true if staging has frames for a layer now, or never will. Any thread. */
bool sc_store_extent_has_room(const struct sc_store_extent *extent);
/* Probe row bytes of new extents; 0: none. */
uint64_t sc_store_probe_row_bytes(const struct sc_store *store);
/* Aborts an extent before its last layer; on_written follows with SPEC_E_DROPPED. */
void sc_store_extent_abort(struct sc_store_extent *extent);

struct sc_store_commit {
    uint32_t piece_first; /* earlier pieces are stored elsewhere: not committed */
    uint32_t skip;        /* leading rows of piece piece_first stored elsewhere */
    uint8_t root[SC_STORE_SHA256_BYTES];
    uint64_t token_first;              /* position of tokens[0], <= the first piece's chunk start */
    const uint32_t *tokens;            /* up to the last piece's end */
    const struct sc_store_mark *marks; /* [mark_count] whole prompt, ascending */
    uint64_t mark_count;
    const struct sc_store_provenance *provenance; /* NULL: as given to begin */
    /* 0, or, for an extent of one piece: takes the ids left free by that piece's commit
     * (sc_store_piece_place), to precede the pieces that depend on it. One such commit at a
     * time. */
    uint64_t behind;
};
/* Appends the records in one buffered write; pieces get ids ret_first_id, +1, ... Returns the
 * extent to its pool. Executor thread. An error leaves nothing visible and frees the space.
 * PENDING, for members: another process was faster; the extent is as before: decide again. */
spec_status sc_store_extent_commit(struct sc_store_extent *extent,
                                   const struct sc_store_commit *commit, uint64_t *ret_first_id,
                                   struct spec_error *reterr);
void sc_store_extent_discard(struct sc_store_extent *extent);

/* Drops pieces: void in every layer, here and after reopen. Pages that only dropped pieces hold are
 * reusable after lease_ns_max, because other processes may read them on a lease. Unknown ids are
 * ignored. If the record cannot be written, the pieces are void, but keep their space until a later
 * call (count 0 suffices) writes it. Follower: void here only. Any thread; one buffered write. */
void sc_store_pieces_drop(struct sc_store *store, const uint64_t *pieces, uint64_t count);
void sc_store_piece_drop(struct sc_store *store, uint64_t piece);
/* The same at once; a later call (count 0 suffices) writes the record. For callers with a lock that
 * a callback of sc_store_follow takes. Does not block. */
void sc_store_piece_void(struct sc_store *store, uint64_t piece);
/* The caller's number of a piece (on_piece's ret_mark); 0 for unknown ids. Set under the caller's
 * lock; read by any thread. */
void sc_store_piece_set_mark(struct sc_store *store, uint64_t piece, uint64_t mark);
uint64_t sc_store_piece_mark(const struct sc_store *store, uint64_t piece);
/* Returns the hash of a live piece; false: not live. Any thread. */
bool sc_store_piece_hash(const struct sc_store *store, uint64_t piece,
                         uint8_t ret_hash[SC_STORE_HASH_BYTES]);
/* Returns a piece's provenance. false: unknown id. Any thread. */
bool sc_store_piece_provenance(const struct sc_store *store, uint64_t piece,
                               struct sc_store_provenance *ret_provenance);
/* Position of a live piece. */
struct sc_store_piece_place {
    uint64_t first_position;
    uint32_t row_count, skip;
    /* The following ids are free for a commit `behind` it: its rows end a chunk that others began,
     * and it was its extent's last. */
    bool leaves_ids;
};
/* false: not live. Any thread; leaves_ids only for the committing thread. */
bool sc_store_piece_place(const struct sc_store *store, uint64_t piece,
                          struct sc_store_piece_place *ret_place);
/* Returns the first position of a live or dropped piece's rows; UINT64_MAX: unknown. Any thread. */
uint64_t sc_store_piece_first(const struct sc_store *store, uint64_t piece);
/* Returns true if a piece may still take this id, which the log left free. Any thread. */
bool sc_store_piece_is_left(const struct sc_store *store, uint64_t piece);
/* Returns the rows of a live piece, else 0. Any thread. */
uint32_t sc_store_piece_rows(const struct sc_store *store, uint64_t piece);
/* Returns the next piece id of the log: a follower knows all pieces below it. */
uint64_t sc_store_piece_next(struct sc_store *store);
/* Returns the first possible piece id >= piece (ids have gaps); UINT64_MAX: none. Any thread. */
uint64_t sc_store_piece_from(const struct sc_store *store, uint64_t piece);

/* ---- Space, eviction, epochs, checkpoints (writer)
 * -------------------------------------------- */

struct sc_store_free_space {
    uint64_t bytes_max;        /* this rank's share of disk_bytes without the log's */
    uint64_t free_bytes;       /* free runs of a chunk's layer, and segments still to be created */
    uint64_t quarantine_bytes; /* dropped, not reusable yet */
    uint64_t demand_bytes;     /* stored, or refused, within 1 to 17/16 lease_ns_max */
    uint64_t piece_new; /* pieces from this id on were stored within 1/8 of it; UINT64_MAX: none */
    uint64_t log_pieces_over; /* oldest pieces to evict because the log is full */
    bool is_paused;
};
void sc_store_free_space(struct sc_store *store, struct sc_store_free_space *ret_room);
/* Returns bytes_max without examining every segment. Any thread. */
uint64_t sc_store_free_space_most(struct sc_store *store);
/* Returns true if the device failed lately: extents are refused. Any thread. */
bool sc_store_is_paused(struct sc_store *store);
/* Counts rows that were not stored for want of space as demand. Any thread. */
void sc_store_free_space_missed(struct sc_store *store, uint64_t rows);
/* Bytes of an extent's pages for so many rows; free_space_bytes: with quantised rows. */
uint64_t sc_store_free_space_bytes(const struct sc_store *store, uint64_t rows);
uint64_t sc_store_rows_bytes(const struct sc_store *store, uint64_t rows);
/* Returns how many tokens of [first, first + count) the write budget allows: all, or up to a
 * chunk's end. Takes their bytes until sc_store_budget_give, after the pass's extents began and
 * took their own. Any thread. */
uint64_t sc_store_budget_take(struct sc_store *store, uint64_t first, uint64_t count,
                              uint64_t *ret_bytes);
/* The same, all or nothing; false: not allowed, nothing taken. */
bool sc_store_budget_take_whole(struct sc_store *store, uint64_t count, uint64_t *ret_bytes);
void sc_store_budget_give(struct sc_store *store, uint64_t bytes);
/* Returns ns that background writes wait to leave the budget to passes; 0: none. */
uint64_t sc_store_budget_wait_ns(struct sc_store *store);
/* Returns the bytes that dropping the piece frees: at least its rows'; if the original rows are
 * freed, its share of what the extent's last piece frees. */
uint64_t sc_store_piece_bytes(const struct sc_store *store, uint64_t piece);
/* Drops pieces that no lookup of this connector can find (other namespaces, earlier epochs), oldest
 * first, until about `bytes` are freed. A member leaves those of living members' models. Returns
 * their number. Executor thread. */
uint64_t sc_store_evict_unreachable(struct sc_store *store, uint64_t bytes);

/* Builds missing probe rows (params.probe_row_bytes), then quantised rows, of this namespace's
 * extents in the background, reading at most bytes_per_s (0: unlimited); runs again if it is
 * running. Selectors find an extent's when complete. Never blocks. Follower: no effect. */
void sc_store_build_start(struct sc_store *store, uint64_t bytes_per_s);
/* The same for quantised rows of extents stored since the last run, if enabled; unlimited. Extents
 * passed over wait for the next start or open. */
void sc_store_build_quant(struct sc_store *store);
/* Writes permuted copies (params.permutation) of this namespace's extents with known scores that
 * have none, or whose scores have moved, in the background after running builds, reading at most
 * bytes_per_s. The pages of the copy before are freed when no load uses them and leases have ended.
 * Never blocks. Follower: no effect. */
void sc_store_build_permutation(struct sc_store *store, uint64_t bytes_per_s);
/* Reports the end of a load that may have read original rows: permuted copies that waited long
 * enough get their records. Any thread; never blocks. */
void sc_store_build_settle(struct sc_store *store);
/* Pauses or resumes building between extents. Any thread. */
void sc_store_build_rest(struct sc_store *store, bool rests);

/* ---- Compaction (compactor.c) ---------------------------------------------------------------- */

struct sc_store_compact {
    const uint64_t *pieces; /* [piece_count] live, consecutive in one chunk; copied */
    uint64_t piece_count;
    struct sc_store_piece_plan plan; /* the resulting piece */
    struct sc_store_provenance provenance;
    uint64_t bytes_per_s; /* read limit; 0: unlimited */
    /* Called once on an executor thread, unless the store is closed before. extent NULL: status
     * says why (CORRUPT: unreadable rows). Else the callee commits or discards it. */
    void (*done)(struct sc_store_extent *extent, spec_status status, void *user);
    void *user;
};
/* Reads, verifies and rewrites the pieces' rows as one extent in the background. One compaction at
 * a time. Never blocks. Errors: BUSY, NO_MEMORY, NO_SPACE, and extent_begin's. */
spec_status sc_store_compact_begin(struct sc_store *store, const struct sc_store_compact *merge,
                                   struct spec_error *reterr);
/* Makes the log's present content durable. Blocks. Writer. */
spec_status sc_store_log_sync(struct sc_store *store, struct spec_error *reterr);
/* Makes a written extent durable, before the pieces that it replaces are dropped. Blocks. */
spec_status sc_store_extent_sync(struct sc_store_extent *extent, struct spec_error *reterr);

/* Returns the namespace's epoch: its number of resets. */
uint64_t sc_store_epoch(struct sc_store *store);
/* Returns true if a reader has the writer's log open. Shortly after a checkpoint, readers still
 * have the old log. Any thread; a system call. */
bool sc_store_is_followed(struct sc_store *store);
/* Raises the epoch (lower: no effect) by one record: all earlier pieces are void, also after
 * reopen, and their space is freed as after a drop. on_drop is not called. Blocks for one buffered
 * write. Errors: IO, NO_SPACE; nothing changed. */
spec_status sc_store_epoch_set(struct sc_store *store, uint64_t epoch, struct spec_error *reterr);

/* Writes the log's live content to a shorter log, syncs it and renames it into place. Commits
 * continue, except for a moment at the end. An error keeps the old log. sc_store_close does this
 * too if the log has grown. Executor thread, one at a time; blocks on the device. */
spec_status sc_store_checkpoint(struct sc_store *store, struct spec_error *reterr);
/* Returns true if a checkpoint is due: much of a grown log is void, or it is nearly full. */
bool sc_store_checkpoint_due(struct sc_store *store);

/* ---- Following (reader, heir, peer) ---------------------------------------------------------- */

/* Applies up to about 1 MiB of what the writer appended (*ret_more: call again now). A missing
 * directory, log or segment: SPEC_OK. After a checkpoint the log is read from its start; pieces
 * absent from it are void. One thread at a time, not during sc_store_close; blocks on files. */
spec_status sc_store_follow(struct sc_store *store, bool *ret_more, struct spec_error *reterr);
/* Returns false if the log is as it was when a call of sc_store_follow ended at its end, and renews
 * what is known. One stat. The thread that follows. */
bool sc_store_follow_due(struct sc_store *store);
/* An heir becomes the rank's writer if no process holds the writer's lock: reported pieces stay,
 * requests go on, and all calls of a writer work from now on. Pieces that failed here are dropped
 * for all. For the thread that follows; blocks on files while it reads the rest of the log. Errors:
 * LOCKED, another process writes, or may write: try again later; all others are logged, and the
 * store stays a reader for good (UNSUPPORTED from then on). */
spec_status sc_store_take_over(struct sc_store *store, struct spec_error *reterr);
/* Returns the wall clock (ns) of the last state known to be the log's whole content; 0: never. A
 * promise made from it holds for lease_ns_max from that time. Any thread. */
uint64_t sc_store_follow_ns(const struct sc_store *store);
/* The same on the executor's clock. */
uint64_t sc_store_follow_now_ns(const struct sc_store *store);

/* ---- Notifications from readers and other ranks to a writer ---------------------------------- */

enum sc_store_notify_kind {
    SC_STORE_NOTIFY_EPOCH = 1, /* the family's epoch is at least `epoch` */
    SC_STORE_NOTIFY_FAILED = 2 /* `piece` with `hash` failed verification */
};
struct sc_store_notify {
    uint32_t kind; /* enum sc_store_notify_kind */
    uint64_t epoch, piece;
    uint8_t hash[SC_STORE_HASH_BYTES];
    uint8_t family[SC_STORE_HASH_BYTES];
};
/* Appends a record to a writer's notification file. Executor thread; blocks for one small append.
 * Errors: IO, NO_SPACE (file is full); SPEC_PENDING: retry (no directory yet, or locked). */
spec_status sc_store_notify_post(struct sc_store *store, uint32_t rank,
                                 const struct sc_store_notify *notify, struct spec_error *reterr);
/* Writer: calls on_notify for every whole record since the last call (first call: since the file
 * was created or cut). Records may repeat after a restart. Executor thread or open, one at once. */
spec_status sc_store_notify_take(struct sc_store *store,
                                 void (*on_notify)(const struct sc_store_notify *notify,
                                                   void *user),
                                 void *user, struct spec_error *reterr);

/* ---- The epoch of the weights, for all configurations of a directory ------------------------- */

/* Returns the highest epoch of these weights; 0: none. Lists a directory. Executor thread or
 * open. */
spec_status sc_store_weights_epoch(struct sc_store *store,
                                   const uint8_t weights[SC_STORE_HASH_BYTES], uint64_t *ret_epoch,
                                   struct spec_error *reterr);
/* Returns false if the directory is as it was at the last question that was answered with true. The
 * tick's. */
bool sc_store_weights_epoch_due(struct sc_store *store);
/* Stores an epoch durably by creating a file. ret_is_new false: it existed. Any role. Executor
 * thread, open or a host's reset. Errors: IO, NO_SPACE. */
spec_status sc_store_weights_epoch_put(struct sc_store *store,
                                       const uint8_t weights[SC_STORE_HASH_BYTES], uint64_t epoch,
                                       bool *ret_is_new, struct spec_error *reterr);

/* ---- Average importance --------------------------------------------------------------------- */

/* Records averages of pieces, codes [layer_count][piece's row_count], and their number of requests;
 * reported by on_average. A piece's newest record counts; void pieces are skipped. Executor thread;
 * one buffered write per 1 MiB. Errors: INVALID (wrong row_count, requests 0, or layers * rows * 2
 * > SC_STORE_AVERAGE_BYTES_MAX: nothing recorded), IO, NO_SPACE, NO_MEMORY (a first part may be
 * recorded), UNSUPPORTED (follower). */
#define SC_STORE_AVERAGE_BYTES_MAX 262080u
struct sc_store_average {
    uint64_t piece;
    uint32_t requests;
    uint32_t row_count;
    /* For a row's share x = imp / sum imp (0 .. 1): 0 for x < 2^-32, else 65535 + round(2047.96875
     * * log2(x)), at least 1; 65535 is 1, a step is 0.034 %. Valid during the call. */
    const uint16_t *codes;
};
spec_status sc_store_average_put(struct sc_store *store, const struct sc_store_average *averages,
                                 uint64_t count, struct spec_error *reterr);

/* Records a note of this namespace, reported by on_note. The kind is the first word's high byte, 1
 * .. SC_STORE_NOTE_KINDS (store/log/where.h); the newest of a kind counts. words:
 * [SC_STORE_NOTE_HEAD + count], the head is the store's. No effect before anything was stored.
 * Executor thread. Errors: as average_put. */
#define SC_STORE_NOTE_HEAD      2u
#define SC_STORE_NOTE_WORDS_MAX 65536u
spec_status sc_store_note_put(struct sc_store *store, uint16_t *words, uint64_t count,
                              struct spec_error *reterr);

/* Returns true if something of this namespace was stored: notes are recorded. Any thread. */
bool sc_store_takes_notes(const struct sc_store *store);

/* In a forked child: closes inherited descriptors. Takes no lock, frees no memory. */
void sc_store_fork_close(struct sc_store *store);

#endif

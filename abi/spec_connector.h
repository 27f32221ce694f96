/* spec_connector: the C contract between a serving engine and a prefix-KV plugin.
 *
 * An engine loads the plugin (spec_load.h does it), gets the function table from
 * spec_connector_api(SPEC_ABI_MAJOR), and calls:
 *
 *   open -> lookup -> { begin_layer -> get_important -> prefetch_next -> store } per layer
 *        -> wait/poll tickets -> release -> ... -> close
 *
 * docs/reference/abi.md draws the order of calls and has details of clauses,
 * docs/reference/versions.md the history. spec_objects.h is a second table: values by key.
 *
 *   row    one token of one layer: K, then V, all KV heads of the rank
 *   chunk  64 tokens (chunk_tokens) on the absolute token grid, over all layers
 *   slab   a chunk's rows in one layer
 *   piece  the rows of one chunk that one pass stored
 *   pass   one forward computation over some new tokens
 *   tag    64-bit checksum of a row that also binds its identity
 *   match  the stored prefix that a lookup found
 *   R      number of rows that were promised for an item
 *   k_e    number of exact rows of a layered item: ceil(R * exact_ppm / 10^6)
 *   quantised row   a row's values in a few bits each, stored beside the row
 *   selector keys   stored keys that rows are scored by: probe keys (keys of the first KV heads)
 *                   or quantised keys
 *
 * For all clauses: a lookup may always miss, but no wrong row is delivered. Every delivered row was
 * verified against its identity, and the prompt's token ids were compared by value. The plugin does
 * not print or exit, and its own threads run no code of the host except spec_alloc's functions. */
#ifndef SPEC_CONNECTOR_H
#define SPEC_CONNECTOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SPEC_ABI_MAJOR 0u  /* changes if an old host must be refused */
#define SPEC_ABI_MINOR 20u /* 0.x: anything may change; from 1.0 on members are only appended */

#if defined(__GNUC__)
#define SPEC_EXPORT __attribute__((visibility("default")))
#else
#define SPEC_EXPORT
#endif

/* ---- Status --------------------------------------------------------------------------------- */

typedef int32_t spec_status; /* not an enum, whose width the compiler chooses */

#define SPEC_OK            0     /* done; outputs are written */
#define SPEC_PENDING       1     /* not an error: ask again */
#define SPEC_E_INVALID     (-1)  /* an argument is wrong; nothing changed */
#define SPEC_E_UNSUPPORTED (-2)  /* valid, but this version or machine cannot do it */
#define SPEC_E_NO_MEMORY   (-3)  /* the allocator refused */
#define SPEC_E_NO_SPACE    (-4)  /* disk_bytes or the file system is full */
#define SPEC_E_IO          (-5)  /* the device or file system failed; sys_errno has the cause */
#define SPEC_E_CORRUPT     (-6)  /* stored bytes failed verification; the range is void */
#define SPEC_E_BUSY        (-7)  /* a limit is reached, or the request is in another call */
#define SPEC_E_TIMEOUT     (-8)  /* the deadline passed */
#define SPEC_E_DROPPED     (-9)  /* a store was dropped: aborted, back-pressure or superseded */
#define SPEC_E_FORKED      (-10) /* called in a forked child */
#define SPEC_E_LOCKED      (-11) /* another writer owns the store; the text names it */
#define SPEC_E_VERSION     (-12) /* ABI or store format of another version */
#define SPEC_E_STALE       (-13) /* unknown request: released, reset or never opened */
#define SPEC_E_POISONED    (-14) /* an internal invariant broke; every later call is a miss */
#define SPEC_E_CONFIG      (-15) /* the configuration is wrong; the text has the key's path */

/* Error of one call, in the caller's memory. Every call takes one as its last argument and accepts
 * NULL. The caller sets struct_size to sizeof; the plugin never writes it, and writes the other
 * members on error returns only. [ABI-003] */
struct spec_error {
    uint32_t struct_size;
    spec_status code;
    int32_t sys_errno; /* 0: none */
    char text[244];    /* UTF-8, NUL-terminated, one line, for people: never parse it */
};

/* ---- Rules for every structure and call -------------------------------------------------------
 *
 * struct_size is sizeof of the structure that the caller compiled against. Members that the
 * caller's structure lacks read as 0, which is every member's default. A longer structure's unknown
 * tail must be all zero, else SPEC_E_UNSUPPORTED. [ABI-001]
 * SPEC_E_INVALID: struct_size is 0, ends inside a member (an array or structure is one member), or
 * ends before the structure's first group does, for inputs and outputs. This is checked before
 * anything is created, read through the structure, or written. The first groups end with
 *   spec_alloc user             spec_memory head_stride_bytes     spec_queries head_stride_bytes
 *   spec_model weights_id       spec_open_params model            spec_extra_key value
 *   spec_lookup_params token_count                 spec_lookup_result matched_tokens
 *   spec_select count           spec_important row_count          spec_store_params memory
 *   spec_attach_params lease    spec_maintain_params flags        spec_stats matched_tokens
 *   spec_layer_group dtype      spec_next_chunk token_count
 * A spec_error gets the members that its struct_size contains whole, and as much of text as fits.
 *
 * - Reserved members must be 0, else SPEC_E_INVALID. [ABI-002]
 * - All elements of an array have the first one's struct_size, else SPEC_E_INVALID. Arrays of
 *   requests and items have at most 256 elements.
 * - Output structures are written up to struct_size, on SPEC_OK and SPEC_PENDING only, unless the
 *   call says otherwise.
 * - An error return has changed nothing: the same call with the same bad input returns the same
 *   status. [ABI-004]
 * - In a forked child every call returns SPEC_E_FORKED, and close touches nothing. [ABI-005]
 * - After a call returns, the plugin never writes memory that the call was given. [ABI-006]
 * - Connectors of one process share nothing; load, close, unload and load again works. [ABI-007] */

/* "Threads: any" means any thread, concurrently with any other call on the connector except close.
 * Calls for one request must not overlap, unless the call says so. Overlapping calls do no harm:
 * [ABI-220]
 * - begin_layer, get_important, get_important_submit, prefetch_next, store and store_abort are
 *   SPEC_E_BUSY, with nothing changed, while another of them has one of their requests.
 *   get_important_wait is BUSY if it would report meanwhile; its ticket stays valid.
 * - release, prefetch_to_host and next_chunk may overlap them. A release is SPEC_OK, and the handle
 *   is STALE from its return on, for other releases too. Items of the other call that had not begun
 *   are STALE; one that is being delivered ends as usual, or is STALE. The request ends, and stops
 *   counting against max_requests, when that call returns.
 * - A handle never names another request. */

/* ---- Small shared structures ---------------------------------------------------------------- */

struct spec_connector; /* opaque; created by open, ended by close */
typedef struct spec_connector spec_connector;

typedef uint64_t spec_request; /* opened by lookup or attach, ended by release; never 0 */
typedef uint64_t spec_ticket;  /* of a store or prefetch, ended when reported done; of
                                * get_important_submit, ended by its wait; never 0 */

struct spec_bytes { /* borrowed memory; data may be NULL if byte_count is 0 */
    const void *data;
    uint64_t byte_count;
};

/* The host's memory functions. The connector keeps both functions and user until close returns.
 * Host threads (inside calls) and the plugin's threads call them: they must be thread-safe. */
struct spec_alloc {
    uint32_t struct_size;
    uint32_t reserved;
    void *(*alloc)(uint64_t bytes, uint64_t align_bytes, void *user); /* NULL: no memory */
    void (*free)(void *memory, uint64_t bytes, void *user);
    void *user;
};

/* Numeric types of rows, queries and destinations. One-byte types (since 0.8) are never interpreted
 * as numbers: their rows are stored, and delivered into the same type, as bytes. With them, open
 * returns UNSUPPORTED if the configuration selects or quantises rows, and queries and new_keys are
 * INVALID. [ABI-180] */
#define SPEC_DTYPE_F32      1u
#define SPEC_DTYPE_F16      2u
#define SPEC_DTYPE_BF16     3u
#define SPEC_DTYPE_FP8_E4M3 4u
#define SPEC_DTYPE_FP8_E5M2 5u
#define SPEC_DTYPE_INT8     6u
#define SPEC_DTYPE_BYTES    7u /* any other type of one byte per element */

#define SPEC_DEVICE_HOST 0u
#define SPEC_DEVICE_CUDA 1u /* for rows of get_important and store, queries, new keys, hints */

/* K and V of a sequence of tokens in the caller's memory. docs/reference/abi.md has the strides of
 * common layouts, such as vLLM's.
 *
 *   slot(j) = slots ? slots[j] : j                      j = 0 .. count-1 of the call
 *   K[j][h][d] = k_base + (slot / block_tokens) * block_stride_bytes
 *                       + (slot % block_tokens) * token_stride_bytes
 *                       + h * head_stride_bytes + d * k_element_stride_bytes
 *   V[j][h][d] = v_base + (slot / block_tokens) * block_stride_bytes
 *                       + (slot % block_tokens) * v_token_stride_bytes
 *                       + h * head_stride_bytes + d * element size          d = 0 .. head_size-1
 *
 * - block_tokens 0: no blocks, that is block 0 and the slot itself.
 * - A negative slot skips token j: a load does not write it; a store of it is SPEC_E_INVALID.
 * - Bases and strides are multiples of the element's size. Every address must lie inside k_bytes or
 *   v_bytes, which is checked before anything is read or written. [ABI-008]
 * - Stored, selected and delivered rows do not depend on the strides, bit for bit, and no other
 *   memory is read or written. [ABI-175] */

/* CUDA memory. Bases are addresses on device device_index; slots are host memory. stream belongs to
 * the device's primary context; NULL is the legacy default stream. The first such memory attaches
 * the device, or gpu.device at open; a connector attaches one. If that fails, items with device
 * memory are UNSUPPORTED with the reason.
 * - Device memory gets what host memory would get, bit for bit. But an item whose sets are per head
 *   is delivered whole (SPEC_IMPORTANT_DENSE). [ABI-199]
 * - Work that is on the stream at the call (or submit) precedes all writes. Work that the host adds
 *   after the call (or wait) follows them. Neither waits for the stream, except for queries and new
 *   keys in device memory. [ABI-200]
 * - INVALID: a capturing stream, host memory, another device's memory, or a second device. Nothing
 *   is enqueued, and a capture continues. [ABI-201]
 * - If a driver call fails, the item is IO with the call's name and code. Later items of this
 *   connector with device memory are UNSUPPORTED with that text; the match stays valid. [ABI-202]
 * - A store takes what earlier work on its stream leaves in the source, as from host memory. The
 *   stream's next work may overwrite it as soon as the call returns, which waits for no stream;
 *   slots are free at return. [ABI-203] */
struct spec_memory {
    uint32_t struct_size;
    uint32_t device;      /* SPEC_DEVICE_* */
    int32_t device_index; /* CUDA: ordinal; host: 0 */
    uint32_t dtype;       /* SPEC_DTYPE_* */
    void *k_base;
    void *v_base;
    uint64_t k_bytes; /* reachable from k_base */
    uint64_t v_bytes;
    uint64_t token_stride_bytes;
    uint64_t head_stride_bytes;
    const int64_t *slots; /* NULL: token j is slot j */
    uint64_t slot_count;  /* at least the call's token count if slots is set, else 0 */
    uint64_t block_tokens;
    uint64_t block_stride_bytes;
    void *stream;                    /* CUDA: CUstream that orders the copies; host: NULL */
    uint64_t k_element_stride_bytes; /* 0: the element's size */
    uint64_t v_token_stride_bytes;   /* 0: token_stride_bytes */
    /* Since 0.14. 0: head_stride_bytes; else only if V's heads have another size than K's. */
    uint64_t v_head_stride_bytes;
};

/* Query rows of a pass at one layer, after rotary embedding. Borrowed for the call.
 *   q[i][g] = data + i * row_stride_bytes + g * head_stride_bytes, head_size elements
 * heads: SPEC_QUERIES_ALL, or SPEC_QUERIES_PROBE (query heads of the first p KV heads only). A
 * score is q . k * scale, as in the model's attention. A scale that is negative or not finite is
 * INVALID. [ABI-179]
 *
 * CUDA memory is as in spec_memory; queries, new keys and destination may each be in host or device
 * memory, on streams of their own. Queries and new keys are read after the work that is on their
 * stream at get_important (or submit). They have been read when it (or the wait) returns, so it
 * waits for that part of the stream, whatever its deadline. INVALID: more than gpu.query_bytes of
 * them per item. A hint is copied in stream order without waiting; one that is not available in
 * time is ignored. [ABI-204] */
#define SPEC_QUERIES_ALL   0u
#define SPEC_QUERIES_PROBE 1u
struct spec_queries {
    uint32_t struct_size;
    uint32_t device;
    int32_t device_index;
    uint32_t dtype;
    const void *data;
    uint64_t byte_count; /* reachable from data */
    uint32_t row_count;  /* tokens of this pass, without padding */
    uint32_t heads;
    uint64_t row_stride_bytes;
    uint64_t head_stride_bytes;
    uint64_t first_position; /* position of row 0 in the sequence */
    void *stream;
    /* Since 0.8. */
    float scale; /* factor of scores; 0: 1 / sqrt(head_size) */
    uint32_t reserved;
};

/* Exactness of delivered KV. Larger kinds are worse. Lookup reports the worst computed_on of the
 * match. For each other member it reports the worst of any inexact piece: the fewest bits, the
 * smallest shares, the largest metric. */
#define SPEC_PROVENANCE_EXACT  0u
#define SPEC_PROVENANCE_LOSSY  1u
#define SPEC_PROVENANCE_PRUNED 2u
struct spec_provenance {
    uint32_t kind;        /* the worse of computed_on and the delivery */
    uint32_t computed_on; /* SPEC_PROVENANCE_*, set when the rows were stored */
    uint32_t bits_k;      /* LOSSY: bits of the quantised rows; 0: exact rows */
    uint32_t bits_v;
    uint32_t exact_ppm;   /* LOSSY: share of exact rows */
    uint32_t retain_ppm;  /* PRUNED: share of delivered rows */
    uint32_t metric;      /* PRUNED: SPEC_METRIC_* */
    uint32_t reserved[5]; /* 0; since 0.8 */
};
#define SPEC_METRIC_H2O    0u
#define SPEC_METRIC_LAST   1u
#define SPEC_METRIC_RANDOM 2u /* any k rows, the same for equal calls; for comparison */

/* ---- open, close ---------------------------------------------------------------------------- */

#define SPEC_LOG_ERROR 0
#define SPEC_LOG_WARN  1
#define SPEC_LOG_INFO  2
#define SPEC_LOG_DEBUG 3
typedef void (*spec_log_fn)(int32_t level, const char *line, void *user);

#define SPEC_ROLE_AUTO   0u /* writer; or, while another process writes the rank [ABI-017], a reader
                             * that becomes the writer when none is left [ABI-229] */
#define SPEC_ROLE_WRITER 1u
#define SPEC_ROLE_READER 2u /* follows the rank's writer and stores nothing [ABI-016] */

#define SPEC_ROPE_NONE        0u
#define SPEC_ROPE_HALF        1u /* pairs (i, i + d/2), as in Hugging Face */
#define SPEC_ROPE_INTERLEAVED 2u /* pairs (2i, 2i + 1) */
#define SPEC_KV_ROWS          0u /* plain rows [kv_head][head_size] */

/* Layers that keep the same kind of KV. A model with layers of one kind needs no groups. Groups
 * that repeat the model's own members give the same namespace as none. [ABI-183]
 *
 *   FULL    a row per token; a match needs all of them
 *   WINDOW  a row per token; a query attends to the last `window` tokens, itself included. A match
 *           that ends at m needs rows [m + 1 - window, m)
 *   LATENT  a row per token in place of K and V (MLA): one head of head_size elements, with its
 *           rotary part; no V (v_base NULL, v_bytes 0)
 *   STATE   no rows: state_bytes that represent all tokens before a position (linear attention,
 *           state-space models)
 *
 * - Layers that read other layers' KV keep none and are not counted. All groups' members are part
 *   of the namespace. If layers differ from the model's members, or V from K in size, rows are
 *   stored and delivered whole, bit for bit, in host memory. UNSUPPORTED then: CUDA memory, and an
 *   open whose configuration selects or quantises rows. An item that asks for fewer rows is DENSE.
 *   [ABI-210]
 * - WINDOW: store takes the rows of every token. In every clause, R, positions and destination of
 *   an item refer only to the rows that the match needs, from from_token on. So do tier_bytes and
 *   prefetch_to_host. With SPEC_ITEM_BIDIRECTIONAL all layers have the same rows. [ABI-211] */

/* STATE layers. A match ends only at the end of a pass whose rows are or were all stored, and whose
 * states are stored for all STATE layers. matched_tokens and leases end there; stored_tokens counts
 * rows alone. store of such a layer takes the state after the pass's last token, once per pass,
 * whatever its range. Lookups find nothing of a pass before its last layer is stored. A lease
 * protects rows as usual, and states until they are evicted; attach is STALE then.
 * docs/reference/abi.md has more. [ABI-212]
 *
 * get_important of a STATE layer gives one row, R = 1 (0 without a match), of position
 * matched_tokens - 1: state_bytes at k_base, bit for bit, within k_bytes. v_base and slots are
 * NULL; strides, dtype, queries, select and budgets are ignored. SPEC_ITEM_* and refine_of are
 * INVALID, as is SPEC_ITEM_BIDIRECTIONAL for the whole model. A state that cannot be read voids the
 * match from from_token on. [ABI-213] */
#define SPEC_GROUP_FULL   0u
#define SPEC_GROUP_WINDOW 1u
#define SPEC_GROUP_LATENT 2u
#define SPEC_GROUP_STATE  3u
struct spec_layer_group {
    uint32_t struct_size;
    uint32_t kind;          /* SPEC_GROUP_* */
    const uint32_t *layers; /* [layer_count] ascending, below the model's; each in one group */
    uint64_t layer_count;
    uint32_t kv_head_count; /* of this rank; LATENT 1, STATE 0 */
    uint32_t head_size;     /* size of a K head; STATE 0 */
    uint32_t head_size_v;   /* 0: as K; LATENT, STATE 0 */
    uint32_t dtype;         /* SPEC_DTYPE_*; 0: the model's */
    uint64_t window;        /* tokens; WINDOW only, else 0 */
    uint64_t state_bytes;   /* bytes per layer, at most 256 MiB; STATE only, else 0 */
    double rope_theta;      /* 0: the model's */
};

/* Everything that distinguishes one model's KV from another's. Its canonical digest is the
 * namespace, and KV is reused only inside a namespace. [ABI-010] One directory may hold many
 * namespaces. */
struct spec_model {
    uint32_t struct_size;
    uint32_t layer_count;   /* of this rank */
    uint32_t kv_head_count; /* of this rank */
    uint32_t query_head_count;
    uint32_t head_size;
    uint32_t kv_dtype;  /* SPEC_DTYPE_*; the only dtype that this namespace stores */
    uint32_t kv_layout; /* SPEC_KV_ROWS */
    uint32_t rope_kind; /* SPEC_ROPE_*; K is stored after rotary embedding */
    uint32_t tp_rank;
    uint32_t tp_size; /* 0 reads as 1 */
    double rope_theta;
    double rope_scaling[8];        /* in the host's order; 0: none. llama3: factor, low and high
                                    * frequency factor, original length */
    const char *rope_scaling_kind; /* "llama3", ...; NULL or "": none */
    const float *kv_scales;        /* scales of KV that the engine quantised; else NULL */
    uint64_t kv_scale_count;
    /* Identity of the weights: their files (XXH3-128 fingerprint, cached by path, size, times and
     * inode), or an id that the host vouches for. It is equal for every rank of a set, even if each
     * loads its own files. If both are missing, open returns SPEC_E_INVALID. [ABI-011] */
    const char *const *weights_paths;
    uint64_t weights_path_count;
    struct spec_bytes weights_id;
    const char *revision; /* NULL or "": none */
    /* Since 0.8. */
    uint32_t head_size_v; /* 0: head_size; another: see ABI-210 */
    uint32_t reserved;
    const struct spec_layer_group *groups; /* every layer in one of them; NULL: all are FULL */
    uint64_t group_count;
};

struct spec_open_params {
    uint32_t struct_size;
    uint32_t role;      /* SPEC_ROLE_* */
    const char *config; /* path of a JSON file, or JSON text (first non-blank byte is '{') */
    const struct spec_model *model;
    const struct spec_alloc *alloc; /* NULL: libc */
    spec_log_fn log;                /* NULL: no log; called on host threads, inside calls */
    void *log_user;
    int32_t log_level_max; /* SPEC_LOG_*; lines above it are not produced */
    uint32_t rank;         /* rank in the set that shares one store; writes its own part */
    uint32_t rank_count;   /* 0 reads as 1 */
    uint32_t reserved;
};

/* ---- lookup --------------------------------------------------------------------------------- */

/* Something beside token ids that KV depends on, such as the hash of an image or a prompt
 * embedding. KV before first_token is shared; KV from first_token on is not. */
struct spec_extra_key {
    uint32_t struct_size;
    uint32_t kind; /* the host's numbering; part of the key */
    uint64_t first_token;
    uint64_t token_count;
    struct spec_bytes value;
};

#define SPEC_LOOKUP_REQUIRE_EXACT 1u /* the match ends before the first inexact piece */
#define SPEC_LOOKUP_PEEK          2u /* since 0.8: an answer and a lease, no request */
#define SPEC_PRIORITY_MIN         (-3)
#define SPEC_PRIORITY_MAX         3

struct spec_lookup_params {
    uint32_t struct_size;
    uint32_t flags;         /* SPEC_LOOKUP_* */
    const uint32_t *tokens; /* borrowed for the call; copied into the request */
    uint64_t token_count;
    uint64_t from_token;    /* tokens that the engine already holds: neither read nor promised */
    uint64_t max_tokens;    /* limit of the match; 0: token_count - 1 */
    uint64_t multiple_of;   /* the match is cut to a multiple of this; 0 means 1 */
    struct spec_bytes salt; /* part of the identity; different salts share nothing */
    struct spec_bytes lora; /* LoRA adapter id; different ids share nothing */
    const struct spec_extra_key *extra_keys; /* ascending first_token */
    uint64_t extra_key_count;
    /* Since 0.9: hints for eviction, see below. */
    uint64_t retain_s; /* seconds for which the prefix will be useful; 0: unknown */
    int64_t priority;  /* SPEC_PRIORITY_MIN (evicted first) .. SPEC_PRIORITY_MAX; 0: usual */
};

#define SPEC_LOOKUP_MISS    0u
#define SPEC_LOOKUP_HIT     1u
#define SPEC_LOOKUP_PENDING 2u /* being read into host memory: ask again */

/* UPPER: a tier above host memory; no row is in both. A plugin may let host memory stand in for
 * device memory. Rows there count as HOST when they are loaded into a device. */
#define SPEC_TIER_UPPER  0u
#define SPEC_TIER_HOST   1u
#define SPEC_TIER_DISK   2u
#define SPEC_TIER_REMOTE 3u
#define SPEC_TIERS       4u

struct spec_lookup_result {
    uint32_t struct_size;
    uint32_t state;          /* SPEC_LOOKUP_* */
    spec_request request;    /* also on a miss, since store needs it; 0: a peek, or PENDING */
    uint64_t matched_tokens; /* end of promised rows [from_token, ..); miss: from_token */
    struct spec_provenance provenance;
    uint64_t tier_bytes[SPEC_TIERS]; /* bytes of the promised rows that layers need, by tier
                                      * [ABI-191]; each row in one tier [ABI-208] */
    uint64_t load_ns;                /* estimated ns to load them from there; 0: unknown */
    uint8_t lease[64];               /* promise for attach, limited in time; zero: none */
    uint64_t lease_expiry_ns;        /* wall clock, ns since the epoch; 0: no lease */
    /* Since 0.8. */
    uint64_t stored_tokens; /* tokens stored, counted from position 0; see below */
};

/* Ranks, processes and leases
 *   Writers     Each rank has one writing process, which owns that rank's part of the store. A
 *               reader follows its rank's writer.
 *   Lookup      Promises the prefix that every rank of the set has stored. [ABI-028]
 *   Visibility  Lookups in other processes find a range within 100 ms of its ticket's completion.
 *   Lease       Until lease_expiry_ns the rows [0, matched_tokens) are not overwritten, even if
 *               they are evicted. Requests that have them, in every process, and readers that
 *               attach later can read them. [ABI-029]
 *   attach      In the rank's writer, and in other ranks, it may be STALE before that if the rows
 *               were evicted.
 *   Transport   A lease is 64 bytes and may be sent to processes of the same store and host system.
 *               Do not give it to clients. */

/* stored_tokens is how many tokens, from position 0 on, every rank has stored under this salt, LoRA
 * id, extra keys and REQUIRE_EXACT. It is set on a miss too, and does not depend on from_token,
 * max_tokens or multiple_of. It may be less than the number stored, never more. Rows behind
 * matched_tokens are not promised by it. A host that holds rows from elsewhere up to from_token
 * stores from stored_tokens on: a range that begins behind a gap is DROPPED. [ABI-178]
 *
 * Load policy "split": when the speeds are known, lookup promises a leading part of the match,
 * possibly all or none. It is the part for which the request is ready soonest, if it is loaded
 * while the rest is computed. Equal matches get equal promises, for peeks and requests, until the
 * speeds change; stored_tokens is not affected. With another policy, and until the speeds are
 * known, the whole match is promised. [ABI-186] The writer of rank 0 measures the speeds and keeps
 * them in the store. All ranks of a set and all readers use the stored speeds from the same moment
 * on, so they promise the same part of the same match. [ABI-187] */

/* Hints for eviction (retain_s, priority) apply to what the request matches and stores. [ABI-189]
 * - Prefixes that have no retention, or whose retention has ended, are evicted first: by ascending
 *   priority, and within a priority in the order without hints. Retained prefixes follow, whatever
 *   their priority, by ascending end of retention.
 * - A hint can only raise a priority or extend a retention, for each part of a prefix. A part that
 *   several requests share has the highest priority given (a request without one counts as 0) and
 *   the longest retention.
 * - A hint guarantees nothing: if nothing else can be evicted, retained prefixes are. Hints end
 *   with the connector; those of a reader have no effect.
 * - Age does not matter: a prefix that was just stored is evicted before a retained one or one of
 *   higher priority. To make room for a pass, and for the demand expected after it, no prefix is
 *   evicted that this order evicts later than the pass itself. [ABI-221] */

/* SPEC_LOOKUP_PEEK: the same answer and lease without a request (ret_result.request is 0). No read
 * is started, and nothing stays readable after the lease, which any process may attach. A peek uses
 * none of max_requests. 16 may run at one time; one more is BUSY. [ABI-177]
 *
 * Limits: a prompt is cut at max_request_tokens, or before the token at which the first extra key
 * does not fit (256 positions with keys, 16 keys at one). Tokens before the cut are found, promised
 * and stored as usual; tokens behind it are never stored. [ABI-215] */

/* ---- get_important -------------------------------------------------------------------------- */

#define SPEC_IMPORTANT_FALLBACK 1u /* probe heads disagreed; sets are per KV head */
#define SPEC_IMPORTANT_DENSE    2u /* all rows were delivered though fewer were asked for */
#define SPEC_IMPORTANT_PARTIAL  4u /* a deadline or byte budget ended exact rows early */

/* Number of rows that a pass selects at a layer, and the measure of importance. Members that are
 * not given are as configured.
 *   importance  a[g,i,j] = softmax over j of q[g,i] . k[h,j] * scale (spec_queries, ABI-179); j
 *               runs over the R matched rows and the new keys up to row i (without new keys: the
 *               matched rows only)
 *               imp[h](j) = sum of a[g,i,j] over the query heads g of KV head h, and over the rows
 *               i of the pass (H2O, NeurIPS 2023) or its last one only (LAST)
 *   ratio       k = max(1, ceil(R * retain_ppm / 10^6))
 *   count       k = min(R, max(1, count))
 *   mass        the fewest rows that hold mass_ppm of the importance, at most the ratio's k
 * The set is the k rows of highest importance, ties to the lower position. */
#define SPEC_BUDGET_RATIO 0u
#define SPEC_BUDGET_COUNT 1u
#define SPEC_BUDGET_MASS  2u

#define SPEC_SELECT_BUDGET 1u /* budget, retain_ppm, mass_ppm, count */
#define SPEC_SELECT_METRIC 2u
#define SPEC_SELECT_KEEP   4u /* keep_first, keep_last */
#define SPEC_SELECT_EXACT  8u /* exact_ppm */
struct spec_select {
    uint32_t struct_size;
    uint32_t given;      /* SPEC_SELECT_*: the members that are used */
    uint32_t budget;     /* SPEC_BUDGET_* */
    uint32_t retain_ppm; /* <= 1,000,000 */
    uint32_t mass_ppm;   /* <= 1,000,000 */
    uint32_t metric;     /* SPEC_METRIC_* */
    uint32_t keep_first; /* first rows of the match that are always selected, within k */
    uint32_t keep_last;
    uint64_t count;
    /* Since 0.4. */
    uint32_t exact_ppm; /* layered: share of exact rows, <= 1,000,000 */
    uint32_t reserved;
};

/* ---- Selected rows (k < R)
 * - The k rows that spec_select defines are delivered, each bit-identical to what was stored.
 *   [ABI-061]
 * - They are in ascending order of position; next_position is as with all rows. [ABI-062]
 * - Ties go to the lower position. [ABI-063]
 * - The plugin may score only the keys of the first KV heads (probe heads). If the sets of these
 *   heads agree by more than `threshold`, one voted set serves all heads. [ABI-064]
 * - Otherwise the item is flagged FALLBACK: row r of head h is that head's r-th selected row, and
 *   positions are per head. [ABI-065]
 * - A layer is delivered whole, flagged DENSE, if its selector keys are missing or damaged. So is
 *   one that would be FALLBACK, if there are queries of the probe heads only, or a negative slot.
 *   [ABI-066]
 * - A set depends on the item's own rows: not on other items, other passes of the request, or what
 *   was prefetched. [ABI-067]
 * - Earlier selections by queries change what is read, never what is delivered. [ABI-227]
 * - spec_select changes one item only. [ABI-068]
 * - Provenance: PRUNED, with the metric, and row_count / R as retain_ppm (rounded up). [ABI-069]
 * - If the configuration selects and spec_select gives no budget, a match that is short relative to
 *   the new tokens is delivered whole at every layer of its request. It is flagged DENSE and is as
 *   exact as stored, so KV computed on it may be stored. [ABI-073] */

/* ---- Layered (select.base quantised)
 * - All R rows are delivered in ascending order of position. k_e = ceil(R * exact_ppm / 10^6) of
 *   them are bit-identical to what was stored. The others have their quantised values
 *   (docs/reference/store-format.md), rounded to the destination's type. exact_bits marks the exact
 *   ones. [ABI-150]
 * - With layered.bit_allocation per_channel, each channel has its own number of bits, given by the
 *   table at the start of each block of quantised rows. Keys that were quantised without rotary
 *   embedding are rotated again by the model's rotary parameters, with the same bits on every
 *   machine. [ABI-196]
 * - The rows of highest importance, summed over all KV heads, are exact. Scores use the quantised
 *   values of the prefix's keys, where it has quantised rows, and the exact new keys; ties go to
 *   the lower position. Without queries (select.identify static) the scores are stored averages of
 *   earlier items' importance; if there are none, the lowest positions are exact. [ABI-151]
 * - Rows that have no quantised row are always exact. They count towards k_e, and may exceed it.
 *   [ABI-152]
 * - exact_ppm 10^6 is the whole load: bit-identical, and no quantised rows are read. [ABI-153]
 * - At the deadline, or when budget_bytes of exact rows are read, the rows that are available are
 *   exact, and the item is SPEC_OK, flagged PARTIAL; exact_rows counts them. Quantised rows are
 *   waited for up to 1 s longer; after that the item is TIMEOUT. [ABI-154]
 * - Provenance: LOSSY, with the bits of the quantised rows, and exact_rows / R (rounded down).
 *   [ABI-155]
 * - Quantised rows that fail their checksum are never delivered; the rows are read exactly.
 *   [ABI-156] */

/* ---- Refining (refine_of)
 * refine_of is the ticket of a reported get_important_submit that delivered this layer of this
 * request to this destination, whose rows nobody else has written since.
 * - Of the k_e best rows by that delivery's ranking, those not yet exact are read and replace the
 *   quantised values; other rows stay, and no quantised rows are read. Afterwards the destination
 *   equals, bit for bit, that delivery with this exact_ppm, no deadline and no budget. [ABI-163]
 * - deadline_ns and budget_bytes end the reading as above; the best missing rows are read first.
 *   exact_bits, exact_rows, PARTIAL and provenance report the exact rows, however often it is
 *   refined. They do so for CORRUPT and IO too: exact_bits describes the destination, and the match
 *   is void. [ABI-164]
 * - STALE: the request ended, another delivery of its layer or to its k_base began, its memory was
 *   reused (layered.refine_bytes), or the ticket is another request's. INVALID: a ticket that was
 *   never issued, or another layer or destination. UNSUPPORTED: select.base is not quantised.
 *   [ABI-165] */

/* ---- Ahead (SPEC_ITEM_AHEAD, get_important_submit only, since 0.7)
 * The destination is filled before the layer's queries exist. Exact rows are then those that need
 * no queries; given queries are a prediction and select as usual.
 * - The first refining item with k_e above 0 selects: its queries, new_keys, metric and keep are
 *   used as if nothing had been delivered. Afterwards the destination equals, bit for bit, one call
 *   with these, except that rows which were exact before stay exact. [ABI-166]
 * - Until then nothing may be computed on the destination; the item's own provenance describes it.
 *   A stored pass counts as computed on it only if its layer is stored before an item has refined
 *   it or delivered it anew. [ABI-167]
 * - INVALID: with refine_of, or in get_important. UNSUPPORTED: select.base is not quantised. BUSY:
 *   layered.refine_bytes keeps less than the item's rows need. [ABI-168] */
#define SPEC_ITEM_AHEAD 1u
/* ---- Rescoring (SPEC_ITEM_RESCORE, with refine_of and queries, since 0.8)
 * All rows are scored by the item's queries and new_keys, with its metric and keep, as if nothing
 * had been delivered. So each chunk of a prefill adds the rows that its own queries need.
 * - Of the k_e best rows by these scores, those not yet exact are read and replace the quantised
 *   values; exact rows stay exact. Afterwards the destination equals, bit for bit, its earlier
 *   content plus the rows that one call with these queries would have delivered exactly;
 *   exact_bits, exact_rows and provenance report all of it. Later items that refine it use the new
 *   ranking. If quantised rows cannot be read any more, every row is read, and the ranking stays.
 *   [ABI-184]
 * - deadline_ns and budget_bytes end it as they end refining; before the scores, nothing changes.
 *   INVALID, with nothing changed: no refine_of, no queries, SPEC_ITEM_AHEAD, or queries or
 *   new_keys that cannot score rows that are to be scored. Other errors are as for refining.
 *   [ABI-185] */
#define SPEC_ITEM_RESCORE 2u
/* ---- Bidirectional load (SPEC_ITEM_BIDIRECTIONAL, get_important_submit only, since 0.11)
 * All items have the flag: layers 0, 1 .. of one request, all of them. Rows are loaded in blocks of
 * tokens, from the match's end to its beginning; all layers of a block are loaded before the block
 * in front of it. Loading ends at the ranges that next_chunk returned, whose rows the host writes.
 * Row j is token from_token + j.
 * - The wait reports when both sides have met or loading has ended. Each item's last row_count rows
 *   of the match, from next_position - row_count on, are bit-identical to what was stored. Rows in
 *   front are as the host wrote them, else undefined. That holds for CORRUPT and IO too (the match
 *   is void from failed_position on), and at an item's deadline, which ends loading with SPEC_OK
 *   and PARTIAL. Nothing was delivered to a destination on a device that failed. INVALID: queries,
 *   new_keys, select (but see below), positions, bits, budget_bytes, refine_of, other flags, other
 *   items, or not every layer once and in order. [ABI-205]
 * - If select.base is quantised, an item whose k_e is 0 gets the quantised values of its rows, like
 *   a layered item. k_e is as configured, or of a select that gives SPEC_SELECT_EXACT alone. Rows
 *   without a quantised row, or with one that fails its checksum, are exact; exact_rows counts
 *   them. Provenance: LOSSY, with the bits and exact_rows / row_count (rounded down). With another
 *   k_e, or if lookup was asked for REQUIRE_EXACT, all rows are exact. [ABI-224]
 * - The two sides meet, fail and give rows back as with exact rows. A range fails only if its
 *   quantised rows and its rows cannot be read. Passes stored afterwards count as computed on the
 *   quantised values. [ABI-225] */
#define SPEC_ITEM_BIDIRECTIONAL 4u

/* One request at one layer: input and results. Row j of the destination is the j-th returned
 * position. The destination has room for all R rows; rows behind row_count are undefined
 * afterwards. */
struct spec_important {
    uint32_t struct_size;
    uint32_t flags; /* SPEC_ITEM_* */
    spec_request request;
    uint32_t layer;
    uint32_t reserved;
    const struct spec_queries *queries;    /* NULL if no scores are needed (k = R, ..) */
    const struct spec_memory *new_keys;    /* keys from next_position to the last row of queries;
                                            * NULL: scores use the prefix only */
    const struct spec_memory *destination; /* K and V; dtype the namespace's or wider */
    uint32_t *positions;                   /* out: ascending token positions, with FALLBACK
                                 * [kv_head][row_count]; NULL: not wanted */
    uint64_t position_capacity; /* elements: >= R, or kv_head_count * R if heads may differ */
    uint64_t *exact_bits;       /* out, layered: bit j is 1 if row j is exact; NULL: not wanted */
    uint64_t exact_bit_words;   /* 64-bit words: >= ceil(R / 64) if exact_bits is set */
    uint64_t budget_bytes;      /* limit of exact rows' bytes; 0: none */
    uint64_t deadline_ns;       /* ns from the call; 0: none */
    spec_ticket refine_of;      /* layered: ticket of the get_important_submit that filled this
                                 * destination; 0: none */

    /* Results, written for every item when the call returns, whatever its status. A refused
     * get_important writes `status` alone [ABI-228], a refused get_important_submit nothing. */
    spec_status status;
    uint32_t result_flags;    /* SPEC_IMPORTANT_* */
    uint64_t row_count;       /* rows delivered */
    uint64_t next_position;   /* matched_tokens: position of the first new token */
    uint64_t failed_position; /* CORRUPT, IO: the match is void from here on. BUSY: the same, or
                               * UINT64_MAX: it is not */
    float similarity;         /* similarity of the probe heads' sets; 0: no probes */
    float threshold;
    uint64_t wanted_bytes; /* bytes of rows, tags, selector keys for the layer, unrounded */
    uint64_t read_bytes;   /* bytes read from the device for it */
    uint64_t io_ops;
    uint64_t io_exposed_ns;         /* ns that this call waited for the device */
    uint64_t probe_ns;              /* ns of reading selector keys, scoring and selecting */
    uint64_t tier_rows[SPEC_TIERS]; /* rows by the tier that they, or their quantised values,
                                     * were read from [ABI-194] */
    uint64_t prefetched_rows;       /* rows of union_rows available or in flight before the call */
    uint64_t exact_rows;
    struct spec_provenance provenance;
    /* Since 0.3. */
    uint64_t union_rows;              /* rows that some KV head wants; row_count unless FALLBACK */
    uint64_t unused_bytes;            /* prefetched bytes for rows that were not wanted, with their
                                       * share of page rounding */
    const struct spec_select *select; /* in: overrides for this item; NULL: as configured */
};

/* ---- store, tickets ------------------------------------------------------------------------- */

/* ---- Room
 * - If staging (for CUDA memory gpu.store_bytes), disk_bytes or a pool is exhausted, the end of the
 *   range that lacks room is dropped. The part in front of it is stored, the ticket is BUSY,
 *   NO_SPACE or DROPPED, and the host continues with its layers. [ABI-085]
 * - wait_kept reports how many tokens of the range are stored; the next range may begin behind
 *   them. Until that is stored, passes that depend on the dropped part are DROPPED. If several
 *   passes lack room, the one that holds most loses its end first. Room is reserved for passes of
 *   at most one chunk. [ABI-217]
 * - A full store evicts the least recently used prefixes that nobody holds, leaves first, so no
 *   stored prefix loses its beginning. disk_bytes is never exceeded, quarantine included. [ABI-088]
 * - A refused pass finds room later, once leases on evicted rows have ended. That holds for every
 *   length that an empty store could hold, however long the store has been full. [ABI-174]
 * - An exception is a store that is full of prefixes that are evicted later than the pass (higher
 *   priority, longer retention). Then only the beginning of the pass that needs no eviction of
 *   these is stored. Nothing of the rest is written; the ticket is NO_SPACE, and dropped_chunks
 *   counts it. A pass with states is stored whole or not at all. [ABI-222]
 * - After a device was full or failed, stores are dropped for a while, then tried again; loads
 *   continue. [ABI-089]
 * - With store.admit "second", only chunks that an earlier pass computed too are stored;
 *   store.write_budget limits the bytes stored per day. The rest, and passes that depend on it, are
 *   DROPPED and counted (unadmitted_chunks, over_budget_chunks). [ABI-190]
 * - If KV that is no worse is already stored for the same tokens, a range is not written again; its
 *   ticket is done as if it had been. [ABI-188] */

/* ---- Provenance, shared passes, limits
 * - A stored pass counts as computed on the worst of what was delivered to its request so far;
 *   lookup reports it. [ABI-120]
 * - A match with REQUIRE_EXACT ends before such a pass. [ABI-121]
 * - For KV that the plugin did not deliver, the host sets computed_on with any layer of the pass.
 *   It holds for this pass and the request's later ones; the worse of this and the delivered KV
 *   counts. [ABI-182]
 * - The configuration decides whether lossy (default yes) and pruned (no) passes are stored; others
 *   are DROPPED. [ABI-122]
 * - KV computed on better KV replaces worse KV of the same tokens; KV that depends on the worse
 *   copy is dropped with it. Among equals the first complete copy wins. [ABI-123]
 * - Requests that compute the same tokens at the same time write them once: each layer when the
 *   first of them brings it. If one is aborted or released, the others continue from the layers
 *   that it stored. The rows count as the worst that those layers were computed on, and a pass does
 *   not join a pass that is worse than itself. Each ticket covers its own range. [ABI-223]
 * - If a range exceeds a limit of its request (lookup; for tokens that come with it
 *   max_request_tokens or the free part of request_bytes), the part in front is stored, and the
 *   ticket is BUSY. A pass with states is stored whole or not at all. Positions are always the
 *   host's: ranges and tokens behind the limit are accepted as if there were no limit. [ABI-215]
 * - Ids (tokens) are given once, with layer 0 of the range that contains the first of them. A
 *   position that has an id keeps it. Ids that begin outside the range are INVALID, so no row is
 *   stored under an id that it was not computed for. store_abort takes back those of the open pass.
 *   [ABI-169] */

/* Flag, since 0.9: the range was computed before this call of layer 0, not between the calls of its
 * layers, so call times do not show compute time. */
#define SPEC_STORE_LATER 1u
/* Flag, since 0.17: if staging has no room, the call waits for some, up to wait_ns in all, before
 * the end of a pass is dropped. It does not wait for room that only later layers of open passes
 * would free. */
#define SPEC_STORE_WAIT 2u

struct spec_store_params {
    uint32_t struct_size;
    uint32_t flags; /* SPEC_STORE_* */
    spec_request request;
    uint32_t layer;
    uint32_t computed_on;             /* SPEC_PROVENANCE_*: the best that the host knows of; 0:
                                       * EXACT */
    uint64_t first_token;             /* first position of the range in the sequence */
    uint64_t token_count;             /* > 0 */
    const struct spec_memory *memory; /* token j of the range is token j of the memory */
    const uint32_t *tokens; /* token ids behind those given to lookup (decoded ones), or NULL */
    uint64_t tokens_count;  /* appended to the request's tokens before the range is checked; first
                             * one in range [ABI-169] */
    uint64_t wait_ns;       /* since 0.17, with SPEC_STORE_WAIT: ns from the call's start; else 0 */
};

/* ---- computed ------------------------------------------------------------------------------- */

/* Flag, since 0.17: the step computed a part of one request's prompt, beside at most single tokens
 * of decoding requests, and later steps compute the rest. */
#define SPEC_COMPUTED_PART 1u

/* Since 0.17. One step of the engine: all tokens, over all requests, whose KV the step computed;
 * not those that were loaded or computed earlier. */
struct spec_computed {
    uint32_t struct_size;
    uint32_t flags;     /* SPEC_COMPUTED_* */
    uint64_t tokens;    /* sum over all requests */
    uint64_t positions; /* sum over these tokens of the tokens in front of each in its request */
    uint64_t ns;        /* ns of computing, without waiting for loads */
};

/* ---- prefetch to host, attach, bidirectional load, maintenance, statistics ------------------- */

struct spec_prefetch_to_host_params {
    uint32_t struct_size;
    uint32_t reserved;
    spec_request request;
    uint64_t deadline_ns; /* ns from the call; 0: none */
};

struct spec_attach_params {
    uint32_t struct_size;
    uint32_t reserved;
    struct spec_bytes lease; /* the 64 bytes of spec_lookup_result.lease */
    uint64_t from_token;     /* since 0.2: rows before it are not loaded; <= the lease's length */
};

#define SPEC_CHUNK_COMPUTE 0u
#define SPEC_CHUNK_MET     1u
struct spec_next_chunk {
    uint32_t struct_size;
    uint32_t state; /* out: SPEC_CHUNK_* */
    spec_request request;
    uint64_t budget_tokens; /* above 0 */
    uint64_t first_token;   /* out: of the range; MET: the position where both sides met */
    uint64_t token_count;   /* out; MET: 0 */
};

/* ---- Flags of maintain
 * - CHECKPOINT: the log is rewritten and synced (stats.checkpoints). EVICT: the least recently used
 *   leaves are evicted until an eighth of disk_bytes is free or in quarantine. Both also happen by
 *   themselves. [ABI-135]
 * - BUILD: rows of this model get the selector keys and quantised rows that this configuration uses
 *   and they lack. Rows are read and verified at maintain.bytes_per_s (stats.built_chunks). It runs
 *   only when asked for. [ABI-140]
 * - REORDER (also every reorder.interval_s): rows that were stored together, and that at least two
 *   requests selected from, are rewritten, each layer in descending average importance within
 *   reorder.scope (stats.reordered_chunks). Matches, tokens and delivered rows do not depend on it,
 *   during it and after. [ABI-207] They are rewritten again (stats.reordered_again_chunks) when
 *   their importance has moved by reorder.repeat_ppm, 16 or more requests after the last time; with
 *   reorder.repeat_ppm 0, and while importance stays what it is, they are not. [ABI-226]
 * - BYPASS: this connector stops using the store from the return until deadline_ns has passed (0:
 *   no end; the last of several calls counts), SPEC_BYPASS_END, or close. Lookups and peeks are
 *   misses, never PENDING; passes that begin meanwhile (layer 0), and passes that depend on them,
 *   are DROPPED; prefetch_to_host reads nothing; attach is STALE. No other call fails because of
 *   it. Earlier requests load what they were promised, and open passes are stored. Afterwards
 *   everything that was stored before is found again. Other processes, ranks and readers are not
 *   affected. [ABI-209]
 * - ERASE, ERASE_SALT: everything in the store, or all that was stored under the salt (of every
 *   model, configuration, rank and LoRA id), becomes unreadable in the store's files: token ids,
 *   rows, states, quantised rows, their copies, and everything that was evicted before. When the
 *   call returns the intent is durable, and what it covers is a miss here: its requests and leases
 *   are STALE, no byte of it is delivered, and nothing of it is found after kill -9. Other ranks
 *   and processes follow within 100 ms. The writer then overwrites the bytes with zeros in the
 *   background and reads them back; stats.erasing is 0 when that is done. A failed write, sync or
 *   read is counted (erase_failures) and tried again; it never counts as erased. Until it is done,
 *   nothing new is stored in the rank (tickets are BUSY). Other rows are found, loaded and leased
 *   as before. A load under way delivers the stored rows or an error, never zeros. [ABI-219] */
#define SPEC_MAINTAIN_REORDER    1u
#define SPEC_MAINTAIN_CHECKPOINT 2u
#define SPEC_MAINTAIN_EVICT      4u
#define SPEC_MAINTAIN_BYPASS     8u
#define SPEC_MAINTAIN_BUILD      16u /* since 0.3 */
#define SPEC_MAINTAIN_ERASE      32u /* since 0.17: everything */
#define SPEC_MAINTAIN_ERASE_SALT 64u /* since 0.17: all that was stored under params.salt */
#define SPEC_BYPASS_END          1u  /* since 0.13: a deadline_ns that ends a bypass */
struct spec_maintain_params {
    uint32_t struct_size;
    uint32_t flags;         /* SPEC_MAINTAIN_* */
    uint64_t deadline_ns;   /* BYPASS: ns from the call, 0: no end; ignored for other work */
    struct spec_bytes salt; /* since 0.17, ERASE_SALT: at least one byte; else empty */
};

/* Counters since open, and levels where marked. They are read without a lock: each is exact, but
 * two may differ by a moment. */
struct spec_stats {
    uint32_t struct_size;
    uint32_t poisoned; /* level: 1 if an invariant broke; lookups are then misses */
    uint64_t lookups, lookup_hits, lookup_tokens, matched_tokens;
    uint64_t wanted_bytes, read_bytes, read_ops;
    uint64_t stored_tokens, stored_chunks, dropped_chunks, duplicate_chunks, aborted_stores;
    uint64_t write_bytes, write_ops;
    uint64_t corrupt_ranges, io_errors, no_space;
    uint64_t requests_open, tickets_open;                              /* levels */
    uint64_t chunks, index_bytes;                                      /* levels */
    uint64_t disk_bytes_used, disk_bytes_max, extent_bytes, log_bytes; /* levels, bytes */
    uint64_t staging_bytes_used;                                       /* level */
    uint64_t verify_ns, exposed_ns;
    uint64_t prefetched_rows, demanded_rows;
    uint64_t log_lines_dropped;
    /* Since 0.2. */
    uint64_t evicted_chunks;
    uint64_t quarantine_bytes; /* level: evicted, but leases may need it; part of disk_bytes_used */
    uint64_t checkpoints;
    uint64_t epoch;          /* level: resets of this model's KV in this store */
    uint64_t lock_waits;     /* host calls that waited for an internal lock */
    uint64_t lookup_retries; /* lookups repeated because of a concurrent change */
    uint64_t leases_attached, leases_refused;
    uint64_t follow_lag_ns; /* level, reader: age of the known state of the writer's log */
    uint64_t role;          /* level: SPEC_ROLE_WRITER or SPEC_ROLE_READER */
    /* Since 0.3. Layers that get_important delivered with fewer than all rows; those of them with
     * sets per head; layers delivered whole although fewer rows were asked for. */
    uint64_t selected_layers, fallback_layers, dense_layers;
    uint64_t selected_rows, selected_from_rows; /* selected layers: rows delivered, rows matched */
    uint64_t selector_read_bytes, identify_ns;
    uint64_t speculated_bytes, unused_bytes; /* bytes prefetched by prediction; of rows not
                                              * wanted */
    uint64_t selector_bytes_used;            /* level: memory of selector keys in use */
    uint64_t selectors_refused;              /* layers without memory for selector keys */
    uint64_t built_chunks, built_bytes;      /* by maintain BUILD: chunks; bytes written for them */
    /* Since 0.4. Layers delivered layered; their rows; those delivered exactly; those read exactly
     * because their quantised rows were missing, raw or damaged. */
    uint64_t quantised_layers, quantised_rows, layered_exact_rows, layered_forced_rows;
    uint64_t partial_layers;  /* layers ended by a deadline or budget_bytes */
    uint64_t bad_blocks;      /* blocks of quantised rows that failed verification */
    uint64_t quantised_bytes; /* level: quantised rows on disk; part of disk_bytes_used */
    uint64_t building;        /* level: 1 while quantised rows or selector keys are built */
    /* Since 0.6. Items with refine_of, and rows that they made exact. */
    uint64_t refined_layers, refined_rows;
    /* Since 0.8. Chunks not stored because another prefix has their chain hash. */
    uint64_t collisions;
    /* Since 0.8. Chunks stored in many passes that the background compacted into one piece. */
    uint64_t compacted_chunks;
    /* Since 0.9. Host tier. Levels: bytes of pages in use, and of all. Per layer, pieces (halves if
     * only K or V is read, chunks of reordered rows) that loads found there, did not find, and
     * evicted ones. */
    uint64_t host_bytes_used, host_bytes_max;
    uint64_t host_hits, host_misses, host_evictions;
    /* Since 0.9. Chunks not stored because of store.admit, and of store.write_budget;
     * dropped_chunks has neither. Level: bytes that may be written now; 0 also without a budget. */
    uint64_t unadmitted_chunks, over_budget_chunks, budget_left;
    /* Since 0.9. Included in write_bytes: derived sections (quantised rows and others), compacted
     * pieces. Not included: the log, its checkpoints. Last: bytes of stored rows, without all of
     * these. */
    uint64_t quantised_write_bytes, compaction_write_bytes, log_write_bytes, checkpoint_write_bytes;
    uint64_t stored_row_bytes;
    /* Since 0.9. Bytes that prefetch_to_host read. Level: matches being prefetched or waiting for
     * it. */
    uint64_t host_prefetched_bytes, host_prefetches_open;
    /* Since 0.9. Load policy split: lookups that promised less than was stored, tokens left out.
     * Levels in picoseconds, 0 if unknown: to compute a token, its growth per position; to load a
     * token's rows of all layers, the host thread's part of that. */
    uint64_t lookups_cut, tokens_cut;
    uint64_t compute_token_ps, compute_position_ps, load_token_ps, place_token_ps;
    /* Since 0.11. Bidirectional load: tokens returned by next_chunk, tokens loaded from the
     * back. */
    uint64_t given_tokens, tail_tokens;
    /* Since 0.12. Chunks rewritten in the order of their rows' importance. */
    uint64_t reordered_chunks;
    /* Since 0.12. The tier above host memory. Levels: bytes of pages in use, and of all. Per layer,
     * pieces that loads found there, promoted and demoted ones. If it is host memory: bytes moved
     * over the simulated bus, and the ns at upper_bus_bytes_per_s, which nobody waited for. */
    uint64_t upper_bytes_used, upper_bytes_max;
    uint64_t upper_hits, upper_promoted, upper_demoted;
    uint64_t upper_bus_bytes, upper_bus_ns;
    /* Since 0.13. Because of a bypass: lookups that promised nothing, chunks not stored
     * (dropped_chunks does not have them). Level: 1 during a bypass. */
    uint64_t bypassed_lookups, bypassed_chunks, bypassing;
    /* Since 0.17. Erasures of this rank: completed, failed attempts, bytes overwritten. Levels:
     * erasures not completed; bytes that the running one has yet to look at. */
    uint64_t erased, erase_failures, erased_bytes, erasing, erase_left_bytes;
    /* Since 0.20. Chunks that were reordered before (reordered_chunks counts them too). Bytes of
     * reordered rows (so does quantised_write_bytes). */
    uint64_t reordered_again_chunks, reordered_write_bytes;
};

/* ---- The function table --------------------------------------------------------------------- */

struct spec_api {
    uint32_t struct_size; /* bytes that are filled in; SPEC_HAS(api, stats) tests for a member */
    uint16_t major, minor;

    /* Opens the store that the configuration names, for one model and rank. [ABI-012]
     *   params    borrowed; the alloc and log functions are kept until close
     *   ret_conn  written on SPEC_OK only; ended by close
     * The directory is created if absent, and the log is replayed. A reader creates nothing, and
     * may open before there is a store. CONFIG errors have the key's path, the value found and the
     * values allowed. [ABI-013] After an error, such as VERSION (a foreign or newer store) or
     * LOCKED (another writer; the text names it), the store is unchanged. [ABI-014]
     * Errors: INVALID, CONFIG, VERSION, LOCKED, IO, NO_SPACE, NO_MEMORY, UNSUPPORTED.  Threads:
     * any.  Blocks: yes.  Since: 0.1 */
    spec_status (*open)(const struct spec_open_params *params, spec_connector **ret_conn,
                        struct spec_error *reterr);

    /* Ends the connector: aborts incomplete stores, waits for submitted ones, joins every thread,
     * and frees all memory that the connector owns. Takes NULL. [ABI-015]
     * Errors: none.  Threads: one, no other call running or to come.  Blocks: yes.  Since: 0.1 */
    void (*close)(spec_connector *conn);

    /* Finds the longest stored prefix of params->tokens and opens a request, on a miss too. Leases,
     * load policy, hints, peeks and limits: see struct spec_lookup_result.
     * - A match is token-exact and may end inside a chunk. [ABI-020]
     * - It has at most max_tokens (default token_count - 1) tokens. [ABI-021]
     * - It is cut to a multiple of multiple_of. [ABI-022]
     * - Another salt, LoRA id or extra key shares nothing from where it takes effect. [ABI-023]
     * - They are compared by value, so nobody can choose one that equals another's. [ABI-170]
     * - Rows below from_token, which the engine holds, are neither read nor promised. [ABI-024]
     * - A prompt that is not stored is SPEC_OK with SPEC_LOOKUP_MISS. [ABI-025]
     * - The promised rows stay readable until release. [ABI-026]
     * Ownership: gives the request (none for a peek), ended by release. ret_result has its
     * struct_size set by the caller.
     * Errors: INVALID (NULL; token_count 0; from_token or max_tokens above token_count; extra keys
     * not ascending, or beginning behind the tokens; a salt, LoRA id or key above 64 KiB;
     * priority), BUSY (max_requests; request_bytes). [ABI-027]  Threads: any.  Blocks: never, and
     * does no I/O on the caller's thread.  Since: 0.1 */
    spec_status (*lookup)(spec_connector *conn, const struct spec_lookup_params *params,
                          struct spec_lookup_result *ret_result, struct spec_error *reterr);

    /* Reads into host memory the data that loads of the request's match need, in the background and
     * behind all loads, layer by layer. [ABI-130] If the configuration selects or delivers
     * quantised rows, selector keys and quantised rows of all layers are read first, and rows that
     * no load would read are left out. [ABI-195]
     *   ret_ticket  or NULL. OK: all was read, except damaged selector keys and quantised rows.
     *               NO_SPACE: as much was read as had room, in that order. NO_MEMORY: no buffer for
     *               reading. CORRUPT, IO: a range failed; lookups do not find it any more. TIMEOUT.
     *               DROPPED: by a release of the request or a reset [ABI-193], or by a bypass
     *               [ABI-209]
     * Until it has ended, or the deadline, lookups and peeks whose match is part of this one or
     * continues it return SPEC_LOOKUP_PENDING with request 0. They do not if all of their match is
     * in host memory. [ABI-192] The request itself may load at any time.
     * Errors: INVALID, STALE, UNSUPPORTED (host_bytes 0), BUSY (16 matches are being prefetched, or
     * this one is; tickets).  Threads: any.  Blocks: never.  Since: 0.9 */
    spec_status (*prefetch_to_host)(spec_connector *conn,
                                    const struct spec_prefetch_to_host_params *params,
                                    spec_ticket *ret_ticket, struct spec_error *reterr);

    /* Opens a lease as a request, without tokens, in this or another process. It loads rows
     * [from_token, the lookup's matched_tokens). [ABI-131]
     * - Rows are those of the tokens that the lease was given for, else STALE. [ABI-171]
     * - An expired lease is STALE. [ABI-136]
     * - An altered lease, or one of another store or model, is INVALID. [ABI-137]
     * - SPEC_OK with SPEC_LOOKUP_PENDING and request 0: this process has not followed the log that
     *   far; ask again.
     * - STALE: a failed range, a reset, maybe rows replaced by better ones, and every lease during
     *   a bypass of this process [ABI-209].
     * stored_tokens is the lease's length. The request may store ranges behind it if the host
     * passes their tokens.
     * Errors: INVALID, STALE, BUSY (max_requests, max_request_tokens, request_bytes).  Threads:
     * any.  Blocks: never.  Since: 0.2 */
    spec_status (*attach)(spec_connector *conn, const struct spec_attach_params *params,
                          struct spec_lookup_result *ret_result, struct spec_error *reterr);

    /* Returns the next tokens of the match, from from_token on, that the engine is to compute
     * instead of loading them (bidirectional load): up to budget_tokens, ending on the chunk grid
     * unless that is empty, or at the other side's position. It may be called before, during and
     * after a submission with SPEC_ITEM_BIDIRECTIONAL.
     * - A token is computed or loaded, never both. Tokens whose reads are in flight are returned,
     *   unless they are being placed. MET: all tokens are returned or claimed by the load; those
     *   above first_token are available when get_important_wait reports them. [ABI-132]
     * - A failed range or a deadline ends the load only; its delivered rows are valid. Rows that it
     *   had claimed and not delivered are returned once the wait has reported, after MET. So a host
     *   asks until MET, waits, and asks until MET again. [ABI-206]
     * Errors: INVALID (budget_tokens 0), STALE.  Threads: any, one call per request at a time.
     * Blocks: never.  Since: 0.11 */
    spec_status (*next_chunk)(spec_connector *conn, struct spec_next_chunk *chunk,
                              struct spec_error *reterr);

    /* Starts reads of `layer` for these requests, and of layer + 1. Optional: get_important alone
     * gives the same rows later. [ABI-040] A request without a match costs nothing. [ABI-041]
     * Errors: INVALID (layer, count 0 or above 256), STALE, BUSY (submitted: [ABI-161]).  Threads:
     * any.  Blocks: never.  Since: 0.1 */
    spec_status (*begin_layer)(spec_connector *conn, const spec_request *requests, uint64_t count,
                               uint32_t layer, struct spec_error *reterr);

    /* Delivers the prefix rows of each item's layer into its destination, in the order of the
     * returned positions. Selected, layered, refined and rescored items: see above struct
     * spec_important.
     * - Reads of all items are submitted before the first is waited for. [ABI-050]
     * - With k = R every promised row is delivered, bit-identical to what was stored. [ABI-051]
     * - Positions ascend from from_token. [ABI-052]
     * - Rows are written into any described layout and nowhere else. [ABI-053]
     * - A wider dtype is filled by exact widening; a narrower one is INVALID. [ABI-054]
     * - A negative slot is skipped. [ABI-055]
     * - The same layer may be asked for again, and gives the same rows. [ABI-056]
     * - A request without a match gets 0 rows and SPEC_OK. [ABI-057]
     * - Rows that fail verification are never delivered: the item is CORRUPT (or IO), its
     *   destination is undefined, and the match is void from failed_position on at every layer. The
     *   engine releases the request and starts the pass again. No later lookup promises that range
     *   until it is stored again [ABI-058], in other processes within 100 ms [ABI-060].
     * - Rows are of the very copy that lookup promised and whose provenance it reported. Another
     *   copy in its place (a disk lost acknowledged writes) fails verification. [ABI-172]
     * - At an item's deadline: TIMEOUT; its destination is undefined, the request stays usable.
     *   [ABI-059]
     * - A call that is refused before any item is begun writes statuses and nothing else, so that
     *   results and rows of an earlier delivery stay: the item at fault has the call's status, the
     *   others SPEC_PENDING, to be asked for again. No item behind a wrong struct_size is written.
     *   [ABI-228]
     * Returns SPEC_OK if every item's status is SPEC_OK, else the first failing item's status, with
     * its text in reterr; the other items are complete.
     * Errors: INVALID (checked for all items before any is begun; count 0 or above 256; queries
     * NULL where scores are needed), UNSUPPORTED (CUDA memory, with the reason; refine_of), STALE,
     * CORRUPT, IO, TIMEOUT, BUSY (submitted: [ABI-161]).  Threads: any.  Blocks: until delivered or
     * the deadline.  Since: 0.1 */
    spec_status (*get_important)(spec_connector *conn, struct spec_important *items, uint64_t count,
                                 struct spec_error *reterr);

    /* The halves of get_important: submit checks all items and begins, threads of the plugin
     * (submit.threads) select, read and place, and wait reports as get_important would. [ABI-133]
     * - Until the wait that reports them, items and what they point to belong to the plugin, and
     *   destinations are undefined; only that wait writes results. The ticket is
     *   get_important_wait's alone, reported once, INVALID afterwards; a wait that ends with
     *   TIMEOUT changes nothing. [ABI-160]
     * - Until then get_important, submit, begin_layer and prefetch_next are BUSY for the requests
     *   of its items, as is a request twice in one submit. store, store_abort and release are not.
     *   [ABI-161]
     * - A release makes the handle STALE at once; the wait is still due. Items delivered before it,
     *   or before a reset, stay; one that is being delivered ends as usual, or is STALE; others are
     *   STALE. close ends all and needs no wait. [ABI-162]
     * - POISONED is returned at once; the items stay with the plugin until close.
     * Deadlines count from submit. ret_ticket is written on SPEC_OK only.
     * Errors of submit: INVALID, STALE, BUSY (64 submissions, or max_requests, are not waited for).
     * Errors of wait: INVALID (the ticket), TIMEOUT, BUSY (ABI-220), and those of the items.
     * Threads: any; wait counts as a call for its requests.  Blocks: submit never; wait until
     * delivered, or timeout_ns from the call (UINT64_MAX: no limit).  Since: 0.6 */
    spec_status (*get_important_submit)(spec_connector *conn, struct spec_important *items,
                                        uint64_t count, spec_ticket *ret_ticket,
                                        struct spec_error *reterr);
    spec_status (*get_important_wait)(spec_connector *conn, spec_ticket ticket, uint64_t timeout_ns,
                                      struct spec_error *reterr);

    /* Starts speculative reads of layer + 1 of the request; without selection that is the whole
     * layer. They never change results. [ABI-070] On the last layer and without a match it does
     * nothing and returns SPEC_OK. [ABI-071] A later call replaces speculation that has not
     * started.
     *   hint  NULL, or approximate queries of layer + 1; copied (the last hint.rows rows). It
     *         decides what is prefetched, never what is delivered [ABI-072]
     * Errors: INVALID (a hint of the probe heads only, if quantised keys are scored), UNSUPPORTED
     * (a hint in CUDA memory, with the reason), STALE, BUSY (submitted: [ABI-161]).  Threads: any.
     * Blocks: never, except to attach a device.  Since: 0.1 */
    spec_status (*prefetch_next)(spec_connector *conn, spec_request request, uint32_t layer,
                                 const struct spec_queries *hint, struct spec_error *reterr);

    /* Stores one layer of a token range that a pass computed, for each of params[0 .. count). Room,
     * provenance, shared passes and limits: see above struct spec_store_params.
     * - The params are of different requests, each at its own layer and range. All are checked
     *   before the first is begun; an error return has changed nothing for any of them. [ABI-181]
     * - A request's layers ascend by one from 0, all with the same range. The first range begins
     *   where the match ended, at stored_tokens, or earlier; the next where the last ended.
     *   [ABI-080]
     * - The source is free at return [ABI-081]; one in CUDA memory in the order of its stream
     *   [ABI-203]. A pass may have layers of both.
     * - A chunk becomes visible when all its layers are written, never before. [ABI-082]
     * - The first complete copy of a chunk wins. [ABI-083]
     * - KV of another dtype than the namespace's is INVALID. [ABI-084]
     * - NaN and infinities are stored as they are. [ABI-086]
     *   ret_tickets  [count], or NULL. 0, except for a last layer: its ticket is done when the
     *                range is visible to lookup and found again after kill -9 [ABI-087]
     * Errors: INVALID (count 0 or above 256; a request twice in the call; range, layer order,
     * dtype, memory, computed_on), STALE (one of the requests), BUSY (65,536 tickets were not asked
     * for), UNSUPPORTED (a reader; no device, or a failed one), IO (a driver call failed).
     * Threads: any.  Blocks: for a copy, never for the disk; for wait_ns with SPEC_STORE_WAIT; to
     * attach a device.  Since: 0.1; array 0.8; CUDA memory 0.10; SPEC_STORE_WAIT 0.17 */
    spec_status (*store)(spec_connector *conn, const struct spec_store_params *params,
                         uint64_t count, spec_ticket *ret_tickets, struct spec_error *reterr);

    /* Drops incomplete stores from a token on (preemption, failed forward): the open pass, whole,
     * if any of its tokens is at or behind from_token. Complete chunks stay. [ABI-090] release and
     * death do the same. [ABI-091]
     * - Layers that were stored before the abort count as correct: another request that computes
     *   the same tokens may continue from them [ABI-223]. So a host must not store a layer that may
     *   be wrong.
     * - Token ids given with the dropped pass are forgotten, and the step may be stored with other
     *   ids. A pass that the plugin dropped (its tickets say so) is open until its last layer; a
     *   pass whose last layer was given keeps its ids. [ABI-169]
     * Errors: STALE.  Threads: any.  Blocks: never.  Since: 0.1 */
    spec_status (*store_abort)(spec_connector *conn, spec_request request, uint64_t from_token,
                               struct spec_error *reterr);

    /* poll and wait report tickets. ret_statuses[i] is PENDING, or how the work ended (OK, DROPPED,
     * BUSY, IO, NO_SPACE; for prefetch_to_host also CORRUPT, NO_MEMORY and TIMEOUT). A ticket that
     * was reported done is ended, and INVALID afterwards. [ABI-100] wait returns when all are done,
     * or SPEC_E_TIMEOUT with the statuses so far written. [ABI-101]
     * Errors: INVALID (a ticket that is unknown or named twice).  Threads: any.  Blocks: poll
     * never; wait until timeout_ns from the call (UINT64_MAX: no limit).  Since: 0.1 */
    spec_status (*poll)(spec_connector *conn, const spec_ticket *tickets, uint64_t count,
                        spec_status *ret_statuses, struct spec_error *reterr);
    spec_status (*wait)(spec_connector *conn, const spec_ticket *tickets, uint64_t count,
                        uint64_t timeout_ns, spec_status *ret_statuses, struct spec_error *reterr);

    /* Ends a request: its reads are dropped and its incomplete stores aborted; submitted stores
     * continue, and tickets stay valid. Later calls with the handle are STALE. [ABI-110]
     * Errors: STALE.  Threads: any.  Blocks: never.  Since: 0.1 */
    spec_status (*release)(spec_connector *conn, spec_request request, struct spec_error *reterr);

    /* Begins a new weights epoch: after its return, nothing of this model that was stored before is
     * promised here again. [ABI-134]
     * - Earlier requests are STALE for every call except release, and their unfinished stores are
     *   dropped. [ABI-138]
     * - Other ranks and processes of the store follow within 100 ms, also if a reader calls it.
     *   [ABI-139]
     * - It covers all KV of the same weights in this directory, of every configuration (layout,
     *   chunk size, dtype, revision, ranks), now open or opened later. [ABI-216]
     * Errors: IO, NO_SPACE (no epoch could be taken, or a reader cannot read its writer's log;
     * nothing changed here). A writer whose log cannot record the epoch stores nothing until it
     * can.  Threads: any.  Blocks: for small writes, a synced file, and the end of a checkpoint; a
     * reader also to read its writer's log.  Since: 0.2 */
    spec_status (*reset)(spec_connector *conn, struct spec_error *reterr);

    /* Fills the counters. [ABI-111]  Errors: INVALID.  Threads: any.  Blocks: never.  Since: 0.1 */
    spec_status (*stats)(spec_connector *conn, struct spec_stats *ret_stats,
                         struct spec_error *reterr);

    /* Starts the work of params->flags; see above struct spec_maintain_params.
     * Errors: INVALID (flags 0 or unknown; ERASE_SALT without a salt, or a salt without it),
     * UNSUPPORTED (a reader, except for BYPASS, ERASE and ERASE_SALT). ERASE, ERASE_SALT: IO,
     * NO_SPACE (some ranks may have the intent), BUSY (128 erasures wait).
     * Threads: any.  Blocks: never; ERASE, ERASE_SALT: for a synced small file per rank, and while
     *                the index releases what is covered.
     * Since: 0.2; BUILD 0.3; REORDER 0.12; BYPASS 0.13; ERASE, ERASE_SALT 0.17 */
    spec_status (*maintain)(spec_connector *conn, const struct spec_maintain_params *params,
                            struct spec_error *reterr);

    /* As wait; also sets ret_kept[i] to the tokens of a store's range, counted from its first, that
     * are stored: visible to lookup, and found again after kill -9. For a ticket that is not done
     * it is the present number, which only grows. For one done with OK it is the whole range; for
     * tickets of other calls 0. If the model has states it is 0 or the whole range. [ABI-217]
     * Errors: as wait, and INVALID (ret_kept is NULL).  Threads: any.  Blocks: as wait.  Since:
     * 0.17 */
    spec_status (*wait_kept)(spec_connector *conn, const spec_ticket *tickets, uint64_t count,
                             uint64_t timeout_ns, spec_status *ret_statuses, uint64_t *ret_kept,
                             struct spec_error *reterr);

    /* Reports how long a step of the engine computed, for load_policy split. A host that stores
     * with SPEC_STORE_LATER shows no compute times by its store calls. Reported steps count as
     * passes whose store calls are timed: after two of them the engine's speed is known. A host
     * reports a step once, in one of the two ways. No effect: another rank than 0, a reader,
     * another load policy, steps below 128 tokens or 2 ms. Steps are measured during a bypass too.
     * [ABI-218]
     * Errors: INVALID (flags unknown).  Threads: any.  Blocks: never.  Since: 0.17 */
    spec_status (*computed)(spec_connector *conn, const struct spec_computed *step,
                            struct spec_error *reterr);
};

/* True if the plugin's table has the member. */
#define SPEC_HAS(api, member)                                                                      \
    ((api)->struct_size >= offsetof(struct spec_api, member) + sizeof((api)->member))

/* The library's exported symbol for this table. Returns the table (constant, valid while the plugin
 * is loaded), or NULL if this major version is not supported. [ABI-009]
 * Threads: any.  Blocks: never.  Since: 0.1 */
SPEC_EXPORT const struct spec_api *spec_connector_api(uint32_t major);

#ifdef __cplusplus
}
#endif
#endif /* SPEC_CONNECTOR_H */

/* spec_connector: the contract between a serving engine and a prefix-KV plugin.
 *
 * Installed with spec_load.h and spec_objects.h (values by key). An engine dlopen()s the plugin
 * (spec_load.h does it), asks for the function table with spec_connector_api(SPEC_ABI_MAJOR), and
 * calls in the order that docs/reference/abi.md draws:
 *
 *   open -> lookup -> { begin_layer -> get_important -> prefetch_next -> store } per layer
 *        -> wait/poll tickets -> release -> ... -> close
 *
 * Words: row = one token of one layer, K then V, all KV heads of the rank. chunk = 64 tokens
 * (chunk_tokens) on the absolute token grid, over all layers. slab = a chunk's rows in one layer.
 * piece = the rows of one chunk that one pass stored. pass = one forward over some new tokens.
 * tag = 64-bit checksum of a row that also binds its identity. codes = a slab's values in a few
 * bits each. R = the rows that an item is promised.
 *
 * Two promises stand over all clauses. A cache may always miss; it must never lie: every row that
 * leaves was verified against its identity, and the prompt's token ids were compared by value. And
 * the plugin is a guest: it does not print, exit, or run the host's code on a thread of its own.
 *
 * History: 0.1 open close lookup begin_layer get_important prefetch_next store store_abort poll
 *          wait release stats; present and answering SPEC_E_UNSUPPORTED: stage attach next_chunk
 *          get_important_submit get_important_wait reset maintain.
 *          0.2 attach reset maintain, leases, the reader role, rank sets; stats from
 *          evicted_chunks on. A log that 0.1 wrote is of another format and is refused.
 *          0.3 selection: get_important with fewer than all rows, spec_select, hints; provenance
 *          and maintain's BUILD act; spec_important from union_rows on, stats from
 *          selected_layers on. Stores of earlier versions are refused.
 *          0.4 layered KV: spec_select.exact_ppm, exact_bits and budget_bytes of an item act; stats
 *          from quantised_layers on.
 *          0.5 coarse only: for want of space, rows may be evicted while their codes stay
 *          (SPEC_HELD_COARSE_ONLY acts; store.coarse_only, off by default); stats from
 *          coarsened_chunks on.
 *          0.6 get_important_submit, get_important_wait and refine_of act; stats from
 *          refined_layers on.
 *          0.7 SPEC_ITEM_AHEAD: a layered item tells its destination before it has queries.
 *          0.8 salts, LoRA ids, extra keys and leases go by value; rows are those of the very copy
 *          that lookup promised, also after writes that a disk lost; store_abort takes back the
 *          token ids of the pass that it drops, and ids that begin outside their range are INVALID,
 *          as is a struct_size that ends inside a member or before the first group; a pass that a
 *          full store refuses finds room later; what is stored token by token becomes a piece a
 *          chunk in the background; stats from collisions on; store takes an array, gives tickets
 *          for last layers alone, and is told computed_on; SPEC_LOOKUP_PEEK, stored_tokens;
 *          spec_queries.scale; dtypes of one byte, stored and loaded as bytes; spec_memory whose K
 *          lies in columns; SPEC_ITEM_RESCORE: an item that refines scores the rows anew, by its
 *          own queries; spec_layer_group, head_size_v; four reserved words in spec_provenance.
 *          Stores of earlier versions are refused.
 *          0.9 the host tier: lookup's tier_bytes says HOST of what is there, stage and lookup's
 *          PENDING act, of all that loads read; store.admit, store.write_budget;
 *          spec_lookup_params.retain_s and priority; stats from host_bytes_used on; compute or
 *          load: lookup may promise less than is stored (fill), the same in all ranks and readers;
 *          SPEC_STORE_LATER.
 *          0.10 rows of layered deliveries may come refined, closer than codes and not exact:
 *          spec_important.refined_rows and refined_bits, spec_provenance.refined_ppm (in the place
 *          of a reserved word), spec_stats.plane_rows. Rows of get_important and store, queries,
 *          new keys and hints may be CUDA memory.
 *          0.11 next_chunk and SPEC_ITEM_BIDIRECTIONAL act: a prompt is computed from its
 *          beginning while it is loaded from its end; fill "ends"; stats from given_tokens on.
 *          0.12 maintain REORDER acts; spec_stats.reordered_chunks. A tier above host
 *          memory (upper_bytes): tier_rows and tier_bytes say UPPER of what lies there.
 *          0.13 maintain BYPASS acts, a reader's as well; stats from bypassed_lookups on.
 *          0.14 models whose layers, or K and V, are not all alike: spec_layer_group but STATE, and
 *          head_size_v, act; spec_memory.v_head_stride_bytes.
 *          0.15 layers that keep a state instead of rows: spec_layer_group STATE acts.
 *          0.16 a prompt or a pass beyond max_request_tokens, or with more extra keys than fit, is
 *          cut at the limit instead of refused with BUSY.
 *          0.17 if staging cannot hold a pass, its beginning is stored; wait_kept tells how much;
 *          SPEC_STORE_WAIT;
 *          calls for one request that overlap are BUSY or STALE, and release may overlap any;
 *          a writer of one rank promises what its readers do (fill "cut");
 *          computed: a host that stores later tells what its steps took;
 *          maintain ERASE and ERASE_SALT act; spec_maintain_params.salt; stats from erased on;
 *          requests that compute the same tokens at the same time write them once.
 *          0.18 removes what was of hot blocks, refinement planes and store.coarse_only:
 *          SPEC_HELD_*, spec_provenance.held and refined_ppm, spec_important.refined_bits,
 *          refined_bit_words and refined_rows, and of stats coarsened_chunks, coarse_only_chunks,
 *          hot_rows, hot_bytes and plane_rows; the upper tier's names: SPEC_TIER_UPPER,
 *          upper_bytes_used, upper_hits and those beside them (before: GPU, gpu_*).
 *          0.19 renames and changes nothing else. Calls: prefetch_to_host (stage), with
 *          spec_prefetch_to_host_params; SPEC_ITEM_BIDIRECTIONAL (TAIL). Statistics: selector_*
 *          (sketch_*), selectors_refused, compacted_chunks and compaction_write_bytes (merge*),
 *          quantised_bytes and quantised_write_bytes (code_*), quantised_layers and quantised_rows
 *          (coarse_*), layered_exact_rows and layered_forced_rows (coarse_*), upper_promoted and
 *          upper_demoted (risen, sunk), host_prefetched_bytes and host_prefetches_open (stage*),
 *          staging_bytes_used.
 * The version stays 0.x, and may still change, until a real vLLM with a GPU has been driven through
 * it; the conformance suite has driven the CUDA path on an NVIDIA H200. 1.0 freezes it. A number's
 * meaning never changes. */
#ifndef SPEC_CONNECTOR_H
#define SPEC_CONNECTOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SPEC_ABI_MAJOR 0u  /* changes when an old host must refuse us */
#define SPEC_ABI_MINOR 19u /* from 1.0 on: members are appended, nothing moves. 0.x: all may */

#if defined(__GNUC__)
#define SPEC_EXPORT __attribute__((visibility("default")))
#else
#define SPEC_EXPORT
#endif

/* ---- Status --------------------------------------------------------------------------------- */

typedef int32_t spec_status; /* not an enum: an enum's width is the compiler's choice */

#define SPEC_OK            0     /* done; outputs are written */
#define SPEC_PENDING       1     /* not an error: ask again */
#define SPEC_E_INVALID     (-1)  /* the host's argument is wrong; nothing changed */
#define SPEC_E_UNSUPPORTED (-2)  /* well-formed, but this version or machine cannot */
#define SPEC_E_NO_MEMORY   (-3)  /* the allocator refused */
#define SPEC_E_NO_SPACE    (-4)  /* disk_bytes or the file system is full */
#define SPEC_E_IO          (-5)  /* the device or file system failed; sys_errno says how */
#define SPEC_E_CORRUPT     (-6)  /* bytes on disk failed verification; the range is void */
#define SPEC_E_BUSY        (-7)  /* a limit is reached, or the request is in another call */
#define SPEC_E_TIMEOUT     (-8)  /* the deadline passed first */
#define SPEC_E_DROPPED     (-9)  /* a store was given up: aborted, back-pressure, or superseded */
#define SPEC_E_FORKED      (-10) /* called in a forked child */
#define SPEC_E_LOCKED      (-11) /* another writer owns the store; the text names it */
#define SPEC_E_VERSION     (-12) /* ABI or store format of another version */
#define SPEC_E_STALE       (-13) /* the request is unknown: released, reset, or never made */
#define SPEC_E_POISONED    (-14) /* an invariant of ours broke; every later call is a miss */
#define SPEC_E_CONFIG      (-15) /* the configuration is wrong; the text gives the key's path */

/* The last-error message, in the caller's memory: no race. Every call takes one as its last
 * argument and accepts NULL. It is written on error returns only, except struct_size, which the
 * caller sets to sizeof and which is never written. [ABI-003] */
struct spec_error {
    uint32_t struct_size;
    spec_status code;
    int32_t sys_errno; /* 0: none */
    char text[244];    /* UTF-8, ended by NUL, one line, for people: never parse it */
};

/* ---- Rules for every structure and call -------------------------------------------------------
 * A structure with struct_size: the caller sets it to sizeof of what it compiled against. Members
 * that the caller's structure lacks read as 0, so 0 is every member's default. A tail that we do
 * not know must be all zero, else SPEC_E_UNSUPPORTED. struct_size 0, or one that ends before the
 * structure's first member group does, or inside a member (an array or structure in it is one), is
 * SPEC_E_INVALID, of inputs and outputs, before anything is made, read through it or written. The
 * first group is everything up to and with
 *   spec_alloc user             spec_memory head_stride_bytes     spec_queries head_stride_bytes
 *   spec_model weights_id       spec_open_params model            spec_extra_key value
 *   spec_lookup_params token_count                 spec_lookup_result matched_tokens
 *   spec_select count           spec_important row_count          spec_store_params memory
 *   spec_attach_params lease    spec_maintain_params flags        spec_stats matched_tokens
 *   spec_layer_group dtype      spec_next_chunk token_count
 * Of a spec_error, the members that struct_size has whole are written, and of text what it has
 * room for. [ABI-001] Reserved members must be 0, and that is checked: SPEC_E_INVALID. [ABI-002]
 * Arrays of structures are walked by the first element's struct_size; all have the same, else
 * SPEC_E_INVALID. Arrays of requests and items hold at most 256 elements.
 * Output structures are written up to struct_size, on SPEC_OK (and SPEC_PENDING) only, unless the
 * call says otherwise. An error return has changed nothing: the same call with the same bad input
 * gives the same status. [ABI-004]
 * In a forked child every call answers SPEC_E_FORKED, and close touches nothing: the connector's
 * threads are not there, and its memory is a copy that goes with the process. [ABI-005]
 * After a call returns, the plugin never writes memory it was given. [ABI-006]
 * Several connectors in a process share nothing; load, close, unload, load again works. [ABI-007]
 * "Threads: any" means any thread, at the same time as any other call on the connector, close
 * excepted; calls for one request must not overlap unless the call says so. Those that overlap all
 * the same do no harm: begin_layer, get_important, get_important_submit, prefetch_next, store and
 * store_abort are SPEC_E_BUSY while another of them has one of their requests, and have changed
 * nothing; get_important_wait is BUSY when it would report meanwhile, and its ticket stays.
 * release, prefetch_to_host and next_chunk may overlap them. A release beside a call is SPEC_OK,
 * and the handle is STALE from its return on, for other releases, too. Items of the call that were
 * not begun are STALE, and one that is being delivered ends as it would have, or is STALE. The
 * request ends when the call does, and counts against max_requests until then. A handle never names
 * another request. [ABI-220] */

/* ---- Small shared structures ---------------------------------------------------------------- */

struct spec_connector; /* opaque: made by open, ended by close */
typedef struct spec_connector spec_connector;

typedef uint64_t spec_request; /* made by lookup, ended by release; 0 is never one */
typedef uint64_t spec_ticket;  /* made by store of a last layer and by get_important_submit, ended
                                * by being reported done; 0 is never one */

struct spec_bytes { /* borrowed memory; data may be NULL when count is 0 */
    const void *data;
    uint64_t byte_count;
};

/* The host's memory functions. Keeps: both functions and user until close returns. They are called
 * from host threads inside calls and from the plugin's threads; thread-safe. */
struct spec_alloc {
    uint32_t struct_size;
    uint32_t reserved;
    void *(*alloc)(uint64_t bytes, uint64_t align_bytes, void *user); /* NULL: no memory */
    void (*free)(void *memory, uint64_t bytes, void *user);
    void *user;
};

/* Numeric types of rows, queries and destinations. Those of one byte (since 0.8) are bytes to the
 * plugin, never interpreted: such rows are stored and delivered as they are, into the same type. An
 * open whose configuration chooses rows, or codes them, is UNSUPPORTED with them; queries and
 * new_keys of these are INVALID [ABI-180]. */
#define SPEC_DTYPE_F32      1u
#define SPEC_DTYPE_F16      2u
#define SPEC_DTYPE_BF16     3u
#define SPEC_DTYPE_FP8_E4M3 4u
#define SPEC_DTYPE_FP8_E5M2 5u
#define SPEC_DTYPE_INT8     6u
#define SPEC_DTYPE_BYTES    7u /* any other meaning, of one byte an element */

#define SPEC_DEVICE_HOST 0u
#define SPEC_DEVICE_CUDA 1u /* rows of get_important and store; queries, new keys, hints */

/* K and V of a sequence of tokens in the caller's memory: described, never guessed from a shape.
 *
 *   slot(j) = slots ? slots[j] : j                      j = 0 .. count-1 of the call
 *   K[j][h][d] = k_base + (slot / block_tokens) * block_stride_bytes
 *                       + (slot % block_tokens) * token_stride_bytes
 *                       + h * head_stride_bytes + d * k_element_stride_bytes
 *   V[j][h][d] = v_base + (slot / block_tokens) * block_stride_bytes
 *                       + (slot % block_tokens) * v_token_stride_bytes
 *                       + h * head_stride_bytes + d * element size          d = 0 .. head_size-1
 *
 * block_tokens 0: no blocks, block 0 and slot itself. k_element_stride_bytes 0: the element's size,
 * a head's elements lie side by side; v_token_stride_bytes 0: as token_stride_bytes. A negative
 * slot skips token j: a load does not write it, a store of it is SPEC_E_INVALID. Bases and strides
 * are multiples of the element's size, and every address must lie inside k_bytes / v_bytes, checked
 * before anything is read or written. [ABI-008] Whatever the strides are, what is stored, chosen
 * and delivered is the same, bit by bit, and of other memory nothing is read or written. [ABI-175]
 * Expresses rows [token][head][d], head-major [head][token][d] (swap the strides), vLLM's
 * [2][block][token][head][d] and [block][2][...], and the [block][head][token][2 * d] of vLLM's
 * CPU attention, in whose (block, head) K stands in columns, in front of V in rows (B =
 * block_tokens, e = the element's size, D = head_size): token_stride_bytes e,
 * k_element_stride_bytes B * e, v_base k_base + B * D * e, v_token_stride_bytes D * e,
 * head_stride_bytes 2 * B * D * e, block_stride_bytes as many times that as there are heads. There
 * tokens whose slots follow each other are moved together, fast from 16 on.
 *
 * CUDA memory: bases are addresses of the device device_index, whose primary context the stream (or
 * NULL, the legacy default one) belongs to; slots are host memory. The driver is found when such
 * memory is first named (libcuda.so.1, CUDA 12.0 or later), and a connector attaches one device
 * then, for which the driver may wait for all streams (it loads kernels); the key gpu.device
 * attaches it at open. Where that cannot be, each item with device memory is UNSUPPORTED with the
 * reason, and others are as ever. What is delivered there is what host memory would get, bit by
 * bit; but rows of sets of single heads are not, such an item is delivered whole
 * (SPEC_IMPORTANT_DENSE). [ABI-199] Work is ordered on the stream: what the call (or
 * get_important_submit) finds there comes before anything is written, and what the host gives it
 * after the call (or after get_important_wait) comes behind all that was delivered; neither waits
 * for the stream, but for queries and new keys that lie there. [ABI-200]
 * A stream that is being captured, host memory, another device's and a second device are INVALID,
 * nothing was enqueued, and the capture goes on. [ABI-201] When a call of the driver fails the
 * item is IO with its name and code, this connector's later items with device memory are
 * UNSUPPORTED with the same text, and the match stays. [ABI-202] Of store such memory is the
 * source: what its stream finds there, behind its earlier work, is stored, bit by bit as from host
 * memory, and is the host's to write over in the stream's next work as soon as the call returns,
 * which waits for no stream; slots are the host's at return. [ABI-203] */
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
    uint64_t slot_count;  /* >= the call's token count when slots is given, else 0 */
    uint64_t block_tokens;
    uint64_t block_stride_bytes;
    void *stream;                    /* CUDA: the CUstream to order copies on; host: NULL */
    uint64_t k_element_stride_bytes; /* 0: the element's size */
    uint64_t v_token_stride_bytes;   /* 0: token_stride_bytes */
    /* Since 0.14: 0: head_stride_bytes; another only where V's heads have another size than K's. */
    uint64_t v_head_stride_bytes;
};

/* Query rows of a pass at one layer, after the rotary turn. Borrowed for the call.
 *   q[i][g] = data + i * row_stride_bytes + g * head_stride_bytes, head_size elements
 * heads: SPEC_QUERIES_ALL, or SPEC_QUERIES_PROBE (the query heads of the first p KV heads only).
 * A score is q . k * scale, as the model's attention has it; 0: 1 / sqrt(head_size). A scale that
 * is negative or not finite is INVALID [ABI-179].
 *
 * CUDA memory is as spec_memory's: queries, new keys and the destination of an item may each be the
 * host's or the device's, on streams of their own. What get_important (or the submit) finds on the
 * stream comes before they are read, and they are read when it (or the wait) returns; so it waits
 * for that part of the stream, whatever its deadline is. An item's queries and new keys there are
 * more than gpu.query_bytes: INVALID. A hint is copied in the stream's order, and nobody waits:
 * what the host gives the stream after the call comes behind; one that cannot be had in time is
 * none. [ABI-204] */
#define SPEC_QUERIES_ALL   0u
#define SPEC_QUERIES_PROBE 1u
struct spec_queries {
    uint32_t struct_size;
    uint32_t device;
    int32_t device_index;
    uint32_t dtype;
    const void *data;
    uint64_t byte_count; /* reachable from data */
    uint32_t row_count;  /* tokens of this pass; padded rows are left out */
    uint32_t heads;
    uint64_t row_stride_bytes;
    uint64_t head_stride_bytes;
    uint64_t first_position; /* of row 0 in the sequence */
    void *stream;
    /* Since 0.8. */
    float scale; /* of scores; 0: 1 / sqrt(head_size) */
    uint32_t reserved;
};

/* What the delivered KV is worth. Kinds are ordered: a larger one is worse. Lookup states the worst
 * of computed_on over the match, and of each other member the worst that any of its inexact pieces
 * has: the fewest code bits, the smallest shares, the largest metric. */
#define SPEC_PROVENANCE_EXACT  0u
#define SPEC_PROVENANCE_LOSSY  1u
#define SPEC_PROVENANCE_PRUNED 2u
struct spec_provenance {
    uint32_t kind;        /* the worse of computed_on and of how it was delivered */
    uint32_t computed_on; /* SPEC_PROVENANCE_*: fixed when the rows were stored */
    uint32_t bits_k;      /* lossy: code bits; 0: exact rows */
    uint32_t bits_v;
    uint32_t exact_ppm;   /* lossy: share of exact rows */
    uint32_t retain_ppm;  /* pruned: share of kept rows */
    uint32_t metric;      /* pruned: SPEC_METRIC_* */
    uint32_t reserved[5]; /* 0; since 0.8 */
};
#define SPEC_METRIC_H2O    0u
#define SPEC_METRIC_LAST   1u
#define SPEC_METRIC_RANDOM 2u /* any k rows, the same for the same call: to compare with */

/* ---- open, close ---------------------------------------------------------------------------- */

#define SPEC_LOG_ERROR 0
#define SPEC_LOG_WARN  1
#define SPEC_LOG_INFO  2
#define SPEC_LOG_DEBUG 3
typedef void (*spec_log_fn)(int32_t level, const char *line, void *user);

#define SPEC_ROLE_AUTO   0u /* writer, or reader where another writer holds the rank [ABI-017] */
#define SPEC_ROLE_WRITER 1u
#define SPEC_ROLE_READER 2u /* follows the rank's writer, stores nothing [ABI-016] */

#define SPEC_ROPE_NONE        0u
#define SPEC_ROPE_HALF        1u /* pairs (i, i + d/2): Hugging Face's order */
#define SPEC_ROPE_INTERLEAVED 2u /* pairs (2i, 2i + 1) */
#define SPEC_KV_ROWS          0u /* plain rows [kv_head][head_size] */

/* Layers that keep the same kind of KV. A model whose layers are all of one kind needs no groups,
 * and groups that say what the model's own members say are the same namespace as none. [ABI-183]
 *
 *   FULL    a row a token; a match needs all of them
 *   WINDOW  a row a token, of which a query sees the last `window`, its own included: a match that
 *           ends at m needs rows [m + 1 - window, m)
 *   LATENT  a row a token that stands for K and V (MLA): one head of head_size elements, its rotary
 *           part included, and no V
 *   STATE   no rows: state_bytes that stand for all tokens before a position (linear attention,
 *           state spaces)
 *
 * Layers that read other layers' KV keep none: they are not counted. Where layers are not all as
 * the model's members say, or V has another size than K, each layer's rows are its group's, in
 * memory that store and get_important describe; they are stored and delivered whole, bit by bit, in
 * host memory: an open whose configuration chooses rows, or codes them, is UNSUPPORTED, an item
 * that asks for fewer is SPEC_IMPORTANT_DENSE, CUDA memory is UNSUPPORTED. Of rows without V v_base
 * is NULL and v_bytes 0. All groups' members belong to the namespace. [ABI-210]
 *
 * store takes rows of every token, of a WINDOW layer, too. Of such a layer an item's R, positions
 * and destination are those of the rows that the match needs, from from_token on, in every other
 * word of this contract, and lookup's tier_bytes and prefetch_to_host go by them; but with
 * SPEC_ITEM_BIDIRECTIONAL all layers have the same rows. [ABI-211]
 *
 * Of a model with STATE layers a match ends only where the states of all of them are stored: where
 * a pass ended, all of whose rows are stored or were. matched_tokens and leases say that end (of
 * all ranks), stored_tokens still that of the rows. store of such a layer takes the state behind
 * the pass's last token, once a pass, whatever its range. The ticket tells of states as of rows;
 * where it says BUSY, DROPPED or NO_SPACE, rows may be found and states not. Until a pass has its
 * last layer nothing of it is found, and what its layers say of computed_on counts for all of it. A
 * lease keeps rows as ever, and states until they are evicted: then attach is STALE. Such a host
 * ends passes where it wants matches to end; a promise that load policy split shortens ends at an
 * earlier one, and what is promised now and then, where nothing is worth loading, is all of it.
 * States that half of staging_bytes has no room for at once are INVALID at open. [ABI-212]
 * get_important of such a layer gives one row, R 1 (0 without a match), of position
 * matched_tokens - 1: state_bytes at k_base, bit by bit, where k_bytes says that there is room; of
 * that memory v_base and slots are NULL, and strides and dtype are not looked at, nor are queries,
 * select and budgets. SPEC_ITEM_* and refine_of are INVALID, and so is SPEC_ITEM_BIDIRECTIONAL for
 * such a model. A state that cannot be had voids the match from from_token on. [ABI-213] */
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
    uint32_t head_size;     /* of K; STATE 0 */
    uint32_t head_size_v;   /* 0: as K's; LATENT, STATE 0 */
    uint32_t dtype;         /* SPEC_DTYPE_*; 0: the model's */
    uint64_t window;        /* tokens; WINDOW alone, else 0 */
    uint64_t state_bytes;   /* of a layer, at most 256 MiB; STATE alone, else 0 */
    double rope_theta;      /* 0: the model's */
};

/* Everything that makes one model's KV differ from another's. Its canonical digest is the
 * namespace: KV is reused inside a namespace only. [ABI-010] One directory holds many. */
struct spec_model {
    uint32_t struct_size;
    uint32_t layer_count;   /* of this rank */
    uint32_t kv_head_count; /* of this rank */
    uint32_t query_head_count;
    uint32_t head_size;
    uint32_t kv_dtype;  /* SPEC_DTYPE_*: the one dtype that this namespace stores */
    uint32_t kv_layout; /* SPEC_KV_ROWS */
    uint32_t rope_kind; /* SPEC_ROPE_*: K is stored after the turn */
    uint32_t tp_rank;
    uint32_t tp_size; /* 0 reads as 1 */
    double rope_theta;
    double rope_scaling[8];        /* the scaling's parameters in the host's order; 0: none. llama3:
                                    * factor, low and high frequency factor, original length */
    const char *rope_scaling_kind; /* "llama3", ...; NULL or "": none */
    const float *kv_scales;        /* quantised KV: its scales; else NULL */
    uint64_t kv_scale_count;
    /* The weights, by their files (fingerprint XXH3-128, cached by path, size, times and inode) or
     * by an id the host vouches for; the same for every rank of a set, also when each loads files
     * of its own. Neither: open refuses with SPEC_E_INVALID. [ABI-011] */
    const char *const *weights_paths;
    uint64_t weights_path_count;
    struct spec_bytes weights_id;
    const char *revision; /* NULL or "": none */
    /* Since 0.8. */
    uint32_t head_size_v; /* 0: head_size; another: ABI-210 */
    uint32_t reserved;
    const struct spec_layer_group *groups; /* every layer in one of them; NULL: all are FULL */
    uint64_t group_count;
};

struct spec_open_params {
    uint32_t struct_size;
    uint32_t role;      /* SPEC_ROLE_* */
    const char *config; /* path of a JSON file, or JSON text (first non-blank byte '{') */
    const struct spec_model *model;
    const struct spec_alloc *alloc; /* NULL: libc */
    spec_log_fn log;                /* NULL: silence; called on host threads, inside calls */
    void *log_user;
    int32_t log_level_max; /* SPEC_LOG_*: lines above it are not made */
    uint32_t rank;         /* of the rank set that shares one store; each writes its own part */
    uint32_t rank_count;   /* 0 reads as 1 */
    uint32_t reserved;
};

/* ---- lookup --------------------------------------------------------------------------------- */

/* Something beside token ids that KV depends on: an image hash, a prompt embedding's hash. It takes
 * effect at first_token: KV before it is shared, KV from it on is not. */
struct spec_extra_key {
    uint32_t struct_size;
    uint32_t kind; /* the host's numbering; part of the key */
    uint64_t first_token;
    uint64_t token_count;
    struct spec_bytes value;
};

#define SPEC_LOOKUP_REQUIRE_EXACT 1u /* flag: the match ends before the first inexact piece */
#define SPEC_LOOKUP_PEEK          2u /* flag, since 0.8: an answer and a lease, no request */
#define SPEC_PRIORITY_MIN         (-3)
#define SPEC_PRIORITY_MAX         3

struct spec_lookup_params {
    uint32_t struct_size;
    uint32_t flags;         /* SPEC_LOOKUP_* */
    const uint32_t *tokens; /* borrowed for the call; copied into the request */
    uint64_t token_count;
    uint64_t from_token;    /* tokens the engine already holds: neither read nor promised */
    uint64_t max_tokens;    /* the match is at most this; 0: token_count - 1 */
    uint64_t multiple_of;   /* the match is cut to a multiple; 0 reads as 1 */
    struct spec_bytes salt; /* part of the identity: other salts share nothing */
    struct spec_bytes lora; /* likewise: the adapter's id */
    const struct spec_extra_key *extra_keys; /* ascending first_token */
    uint64_t extra_key_count;
    /* Since 0.9: how long what the request matches and stores will be of use [ABI-189]. */
    uint64_t retain_s; /* for so many seconds at least; 0: nothing is known */
    int64_t priority;  /* SPEC_PRIORITY_MIN (goes first) .. SPEC_PRIORITY_MAX; 0: the usual */
};

#define SPEC_LOOKUP_MISS    0u
#define SPEC_LOOKUP_HIT     1u
#define SPEC_LOOKUP_PENDING 2u /* coming: ask again */

/* GPU: a tier above host memory, which has no row of it. A plugin may let host memory stand for a
 * device's; rows that it has there are told as HOST's when they are loaded into a device. */
#define SPEC_TIER_UPPER  0u
#define SPEC_TIER_HOST   1u
#define SPEC_TIER_DISK   2u
#define SPEC_TIER_REMOTE 3u
#define SPEC_TIERS       4u

struct spec_lookup_result {
    uint32_t struct_size;
    uint32_t state;          /* SPEC_LOOKUP_* */
    spec_request request;    /* made on a miss too: store needs it; 0: a peek, or PENDING */
    uint64_t matched_tokens; /* rows [from_token, matched_tokens) are promised; miss: from_token */
    struct spec_provenance provenance;
    uint64_t tier_bytes[SPEC_TIERS]; /* where the promised rows lie now that layers need [ABI-191];
                                      * each of them in one tier [ABI-208] */
    uint64_t load_ns;                /* estimate of loading them from there; 0: not known yet */
    uint8_t lease[64];               /* opaque promise for attach, by time; zero: no promise */
    uint64_t lease_expiry_ns;        /* wall clock, ns since the epoch; 0: none */
    /* Since 0.8. */
    uint64_t stored_tokens; /* so far does the store hold the tokens, from position 0 on [ABI-178];
                             * nothing is promised by it */
};

/* Ranks and processes. Each writer owns a part of the store named by its rank; a reader follows the
 * writer of its rank. Lookup promises what every rank of the set has [ABI-028]. What a ticket told
 * to be stored is found by lookups in other processes within 100 ms. A lease is a promise by time:
 * until lease_expiry_ns the rows of [0, matched_tokens) are not overwritten, whatever is evicted
 * meanwhile: a request that has them reads them, in every process, and so does a reader that
 * attaches later [ABI-029]. The rank's writer forgets what it evicts, and other ranks what it says
 * that it has evicted: attaching there may be STALE before the lease ends. A lease may be sent to
 * another process of the same store as 64 bytes; it is for processes of one host system, and not
 * for its clients. */

/* ---- get_important -------------------------------------------------------------------------- */

#define SPEC_IMPORTANT_FALLBACK 1u /* result: probes disagreed; sets are per KV head */
#define SPEC_IMPORTANT_DENSE    2u /* result: all rows were delivered though fewer were asked */
#define SPEC_IMPORTANT_PARTIAL  4u /* result: a deadline or byte budget ended refinement early */

/* How many rows a pass wants at a layer, and by what measure; what is not given is as configured.
 *   importance  a[g,i,j] = softmax over j of q[g,i] . k[h,j] * scale (of the queries: ABI-179),
 *               where j runs over the R matched rows and the new keys up to row i (without new
 *               keys: the rows alone)
 *               imp[h](j) = sum of a[g,i,j] over the query heads g of KV head h, and over the rows
 *               i of the pass (H2O, NeurIPS 2023) or its last one alone (LAST)
 *   ratio       k = max(1, ceil(R * retain_ppm / 10^6))
 *   count       k = min(R, max(1, count))
 *   mass        the fewest rows that hold mass_ppm of the importance, at most the ratio's k
 * The set is the k rows of highest importance, ties to the lower position. */
#define SPEC_BUDGET_RATIO 0u
#define SPEC_BUDGET_COUNT 1u
#define SPEC_BUDGET_MASS  2u

#define SPEC_SELECT_BUDGET 1u /* given: budget, retain_ppm, mass_ppm, count */
#define SPEC_SELECT_METRIC 2u
#define SPEC_SELECT_KEEP   4u /* keep_first, keep_last */
#define SPEC_SELECT_EXACT  8u /* exact_ppm */
struct spec_select {
    uint32_t struct_size;
    uint32_t given;      /* SPEC_SELECT_*: the members that count */
    uint32_t budget;     /* SPEC_BUDGET_* */
    uint32_t retain_ppm; /* <= 1,000,000 */
    uint32_t mass_ppm;   /* <= 1,000,000 */
    uint32_t metric;     /* SPEC_METRIC_* */
    uint32_t keep_first; /* rows of the match that are always chosen, within k */
    uint32_t keep_last;
    uint64_t count;
    /* Since 0.4. */
    uint32_t exact_ppm; /* layered: share of exact rows, <= 1,000,000 */
    uint32_t reserved;
};

/* Of get_important_submit, since 0.7: the destination is told before there are queries; an item
 * with refine_of completes it, and nothing is computed on it before. */
#define SPEC_ITEM_AHEAD 1u
/* Of an item with refine_of and queries, since 0.8: rows are ranked anew, by these queries. */
#define SPEC_ITEM_RESCORE 2u
/* Of get_important_submit, since 0.11, of all items of the call: the layers 0, 1 .. of one request,
 * all of them. Rows of the match are loaded from its end on, all layers of some tokens before those
 * in front of them, until they meet what next_chunk gave out to be computed. */
#define SPEC_ITEM_BIDIRECTIONAL 4u

/* One request at one layer. In and out in one structure, since an array of them is submitted
 * before the first is waited for. Row j of the destination is the j-th returned position. The
 * destination has room for all R rows, also when fewer are wanted: those behind row_count are
 * undefined afterwards. */
struct spec_important {
    uint32_t struct_size;
    uint32_t flags; /* SPEC_ITEM_* */
    spec_request request;
    uint32_t layer;
    uint32_t reserved;
    const struct spec_queries *queries;    /* NULL: allowed when no scores are needed (k = R, ..) */
    const struct spec_memory *new_keys;    /* the keys from next_position up to the last row of
                                            * queries; NULL: scores run over the prefix alone */
    const struct spec_memory *destination; /* K and V; dtype the namespace's or wider */
    uint32_t *positions;        /* out, the caller's: ascending token positions; NULL: not wanted.
                                 * With FALLBACK [kv_head][row_count]: each head has its own */
    uint64_t position_capacity; /* elements: >= R, or kv_head_count * R when heads may differ */
    uint64_t *exact_bits;       /* out, layered: bit j = row j is exact; NULL: not wanted */
    uint64_t exact_bit_words;   /* uint64 words: >= ceil(R / 64) when exact_bits is given */
    uint64_t budget_bytes;      /* refinement stops here; 0: none */
    uint64_t deadline_ns;       /* from now; 0: none */
    spec_ticket refine_of;      /* layered: of the get_important_submit that filled this
                                 * destination, whose rows become exact in place; 0: none */

    /* Results; written for every item when the call returns, whatever its status. */
    spec_status status;
    uint32_t result_flags;    /* SPEC_IMPORTANT_* */
    uint64_t row_count;       /* rows delivered */
    uint64_t next_position;   /* = matched_tokens: where the first new token stands */
    uint64_t failed_position; /* SPEC_E_CORRUPT / SPEC_E_IO: the match is void from here on; BUSY:
                               * so it is, or it is UINT64_MAX and it is not */
    float similarity;         /* of the probe heads' sets; 0: not probed */
    float threshold;
    uint64_t wanted_bytes; /* rows, tags, selectors this layer needed, before page rounding */
    uint64_t read_bytes;   /* moved from the device for it */
    uint64_t io_ops;
    uint64_t io_exposed_ns;         /* this call's time spent waiting for the device */
    uint64_t probe_ns;              /* identification: selectors, scores, choice */
    uint64_t tier_rows[SPEC_TIERS]; /* where the rows came from, or their codes [ABI-194] */
    uint64_t prefetched_rows;       /* of union_rows: there, or on the way, before the call */
    uint64_t exact_rows;
    struct spec_provenance provenance;
    /* Since 0.3. */
    uint64_t union_rows;              /* rows that some KV head wants; row_count unless FALLBACK */
    uint64_t unused_bytes;            /* of bytes read ahead for this layer, the share of rows that
                                       * were not wanted (what pages add counts as the rows do) */
    const struct spec_select *select; /* in: for this item; NULL: as configured */
};

/* ---- store, tickets ------------------------------------------------------------------------- */

/* Flag, since 0.9: the range was computed before this call of layer 0, not between the calls of its
 * layers, so that their times say nothing of how long computing takes. */
#define SPEC_STORE_LATER 1u
/* Flag, since 0.17: when staging has no room, the call waits for some, up to wait_ns in all, before
 * the end of a pass is given up. It does not wait for room that only later layers of open passes
 * would make: the host may not get to store those before the call returns. */
#define SPEC_STORE_WAIT 2u

struct spec_store_params {
    uint32_t struct_size;
    uint32_t flags; /* SPEC_STORE_* */
    spec_request request;
    uint32_t layer;
    uint32_t computed_on;             /* SPEC_PROVENANCE_*: at best, as the host knows; 0: EXACT */
    uint64_t first_token;             /* the range's first position in the sequence */
    uint64_t token_count;             /* > 0 */
    const struct spec_memory *memory; /* token j of the range is token j of the memory */
    const uint32_t *tokens; /* token ids past those that lookup was given (decoded ones), or NULL */
    uint64_t tokens_count;  /* appended to the request's tokens before the range is checked; the
                             * first of them lies in the range [ABI-169] */
    uint64_t wait_ns; /* since 0.17, with SPEC_STORE_WAIT: from the beginning of the call; else 0 */
};

/* ---- computed ------------------------------------------------------------------------------- */

/* Flag, since 0.17: the step computed a part of one request's prompt, beside at most single tokens
 * of requests that decode, and later steps compute the rest. So longer prompts take several steps,
 * of which only the first can hide a load. */
#define SPEC_COMPUTED_PART 1u

/* Since 0.17. One step of the engine: the tokens of all its requests whose KV the step computed.
 * Tokens that were loaded, or that an earlier step computed, are not among them. */
struct spec_computed {
    uint32_t struct_size;
    uint32_t flags;     /* SPEC_COMPUTED_* */
    uint64_t tokens;    /* of all requests together */
    uint64_t positions; /* sum over these tokens: how many stand before each in its request */
    uint64_t ns;        /* time that computing them took, without waiting for loads */
};

/* ---- staging, compute-or-load, maintenance, statistics -------------------------------------- */

struct spec_prefetch_to_host_params {
    uint32_t struct_size;
    uint32_t reserved;
    spec_request request;
    uint64_t deadline_ns; /* from now; 0: none */
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
    uint64_t first_token;   /* out: of the range; MET: where they met */
    uint64_t token_count;   /* out; MET: 0 */
};

#define SPEC_MAINTAIN_REORDER    1u
#define SPEC_MAINTAIN_CHECKPOINT 2u
#define SPEC_MAINTAIN_EVICT      4u
#define SPEC_MAINTAIN_BYPASS     8u
#define SPEC_MAINTAIN_BUILD      16u /* since 0.3 */
#define SPEC_MAINTAIN_ERASE      32u /* since 0.17: everything */
#define SPEC_MAINTAIN_ERASE_SALT 64u /* since 0.17: what was stored under params.salt */
#define SPEC_BYPASS_END          1u  /* since 0.13, of deadline_ns: past when the call returns */
struct spec_maintain_params {
    uint32_t struct_size;
    uint32_t flags;         /* SPEC_MAINTAIN_* */
    uint64_t deadline_ns;   /* of BYPASS, from now; 0: none. Other work has none: not looked at */
    struct spec_bytes salt; /* since 0.17, of ERASE_SALT, at least a byte; else empty */
};

/* Counters since open, and levels where said. Read without a lock: each is exact, together they may
 * be a moment apart. */
struct spec_stats {
    uint32_t struct_size;
    uint32_t poisoned; /* level: 1 = an invariant broke, the connector answers misses */
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
    uint64_t quarantine_bytes; /* level: dropped, and not reusable before leases on it have ended;
                                * counted in disk_bytes_used */
    uint64_t checkpoints;
    uint64_t epoch;          /* level: resets of this model's KV in this store */
    uint64_t lock_waits;     /* host calls that found a lock of ours taken and waited for it */
    uint64_t lookup_retries; /* lookups begun again because of a concurrent change */
    uint64_t leases_attached, leases_refused;
    uint64_t follow_lag_ns; /* level, reader: age of what is known of the writer's log */
    uint64_t role;          /* level: SPEC_ROLE_WRITER or SPEC_ROLE_READER */
    /* Since 0.3. Layers that get_important delivered with fewer than all rows, and of them by sets
     * per head; layers delivered whole though fewer rows were asked for. */
    uint64_t selected_layers, fallback_layers, dense_layers;
    uint64_t selected_rows,
        selected_from_rows; /* rows delivered, rows matched, of selected layers */
    uint64_t selector_read_bytes, identify_ns;
    uint64_t speculated_bytes, unused_bytes; /* read ahead by prediction; of them not wanted */
    uint64_t selector_bytes_used;            /* level: memory of selectors that are being used */
    uint64_t selectors_refused;              /* layers that found no such memory */
    uint64_t built_chunks, built_bytes;      /* by maintain's BUILD; what was written for them */
    /* Since 0.4. Layers that were delivered layered, rows of those and how many of them exactly;
     * of the others, rows whose codes were missing, raw or damaged, and so were read exactly. */
    uint64_t quantised_layers, quantised_rows, layered_exact_rows, layered_forced_rows;
    uint64_t partial_layers; /* ended by a deadline or by budget_bytes */
    uint64_t bad_blocks;     /* of codes, that failed verification */
    uint64_t quantised_bytes; /* level: codes on disk; counted in disk_bytes_used */
    uint64_t building;       /* level: 1 while codes, or what else is missing, are being made */
    /* Since 0.6. Items with refine_of, and rows that they made exact. */
    uint64_t refined_layers, refined_rows;
    /* Since 0.8. Chunks that were not stored because another prefix has their chain hash. */
    uint64_t collisions;
    /* Since 0.8. Chunks that were stored in many passes and became one piece, in the background. */
    uint64_t compacted_chunks;
    /* Since 0.9. The host tier: levels, pages that are taken and all that may be; pieces (halves of
     * their rows where K or V is read alone, chunks where rows are in another order) that loads
     * found there in a layer, did not find, and that went for others. */
    uint64_t host_bytes_used, host_bytes_max;
    uint64_t host_hits, host_misses, host_evictions;
    /* Since 0.9. Chunks that were not stored because they were not admitted (store.admit), and
     * because the write budget was spent (store.write_budget); they are not among dropped_chunks.
     * Level: bytes that may be written now; 0, too, where there is no budget. */
    uint64_t unadmitted_chunks, over_budget_chunks, budget_left;
    /* Since 0.9. Of write_bytes, those of codes and other annexes, and of pieces that became one;
     * beside write_bytes, those of the log and of its checkpoints; and bytes of rows that were
     * stored, without all that. */
    uint64_t quantised_write_bytes, compaction_write_bytes, log_write_bytes, checkpoint_write_bytes;
    uint64_t stored_row_bytes;
    /* Since 0.9. Bytes that prefetch_to_host read into host memory; level: matches in progress, or
     * wait for it. */
    uint64_t host_prefetched_bytes, host_prefetches_open;
    /* Since 0.9. Compute or load: lookups that promised less than was stored, because computing the
     * rest meanwhile takes less time, and tokens that they left out. Levels, in picoseconds, 0: not
     * known: of computing a token, and how much more one takes with each position; of loading a
     * token's rows, all layers, and of what the host's thread does with them. */
    uint64_t lookups_cut, tokens_cut;
    uint64_t compute_token_ps, compute_position_ps, load_token_ps, place_token_ps;
    /* Since 0.11. From both ends: tokens that next_chunk gave out to be computed, and tokens that
     * were loaded from the back. */
    uint64_t given_tokens, tail_tokens;
    /* Since 0.12. Chunks that were written anew in the order of their rows' importance. */
    uint64_t reordered_chunks;
    /* Since 0.12. The tier above host memory: levels, pages that are taken and all that may be;
     * pieces that loads found there in a layer, that went up into it, and from it down to host
     * memory. Where it is host memory that stands for a device's: bytes that went over the bus for
     * what did not lie there, and the time that takes at upper_bus_bytes_per_s, which nobody waited
     * for. */
    uint64_t upper_bytes_used, upper_bytes_max;
    uint64_t upper_hits, upper_promoted, upper_demoted;
    uint64_t upper_bus_bytes, upper_bus_ns;
    /* Since 0.13. Lookups that promised nothing, and chunks that were not stored, because of a
     * bypass (maintain); level: 1 while there is one. Such chunks are not among dropped_chunks. */
    uint64_t bypassed_lookups, bypassed_chunks, bypassing;
    /* Since 0.17. Erasures of this rank (maintain) that were carried out, attempts that failed, and
     * bytes that were overwritten; levels: erasures that were not carried out yet, 0 when nothing
     * is left to be erased, and bytes that the one that runs has still to look at. */
    uint64_t erased, erase_failures, erased_bytes, erasing, erase_left_bytes;
};

/* ---- The function table --------------------------------------------------------------------- */

struct spec_api {
    uint32_t struct_size; /* bytes filled in: SPEC_HAS(api, stats) tests for a member */
    uint16_t major, minor;

    /* Opens the store named by the configuration for one model and rank. [ABI-012]
     *   params    borrowed, but the alloc functions and log function, which it keeps until close
     *   ret_conn  written on SPEC_OK only; ended by close
     * The directory is made when absent; the log is replayed. Config errors give the key's path,
     * what was found and what is allowed. [ABI-013] A reader makes nothing, and may open before
     * there is a store. Errors: INVALID, CONFIG, VERSION (a foreign or newer store), LOCKED
     * (another writer; the text names it) [ABI-014], IO, NO_SPACE, NO_MEMORY, UNSUPPORTED. After an
     * error the store is as it was.  Threads: any.  Blocks: yes.
     * Since: 0.1 */
    spec_status (*open)(const struct spec_open_params *params, spec_connector **ret_conn,
                        struct spec_error *reterr);

    /* Ends everything: aborts incomplete stores, waits for submitted ones, joins every thread,
     * frees what the connector owns. Takes NULL. [ABI-015]
     * Errors: none.  Threads: one, no other call running or to come.  Blocks: yes.  Since: 0.1 */
    void (*close)(spec_connector *conn);

    /* Finds the longest stored prefix and makes a request. Token-exact: a match may end inside a
     * chunk [ABI-020], is at most max_tokens (default token_count - 1) [ABI-021], is cut to
     * multiple_of [ABI-022]; other salts, LoRA ids or extra keys share nothing from where they
     * take effect [ABI-023]: they are compared by value, so that nobody can choose one that meets
     * another's [ABI-170]; what the engine holds below from_token is neither read nor promised
     * [ABI-024]. A prompt that is nowhere stored is SPEC_OK with SPEC_LOOKUP_MISS [ABI-025]. The
     * promised rows stay readable until release [ABI-026]. stored_tokens says how far the store
     * holds the tokens from position 0 on, for this salt, LoRA id, extra keys and REQUIRE_EXACT, in
     * every rank, whatever from_token, max_tokens and multiple_of are, so on a miss as well; it may
     * be less than is held, never more. A host that holds rows from elsewhere up to from_token
     * stores from stored_tokens on: what begins behind a gap is DROPPED. Rows behind matched_tokens
     * are not promised by it [ABI-178].
     * Compute or load: where the configuration says fill "cut", and it is known how long loading
     * and computing take, lookup promises as much of the match's beginning as lets the loading of
     * it and the computing of the rest, side by side, end soonest; that may be all of it or none.
     * The same match has the same promise, of peeks and requests alike, as long as what is known
     * does not change (but that where nothing is worth loading a little is promised now and then,
     * to see whether that is still so); stored_tokens is as ever. With fill "load", and until it is
     * known, all of the match is promised [ABI-186]. How long things take is measured by the writer
     * of rank 0, and kept in the store: the next open knows it. All ranks of a set, and readers, go
     * by what is kept, from the same moment on, a second or so after it was measured, so that all
     * of them promise the same of the same match [ABI-187]. So does the writer of a set of one
     * rank while a reader has its store open, from 100 ms after the reader's open on; without
     * readers it goes by what it has measured last, and by what its host memory has.
     * With SPEC_LOOKUP_PEEK the answer is the same, lease included, but there is no request
     * (ret_result.request is 0): nothing to release, nothing that stays readable once the lease has
     * ended, no read is begun. It needs none of max_requests, counts as a lookup, and its lease is
     * attached as any other, here or in another process; 16 peeks may run at the same moment, one
     * more is BUSY [ABI-177].
     * retain_s and priority are hints for eviction, of what the request matches and what it stores.
     * Prefixes that are not to be retained, or not any more, are evicted first: the lowest
     * priority first, and within a priority in the order of those without hints. Retained ones
     * follow, whatever their priority, in the order in which their times end. A hint raises and
     * renews, part by part, and lowers nothing: what several requests use has the highest of their
     * priorities (0 if one says nothing) and the longest of their times. It promises nothing:
     * where nothing else can go, what was to be retained goes. Hints end with the connector; a
     * reader's are without effect [ABI-189]. This order holds however new things are: a prefix
     * that was stored a moment ago is evicted before one that is to be retained or has a higher
     * priority. For a pass, and for the passes that are expected after it, nothing is evicted that
     * goes later than the pass itself would [ABI-221].
     * A prompt is cut at its limits: at max_request_tokens, or in front of the token at which the
     * first extra key does not fit (256 positions with keys, 16 keys at one). Tokens in front of
     * the cut are found, promised and stored as ever. Tokens behind it are never stored: see store
     * [ABI-215].
     *   ret_result  its struct_size set by the caller
     * Owns: gives the request (but for a peek), ended by release.  Errors: INVALID (NULL,
     * token_count 0, from_token or max_tokens > token_count; extra keys unordered or beginning
     * behind the tokens; a salt, LoRA id or key over 64 KiB; priority), BUSY (max_requests; the
     * memory of requests, request_bytes) [ABI-027].
     * Threads: any.  Blocks: never, and does no I/O on the caller's thread.  Since: 0.1 */
    spec_status (*lookup)(spec_connector *conn, const struct spec_lookup_params *params,
                          struct spec_lookup_result *ret_result, struct spec_error *reterr);

    /* Brings what loads of the request's match read, as the configuration has it, into host
     * memory, in the background and behind every load: rows of every layer, layer by layer, as
     * loads will ask for them [ABI-130]; where the configuration chooses rows, or delivers codes,
     * first what that takes, of all layers, and then no rows that are never wanted [ABI-195].
     *   ret_ticket  or NULL. poll and wait say of it: OK, all of it is there, but damaged codes and
     *               keys of rows that are: loads go without; NO_SPACE, as much as found room is, in
     *               that order: of rows the first layers, and of one more the first rows;
     *               NO_MEMORY, none to read through; TIMEOUT, the deadline came first; CORRUPT, IO:
     *               a range failed, which lookups find no more; DROPPED: a release of the request
     *               or a reset ended it [ABI-193], or a bypass did, or keeps it from beginning
     *               [ABI-209]
     * Until then or the deadline, lookup, also as a peek, of tokens whose match is a part of this
     * one or goes on from it says SPEC_LOOKUP_PENDING with request 0, unless all of it is there
     * already; from then on it answers as things stand [ABI-192]. The request itself stays as it
     * is: who has it may load at once, or wait for the ticket. What was brought stays until it was
     * loaded once, or 10 s after the end, within three quarters of host_bytes; in the face of that
     * what loads left there goes first. Errors: INVALID, STALE, UNSUPPORTED (host_bytes 0),
     * BUSY (16 matches are being staged, or this one is; tickets).  Threads: any.  Blocks: never.
     * Since: 0.9 */
    spec_status (*prefetch_to_host)(spec_connector *conn,
                                    const struct spec_prefetch_to_host_params *params,
                                    spec_ticket *ret_ticket, struct spec_error *reterr);

    /* Opens a lease's promise in another process (or this one) as a request, without tokens: it
     * loads rows [from_token, the lookup's matched_tokens) [ABI-131], those of the tokens that the
     * lease was given for, or it is STALE [ABI-171]. A lease that has expired is STALE [ABI-136];
     * an altered one, or one of another store or model, is INVALID [ABI-137].
     * SPEC_OK with SPEC_LOOKUP_PENDING and request 0: this process has not followed the log that
     * far yet, ask again. What was dropped meanwhile (a failed range, a reset) is STALE, and what
     * better rows took the place of may be; during a bypass of this process every lease is
     * [ABI-209]. stored_tokens is the lease's length, whatever else is stored. The request may
     * store what follows the match when the host passes tokens.
     * Errors: INVALID, STALE, BUSY (max_requests, max_request_tokens, request_bytes).
     * Threads: any.  Blocks: never.  Since: 0.2 */
    spec_status (*attach)(spec_connector *conn, const struct spec_attach_params *params,
                          struct spec_lookup_result *ret_result, struct spec_error *reterr);

    /* Compute or load from both ends (Cake): the next tokens of the match, from from_token on, that
     * the engine computes instead of having them loaded: up to budget_tokens, ending on the chunk
     * grid where that is not nothing, or where the other end stands. It may be called before a
     * submission with SPEC_ITEM_BIDIRECTIONAL, while one runs, and after it was reported. Such a
     * submission loads from matched_tokens down: a token is given out, or loaded, never both; what
     * is being read when the engine comes there is given out, but for what is being placed. MET:
     * all tokens have been given out or taken to be loaded; those above first_token are there when
     * get_important_wait says so, and not before [ABI-132]. A range that fails and a deadline end
     * the loading side alone: what it has delivered is good, and what it had taken and has not is
     * given out once the wait has reported, after MET. So a host asks until it is MET, waits, and
     * asks until it is MET again [ABI-206].
     * Errors: INVALID (budget_tokens 0), STALE.  Threads: any, for one request one at a time; the
     * request may be submitted.  Blocks: never.  Since: 0.11 (before: UNSUPPORTED) */
    spec_status (*next_chunk)(spec_connector *conn, struct spec_next_chunk *chunk,
                              struct spec_error *reterr);

    /* Layer `layer` of a pass begins for these requests: reads for it, and ahead for layer + 1, are
     * started. Optional: get_important alone is right, only slower [ABI-040]; a request without a
     * match costs nothing [ABI-041].
     * Errors: INVALID (layer, count 0 or above 256), STALE, BUSY (submitted: [ABI-161]).
     * Threads: any.  Blocks: never.  Since: 0.1 */
    spec_status (*begin_layer)(spec_connector *conn, const spec_request *requests, uint64_t count,
                               uint32_t layer, struct spec_error *reterr);

    /* Delivers the prefix rows of each item's layer into its destination, packed in the order of
     * the returned positions. All items are submitted before the first is waited for [ABI-050].
     * With k = R: every promised row, bit-identical to what was stored [ABI-051], positions
     * ascending from from_token [ABI-052], written into any described layout and nowhere else
     * [ABI-053]; a wider dtype is filled by exact widening, a narrower one is INVALID [ABI-054]; a
     * negative slot is skipped [ABI-055]. The same layer may be asked for again, and gives the same
     * rows [ABI-056]. A request without a match gets 0 rows and SPEC_OK [ABI-057].
     * With k < R: the k rows that spec_select's text defines, each bit-identical to what was stored
     * [ABI-061], in ascending order of position, next_position as if all were there [ABI-062]; ties
     * go to the lower position [ABI-063]. The plugin may look at the keys of the first KV heads
     * alone (probes) and give one set for all, voted: when the probes' own sets agree by more than
     * `threshold` [ABI-064]; else the item is flagged FALLBACK, row r of head h is that head's r-th
     * chosen row, and positions are per head [ABI-065]. With queries of the probe heads only, such
     * a layer is delivered whole and flagged DENSE; so is one whose selector is missing or damaged,
     * and with FALLBACK due one with a negative slot [ABI-066]. Sets come from the item's own rows:
     * not from other items, other passes of the request, or what was read ahead [ABI-067].
     * spec_select changes one item only [ABI-068]. The item's provenance is PRUNED, with
     * row_count / R as retain_ppm (rounded up) and the metric [ABI-069].
     * Where the configuration alone says how many rows are wanted, a match that is short beside
     * what is new is delivered whole, at every layer of its request: flagged DENSE, as exact as it
     * was stored, so that what is computed on it may be stored. spec_select's budget rules it out
     * [ABI-073].
     * Layered (select.base "quantised"): all R rows, in ascending order of position; k_e = ceil(R *
     * exact_ppm / 10^6) of them bit-identical to what was stored, the others values of their codes
     * (docs/reference/store-format.md), each rounded to the destination's type; exact_bits tells
     * them apart [ABI-150]. Where widths are free (layered.bit_allocation), channels have bits of
     * their own, by the table that each block of codes begins with, and keys that were turned back
     * by the model's rotary parameters before they were coded are turned by them again, to the bit
     * [ABI-196].
     * Exact are the rows of highest importance, summed over all KV heads and computed
     * with the codes' values of the prefix's keys, where it has codes, and the exact new keys; ties
     * go to the lower position; without queries (select.identify "static"), by stored averages of
     * the importance that earlier items with queries found, or the lowest positions when there are
     * none [ABI-151]; rows without codes always are, and count within k_e as far as it goes
     * [ABI-152]. exact_ppm 10^6 is the whole load: bit-identical, and no codes are read [ABI-153].
     * At the deadline, or when budget_bytes of exact rows are read, the rows that are there are
     * exact, the item is SPEC_OK and flagged PARTIAL, exact_rows says how many [ABI-154]; codes
     * themselves are waited for up to 1 s longer, then TIMEOUT. The item's provenance is LOSSY,
     * with the codes' bits and exact_rows / R (rounded down) [ABI-155].
     * Codes that fail their checksum are never delivered: their rows are read exactly [ABI-156].
     * Refining (refine_of: the ticket of a get_important_submit that was reported and delivered
     * this layer of the request to this destination, whose rows nobody else has written since): of
     * the k_e best rows by that delivery's ranking, those that are not exact yet are read and put
     * over the values of codes; all others stay as they are, and no codes are read. What is there
     * afterwards is, bit for bit, what the delivery had been with this exact_ppm, no deadline and
     * no budget [ABI-163]. That ranking is by the queries that were given then, if a set could be
     * chosen by them, else as without queries; queries now, and metric and keep, are not taken (but
     * with SPEC_ITEM_RESCORE, below).
     * deadline_ns and budget_bytes end this call's reading as above (the best of the missing rows
     * go first), and exact_bits, exact_rows, PARTIAL and the provenance say what is there, however
     * often it is refined, also where the item's status is CORRUPT or IO: then the destination is
     * what exact_bits say, and the match void as below [ABI-164]. A delivery can be refined until
     * its request ends, another one of its layer or to its k_base begins, or its place is needed
     * for others (layered.refine_bytes); then, and for another request's, refine_of is STALE; a
     * ticket that was never given out, and another layer or destination than it delivered, are
     * INVALID; where select.base is not coarse it is UNSUPPORTED [ABI-165].
     * Rescoring (refine_of with SPEC_ITEM_RESCORE, by either call): all rows are scored by the
     * item's queries and new_keys, with metric and keep, as if nothing had been delivered, and of
     * the k_e best by that those that are not exact yet are read and put over the values of codes;
     * none that is exact is taken back. What is there afterwards is, bit for bit, what was there,
     * and beside it the rows that one call with these queries had delivered exactly: so each chunk
     * of a prefill adds the rows that its own queries need. exact_bits, exact_rows and provenance
     * say what is there, all of it. That ranking is the delivery's from now on, for items that
     * refine it plainly; one that wants no rows (k_e 0) ranks none. A delivery ahead that was not
     * chosen yet is chosen, as below. Codes are read again where their memory went to others
     * meanwhile (begin_layer reads them early). Rows whose codes fail, or never were, are read
     * exactly, within k_e as above, and where no codes can be had any more every row is, as below:
     * nothing gets worse, and the ranking stays [ABI-184]. deadline_ns and budget_bytes end it as
     * they end refining, PARTIAL; if the deadline comes before the scores, rows and ranking are as
     * they were. Without refine_of or queries, with SPEC_ITEM_AHEAD, or, where rows are to be
     * scored, with queries or new_keys that they cannot be scored by it is INVALID, and has changed
     * nothing; what else may be wrong is [ABI-165]'s, and rows that fail are told as [ABI-164] has
     * it [ABI-185].
     * Ahead (get_important_submit with SPEC_ITEM_AHEAD): an engine that knows a layer's destination
     * before it has the queries has it filled while it computes the layer below. Without queries
     * the item's exact rows are those that need none (without codes, kept first and last; with
     * select.identify "static" all of them); with queries, say of the layer below's hidden state,
     * they are a guess and choose as usual. The first item that refines it and wants some of its
     * rows chooses: queries, new_keys, metric and keep are taken as if nothing had been delivered,
     * and what is there afterwards is, bit for bit, what one call with these had delivered, but
     * that rows which were exact before stay so; codes are read again only where their memory went
     * to others meanwhile, and where they cannot be had any more every row is read [ABI-166]. Until
     * then the destination is nothing to compute on: the item's own provenance says what it is
     * worth, and what is stored on the request is held to be computed on it only if its layer is
     * stored before an item has refined it or delivered it anew [ABI-167]. At its deadline the rows
     * that are there are exact, as above, and if no set was chosen by then the next item chooses;
     * so metric and keep are no error in any item that refines it, and not looked at after the
     * choice. SPEC_ITEM_AHEAD with refine_of or in get_important is INVALID; where select.base is
     * not coarse UNSUPPORTED; BUSY where layered.refine_bytes keeps less than its rows need
     * [ABI-168].
     * Rows that fail verification are never delivered: the item's status is CORRUPT (or IO), the
     * destination's rows are undefined, and the match is void from failed_position on at every
     * layer; the engine releases the request and starts the pass again, and no later lookup
     * promises that range until it is stored anew [ABI-058], in other processes within 100 ms
     * [ABI-060]. Rows that are delivered are those of the very copy that lookup promised, whose
     * provenance it told: another copy of the same tokens in its place, because a disk lost writes
     * that it had acknowledged, fails verification [ABI-172]. An item's deadline: TIMEOUT, the
     * destination is undefined, the request stays usable [ABI-059].
     * Returns SPEC_OK when every item's status is SPEC_OK, else the first failing item's status
     * (its text in reterr); the other items are complete all the same.
     * Errors: INVALID (checked for all items before any is begun; count 0 or above 256; queries
     * NULL where scores are needed), UNSUPPORTED (CUDA memory, with the reason; refine_of as
     * above), STALE, CORRUPT, IO, TIMEOUT, BUSY (submitted: [ABI-161]).
     * Threads: any.  Blocks: until ready or deadline.  Since: 0.1 */
    spec_status (*get_important)(spec_connector *conn, struct spec_important *items, uint64_t count,
                                 struct spec_error *reterr);

    /* The halves of get_important: submit checks all items and begins; threads of the plugin
     * (submit.threads) choose, read and place while the host is away; wait reports, as
     * get_important would [ABI-133]. The items and what they point to stay with the plugin from
     * submit to the wait that reports them: destinations are undefined until then, results are
     * written by that wait alone. Deadlines count from submit. A ticket is get_important_wait's
     * alone, is reported once and INVALID afterwards; after a TIMEOUT of wait it is what it was
     * [ABI-160]. Until it is reported, get_important, submit, begin_layer and prefetch_next are
     * BUSY for the requests of its items, the same one twice included; store, store_abort and
     * release are not [ABI-161]. A release makes the handle STALE at once, and wait is still due.
     * Items that were delivered by then, or by a reset, stay what they are; one that is being
     * delivered ends as it would have, or is STALE; the others are STALE. close ends all, and needs
     * no wait [ABI-162]. POISONED comes at once: the items stay with the plugin until close.
     *   ret_ticket  written on SPEC_OK only
     * Errors: submit: INVALID, STALE as get_important, BUSY (64 submissions, or max_requests, were
     * not waited for); wait: INVALID (the ticket), TIMEOUT (nothing was written), BUSY (ABI-220),
     * and those of the items as get_important.  Threads: any; of a request's calls, wait is one.
     * Blocks: submit never, wait until ready or timeout_ns from now (UINT64_MAX: for ever).
     * With SPEC_ITEM_BIDIRECTIONAL the destinations have room for all R rows, row j being token
     * from_token + j, and those that next_chunk gives out are the host's own to write, meanwhile.
     * wait reports when the loading side has met the other or has ended: of each item row_count
     * rows were delivered, the last ones of the match, next_position - row_count is the first of
     * them, each bit-identical to what was stored. Rows in front of that are as the host wrote
     * them, or, if it has not, undefined. That holds too where the status is CORRUPT or IO (the
     * match is void from failed_position on, as ever, but these rows are good), and at an item's
     * deadline, which ends the loading, SPEC_OK and PARTIAL. Of a destination on a device that
     * failed nothing was delivered. Queries, new_keys, select, positions, bits, budget_bytes and
     * refine_of with it, other flags, other items beside it, or not every layer once and in order,
     * are INVALID [ABI-205].
     * Since: 0.6 (before: UNSUPPORTED) */
    spec_status (*get_important_submit)(spec_connector *conn, struct spec_important *items,
                                        uint64_t count, spec_ticket *ret_ticket,
                                        struct spec_error *reterr);
    spec_status (*get_important_wait)(spec_connector *conn, spec_ticket ticket, uint64_t timeout_ns,
                                      struct spec_error *reterr);

    /* Starts speculation for layer + 1 of the request; without selection that is its whole layer.
     * Never needed, never wrong [ABI-070]; on the last layer and without a match it does nothing
     * and says SPEC_OK [ABI-071]. A later call replaces speculation that has not started.
     *   hint  NULL, or approximate queries of layer + 1; copied (the last hint.rows rows). It
     *         decides what is read ahead, never what is delivered [ABI-072]
     * Errors: INVALID (a hint of the probe heads alone where codes are scored, too), UNSUPPORTED
     * (a hint in CUDA memory, with the reason), STALE, BUSY (submitted: [ABI-161]).  Threads: any.
     * Blocks: never, but to attach a device.  Since: 0.1 */
    spec_status (*prefetch_next)(spec_connector *conn, spec_request request, uint32_t layer,
                                 const struct spec_queries *hint, struct spec_error *reterr);

    /* Stores one layer of a token range that a pass computed, for each of params[0 .. count). Those
     * are of different requests, each at its own layer and range; all are checked before the first
     * is begun, and an error return has changed nothing for any of them [ABI-181]. Of a request
     * layers ascend by one from 0, all with the same range; the next range begins where the last
     * ended, the first where the match ended, at stored_tokens, or earlier [ABI-080]. The source is
     * free at return [ABI-081], one in CUDA memory in the order of its stream [ABI-203]; a pass may
     * have layers of both. A chunk becomes visible when all layers are written, never before
     * [ABI-082]; the first complete copy wins [ABI-083]; KV of another dtype than the namespace's
     * is INVALID [ABI-084]. Never waits for the device, unless it is asked to (SPEC_STORE_WAIT).
     * When staging (of CUDA memory: gpu.store_bytes), disk_bytes or a pool is exhausted, the end of
     * the range is given up, as much as lacks room. The part in front of it is stored, the ticket
     * says BUSY, NO_SPACE or DROPPED, and the host goes on with its layers [ABI-085]. wait_kept
     * tells how many tokens of the range are stored; the request's next range may begin behind
     * them, and what hangs on the part that was given up is DROPPED until then. When several passes
     * lack room, the one that holds most gives up first. Passes of no more than a chunk, as those
     * of decoded tokens are, have room of their own [ABI-217].
     * NaN and infinities are stored as they are [ABI-086]. A store that is full makes room by
     * evicting what was used longest ago and nobody holds, leaves first, so that no stored prefix
     * loses its beginning; disk_bytes is never exceeded, quarantine included [ABI-088]; so a pass
     * that is refused finds room later, however short passes are, or long (if an empty store holds
     * them), and however long the store has been full, once leases on what was evicted have ended
     * [ABI-174]. After a full or failing device stores are dropped for a while, then tried again;
     * loads go on [ABI-089]. A reader's store is UNSUPPORTED. What a pass stores is computed on
     * what was delivered to its request so far, the worst of it: lookups say so [ABI-120], and a
     * match with REQUIRE_EXACT ends before it [ABI-121]. What the plugin did not deliver to this
     * request the host says: computed_on, of any layer of the pass, for this pass and the request's
     * later ones; the worse of it and of what was delivered counts [ABI-182]. Configuration decides
     * whether lossy (yes) and pruned (no) passes are stored at all; one that is not is DROPPED
     * [ABI-122]. KV computed on better KV replaces worse of the same tokens, and what hangs on the
     * worse goes with it; among equals the first complete copy wins [ABI-123].
     * It decides, too, whether all is stored at once or only what comes again (store.admit
     * "second"): of a pass its chunks up to the first that no earlier pass computed behind the same
     * tokens, as far as that is remembered, and that the store did not have at the lookup. The rest
     * is DROPPED, with what of its request hangs on it, and counted (unadmitted_chunks); who
     * computes it again stores it. Where no more than so many bytes may be written in a day
     * (store.write_budget), a pass is stored as far as they go; the rest is DROPPED in the same way
     * (over_budget_chunks) [ABI-190].
     * A pass that the next eviction would take again is refused, and ABI-174 does not help it, as
     * long as the store is full of what is evicted later: of a higher priority, or to be retained
     * for longer. The pass is stored as far as its rows need no eviction, or something that goes no
     * later can be evicted for them. Nothing of the rest is written, the ticket says NO_SPACE, and
     * dropped_chunks counts it. A pass with states is stored whole or not at all [ABI-222].
     * What a pass computes although it is stored, no worse (because lookup promised less than
     * there was), is not written again; its ticket is done as if it had been [ABI-188].
     * Requests that compute the same tokens at the same time write them once. A pass whose tokens
     * and extra keys are equal to those of a pass under way, from the prompt's beginning on, joins
     * it as far as they are equal: passes of one call to their last common chunk, other passes as
     * far as an extent of the first one is equal, or complete. A layer is stored for all of them
     * when the first of them brings it. If one is aborted or released, the others go on with the
     * layers that it stored. The rows are worth the worst that those layers were computed on; a
     * pass does not join one that is worth less. Each ticket tells about its own range [ABI-223].
     * Models with STATE layers share nothing.
     * If a range goes beyond a limit of its request (lookup; or, by tokens that come with it,
     * max_request_tokens or the memory that is free of request_bytes), the part in front of the
     * limit is stored, and the ticket says BUSY. A pass
     * with states is stored whole or not at all. Positions are always the host's: ranges and tokens
     * behind the limit are passed as if there were none [ABI-215].
     * ret_tickets: [count], or NULL when nobody will ask; an element is 0 but for a last layer,
     * whose ticket is done when the range is visible to lookup and found again after kill -9
     * [ABI-087].
     * Token ids (tokens) are given once, with layer 0 of the range that the first of them stands
     * in: a position that has an id keeps it, and ids whose first position lies outside the range
     * are INVALID, so that no row is stored under an id that it was not computed for; store_abort
     * takes the open pass's back [ABI-169].
     * Errors: INVALID (count 0 or above 256, a request that stands in the call twice, range, layer
     * order, dtype, memory, computed_on), STALE (one of the requests), BUSY (65,536 tickets were
     * not asked for), UNSUPPORTED (a reader; no device, or one that failed), IO
     * (a call of the driver failed).  Threads: any.  Blocks: never longer than a copy, but while a
     * device is attached, or for wait_ns.  Since: 0.1; an array since 0.8; CUDA memory since 0.10;
     * WAIT since 0.17 */
    spec_status (*store)(spec_connector *conn, const struct spec_store_params *params,
                         uint64_t count, spec_ticket *ret_tickets, struct spec_error *reterr);

    /* Drops what is incomplete from a token on (preemption, failed forward): the open pass, whole,
     * when any of its tokens lie there; complete chunks stay. [ABI-090] release and death do the
     * same. [ABI-091] Layers that were stored before count as right: another request that computes
     * the same tokens may go on with them [ABI-223]. A host stores no layer that it cannot vouch
     * for. Ids that were given with the dropped pass are forgotten: the request knows
     * the tokens again that it knew before the pass, and the step may be stored with others
     * [ABI-169]. A pass that was given up (its tickets say so) is open until its last layer, and
     * ends so as well; one that had its last layer keeps its ids, stored or not.
     * Errors: STALE.  Threads: any.  Blocks: never.  Since: 0.1 */
    spec_status (*store_abort)(spec_connector *conn, spec_request request, uint64_t from_token,
                               struct spec_error *reterr);

    /* Tickets: ret_statuses[i] is PENDING, or how the work ended (OK, DROPPED, BUSY, IO, NO_SPACE;
     * of prefetch_to_host CORRUPT, TIMEOUT, too);
     * a ticket that was reported done is ended and INVALID afterwards [ABI-100]. wait returns when
     * all are done, or SPEC_E_TIMEOUT with the statuses so far written [ABI-101].
     * Errors: INVALID (a ticket that is unknown or named twice).  Threads: any.  Blocks: poll
     * never, wait until timeout_ns from now (UINT64_MAX: for ever).  Since: 0.1 */
    spec_status (*poll)(spec_connector *conn, const spec_ticket *tickets, uint64_t count,
                        spec_status *ret_statuses, struct spec_error *reterr);
    spec_status (*wait)(spec_connector *conn, const spec_ticket *tickets, uint64_t count,
                        uint64_t timeout_ns, spec_status *ret_statuses, struct spec_error *reterr);

    /* Ends a request: its reads are dropped, incomplete stores aborted, submitted ones go on. Later
     * calls with it are STALE. [ABI-110] Tickets stay pollable.
     * Errors: STALE.  Threads: any.  Blocks: never.  Since: 0.1 */
    spec_status (*release)(spec_connector *conn, spec_request request, struct spec_error *reterr);

    /* A new weights epoch: from its return on, nothing of this model that was stored before is
     * promised again here [ABI-134]; requests made before are STALE for every call but release,
     * and their unfinished stores are dropped [ABI-138]. Other ranks and processes of the store
     * follow within 100 ms, also when a reader calls it [ABI-139]. A reset reaches everything that
     * was stored of the same weights in this directory: by every configuration (layout, chunk size,
     * dtype, revision, ranks), whether its connector is open now, or is opened later [ABI-216].
     * Errors: IO, NO_SPACE (no epoch could be taken, or a reader cannot read its writer's log;
     * nothing changed here). A writer whose log cannot record the epoch stores nothing until it
     * can.  Threads: any.  Blocks: for one buffered write, for a file that is made and synced,
     * and for the end of a checkpoint that is putting its log in place (a sync);
     * in a reader, for the reading of what its writer's log has new, and a small write a rank.
     * Since: 0.2 */
    spec_status (*reset)(spec_connector *conn, struct spec_error *reterr);

    /* Counters. [ABI-111]  Errors: INVALID.  Threads: any.  Blocks: never.  Since: 0.1 */
    spec_status (*stats)(spec_connector *conn, struct spec_stats *ret_stats,
                         struct spec_error *reterr);

    /* Starts work that else happens by itself: CHECKPOINT (the log is rewritten and synced;
     * stats.checkpoints counts it), EVICT (the least recently used leaves go until an eighth of
     * disk_bytes is free or in quarantine). [ABI-135] BUILD happens only when it is asked for: rows
     * of this model that lack what this configuration chooses rows by (they were stored by one that
     * did not choose) get it, read and verified at maintain.bytes_per_s; then fewer than all of
     * them can be delivered; stats.built_chunks counts. [ABI-140]
     * REORDER (also every reorder.interval_s): what was stored together and at least two requests
     * have chosen from is written anew, each layer's rows in descending average importance within
     * reorder.scope, each once; stats.reordered_chunks counts. Matches, tokens and rows that are
     * delivered do not depend on it, meanwhile and after; what stood before goes once no request
     * that was open then is left, and leases on it have ended. [ABI-207]
     * BYPASS: the connector steps aside and stays open (a disk is to be replaced, a store is
     * suspected). From the return until deadline_ns has passed (0: until it is ended), of several
     * calls the last one's, SPEC_BYPASS_END ends it at once: lookups, peeks as well, are misses as
     * of an empty store, and never PENDING; a pass whose layer 0 comes meanwhile is DROPPED, with
     * what hangs on it in its request, later too; prefetch_to_host reads nothing; attach is STALE.
     * No other call has an error because of it. Requests that were made before load what they were
     * promised, and passes that had begun are stored. Work in the background that can wait (pieces
     * that become one, BUILD, REORDER, what is learnt) begins when it has ended; CHECKPOINT, EVICT
     * and reset act. Then all that was stored before is found again. It is of this connector alone,
     * and ends with it: other processes of the store, other ranks and readers, go on, and are told
     * each by itself. [ABI-209]
     * ERASE, ERASE_SALT: everything in the store, or what was stored under the salt (of every
     * model, configuration, rank and LoRA id), becomes unreadable in the store's files: token ids,
     * rows, states, codes, copies of them, and what was evicted before. When the call returns, the
     * intent is durable, and what it covers is a miss here: its requests and leases are STALE, no
     * byte of it is delivered, and nothing of it is found again after kill -9. Other ranks and
     * processes follow within 100 ms; a rank that no process has open is overwritten by the next
     * that opens it, or by spec-ctl. Then the writer overwrites the bytes with zeros in the
     * background, as fast as the device takes them, and reads them back; erasing is 0 when that is
     * done. A write, sync or read that fails is logged, counted (erase_failures) and tried again;
     * it never counts as erased. Until it is done nothing new is stored in the rank (tickets say
     * BUSY). Rows that are not covered are found, loaded and leased as before; but those that a
     * version before 0.17 stored do not say their salt, and every ERASE_SALT covers them. A load
     * that is under way delivers the stored rows or an error, never zeros. [ABI-219]
     * Errors: INVALID (flags 0 or unknown; ERASE_SALT without a salt, a salt without it),
     * UNSUPPORTED (a reader, but of BYPASS and the two that erase); of those two IO, NO_SPACE (some
     * ranks may have the intent), BUSY (128 erasures wait).
     * Threads: any.  Blocks: never; ERASE, ERASE_SALT: for a small file a rank that is made and
     * synced, and while the index lets go what is covered.  Since: 0.2; REORDER: 0.12; BYPASS:
     * 0.13; ERASE, ERASE_SALT: 0.17 */
    spec_status (*maintain)(spec_connector *conn, const struct spec_maintain_params *params,
                            struct spec_error *reterr);

    /* As wait, and ret_kept[i] is how many tokens of a store's range, from its first one on, are
     * stored: visible to lookup, and found again after kill -9. For a ticket that is not done it
     * tells how many are by now, and only grows; for one that is done with OK it is the whole
     * range; for tickets of other calls it is 0. If the model has states it is 0 or the whole
     * range, because matches end where there are states. [ABI-217]
     * Errors: as wait, and INVALID (ret_kept is NULL).  Threads: any.  Blocks: as wait.
     * Since: 0.17 */
    spec_status (*wait_kept)(spec_connector *conn, const spec_ticket *tickets, uint64_t count,
                             uint64_t timeout_ns, spec_status *ret_statuses, uint64_t *ret_kept,
                             struct spec_error *reterr);

    /* Tells what a step of the engine took to compute. A host that stores with SPEC_STORE_LATER
     * tells nothing by its store calls; with fill "cut", lookup then promises all that is stored,
     * however slow the device is. Steps that are told here count as passes do whose store calls
     * are timed: by two of them the engine's speed is known, and lookup cuts by it. A host tells a
     * step once, in one of the two ways. Only rank 0's writer learns, and only with fill "cut"; a
     * call of another rank, of a reader, or with another fill has no effect. Nor has a step that
     * says too little: below 128 tokens, or below 2 ms. During a bypass steps are learnt. [ABI-218]
     * Errors: INVALID (flags unknown).  Threads: any.  Blocks: never.  Since: 0.17 */
    spec_status (*computed)(spec_connector *conn, const struct spec_computed *step,
                            struct spec_error *reterr);
};

/* True when the table that the plugin filled has the member. */
#define SPEC_HAS(api, member)                                                                      \
    ((api)->struct_size >= offsetof(struct spec_api, member) + sizeof((api)->member))

/* The one exported symbol. Returns the table (constant, valid while the plugin is loaded), or NULL
 * when this major version is not spoken here. [ABI-009]
 * Threads: any.  Blocks: never.  Since: 0.1 */
SPEC_EXPORT const struct spec_api *spec_connector_api(uint32_t major);

#ifdef __cplusplus
}
#endif
#endif /* SPEC_CONNECTOR_H */

/* load: reads from a store: rows in order or chosen ones (readers); probe keys, tags and quantised
 * rows of a layer (selectors).
 *
 *   match      [range 0: rows of a piece][range 1] ...     rows are numbered in this order
 *   reader     begin -> next, next ...  runs of verified rows of one layer, all or chosen
 *   selector   begin -> ready -> end    data that rows are selected by, in memory
 *
 * Invariants: returned rows are verified; a failure is a status that names its range. Selecting and
 * unpacking rows is the plugin's.
 * Tests: tests/unit/store/test_store.c, test_gather.c, test_selector.c, test_flight.c */
#ifndef SC_STORE_LOAD_H
#define SC_STORE_LOAD_H

#include "store/store.h"

/* ---- Readers -------------------------------------------------------------------------------- */

struct sc_store_range { /* rows of one piece, in logical order */
    uint64_t piece;
    uint32_t row_first;
    uint32_t row_count;
};

/* Returns false if the range's piece is void. Any thread. */
bool sc_store_range_is_there(const struct sc_store *store, const struct sc_store_range *range);
/* Returns in how many layers the host tier, or the tier above it, has the piece's rows now.
 * ret_risen (optional): of those, layers in the upper tier. Any thread; no lock. */
uint32_t sc_store_piece_host_layers(const struct sc_store *store, uint64_t piece,
                                    uint32_t *ret_risen);
/* The same for layers with a window only: a load of a long match needs few of their rows. */
uint32_t sc_store_piece_host_windowed(const struct sc_store *store, uint64_t piece,
                                      uint32_t *ret_risen);
/* Returns the halves of rows (K or V in one layer) promoted to the upper tier and not requested
 * then. Any thread; no lock. */
uint64_t sc_store_upper_promoted_halves(const struct sc_store *store);

/* Loads rows of one layer, in order, through staging frames: operations of up to io.op_bytes on row
 * borders, merged over adjacent pieces of an extent.
 * Completions issue the next operations, so read-ahead proceeds without the caller. Limits: the
 * frames of its class, shared with other loads; for demand, 64 frames ahead of the consumer. A
 * reader that is waited for progresses even if other readers hold every frame. So readers may begin
 * in any number, and are consumed one after the other in any order. A thread that has rows of one
 * reader finishes or cancels it before it waits for another. */
struct sc_store_reader;

/* Opens count >= 1 readers; their memory is allocated and touched together, at connector open.
 *   ret_readers  [count]; close takes the first, cancels, and waits for operations in flight */
spec_status sc_store_readers_open(struct sc_store *store, uint64_t count,
                                  struct sc_store_reader **ret_readers, struct spec_error *reterr);
void sc_store_readers_close(struct sc_store_reader *first, uint64_t count);
/* As sc_io_is_shallow: loads use a few buffers that stay in CPU caches. */
bool sc_store_is_shallow(const struct sc_store *store);

/* Starts a load. ranges are kept by pointer until the reader is idle. DEMAND may use every frame;
 * SPECULATIVE leaves a reserve for demand. Never blocks. */
void sc_store_reader_begin(struct sc_store_reader *reader, uint32_t layer,
                           const struct sc_store_range *ranges, uint64_t range_count,
                           enum sc_io_class io_class);
/* Raises a speculative load to demand. */
void sc_store_reader_demand(struct sc_store_reader *reader);

/* Chosen rows of one layer. Their tags come from a selector, so only rows are read. */
enum sc_store_part_wanted {
    SC_STORE_WANT_ROWS, /* K and V */
    SC_STORE_WANT_K,    /* split layout only */
    SC_STORE_WANT_V
};
struct sc_store_gather_rows {
    /* Row indexes [count] in range order, each once, returned in this order; ascending neighbours
     * share operations. Kept by pointer. NULL: 0 .. count - 1. */
    const uint32_t *rows;
    uint64_t count;
    uint32_t wanted;    /* enum sc_store_part_wanted */
    bool whole_slabs;   /* planner `chunk`: operations take the rows' whole slabs */
    uint64_t gap_bytes; /* planner `range`: largest gap read through; gaps stay within 1/6 */
    /* The reader's own: order in which the first turn_count are read; else as given. */
    const uint32_t *turn;
    uint64_t turn_count;
};
/* Starts a load of chosen rows. reader_next returns them in the given order (permuted extents: in
 * any), in runs of consecutive rows; row_first is the index in gather->rows. Rows have k_row_bytes
 * if only K or V is wanted. Small reads share frames: up to 64 per batch, 320 in flight. */
void sc_store_reader_begin_gather(struct sc_store_reader *reader, uint32_t layer,
                                  const struct sc_store_range *ranges, uint64_t range_count,
                                  const struct sc_store_gather_rows *gather,
                                  enum sc_io_class io_class);
/* Sets tags of the layer's rows in range order: [rows * tags a row], kept by pointer. A wrong tag
 * makes its row fail. Call before the first reader_next of chosen rows. */
void sc_store_reader_tags(struct sc_store_reader *reader, const uint64_t *tags);
/* Narrows a predicted load of chosen rows: bit i of wanted_bits is row i in range order. Nothing
 * more is planned, except the rest of a started slab (planner `chunk`). Operations not yet
 * submitted to the device without wanted rows are dropped; reader_next returns wanted rows only.
 * Sets the bits of wanted rows that will come in ret_covered_bits (zeroed by the caller) and
 * returns their number. wanted_bits is kept by pointer and must not change until the load ends or
 * is narrowed again, to a subset. Rows of the last reader_next are invalid afterwards. */
uint64_t sc_store_reader_narrow(struct sc_store_reader *reader, const uint64_t *wanted_bits,
                                uint64_t *ret_covered_bits);

/* Destinations of a whole load's rows, by their order in the ranges; rows are copied while they are
 * verified. All spans of a row NULL: not copied. */
struct sc_store_sink {
    sc_store_spans *spans;
    void *user;
    uint64_t span_bytes; /* half a row is a multiple of it */
};

#define SC_STORE_TIER SPEC_TIER_DISK /* tier of everything stored */

struct sc_store_rows {
    const uint8_t *rows; /* packed rows, row_bytes each, verified; until the next call */
    const uint8_t *v;    /* V of the first of them, if both K and V are wanted */
    uint64_t stride;     /* bytes between rows: row_bytes, or a half's */
    uint64_t row_first;  /* index in the order of the ranges */
    uint64_t row_count;
    uint64_t failed_range; /* on SPEC_E_CORRUPT, SPEC_E_IO: the failed range */
    uint32_t tier;         /* SPEC_TIER_*: source of the rows or of the failure */
    /* If not NULL: `rows` and `v` are in this slab of the host tier, which callers may hold. */
    struct sc_host_tier_memory_slab *slab;
};
/* Returns the host tier's memory, which contains the slabs; NULL: none. Constant while open. */
uint8_t *sc_host_tier_at(const struct sc_store *store, uint64_t *ret_bytes);
/* Holds a slab from reader_next beyond the next call: its bytes neither move nor change until it is
 * left as often. Any thread. */
void sc_store_slab_hold(struct sc_store *store, struct sc_host_tier_memory_slab *slab);
void sc_store_slab_leave(struct sc_store *store, struct sc_host_tier_memory_slab *slab);
/* From now on returns at least rows_least rows at a time, as far as one read has them; split K and
 * V stay apart. 0 (default): as reader_next. For the consumer. */
void sc_store_reader_apart(struct sc_store_reader *reader, uint64_t rows_least);
/* Waits for the next run of rows (at most SC_STORE_BITE_BYTES or one row, to stay in cache) and
 * verifies them on the caller's thread. One thread at a time.
 * SPEC_OK with row_count 0: complete. SPEC_E_CORRUPT, SPEC_E_IO: the load ended at failed_range.
 * SPEC_E_TIMEOUT: nothing consumed; call again or cancel.
 *   sink  optional destinations, written past the caches; of ret_rows only row_count and tier are
 *         then valid. Destinations of failed rows may be partly written */
spec_status sc_store_reader_next(struct sc_store_reader *reader, uint64_t deadline_ns,
                                 const struct sc_store_sink *sink, struct sc_store_rows *ret_rows,
                                 struct spec_error *reterr);
/* Waits until reader_next would not block, or the deadline: true. false: *word != seen. */
bool sc_store_reader_wait(struct sc_store_reader *reader, uint64_t deadline_ns,
                          const _Atomic uint64_t *word, uint64_t seen);
/* Makes waiters check their word again. Call after changing it. Any thread. */
void sc_store_reader_nudge(struct sc_store_reader *reader);
/* Returns true if the rest of the load has arrived or failed: reader_next will not block. */
bool sc_store_reader_is_there(const struct sc_store_reader *reader);
/* Ends a load early; frames in flight are recycled at completion. Never blocks. */
void sc_store_reader_cancel(struct sc_store_reader *reader);
bool sc_store_reader_is_idle(const struct sc_store_reader *reader);

/* ---- Prefetch into host memory --------------------------------------------------------------- */

struct sc_store_match_fetched {
    /* OK: complete, except damaged quantised rows and keys that loads do without. NO_SPACE: as much
     * as fitted, in fetch order. CORRUPT (also: void piece), IO: as a load. NO_MEMORY: permuted
     * rows could not be assembled. DROPPED: cancelled */
    spec_status status;
    uint64_t failed_range; /* not for OK or after a cancel */
    uint64_t bytes;        /* bytes fetched */
};

/* Returns the first position needed by a match ending at `end` in a layer whose queries see
 * `window` tokens, themselves included (0: all). */
static inline uint64_t sc_store_window_first(uint64_t window, uint64_t end)
{
    return window != 0 && window <= end ? end + 1 - window : 0;
}

/* The reads that loads of the ranges will need. */
struct sc_store_match_fetch_wants {
    uint64_t probe_row_bytes; /* as in struct sc_store_selector_want */
    bool is_quant, k_alone;
    uint32_t choice_from; /* first layer with a selector; layer_count: none */
    uint32_t rows_end;    /* layers whose rows are read; all for pieces without quantised rows */
    /* Optional [layer_count] windows, and the match's end: loads read from sc_store_window_first
     * on. Owned by the caller, as long as the store. */
    const uint64_t *windows;
    uint64_t end;
};

struct sc_store_match_fetch {
    const struct sc_store_range *ranges; /* [range_count] owned by the caller until done */
    uint64_t range_count;
    struct sc_store_match_fetch_wants wants;
    uint64_t keeper; /* > 0: keep what is fetched for this owner (store/cache/host_tier.h) */
    void (*done)(const struct sc_store_match_fetched *staged,
                 void *user); /* executor thread, once */
    void *user;
};
/* Returns true if there is a host tier. Constant after open. */
bool sc_store_can_fetch_match(const struct sc_store *store);
/* Fetches in the background: selector data of all layers, then rows layer by layer. Never blocks.
 * Errors: UNSUPPORTED (no host tier), BUSY (one match at a time), NO_MEMORY. */
spec_status sc_store_match_fetch_begin(struct sc_store *store,
                                       const struct sc_store_match_fetch *what,
                                       struct spec_error *reterr);
/* Returns true if host memory has all that is wanted of the piece in every layer. Any thread; takes
 * a lock only if some layers are excluded. */
bool sc_store_match_fetch_has(const struct sc_store *store,
                              const struct sc_store_match_fetch_wants *wants, uint64_t piece);
/* Ends the running fetch soon, with DROPPED or its own result. Any thread. */
void sc_store_match_fetch_cancel(struct sc_store *store);
/* Keeps an owner's data only until until_ns (executor's clock); 0: now. */
void sc_store_match_fetch_let_go(struct sc_store *store, uint64_t keeper, uint64_t until_ns);

/* ---- Selectors ------------------------------------------------------------------------------- */

/* One layer's selector keys (probe rows or quantised rows) and row tags of a match. The completing
 * thread verifies and copies them out, so no frame is held. */
struct sc_store_selector;

/* rows_max, ranges_max: the longest match. begin takes memory for its rows from the store's
 * selector_bytes_max until end. Connector open. */
spec_status sc_store_selector_open(struct sc_store *store, uint64_t rows_max, uint64_t ranges_max,
                                   struct sc_store_selector **ret_selector,
                                   struct spec_error *reterr);
void sc_store_selector_close(
    struct sc_store_selector *selector); /* ends it and waits for reads in flight */

struct sc_store_selector_want {
    uint32_t layer;
    enum sc_io_class io_class;
    const struct sc_store_range *ranges; /* [range_count] kept by pointer until end */
    uint64_t range_count;
    uint64_t probe_row_bytes; /* of each probe row, <= params.probe_row_bytes; 0: row tags only */
    uint64_t probe_row_bytes_least; /* that all rows must have, though fewer are read */
    bool is_quant, k_alone;   /* quantised rows instead of probe rows; only K's, or both */
    /* Optional. Called once on an executor thread when ready or failed. A call that end is too late
     * for may still run when end returns; none begins after it, and close waits for it. */
    void (*on_ready)(struct sc_store_selector *selector, void *user);
    void *user;
};
/* Begins a load and ends the previous one. Missing or damaged quantised rows do not fail it:
 * sc_store_slab_of reports them. false: nothing begun: a void range, missing or shorter probe rows,
 * or no free run of memory (counted). Never blocks. */
bool sc_store_selector_begin(struct sc_store_selector *selector,
                             const struct sc_store_selector_want *want);
void sc_store_selector_demand(struct sc_store_selector *selector);
/* Returns SPEC_PENDING, SPEC_OK, SPEC_E_CORRUPT (a probe row's tag) or SPEC_E_IO. Any thread. */
spec_status sc_store_selector_state(const struct sc_store_selector *selector);
/* Waits until it is not pending; returns its state or SPEC_E_TIMEOUT. Progresses even if readers
 * hold every frame, unless the caller is consuming one. Not from a task. */
spec_status sc_store_selector_wait(struct sc_store_selector *selector, uint64_t deadline_ns);
/* Waits until it is not pending, or the deadline: true. false: *word != seen. */
bool sc_store_selector_await(struct sc_store_selector *selector, uint64_t deadline_ns,
                             const _Atomic uint64_t *word, uint64_t seen);
/* Makes waiters check their word again. Call after changing it. Any thread. */
void sc_store_selector_nudge(struct sc_store_selector *selector);
/* Valid for state SPEC_OK until end: keys [rows][probe_row_bytes] in range order; tags [rows * tags
 * a row], unverified: a wrong one makes its row fail. */
const uint8_t *sc_store_selector_keys(const struct sc_store_selector *selector);
const uint64_t *sc_store_selector_tags(const struct sc_store_selector *selector);
/* Returns true if the range has quantised rows now; they may be raw or damaged. The range's piece
 * is held by the caller. */
bool sc_store_range_has_quant(const struct sc_store *store, const struct sc_store_range *range);
/* Returns true if the range's keys came from the host tier, which may itself be damaged. */
bool sc_store_selector_is_in_host_tier(struct sc_store_selector *selector, uint64_t range);
/* Verified quantised rows of a range, from its first row. keys: from selector_keys or keys_hold of
 * a load of quantised rows. false: the range has none. */
struct sc_store_slab {
    uint32_t bits_k, bits_v; /* bits_v 0: only K was requested */
    uint32_t tier;           /* SPEC_TIER_*: source */
    const struct sc_store_codec_shape *shape;
    const uint8_t *k_table, *v_table; /* bits per channel, if the shape has them */
    const uint8_t *k_scales, *k_quant, *v_scales, *v_quant;
};
bool sc_store_slab_of(const uint8_t *keys, uint64_t range, struct sc_store_slab *ret_slab);
/* Returns the keys for another thread; they stay until leave, even if the selector is ended. NULL:
 * state not SPEC_OK, or no rows. */
const uint8_t *sc_store_selector_keys_hold(struct sc_store_selector *selector);
void sc_store_selector_keys_leave(struct sc_store_selector *selector, const uint8_t *keys);
struct sc_store_read_cost;
void sc_store_selector_cost(const struct sc_store_selector *selector,
                            struct sc_store_read_cost *ret);
/* Abandons reads in flight and drops queued ones. The memory is reusable; for quantised rows after
 * the reads have ended. Never blocks. */
void sc_store_selector_end(struct sc_store_selector *selector);
uint64_t sc_store_selector_bytes_used(const struct sc_store *store);
/* Upper bound of selector_bytes_max per block of quantised rows beyond codes and tags: K, V and a
 * run's tags are rounded out to pages. */
#define SC_STORE_SELECTOR_SLACK_BYTES (6ull * 4096)
/* Bytes of selector_bytes_max for a load of row_count rows. */
uint64_t sc_store_selector_bytes(uint64_t row_count, uint64_t probe_row_bytes, uint32_t layout);

/* Cost of a byte and of one more operation at depth, measured on this store's reads since open
 * (store/io/io_cost.c); 5 us, 2.5 GB/s until then. Any thread. */
struct sc_store_device {
    uint64_t bytes_per_s, op_ns;
    bool is_measured;
};
void sc_store_device(const struct sc_store *store, struct sc_store_device *ret_device);
/* Returns gap_bytes of planner `range`: op_ns * bytes_per_s, at most 64 KiB. */
uint64_t sc_store_device_gap(const struct sc_store_device *device);

struct sc_store_read_cost { /* of the last load */
    uint64_t wanted_bytes;  /* rows and tags before page rounding; narrowed: wanted ones */
    uint64_t read_bytes;
    uint64_t op_count;
    uint64_t row_count; /* chosen rows: in started operations not dropped by narrow */
    uint64_t wait_ns;   /* caller blocked in reader_next */
    /* Device speed, executor's clock: begin of the load, and arrival of the last of timed_bytes.
     * Excludes reads after the load paused for its consumer. */
    uint64_t first_ns, last_ns, timed_bytes;
};
/* Returns the sum of all demand loads' wait_ns since open. Any thread; reads a counter. */
uint64_t sc_store_awaited_ns(const struct sc_store *store);
void sc_store_reader_cost(const struct sc_store_reader *reader,
                          struct sc_store_read_cost *ret_cost);

#endif

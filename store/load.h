/* Loading from a store: rows of pieces in order, or chosen ones, by readers; probe keys, tags and
 * codes of a layer by selectors.
 *
 *   match      [range 0: rows of a piece][range 1] ...     rows are numbered in this order
 *   reader     begin -> next, next ...  runs of verified rows of one layer, of all or of picks
 *   selector     begin -> there -> end    what rows are chosen by, held in memory
 *
 * Holds: rows that leave were verified; what fails is a status, and says which range.
 * Does not: choose rows, unpack them (plugin/).
 * Threads: as each call says.
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

/* Whether a load of the range can be begun; false: its piece is void. Any thread. */
bool sc_store_range_is_there(const struct sc_store *store, const struct sc_store_range *range);
/* Of how many layers host memory, or the tier above it, has the rows of a piece at the moment;
 * ret_risen, which may be NULL: of those, how many that tier has. Any thread; no lock. */
uint32_t sc_store_piece_host_layers(const struct sc_store *store, uint64_t piece,
                                    uint32_t *ret_risen);
/* The same of those layers alone that have a window: a load of a long match needs few of their
 * rows. */
uint32_t sc_store_piece_host_windowed(const struct sc_store *store, uint64_t piece,
                                      uint32_t *ret_risen);
/* Halves of rows, K or V in one layer, that went up into that tier and that nobody wanted then. Any
 * thread; no lock. */
uint64_t sc_store_upper_promoted_halves(const struct sc_store *store);

/* Loads rows of one layer, in order, through frames of the staging pool: operations of up to
 * io.op_bytes on row borders, merged over adjacent pieces of an extent. Completions issue what
 * follows, so a layer read ahead goes on without the caller: as far as its class has frames, which
 * loads beside it share; one in the demand class up to 64 frames ahead of its consumer. A reader
 * that is waited for progresses even when other readers hold every frame: readers may be begun in
 * any number and consumed in any order, one after the other (a thread that has rows of one reader
 * goes on with it, or cancels it, before it waits for another). */
struct sc_store_reader;

/* `count` >= 1 readers whose memory is taken, and first touched, together: at connector open.
 *   ret_readers  [count]; close takes the first, cancels, and waits for what is in flight */
spec_status sc_store_readers_open(struct sc_store *store, uint64_t count,
                                  struct sc_store_reader **ret_readers, struct spec_error *reterr);
void sc_store_readers_close(struct sc_store_reader *first, uint64_t count);
/* Whether loads go through a few buffers that stay in caches: sc_io_is_shallow. */
bool sc_store_is_shallow(const struct sc_store *store);

/* Starts a load. ranges are kept by pointer until the reader is idle again. The class DEMAND may
 * use every frame; SPECULATIVE leaves a reserve to demand. Never blocks. */
void sc_store_reader_begin(struct sc_store_reader *reader, uint32_t layer,
                           const struct sc_store_range *ranges, uint64_t range_count,
                           enum sc_io_class io_class);
/* Raises a speculative load to demand. */
void sc_store_reader_demand(struct sc_store_reader *reader);

/* Some rows of one layer. Their tags come from a selector, so they are read alone. */
enum sc_store_part_wanted {
    SC_STORE_WANT_ROWS, /* K and V */
    SC_STORE_WANT_K,    /* split layout only */
    SC_STORE_WANT_V
};
struct sc_store_gather_rows {
    const uint32_t *rows; /* [count] indexes in the order of the ranges, each once. They go out in
                           * this order; ascending neighbours share operations. Kept by pointer.
                           * NULL: 0, 1 .. count - 1 (so all K of a split layout are read) */
    uint64_t count;
    uint32_t wanted;    /* enum sc_store_part_wanted */
    bool whole_slabs;   /* planner `chunk`: every operation takes the whole slab of its rows */
    uint64_t gap_bytes; /* planner `range`: gaps up to this are read through, as long as all of them
                         * stay within a sixth of the rows: pages are worth more than operations */
    /* The reader's own: the order in which the first turn_count are read; else they go out as they
     * are. */
    const uint32_t *turn;
    uint64_t turn_count;
};
/* Starts a load of picks; reader_next gives them in that order (of extents whose rows stand in
 * another order, in any), in runs of rows that follow each
 * other, row_first being the index in picks->rows, rows of k_row_bytes when K or V alone is wanted.
 * Small reads share frames and batches: up to 64 go out together, and 320 at once. */
void sc_store_reader_begin_gather(struct sc_store_reader *reader, uint32_t layer,
                                  const struct sc_store_range *ranges, uint64_t range_count,
                                  const struct sc_store_gather_rows *gather,
                                  enum sc_io_class io_class);
/* Tags of the layer's rows, in the order of the ranges: [rows * tags a row], verified or not (a
 * wrong one makes a row fail). Before the first reader_next of a load of picks; kept by pointer. */
void sc_store_reader_tags(struct sc_store_reader *reader, const uint64_t *tags);
/* What is really wanted of a load of picks that was begun on a guess: bit i of wanted_bits is row i
 * in the order of the ranges. Nothing more is planned, but the rest of a slab that is begun
 * (planner `chunk`); operations that were not handed to the device yet and hold no wanted row are
 * dropped; reader_next gives wanted rows only. Sets the bits of the wanted rows that will come in
 * ret_covered_bits (zeroed by the caller); returns how many. wanted_bits is kept by pointer, and
 * read by any thread until the load has ended or is narrowed again: it does not change meanwhile.
 * Rows that the last reader_next gave are gone. It may be narrowed again, to rows that were wanted
 * until then. */
uint64_t sc_store_reader_narrow(struct sc_store_reader *reader, const uint64_t *wanted_bits,
                                uint64_t *ret_covered_bits);

/* Where rows of a whole load belong, by their order in the ranges, so that they go there while they
 * are verified. All spans of a row NULL: it goes nowhere. */
struct sc_store_sink {
    sc_store_spans *spans;
    void *user;
    uint64_t span_bytes; /* half a row is a multiple of it */
};

#define SC_STORE_TIER SPEC_TIER_DISK /* where all that a store has lies: rows and codes */

struct sc_store_rows {
    const uint8_t *rows; /* packed rows, row_bytes each, verified; until the next call */
    const uint8_t *v;    /* V of the first of them, where K and V are both wanted */
    uint64_t stride;     /* from row to row: row_bytes, but of K or V apart, or alone */
    uint64_t row_first;  /* index in the order of the ranges */
    uint64_t row_count;
    uint64_t failed_range; /* on SPEC_E_CORRUPT / SPEC_E_IO: index of the range that failed */
    uint32_t tier;         /* SPEC_TIER_*: where they came from, or what failed */
    /* Not NULL: `rows` and `v` lie in this slab of the host tier, which whoever holds it keeps. */
    struct sc_host_tier_memory_slab *slab;
};
/* The host tier's memory, in which slabs lie; NULL: there is none. Constant from open to close. */
uint8_t *sc_host_tier_at(const struct sc_store *store, uint64_t *ret_bytes);
/* What reader_next gave is held beyond the next call: its slab's bytes stay as they are, and where
 * they are, until it is left as often. Any thread. */
void sc_store_slab_hold(struct sc_store *store, struct sc_host_tier_memory_slab *slab);
void sc_store_slab_leave(struct sc_store *store, struct sc_host_tier_memory_slab *slab);
/* From here on at least so many rows are handed out at a time, however large they are, as far as
 * one read has them; of a split layout K and V stay apart. 0 (as after open): as reader_next says.
 * The consumer's. */
void sc_store_reader_apart(struct sc_store_reader *reader, uint64_t rows_least);
/* Waits for the next run of rows (at most SC_STORE_BITE_BYTES or one row, so that a copy finds them
 * in cache) and verifies their tags on the caller's thread. SPEC_OK with row_count 0: the load is
 * complete. SPEC_E_CORRUPT, SPEC_E_IO: the load is over, failed_range says where. SPEC_E_TIMEOUT:
 * nothing consumed, call again or cancel. One thread at a time. sink  NULL, or says where rows go:
 * they stand there when this returns, written past the caches, and of ret_rows only row_count and
 * tier say something. Places of rows that failed may have some of their bytes */
spec_status sc_store_reader_next(struct sc_store_reader *reader, uint64_t deadline_ns,
                                 const struct sc_store_sink *sink, struct sc_store_rows *ret_rows,
                                 struct spec_error *reterr);
/* Waits until reader_next will not wait: rows are there, the load failed or is complete; or until
 * the deadline, true as well. false: *word is not `seen` any more. One thread at a time. */
bool sc_store_reader_wait(struct sc_store_reader *reader, uint64_t deadline_ns,
                          const _Atomic uint64_t *word, uint64_t seen);
/* Whoever waits there looks at his word again. Any thread, after changing it. */
void sc_store_reader_nudge(struct sc_store_reader *reader);
/* Whether what is left of the load has come, or failed: reader_next will not wait. */
bool sc_store_reader_is_there(const struct sc_store_reader *reader);
/* Ends a load early; frames in flight are recycled when they complete. Never blocks. */
void sc_store_reader_cancel(struct sc_store_reader *reader);
bool sc_store_reader_is_idle(const struct sc_store_reader *reader);

/* ---- Ahead of a load, into host memory --------------------------------------------------------
 */

struct sc_store_match_fetched {
    spec_status status; /* OK: all of it is there, but codes and keys that are damaged where loads
                         * go without; NO_SPACE: so much of it as found room, in the order of
                         * the stage; CORRUPT (also: a piece is void), IO: as a load says;
                         * NO_MEMORY: rows in another order could not be put together; DROPPED:
                         * it was cancelled */
    uint64_t failed_range; /* not of OK, and not if it was cancelled */
    uint64_t bytes;        /* that were brought */
};

/* The first position that a match that ends at `end` needs, in a layer whose queries see `window`
 * tokens, their own included (0: all). */
static inline uint64_t sc_store_window_first(uint64_t window, uint64_t end)
{
    return window != 0 && window <= end ? end + 1 - window : 0;
}

/* What loads of the ranges read. */
struct sc_store_match_fetch_wants {
    uint64_t probe_row_bytes; /* as a selector is wanted: struct sc_store_selector_want */
    bool is_quant, k_alone;
    uint32_t choice_from; /* layers that have a selector; layer_count: none has */
    uint32_t rows_end;    /* layers of which rows are read; of pieces without codes, of all */
    /* Not NULL: [layer_count], each layer's window, and where the match ends: loads read rows from
     * sc_store_window_first on. The caller's, as long as the store. */
    const uint64_t *windows;
    uint64_t end;
};

struct sc_store_match_fetch {
    const struct sc_store_range *ranges; /* [range_count] the caller's until done */
    uint64_t range_count;
    struct sc_store_match_fetch_wants wants;
    uint64_t keeper; /* not 0: what is there is kept for it (store/cache/host_tier.h) */
    void (*done)(const struct sc_store_match_fetched *staged,
                 void *user); /* executor thread, once */
    void *user;
};
/* Whether there is a host tier. Constant after open. */
bool sc_store_can_fetch_match(const struct sc_store *store);
/* Brings what is wanted of the ranges' pieces in the background: what rows are chosen by, of all
 * layers, then rows, layer by layer. Never blocks. Errors: UNSUPPORTED (there is no host tier),
 * BUSY (one match is staged at a time), NO_MEMORY. */
spec_status sc_store_match_fetch_begin(struct sc_store *store,
                                       const struct sc_store_match_fetch *what,
                                       struct spec_error *reterr);
/* Whether host memory has all that is wanted of the piece, in every layer. Any thread; no lock,
 * but where some layers alone are wanted. */
bool sc_store_match_fetch_has(const struct sc_store *store,
                              const struct sc_store_match_fetch_wants *wants, uint64_t piece);
/* What runs ends soon, and says DROPPED, or how it ended before. Any thread. */
void sc_store_match_fetch_cancel(struct sc_store *store);
/* What is kept for it goes as any other does from then on (executor's clock); 0: now. */
void sc_store_match_fetch_let_go(struct sc_store *store, uint64_t keeper, uint64_t until_ns);

/* ---- Sketches ------------------------------------------------------------------------------- */

/* One layer's probe rows and row tags of a match, being read or there. Operations are verified and
 * copied out by the thread that completes them, so that no frame is held. */
struct sc_store_selector;

/* rows_max, ranges_max: of the longest match. A selector that is begun takes memory for the rows
 * that it is begun with from the store's selector_bytes_max, and keeps it until end. Connector
 * open. */
spec_status sc_store_selector_open(struct sc_store *store, uint64_t rows_max, uint64_t ranges_max,
                                   struct sc_store_selector **ret_selector,
                                   struct spec_error *reterr);
void sc_store_selector_close(
    struct sc_store_selector *selector); /* ends it, waits for what flies */

struct sc_store_selector_want {
    uint32_t layer;
    enum sc_io_class io_class;
    const struct sc_store_range *ranges; /* [range_count] kept by pointer until end */
    uint64_t range_count;
    uint64_t probe_row_bytes; /* of each probe row, <= params.probe_row_bytes; 0: row tags alone */
    bool is_quant, k_alone;   /* codes in the place of probe rows; K's alone, or K's and V's */
    /* NULL, or called once, on an executor thread, when it is there or failed; a call that end
     * comes too late for may still run when end returns, none begins after it, and close waits for
     * it. */
    void (*on_ready)(struct sc_store_selector *selector, void *user);
    void *user;
};
/* Ends what was begun before. Ranges that have no codes, or damaged ones, do not fail a load of
 * codes: sc_store_slab_of tells them apart. false: nothing was begun, because a range is not live,
 * has no probe rows (or shorter ones), or no run of memory is free that is long enough (counted).
 * Never blocks. */
bool sc_store_selector_begin(struct sc_store_selector *selector,
                             const struct sc_store_selector_want *want);
void sc_store_selector_demand(struct sc_store_selector *selector);
/* SPEC_PENDING, SPEC_OK, SPEC_E_CORRUPT (a probe row fails its tag) or SPEC_E_IO. Any thread. */
spec_status sc_store_selector_state(const struct sc_store_selector *selector);
/* Waits until it is not pending: its state, or SPEC_E_TIMEOUT. Progresses even when readers hold
 * every frame (the caller has no rows of one that it is in the midst of). Not from a task. */
spec_status sc_store_selector_wait(struct sc_store_selector *selector, uint64_t deadline_ns);
/* Of a selector whose state is SPEC_OK, until end: [rows][probe_row_bytes], rows in the order
 * of the ranges; [rows * tags a row], not verified: a wrong one makes its row fail. */
const uint8_t *sc_store_selector_keys(const struct sc_store_selector *selector);
const uint64_t *sc_store_selector_tags(const struct sc_store_selector *selector);
/* Whether those of the range came from host memory: what they disagree with may be right. */
bool sc_store_selector_is_in_host_tier(struct sc_store_selector *selector, uint64_t range);
/* Codes of a range, at its first row; verified. keys: what selector_keys, or keys_hold, gave of a
 * load of codes. false: the range has none. */
struct sc_store_slab {
    uint32_t bits_k, bits_v; /* bits_v 0: K's alone were asked for */
    uint32_t tier;           /* SPEC_TIER_*: where they came from */
    const struct sc_store_codec_shape *shape;
    const uint8_t *k_table, *v_table; /* of what the shape says */
    const uint8_t *k_scales, *k_quant, *v_scales, *v_quant;
};
bool sc_store_slab_of(const uint8_t *keys, uint64_t range, struct sc_store_slab *ret_slab);
/* The keys, for a thread beside the selector's owner: they stay as they are until leave, also when
 * the selector is ended meanwhile. NULL: its state is not SPEC_OK, or it is of no rows. */
const uint8_t *sc_store_selector_keys_hold(struct sc_store_selector *selector);
void sc_store_selector_keys_leave(struct sc_store_selector *selector, const uint8_t *keys);
struct sc_store_read_cost;
void sc_store_selector_cost(const struct sc_store_selector *selector,
                            struct sc_store_read_cost *ret);
/* What flies is let go, what is queued never flies; the memory may be used by others (codes': once
 * what flies into it has ended). Never blocks. */
void sc_store_selector_end(struct sc_store_selector *selector);
uint64_t sc_store_selector_bytes_used(const struct sc_store *store);
/* What a load of codes takes of selector_bytes_max at most for each of its blocks of codes, beside
 * what it reads of codes and tags: K's and V's are rounded out to pages, and so are the tags of a
 * run, which has one block or more. */
#define SC_STORE_SELECTOR_SLACK_BYTES (6ull * 4096)
/* What a load of so many rows takes of selector_bytes_max. */
uint64_t sc_store_selector_bytes(uint64_t row_count, uint64_t probe_row_bytes, uint32_t layout);

/* What a byte costs on this device, and one more operation when many are in flight, as this store's
 * reads have shown it since open (store/io/io_cost.c); a guess (5 us, 2.5 GB/s) until then. Any
 * thread. */
struct sc_store_device {
    uint64_t bytes_per_s, op_ns;
    bool is_measured;
};
void sc_store_device(const struct sc_store *store, struct sc_store_device *ret_device);
/* gap_bytes of planner `range`: op_ns * bytes_per_s, at most 64 KiB. */
uint64_t sc_store_device_gap(const struct sc_store_device *device);

struct sc_store_read_cost { /* of the load begun last */
    uint64_t wanted_bytes;  /* rows and tags, before page rounding; narrowed: wanted ones alone */
    uint64_t read_bytes;
    uint64_t op_count;
    uint64_t row_count; /* picks: rows of operations that were begun, and not dropped by narrow */
    uint64_t wait_ns;   /* caller's time blocked in reader_next */
    /* How fast the device was: on the executor's clock when the load began, and when the last of
     * timed_bytes had come. What was read after the load had paused, because nobody took what was
     * there, is not among them. */
    uint64_t first_ns, last_ns, timed_bytes;
};
/* What all who waited for loads on demand have waited, summed up since open, as the cost of each
 * load has it (wait_ns). Any thread; a read of a counter. */
uint64_t sc_store_awaited_ns(const struct sc_store *store);
void sc_store_reader_cost(const struct sc_store_reader *reader,
                          struct sc_store_read_cost *ret_cost);

#endif

/* config_keys: the table of keys, and the removed keys. */
#include "base/config_keys.h"

#define PATH_BYTES_MAX (SC_LIMIT_PATH_BYTES - SC_LIMIT_PATH_NAME_BYTES)

/* The second half repeats the first with read.planner range. */
#define PRESET_NAMES                                                                               \
    "recompute", "as-like", "as-h2o-lru", "as-h2o-lfu", "spi", "random", "impress-itf",            \
        "spec-itf", "hinted", "layered", "layered-uniform", "int8", "cake", "impress", "spec",     \
        "attention-store", "impress-itf-ro", "recompute+range", "as-like+range",                   \
        "as-h2o-lru+range", "as-h2o-lfu+range", "spi+range", "random+range", "impress-itf+range",  \
        "spec-itf+range", "hinted+range", "layered+range", "layered-uniform+range", "int8+range",  \
        "cake+range", "impress+range", "spec+range", "attention-store+range",                      \
        "impress-itf-ro+range"

/* A row's member, and its range. */
#define MEMBER(name)                                                                               \
    .offset = (uint32_t)offsetof(struct sc_config, name),                                          \
    .member_bytes = (uint32_t)sizeof(((struct sc_config *)NULL)->name)
#define PATH(name, least, most)    .kind = KIND_PATH, MEMBER(name), .min = (least), .max = (most)
#define SIZE(name, least, most)    .kind = KIND_SIZE, MEMBER(name), .min = (least), .max = (most)
#define INTEGER(name, least, most) .kind = KIND_INTEGER, MEMBER(name), .min = (least), .max = (most)
/* Numbers in steps of a quarter; the member has four times the value. */
#define QUARTERS(name, least, most)                                                                \
    .kind = KIND_QUARTERS, MEMBER(name), .min = 4 * (least), .max = 4 * (most)
#define CHOICE(name, ...) .kind = KIND_CHOICE, MEMBER(name), .choices = {__VA_ARGS__}

static const struct sc_config_row rows[] = {
    {{"path", "string", "required", "a directory's path, 1 .. 3840 bytes",
      "Directory of the store. It is created if absent; its parent must exist."},
     PATH(path, 1, PATH_BYTES_MAX)},
    {{"preset", "choice", "as-like",
      "recompute, as-like, as-h2o-lru, as-h2o-lfu, spi, random, impress[-itf[-ro]], spec[-itf], "
      "hinted, "
      "layered[-uniform], int8, cake, attention-store, or NAME+range",
      "Name of a system, which sets defaults of other keys. Keys that are given win. See Presets."},
     CHOICE(preset, PRESET_NAMES)},
    {{"chunk_tokens", "integer", "64", "16 .. 256, a power of two",
      "Tokens of a chunk, the unit of hashing and eviction. Data stored with another value is not "
      "found."},
     INTEGER(chunk_tokens, 16, 256),
     .is_power_of_two = true},
    {{"disk_bytes", "size", "0", "0, or segment_bytes .. 1024TiB",
      "Hard limit of the store on disk: at least 2 MiB per rank, 3 MiB if rows are short. 0: the "
      "smaller of 20 GiB and half of the free space at open."},
     SIZE(disk_bytes, 0, 1024 * TIB)},
    {{"segment_bytes", "size", "64MiB", "1MiB .. 1GiB, a multiple of 1MiB",
      "Size of one segment file. The store grows by whole segments."},
     SIZE(segment_bytes, MIB, GIB),
     .multiple_of = MIB},
    {{"staging_bytes", "size", "256MiB", "16MiB .. 1TiB",
      "Staging memory between the host and the disk, shared by reads and writes."},
     SIZE(staging_bytes, 16 * MIB, TIB)},
    {{"host_bytes", "size", "auto", "\"auto\", or 0 .. 1024TiB",
      "Memory of the host tier. It keeps rows of whole loads, quantised rows and probe keys for "
      "later loads, verified like data from disk. It is requested at open and used as it fills. "
      "`auto`: an eighth of the process's memory limit (machine, control groups, rlimits), at most "
      "4 GiB, shared by the ranks of a set and by the processes that store here or would take "
      "over, counted at open; none, with a log line, if the allocation fails. 0: none."},
     SIZE(host_bytes, 0, 1024 * TIB),
     .has_auto = true},
    {{"host_write_through", "choice", "no", "\"no\" or \"yes\"",
      "`yes`: stored rows are also copied to the host tier when their writes end, if the tier has "
      "room for rows that no request has loaded yet. The next turn of a conversation then reads "
      "nothing from disk."},
     CHOICE(host_write_through, "no", "yes")},
    {{"host_policy", "choice", "value", "\"value\", \"lru\", \"lfu\" or \"score\"",
      "Order of eviction from the host tier and the upper tier. `value`: the lowest product of use "
      "frequency, which decays, and time to get the data again. `lru`: the least recently used. "
      "`lfu`: the least often used. `score`: the lowest product of use count and average share of "
      "selected rows (IMPRESS)."},
     CHOICE(host_policy, "value", "lru", "lfu", "score")},
    {{"upper_bytes", "size", "0", "\"auto\", or 0 .. 1024TiB",
      "Memory of a simulated upper tier, in addition to `host_bytes`: host memory that stands in "
      "for device memory, as in the papers' dual cache. It holds, instead of the host tier, the "
      "rows of the chunks that its policy ranks highest. `auto`: 10/32 of `host_bytes`, as in "
      "IMPRESS."},
     SIZE(upper_bytes, 0, 1024 * TIB),
     .has_auto = true},
    {{"upper_policy", "choice", "same", "\"same\", \"value\", \"lru\", \"lfu\" or \"score\"",
      "Order of demotion from the upper tier to the host tier; values as for `host_policy`. "
      "`same`: its value. With `score` here and `lfu` there, the rows that are selected most stay "
      "above, and the host tier saves reads of whole chunks."},
     CHOICE(upper_policy, "same", "value", "lru", "lfu", "score")},
    {{"io.backend", "choice", "auto", "\"auto\", \"io_uring\" or \"pread\"",
      "Back end of file I/O. `auto`: io_uring if the kernel allows it, else pread."},
     CHOICE(io_backend, "auto", "io_uring", "pread")},
    {{"io.threads", "integer", "2", "1 .. 64",
      "Worker threads. One more is started, so that one is left for loads when writes stall. "
      "io_uring starts the same number again, each with its own ring."},
     INTEGER(io_threads, 1, SC_LIMIT_THREADS)},
    {{"io.in_flight_bytes", "size", "8MiB", "1MiB .. 1GiB",
      "io_uring: bytes in flight at one time. Prefetch may use three quarters of it, writes half, "
      "background work a quarter."},
     SIZE(io_in_flight_bytes, MIB, GIB)},
    {{"io.op_bytes", "size", "1MiB", "64KiB .. 8MiB, a multiple of 4KiB",
      "Largest single read or write, and size of a staging frame. If `staging_bytes` has no room "
      "for 256 of them, they are smaller: the largest power of two of which 256 fit, at least 64 "
      "KiB and one row."},
     SIZE(io_op_bytes, 64 * KIB, 8 * MIB),
     .multiple_of = 4 * KIB},
    {{"load_policy", "choice", "split", "\"load\", \"split\" or \"bidirectional\"",
      "Load policy: how much of a match lookup promises. `load`: all of it. `bidirectional`: all "
      "of it, for bidirectional loads: nothing is read before a load asks, and the engine computes "
      "from the front (`next_chunk`). `split`: the leading part for which the request is ready "
      "soonest, if it is loaded while the rest is computed; all of it until both speeds are "
      "measured. Rank 0's writer measures them and stores them in its log for the next open, other "
      "ranks and readers. This key and `compute.tokens_per_s` must be equal in all processes of a "
      "store."},
     CHOICE(load_policy, "load", "split", "bidirectional")},
    {{"compute.tokens_per_s", "integer", "0", "0 .. 1000000000",
      "`load_policy` split: prompt tokens per second that the engine computes, used until stored "
      "passes have shown it. 0: unknown."},
     INTEGER(compute_tokens_per_s, 0, 1000000000)},
    {{"max_requests", "integer", "64", "1 .. 65536",
      "Requests between lookup and release at one time; one more returns SPEC_E_BUSY. A released "
      "request counts until its stores have ended. Peeks do not count; 16 may run at one time."},
     INTEGER(max_requests, 1, SC_LIMIT_REQUESTS)},
    {{"max_request_tokens", "integer", "131072", "1 .. 16777216",
      "Tokens of one request: prompt and answer. Tokens beyond the limit are neither found nor "
      "stored."},
     INTEGER(max_request_tokens, 1, SC_LIMIT_REQUEST_TOKENS)},
    {{"request_bytes", "size", "auto", "\"auto\", or 64KiB .. 1TiB",
      "Memory of requests: tokens, matches and row selection. If no free run is long enough, "
      "lookup and attach return SPEC_E_BUSY, and tokens that are given with `store` are not "
      "stored. It is requested at open and holds at least one request of `max_request_tokens`. "
      "`auto`: room for 16,777,216 tokens, or for eight requests of `max_request_tokens` if that "
      "is more, but for no more than `max_requests`."},
     SIZE(request_bytes, 64 * KIB, TIB),
     .has_auto = true},
    {{"index_bytes_max", "size", "1GiB", "1MiB .. 1TiB",
      "Hard limit of the index's memory. When it is reached, nothing new is stored."},
     SIZE(index_bytes_max, MIB, TIB)},
    {{"lease_ns_max", "integer", "30000000000", "0 .. 86400000000000",
      "Longest duration of a lease in nanoseconds, and how long evicted rows keep their place on "
      "disk. It must be equal in all processes of a store. 0: no leases; lookups of readers and "
      "rank sets promise nothing. Below 0.1 s, lookups of a reader (it follows its writer every 25 "
      "ms) mostly miss, and its loads may find rows evicted (SPEC_E_CORRUPT)."},
     INTEGER(lease_ns_max, 0, 86400000000000ull)},
    {{"select.budget", "choice", "ratio", "\"ratio\", \"count\" or \"mass\"",
      "How many prefix rows get_important delivers. `ratio`: the share `select.retain_ppm`. "
      "`count`: `select.count` rows. `mass`: the fewest rows that hold the share `select.mass_ppm` "
      "of the importance, at most the ratio's."},
     CHOICE(budget, "ratio", "count", "mass")},
    {{"select.retain_ppm", "integer", "1000000", "0 .. 1000000",
      "Share of the rows in millionths, rounded up to whole rows, at least one. 1000000: every "
      "row, without selection."},
     INTEGER(retain_ppm, 0, 1000000)},
    {{"select.count", "integer", "1024", "0 .. 16777216",
      "Rows of the budget `count`. 0 means 1."},
     INTEGER(select_count, 0, SC_LIMIT_REQUEST_TOKENS)},
    {{"select.mass_ppm", "integer", "900000", "0 .. 1000000",
      "Share of the importance for the budget `mass`, in millionths."},
     INTEGER(mass_ppm, 0, 1000000)},
    {{"select.identify", "choice", "probes", "\"probes\", \"keys\", \"static\" or \"quantised\"",
      "Source of the scores. `probes`: probe keys (keys of the first KV heads, stored a second "
      "time); one set for all heads, or one per head if the probe heads disagree. `keys`: the keys "
      "of all heads, one set per head. `static`: stored averages of earlier requests. `quantised`: "
      "the quantised keys of all heads, one set."},
     CHOICE(identify, "probes", "keys", "static", "quantised")},
    {{"select.base", "choice", "none", "\"none\" or \"quantised\"",
      "Values that an item delivers for rows that are not selected. `none`: nothing. `quantised`: "
      "their quantised values, so that all rows are delivered; the budget is then "
      "`layered.exact_ppm`."},
     CHOICE(base, "none", "quantised")},
    {{"layered.bits_k", "number", "4",
      "1 .. 8 in steps of .25; with uniform bits 2, 3, 4, 5, 6 or 8",
      "Average bits of a K value in rows that are quantised from now on. Scales add 32 bits per "
      "channel of each piece."},
     QUARTERS(quarters_k, 1, 8)},
    {{"layered.bits_v", "number", "2",
      "1 .. 8 in steps of .25; with uniform bits 2, 3, 4, 5, 6 or 8",
      "Average bits of a V value, as for K. With `layered.bit_allocation` per_channel, V is "
      "uniform if this is 2, 3, 4, 5, 6 or 8."},
     QUARTERS(quarters_v, 1, 8)},
    {{"layered.bit_allocation", "choice", "uniform", "\"uniform\" or \"per_channel\"",
      "Bits per channel in rows that are quantised from now on. `uniform`: the same for all. "
      "`per_channel`: more for channels where ranges and queries show that errors matter; rotary "
      "embedding is removed from keys before they are quantised. Rows of both kinds can be read."},
     CHOICE(bit_allocation, "uniform", "per_channel")},
    {{"layered.exact_ppm", "integer", "50000", "0 .. 1000000",
      "`select.base` quantised: share of the rows that are delivered exactly, in millionths, "
      "rounded up to whole rows. 1000000: all rows, and no quantised rows are read."},
     INTEGER(exact_ppm, 0, 1000000)},
    {{"layered.keep_first", "integer", "0", "0 .. 16777216",
      "First rows of the match that are always exact, within `layered.exact_ppm`."},
     INTEGER(exact_first, 0, SC_LIMIT_REQUEST_TOKENS)},
    {{"layered.keep_last", "integer", "0", "0 .. 16777216",
      "Last rows of the match that are always exact, within `layered.exact_ppm`."},
     INTEGER(exact_last, 0, SC_LIMIT_REQUEST_TOKENS)},
    {{"layered.refine_bytes", "size", "64MiB", "0 .. 1TiB",
      "`select.base` quantised: memory for records of submitted deliveries, which `refine_of` "
      "needs to make more rows exact. A row takes 12 bytes per layer, 20 with the layout `split`. "
      "Requests have equal shares; the oldest records are overwritten first. 0: no delivery can be "
      "refined."},
     SIZE(refine_bytes, 0, TIB)},
    {{"reorder.scope", "choice", "span", "\"span\" or \"node\"",
      "How far reordering may move a row. `span`: within 1,024 rows, so that a part of a match is "
      "still read in long runs. `node`: within all rows that one pass stored together, up to "
      "16,384."},
     CHOICE(reorder_scope, "span", "node")},
    {{"reorder.interval_s", "integer", "0", "0 .. 31536000",
      "Seconds between reorderings. Rows that at least two requests scored are rewritten, each "
      "layer in descending average importance, within `maintain.bytes_per_s` and "
      "`store.write_budget`. 0: only by `maintain` REORDER."},
     INTEGER(reorder_interval_s, 0, 31536000)},
    {{"reorder.repeat_ppm", "integer", "250000", "0 .. 1000000",
      "When reordered rows are reordered again: if this share of the most important quarter of "
      "the rows, in millionths, is no longer stored together, at the earliest 16 requests after "
      "the last time. 0: never."},
     INTEGER(reorder_repeat_ppm, 0, 1000000)},
    {{"reorder.bytes_max", "size", "256MiB", "1MiB .. 1TiB",
      "Memory for one layer while it is reordered. Rows that were stored together are not "
      "reordered if a layer of them is larger."},
     SIZE(reorder_bytes_max, MIB, TIB)},
    {{"layered.quantise", "choice", "auto", "\"auto\", \"no\" or \"yes\"",
      "Whether stored rows are also quantised. `auto`: if `select.base` or `select.identify` is "
      "quantised."},
     CHOICE(quantise, "auto", "no", "yes")},
    {{"select.probe_heads", "integer", "3", "0 .. 16",
      "KV heads whose keys are stored a second time as probe keys; all heads if there are fewer. "
      "By default a configuration that does not probe stores none. Rows without probe keys are "
      "delivered whole."},
     INTEGER(probe_heads, 0, SC_LIMIT_PROBE_HEADS)},
    {{"select.alpha_milli", "integer", "600", "0 .. 50000",
      "Exponent of the similarity threshold, in thousandths (IMPRESS: 0.6). 0: every layer has one "
      "set per head. 50000: every layer has one set for all heads."},
     INTEGER(alpha_milli, 0, 50000)},
    {{"select.similarity", "choice", "jaccard", "\"jaccard\" or \"mass\"",
      "How probe heads are compared. `jaccard`: similarity of their sets, with a threshold that "
      "`select.alpha_milli` sets. `mass`: the importance in the voted set, relative to the "
      "importance in each head's own set."},
     CHOICE(similarity, "jaccard", "mass")},
    {{"select.similarity_mass_ppm", "integer", "900000", "0 .. 1000000",
      "Threshold of the similarity `mass`, in millionths."},
     INTEGER(similarity_mass_ppm, 0, 1000000)},
    {{"select.keep_first", "integer", "0", "0 .. 16777216",
      "First rows of the match that are always selected, within the budget."},
     INTEGER(keep_first, 0, SC_LIMIT_REQUEST_TOKENS)},
    {{"select.keep_last", "integer", "0", "0 .. 16777216",
      "Last rows of the match that are always selected, within the budget."},
     INTEGER(keep_last, 0, SC_LIMIT_REQUEST_TOKENS)},
    {{"select.dense_layers", "integer", "0", "0 .. 1024",
      "First layers of the model that are delivered whole."},
     INTEGER(dense_layers, 0, SC_LIMIT_LAYERS)},
    {{"select.min_tokens", "integer", "256", "0 .. 16777216",
      "Matches with fewer rows to load are delivered whole, so that KV computed on them is exact "
      "and can be stored. A budget in an item overrides this."},
     INTEGER(select_min_tokens, 0, SC_LIMIT_REQUEST_TOKENS)},
    {{"select.min_share_ppm", "integer", "500000", "0 .. 1000000",
      "Matches below this share of the prompt (rows to load plus tokens to compute) are delivered "
      "whole too, in millionths. 500000: matches that are shorter than the new tokens. 0: none."},
     INTEGER(min_share_ppm, 0, 1000000)},
    {{"select.unit", "integer", "1", "1 .. 1024",
      "Rows that are selected together. 1: single rows; else groups of that many consecutive "
      "tokens, counted from the prompt's start. The last group is cut at the budget."},
     INTEGER(unit, 1, 1024)},
    {{"select.metric", "choice", "h2o", "\"h2o\", \"last\" or \"random\"",
      "Measure of importance. `h2o`: attention summed over the rows of the pass. `last`: attention "
      "of its last row. `random`: none; any rows, for comparison."},
     CHOICE(metric, "h2o", "last", "random")},
    {{"select.selector_bytes", "size", "128MiB", "0 .. 1TiB",
      "Memory for selector keys, quantised rows and tags that are read ahead. It is allocated at "
      "open, and used in blocks of 64 KiB. Layers without room in it are delivered whole."},
     SIZE(selector_bytes, 0, TIB)},
    {{"select.average_bytes", "size", "64MiB", "0 .. 1TiB",
      "Limit of the memory for average importance. Averages beyond it are discarded."},
     SIZE(average_bytes, 0, TIB)},
    {{"prefetch.predictor", "choice", "none",
      "\"none\", \"random\", \"sink\", \"static\", \"layer\" or \"hint\"",
      "How the rows that the next layer will select are predicted. `random`: any rows. `sink`: "
      "first and last rows. `static`: stored averages. `layer`: the ranking of this layer. `hint`: "
      "the host's approximate queries. Results do not depend on it."},
     CHOICE(predictor, "none", "random", "sink", "static", "layer", "hint")},
    {{"prefetch.min_precision_ppm", "integer", "750000", "0 .. 1000000",
      "Accuracy in millionths that predictions need to be prefetched while other requests wait for "
      "the device all the time. The less they wait, the lower the required accuracy; if none "
      "waits, any past success suffices. 0: everything that fits into the available time is "
      "prefetched."},
     INTEGER(min_precision_ppm, 0, 1000000)},
    {{"hint.rows", "integer", "64", "1 .. 4096",
      "Query rows of a hint that are used, counted from the last."},
     INTEGER(hint_rows, 1, 4096)},
    {{"gpu.device", "integer", "auto", "\"auto\", or 0 .. 63",
      "CUDA device of loads and stores. `auto`: the device of the first device memory that is "
      "used, attached at that time. A number: attached at open, which fails if that is not "
      "possible."},
     INTEGER(gpu_device, 0, 63),
     .has_auto = true},
    {{"gpu.staging_bytes", "size", "64MiB", "1MiB .. 1TiB",
      "Pinned host memory for loads to a device, and as much device memory, allocated when the "
      "device is attached: at least four batches of rows."},
     SIZE(gpu_staging_bytes, 1048576, TIB)},
    {{"gpu.query_bytes", "size", "16MiB", "4KiB .. 1TiB",
      "Host memory for one item's queries and new keys that are in device memory. It is allocated "
      "when the device is attached, once for each item scored in parallel (at most eight). A "
      "larger item returns SPEC_E_INVALID."},
     SIZE(gpu_query_bytes, 4096, TIB)},
    {{"gpu.score_bytes", "size", "128MiB", "0 .. 1TiB",
      "Device memory for scoring, shared by all items in parallel: selector keys and a few numbers "
      "per query. It is allocated when the device is attached. Larger items are scored by the CPU. "
      "0: all items are scored by the CPU."},
     SIZE(gpu_score_bytes, 0, TIB)},
    {{"gpu.store_bytes", "size", "64MiB", "1MiB .. 1TiB",
      "As `gpu.staging_bytes`, for stores from a device. It holds rows that the host's stream has "
      "yet to pack, or that are in transfer. A host that is one pass ahead of its device needs "
      "room for that pass over all layers. Rows without room are dropped."},
     SIZE(gpu_store_bytes, 1048576, TIB)},
    {{"upper_bus_bytes_per_s", "size", "25GB", "0 .. 1TiB",
      "With `upper_bytes`: bytes per second of the simulated bus, for rows that are not in the "
      "upper tier. The time is counted; only a simulated clock waits for it. Loads to a device are "
      "not counted. 0: no time is counted."},
     SIZE(upper_bus_bytes_per_s, 0, TIB)},
    {{"submit.threads", "integer", "1", "0 .. 64",
      "Threads that carry out get_important_submit, one call each. 0: submit begins the reads, and "
      "get_important_wait does the rest, whatever its timeout."},
     INTEGER(submit_threads, 0, 64)},
    {{"read.planner", "choice", "chunk", "\"chunk\" or \"range\"",
      "How selected rows are read. `chunk`: the whole slab of each row. `range`: the rows alone; "
      "neighbours are read together."},
     CHOICE(planner, "chunk", "range")},
    {{"read.gap_bytes", "size", "0", "0 .. 1GiB",
      "With `read.planner` range: two rows are read together if at most so many bytes are between "
      "them. 0: derived from the measured device."},
     SIZE(gap_bytes, 0, GIB)},
    {{"store.layout", "choice", "paired", "\"paired\" or \"split\"",
      "Layout of rows on disk. `paired`: K and V of a token together. `split`: K rows, then V "
      "rows, so that keys can be read without values. Data that was stored with the other layout "
      "is not found."},
     CHOICE(layout, "paired", "split")},
    {{"store.checkpoint_bytes", "size", "64MiB", "1MiB .. 1TiB",
      "Growth of a rank's log since its last checkpoint after which a shorter log is written. A "
      "small disk uses less: a 128th of the rank's share."},
     SIZE(checkpoint_bytes, MIB, TIB)},
    {{"maintain.bytes_per_s", "size", "64MiB", "0 .. 1TiB",
      "Bytes per second that maintain BUILD, reordering and compaction may read. 0: as fast as the "
      "device allows behind all other I/O."},
     SIZE(maintain_bytes_per_s, 0, TIB)},
    {{"store.min_tokens", "integer", "1", "1 .. 16777216",
      "Passes with fewer new tokens are not stored."},
     INTEGER(store_min_tokens, 1, SC_LIMIT_REQUEST_TOKENS)},
    {{"store.write_budget", "size", "0", "0 .. 1024TiB",
      "Bytes that may be written per day, all kinds together, shared by the ranks. A quarter of it "
      "may be used at once. If none are left, a pass is not stored. Work that can wait "
      "(compaction, later quantisation, a shorter log) leaves the last quarter of that amount to "
      "passes. An open begins with an empty budget, or in a new store with a full one. 0: no "
      "limit."},
     SIZE(write_budget, 0, 1024 * TIB)},
    {{"store.admit", "choice", "all", "\"all\" or \"second\"",
      "Chunks of a pass that are stored. `all`: every chunk. `second`: chunks that an earlier pass "
      "computed too. About a million chunks are remembered in 2 MiB, until close."},
     CHOICE(admit, "all", "second")},
    {{"evict.policy", "choice", "lru", "\"value\", \"lru\" or \"lfu\"",
      "Which prefixes are evicted from disk first, each from its end. `value`: the least often "
      "used, by uses that decay: a use counts half after as many tokens were used as are stored. "
      "`lru`: the least recently used. `lfu`: the least often used."},
     CHOICE(evict_policy, "value", "lru", "lfu")},
    {{"store.allow_shared", "choice", "no", "\"no\" or \"yes\"",
      "Whether a store's directory, rank directories and files may belong to another user, or be "
      "writable by group or others. `no`: open is refused with path, owner and mode."},
     CHOICE(allow_shared, "no", "yes")},
    {{"store.writers", "choice", "auto", "\"auto\", \"one\" or \"many\"",
      "How many processes store into a rank at once. `one`: one does; of rows the others read, and "
      "take over when it ends, of objects they are refused. `many`: up to 16, each of which finds "
      "what any of them stored; all must say so, with the same segment_bytes. `auto`: many for "
      "objects by key, one for rows. See Several processes that store."},
     CHOICE(writers, "auto", "one", "many")},
    {{"store.allow_network_fs", "choice", "no", "\"no\" or \"yes\"",
      "Whether the store may be on a network or FUSE file system (NFS, SMB, 9P, Ceph, Lustre, "
      "others). Other hosts may not see a writer's lock there. `no`: open is refused with the path "
      "and the file system. `yes`: the operator ensures that each rank has one writer."},
     CHOICE(allow_network_fs, "no", "yes")},
    {{"store.lossy", "choice", "yes", "\"no\" or \"yes\"",
      "Whether KV that was computed on quantised rows is stored. Lookup reports it as LOSSY."},
     CHOICE(store_lossy, "no", "yes")},
    {{"store.pruned", "choice", "no", "\"no\" or \"yes\"",
      "Whether KV that was computed on a part of its prefix's rows is stored. Lookup reports it as "
      "PRUNED."},
     CHOICE(store_pruned, "no", "yes")},
    {{"objects.hold_ms", "integer", "10000", "0 .. 60000",
      "Milliseconds for which `exists` with HOLD protects the values that it found from eviction, "
      "if the call gives no time. The store should have room for several times the values found in "
      "that time; otherwise new values evict each other."},
     INTEGER(objects_hold_ms, 0, 60000)},
    {{"objects.timeout_ms", "integer", "30000", "1 .. 3600000",
      "Milliseconds that a get or put may take, if the call gives no time. A put waits that long "
      "for space."},
     INTEGER(objects_timeout_ms, 1, 3600000)},
    {{"objects.staging", "choice", "auto", "\"auto\", \"never\" or \"always\"",
      "Whether values in page-aligned memory pass through staging. `auto`: if that is measured to "
      "be an eighth faster, as on some virtual disks when the host's memory has small pages. "
      "Values in other memory always do."},
     CHOICE(objects_staging, "auto", "never", "always")},
    {{"objects.log_ppm", "integer", "15625", "15625 .. 500000",
      "Part of `disk_bytes` for the log, in millionths. 15625 is a 64th, enough for values of 32 "
      "KiB or more; values of 4 KiB need an eighth."},
     INTEGER(objects_log_ppm, 15625, 500000)},
    {{"objects.submitted_max", "integer", "4096", "1 .. 65536",
      "Operations that are submitted and not polled yet. One more returns SPEC_E_BUSY."},
     INTEGER(objects_submitted_max, 1, 65536)},
};
#define ROW_COUNT (sizeof(rows) / sizeof(rows[0]))
_Static_assert(ROW_COUNT <= 128, "config.c keeps so many bits of the keys that were given");
_Static_assert(PATH_BYTES_MAX == 3840 && SC_LIMIT_THREADS == 64 && SC_LIMIT_REQUESTS == 65536 &&
                   SC_LIMIT_REQUEST_TOKENS == 16777216 && SC_LIMIT_PROBE_HEADS == 16 &&
                   SC_LIMIT_LAYERS == 1024,
               "the texts above name these limits");
_Static_assert(SC_PRESET_RECOMPUTE == 0 && SC_PRESET_AS_LIKE == 1 && SC_PRESET_LAYERED == 9 &&
                   SC_PRESET_LAYERED_UNIFORM == 10 && SC_PRESET_INT8 == 11 &&
                   SC_PRESET_CAKE == 12 && SC_PRESET_ATTENTION_STORE == 15 && SC_PRESETS == 17 &&
                   SC_BASE_QUANTISED == 1 &&
                   SC_QUANTISE_YES == 2 && SC_BACKEND_AUTO == 0 && SC_BACKEND_PREAD == 2 &&
                   SC_IDENTIFY_QUANTISED == 3 && SC_SIMILARITY_MASS == 1 &&
                   SC_PREDICTOR_HINT == 5 && SC_PLANNER_RANGE == 1 && SC_LOAD_POLICY_SPLIT == 1 &&
                   SC_LOAD_POLICY_BIDIRECTIONAL == 2 && SC_POLICY_VALUE == 0 &&
                   SC_POLICY_LFU == 2 && SC_POLICY_SCORE == 3 && SC_ADMIT_SECOND == 1,
               "choices stand in the order of their numbers");
_Static_assert(SPEC_BUDGET_RATIO == 0 && SPEC_BUDGET_COUNT == 1 && SPEC_BUDGET_MASS == 2 &&
                   SPEC_METRIC_H2O == 0 && SPEC_METRIC_LAST == 1 && SPEC_METRIC_RANDOM == 2,
               "budgets and metrics have the numbers of the ABI");

const struct sc_config_row *sc_config_row_at(uint32_t i)
{
    return i < ROW_COUNT ? &rows[i] : NULL;
}

uint32_t sc_config_row_count(void)
{
    return ROW_COUNT;
}

static const struct sc_config_removed_key removed_keys[] = {
    {"prefetch.rule", "leave it out; prefetch.min_precision_ppm says how accurate predictions must "
                      "be, and 0 prefetches all of them"},
    {"gpu.mirror", "leave it out; quantised rows reach a device through gpu.staging_bytes"},
    {"layered.hot_ppm", "leave it out; results did not depend on it"},
    {"store.coarse_only", "leave it out; a full store evicts whole prefixes"},
    {"layered.planes", "give layered.bits_k and bits_v more bits if quantised rows are too "
                       "inaccurate"},
    {"layered.exact", "leave it out; the rows of layered.exact_ppm are delivered bit for bit"},
    {"fill", "it is named load_policy now; cut is split, and ends is bidirectional"},
    {"stage_bytes", "it is named staging_bytes now"},
    {"gpu.stage_bytes", "it is named gpu.staging_bytes now"},
    {"host_written", "it is named host_write_through now"},
    {"layered.widths", "it is named layered.bit_allocation now; even is uniform, and free is "
                       "per_channel"},
    {"layered.codes", "it is named layered.quantise now"},
    {"select.sketch_bytes", "it is named select.selector_bytes now"},
    {"gpu_bytes", "it is now upper_bytes, because host memory simulates that tier"},
    {"gpu_policy", "it is now upper_policy"},
    {"gpu.bus_bytes_per_s", "it is now upper_bus_bytes_per_s"},
    {NULL, NULL},
};

const struct sc_config_removed_key *sc_config_removed_key_at(uint32_t i)
{
    return removed_keys[i].path != NULL ? &removed_keys[i] : NULL;
}

/* The table of keys, and those that were removed; see config_keys.h. */
#include "base/config_keys.h"

#define PATH_BYTES_MAX (SC_LIMIT_PATH_BYTES - SC_LIMIT_PATH_NAME_BYTES)

/* The second half is the first with read.planner range. */
#define PRESET_NAMES                                                                               \
    "recompute", "as-like", "as-h2o-lru", "as-h2o-lfu", "spi", "random", "impress-itf",            \
        "spec-itf", "hinted", "layered", "layered-uniform", "int8", "cake", "impress", "spec",        \
        "attention-store", "impress-itf-ro", "recompute+range", "as-like+range",                   \
        "as-h2o-lru+range", "as-h2o-lfu+range", "spi+range", "random+range", "impress-itf+range",  \
        "spec-itf+range", "hinted+range", "layered+range", "layered-uniform+range", "int8+range",     \
        "cake+range", "impress+range", "spec+range", "attention-store+range",                      \
        "impress-itf-ro+range"

/* A row's member, and what it may be. */
#define MEMBER(name)                                                                               \
    .offset = (uint32_t)offsetof(struct sc_config, name),                                          \
    .member_bytes = (uint32_t)sizeof(((struct sc_config *)NULL)->name)
#define PATH(name, least, most)    .kind = KIND_PATH, MEMBER(name), .min = (least), .max = (most)
#define SIZE(name, least, most)    .kind = KIND_SIZE, MEMBER(name), .min = (least), .max = (most)
#define INTEGER(name, least, most) .kind = KIND_INTEGER, MEMBER(name), .min = (least), .max = (most)
/* Numbers in steps of a quarter: the member has four times as many. */
#define QUARTERS(name, least, most)                                                                \
    .kind = KIND_QUARTERS, MEMBER(name), .min = 4 * (least), .max = 4 * (most)
#define CHOICE(name, ...) .kind = KIND_CHOICE, MEMBER(name), .choices = {__VA_ARGS__}

static const struct sc_config_row rows[] = {
    {{"path", "string", "required", "a directory's path, 1 .. 3840 bytes",
      "The store's directory. It is made when absent; its parent must exist."},
     PATH(path, 1, PATH_BYTES_MAX)},
    {{"preset", "choice", "as-like",
      "recompute, as-like, as-h2o-lru, as-h2o-lfu, spi, random, impress[-itf[-ro]], spec[-itf], "
      "hinted, "
      "layered[-uniform], int8, cake, attention-store, or NAME+range",
      "Defaults of other keys, by the name of a system; keys that are given win. See below."},
     CHOICE(preset, PRESET_NAMES)},
    {{"chunk_tokens", "integer", "64", "16 .. 256, a power of two",
      "Tokens of a chunk, the unit of hashing and of eviction. What was stored with another value "
      "is not found."},
     INTEGER(chunk_tokens, 16, 256),
     .is_power_of_two = true},
    {{"disk_bytes", "size", "0", "0, or segment_bytes .. 1024TiB",
      "Hard cap of the store on disk, at least 2MiB a rank, 3MiB where rows are short. 0: the "
      "smaller of 20 GiB and half of what is free at open."},
     SIZE(disk_bytes, 0, 1024 * TIB)},
    {{"segment_bytes", "size", "64MiB", "1MiB .. 1GiB, a multiple of 1MiB",
      "Size of one file of rows; space grows by it."},
     SIZE(segment_bytes, MIB, GIB),
     .multiple_of = MIB},
    {{"staging_bytes", "size", "256MiB", "16MiB .. 1TiB",
      "Memory between the host and the disk, for reads and writes together."},
     SIZE(staging_bytes, 16 * MIB, TIB)},
    {{"host_bytes", "size", "auto", "\"auto\", or 0 .. 1024TiB",
      "Memory of the host tier: rows of whole loads, codes and probe keys stay there for the next, "
      "verified like those of the disk. Asked for at open, used as it fills. auto: an eighth of "
      "what the process may use (of the machine, of its control groups, of its own limits), at "
      "most 4GiB, shared evenly by the ranks of a set; none, and a word of it in the log, where it "
      "cannot be had. 0: none."},
     SIZE(host_bytes, 0, 1024 * TIB),
     .has_auto = true},
    {{"host_write_through", "choice", "no", "\"no\" or \"yes\"",
      "yes: rows that are stored stay in the host tier, too, where there is room for what nobody "
      "has asked for yet, so that the next turn of a conversation reads nothing. They are copied "
      "as their writes end."},
     CHOICE(host_write_through, "no", "yes")},
    {{"host_policy", "choice", "value", "\"value\", \"lru\", \"lfu\" or \"score\"",
      "What the host tier, and the one above it, give up first. value: what is used least often "
      "times the time that having it again takes, and falls behind when it is used no more; lru: "
      "longest ago; lfu: least often; score: least often times the share of its rows that were "
      "wanted, a moving average (IMPRESS)."},
     CHOICE(host_policy, "value", "lru", "lfu", "score")},
    {{"upper_bytes", "size", "0", "\"auto\", or 0 .. 1024TiB",
      "Memory of a simulated upper tier, beside host_bytes: rows of chunks that host_policy ranks "
      "highest are there and not in the host tier, as in the papers' dual cache. Host memory "
      "stands for a device's: see upper_bus_bytes_per_s. auto: 10 of 32 parts of host_bytes, as "
      "IMPRESS has it. 0: none."},
     SIZE(upper_bytes, 0, 1024 * TIB),
     .has_auto = true},
    {{"upper_policy", "choice", "same", "\"same\", \"value\", \"lru\", \"lfu\" or \"score\"",
      "upper_bytes: what that tier gives up first, to host memory, as host_policy has it. same: as "
      "host_policy is. score, with lfu for the host: rows above are those that are wanted most, "
      "and "
      "host memory spares reads, which take a whole chunk however few of its rows are wanted."},
     CHOICE(upper_policy, "same", "value", "lru", "lfu", "score")},
    {{"io.backend", "choice", "auto", "\"auto\", \"io_uring\" or \"pread\"",
      "How files are read and written. auto: io_uring where the kernel allows it, else pread."},
     CHOICE(io_backend, "auto", "io_uring", "pread")},
    {{"io.threads", "integer", "2", "1 .. 64",
      "Worker threads of the connector, and one more, so that writes that stall leave one to "
      "loads; io_uring has as many more, each with a ring."},
     INTEGER(io_threads, 1, SC_LIMIT_THREADS)},
    {{"io.in_flight_bytes", "size", "8MiB", "1MiB .. 1GiB",
      "io_uring: how much is in flight at once. Reads ahead may fill three quarters of it, writes "
      "half, upkeep a quarter."},
     SIZE(io_in_flight_bytes, MIB, GIB)},
    {{"io.op_bytes", "size", "1MiB", "64KiB .. 8MiB, a multiple of 4KiB",
      "The largest single read or write, and a frame of staging. Where staging_bytes has no room for "
      "256 of these, an operation is smaller: a power of two of which there is room for 256, at "
      "least 64KiB and at least a row."},
     SIZE(io_op_bytes, 64 * KIB, 8 * MIB),
     .multiple_of = 4 * KIB},
    {{"load_policy", "choice", "split", "\"load\", \"split\" or \"bidirectional\"",
      "How much of a match lookup promises. load: all of it. bidirectional: all of it, and nothing is read "
      "before a load asks, for engines that compute from the front while they load from the back "
      "(next_chunk). split: the beginning that is worth "
      "loading, so that loading it and computing the rest, which go on side by side, end soonest; "
      "all of it until both were measured. Rank 0's writer measures, also for the next open; a set "
      "of ranks, and readers, cut by what its log says. The same in all processes of a store, as "
      "`compute.tokens_per_s`."},
     CHOICE(load_policy, "load", "split", "bidirectional")},
    {{"compute.tokens_per_s", "integer", "0", "0 .. 1000000000",
      "load_policy split: how fast the engine computes the tokens of a prompt, until passes that were "
      "stored "
      "have shown it. 0: it is not known before."},
     INTEGER(compute_tokens_per_s, 0, 1000000000)},
    {{"max_requests", "integer", "64", "1 .. 65536",
      "Requests between lookup and release at one time; one more is answered with SPEC_E_BUSY. "
      "A released one counts until its stores have ended. Peeks are none; 16 of them "
      "may run at the same moment."},
     INTEGER(max_requests, 1, SC_LIMIT_REQUESTS)},
    {{"max_request_tokens", "integer", "131072", "1 .. 16777216",
      "Tokens of one request: prompt and answer. Longer prompts are cut: tokens behind the limit "
      "are neither found nor stored."},
     INTEGER(max_request_tokens, 1, SC_LIMIT_REQUEST_TOKENS)},
    {{"request_bytes", "size", "auto", "\"auto\", or 64KiB .. 1TiB",
      "Memory of requests: tokens, the match, and what rows are chosen in. Each request takes "
      "as much as its prompt and its match need; where no run of it is long enough, lookup and "
      "attach are answered with SPEC_E_BUSY, and tokens that a store brings are not stored. "
      "Asked for at open, used from its beginning. It has room for a request of "
      "max_request_tokens at least. auto: room for 16,777,216 tokens of all requests together, "
      "or for eight requests of max_request_tokens where that is more, and for no more than "
      "max_requests."},
     SIZE(request_bytes, 64 * KIB, TIB),
     .has_auto = true},
    {{"index_bytes_max", "size", "1GiB", "1MiB .. 1TiB",
      "Hard cap of the index's memory; when it is reached nothing new is stored."},
     SIZE(index_bytes_max, MIB, TIB)},
    {{"lease_ns_max", "integer", "30000000000", "0 .. 86400000000000",
      "How long a lease may promise, in nanoseconds, and how long dropped rows keep their place. "
      "The same in all processes of a store. 0: no leases, and lookup in a reader or a rank set "
      "promises nothing. Below 0.1 s a reader, which follows its writer every 25 ms, mostly "
      "misses, and may find dropped what it has begun to load (CORRUPT)."},
     INTEGER(lease_ns_max, 0, 86400000000000ull)},
    {{"select.budget", "choice", "ratio", "\"ratio\", \"count\" or \"mass\"",
      "How many prefix rows get_important delivers. ratio: a share of them. count: so many. "
      "mass: the fewest that hold a share of the importance, at most the ratio."},
     CHOICE(budget, "ratio", "count", "mass")},
    {{"select.retain_ppm", "integer", "1000000", "0 .. 1000000",
      "Share of the rows, in millionths, rounded up to whole rows, at least one. 1000000: "
      "every row, and nothing is looked at to choose."},
     INTEGER(retain_ppm, 0, 1000000)},
    {{"select.count", "integer", "1024", "0 .. 16777216",
      "Rows of the budget count; 0 reads as 1."},
     INTEGER(select_count, 0, SC_LIMIT_REQUEST_TOKENS)},
    {{"select.mass_ppm", "integer", "900000", "0 .. 1000000",
      "Share of the importance of the budget mass, in millionths."},
     INTEGER(mass_ppm, 0, 1000000)},
    {{"select.identify", "choice", "probes", "\"probes\", \"keys\", \"static\" or \"quantised\"",
      "Where scores come from. probes: keys of the first heads, stored a second time; one "
      "set for all heads, or one a head where they disagree. keys: the keys of all heads, "
      "one set a head. static: stored averages of earlier requests. quantised: the codes of all "
      "heads' keys, one set."},
     CHOICE(identify, "probes", "keys", "static", "quantised")},
    {{"select.base", "choice", "none", "\"none\" or \"quantised\"",
      "What an item gets of rows that are not chosen. none: nothing. quantised: their codes' values, "
      "so that every row is there; the budget is layered.exact_ppm then."},
     CHOICE(base, "none", "quantised")},
    {{"layered.bits_k", "number", "4",
      "1 .. 8 in steps of .25; with uniform bits 2, 3, 4, 5, 6 or 8",
      "Bits of a value of K in the codes that are made from now on, on average; scales come on "
      "top: 32 bits a channel of each piece of a chunk."},
     QUARTERS(quarters_k, 1, 8)},
    {{"layered.bits_v", "number", "2",
      "1 .. 8 in steps of .25; with uniform bits 2, 3, 4, 5, 6 or 8",
      "The same of V. Of free widths V has some where this is no whole number."},
     QUARTERS(quarters_v, 1, 8)},
    {{"layered.bit_allocation", "choice", "uniform", "\"uniform\" or \"per_channel\"",
      "Bits of each channel in the codes that are made from now on. uniform: all the same. per_channel: more "
      "where ranges and queries say that errors count, and keys are coded as they were before the "
      "rotary turn. Codes of either kind are read."},
     CHOICE(bit_allocation, "uniform", "per_channel")},
    {{"layered.exact_ppm", "integer", "50000", "0 .. 1000000",
      "select.base quantised: share of the rows that are delivered exactly, in millionths, rounded up "
      "to whole rows. 1000000: all of them, and no codes are read."},
     INTEGER(exact_ppm, 0, 1000000)},
    {{"layered.keep_first", "integer", "0", "0 .. 16777216",
      "First rows of the match that are always exact, within that share."},
     INTEGER(exact_first, 0, SC_LIMIT_REQUEST_TOKENS)},
    {{"layered.keep_last", "integer", "0", "0 .. 16777216",
      "Last rows of the match that are always exact, within that share."},
     INTEGER(exact_last, 0, SC_LIMIT_REQUEST_TOKENS)},
    {{"layered.refine_bytes", "size", "64MiB", "0 .. 1TiB",
      "select.base quantised: memory for what is known of submitted deliveries, so that refine_of may "
      "make more of their rows exact: 12 bytes a row and layer, or 20 of a split layout, an equal "
      "share for each request. The oldest are forgotten first. 0: none can be refined."},
     SIZE(refine_bytes, 0, TIB)},
    {{"reorder.scope", "choice", "span", "\"span\" or \"node\"",
      "Where reordering moves a row. span: within 1,024 rows, so that a part of a match is still "
      "read "
      "in long pieces. node: within all that one pass stored together, up to 16,384 rows."},
     CHOICE(reorder_scope, "span", "node")},
    {{"reorder.interval_s", "integer", "0", "0 .. 31536000",
      "Every how many seconds rows that at least two requests have scored are written anew, each "
      "layer's in descending average importance, each prefix once; read at maintain.bytes_per_s "
      "and within store.write_budget. 0: when maintain is asked for it alone."},
     INTEGER(reorder_interval_s, 0, 31536000)},
    {{"reorder.bytes_max", "size", "256MiB", "1MiB .. 1TiB",
      "Memory of a layer that is reordered; what was stored together and has larger ones is left "
      "as it is."},
     SIZE(reorder_bytes_max, MIB, TIB)},
    {{"layered.quantise", "choice", "auto", "\"auto\", \"no\" or \"yes\"",
      "Whether codes are made of what is stored. auto: where select.base or select.identify is "
      "quantised."},
     CHOICE(quantise, "auto", "no", "yes")},
    {{"select.probe_heads", "integer", "3", "0 .. 16",
      "KV heads whose keys are stored a second time for probes (all, when there are fewer). Unless "
      "this key is given, none are stored by a configuration that does not probe; rows stored "
      "without them are delivered whole."},
     INTEGER(probe_heads, 0, SC_LIMIT_PROBE_HEADS)},
    {{"select.alpha_milli", "integer", "600", "0 .. 50000",
      "Exponent of the threshold of similarity, in thousandths (IMPRESS: 0.6). 0: every "
      "layer has a set a head. 50000: none has."},
     INTEGER(alpha_milli, 0, 50000)},
    {{"select.similarity", "choice", "jaccard", "\"jaccard\" or \"mass\"",
      "How probe heads are compared. jaccard: their sets, with the threshold of alpha. "
      "mass: what the voted set catches of the importance that each head's own set catches."},
     CHOICE(similarity, "jaccard", "mass")},
    {{"select.similarity_mass_ppm", "integer", "900000", "0 .. 1000000",
      "Threshold of the similarity mass, in millionths."},
     INTEGER(similarity_mass_ppm, 0, 1000000)},
    {{"select.keep_first", "integer", "0", "0 .. 16777216",
      "First rows of the match that are always chosen, within the budget."},
     INTEGER(keep_first, 0, SC_LIMIT_REQUEST_TOKENS)},
    {{"select.keep_last", "integer", "0", "0 .. 16777216",
      "Last rows of the match that are always chosen, within the budget."},
     INTEGER(keep_last, 0, SC_LIMIT_REQUEST_TOKENS)},
    {{"select.dense_layers", "integer", "0", "0 .. 1024",
      "First layers of the model that are delivered whole."},
     INTEGER(dense_layers, 0, SC_LIMIT_LAYERS)},
    {{"select.min_tokens", "integer", "256", "0 .. 16777216",
      "Matches with fewer rows to load are delivered whole, so that what is computed on them is "
      "exact and can be stored; unless an item of the host gives a budget itself."},
     INTEGER(select_min_tokens, 0, SC_LIMIT_REQUEST_TOKENS)},
    {{"select.min_share_ppm", "integer", "500000", "0 .. 1000000",
      "Matches that are less than this share of the prompt (of the rows to load and the tokens to "
      "compute together) are delivered whole likewise, in millionths. 500000: those that are "
      "shorter than what is new. 0: none."},
     INTEGER(min_share_ppm, 0, 1000000)},
    {{"select.unit", "integer", "1", "1 .. 1024",
      "Rows that are chosen together: 1, or granules of so many tokens, counted from the "
      "prompt's start; the last granule is cut at the budget."},
     INTEGER(unit, 1, 1024)},
    {{"select.metric", "choice", "h2o", "\"h2o\", \"last\" or \"random\"",
      "What importance is. h2o: attention summed over the rows of the pass. last: that of "
      "its last row. random: none, any rows, for comparison."},
     CHOICE(metric, "h2o", "last", "random")},
    {{"select.selector_bytes", "size", "128MiB", "0 .. 1TiB",
      "Memory for keys of probe heads, codes and tags that are read ahead, taken at open in blocks "
      "of 64 KiB; layers that find no room in it are delivered whole."},
     SIZE(selector_bytes, 0, TIB)},
    {{"select.average_bytes", "size", "64MiB", "0 .. 1TiB",
      "Cap of the memory for average importance; what falls out is forgotten."},
     SIZE(average_bytes, 0, TIB)},
    {{"prefetch.predictor", "choice", "none",
      "\"none\", \"random\", \"sink\", \"static\", \"layer\" or \"hint\"",
      "How rows that the next layer will want are guessed. sink: first and last ones. "
      "static: stored averages. layer: the ranking of this layer. hint: the host's "
      "approximate queries. What is delivered does not depend on it."},
     CHOICE(predictor, "none", "random", "sink", "static", "layer", "hint")},
    {{"prefetch.min_precision_ppm", "integer", "750000", "0 .. 1000000",
      "How right guesses have to be to be read ahead, in millionths, if another request's loads on "
      "demand were waited for all the time lately; where less was, the less they have to be; and "
      "where none was, right at times is enough. 0: all are read that fit the time there is."},
     INTEGER(min_precision_ppm, 0, 1000000)},
    {{"hint.rows", "integer", "64", "1 .. 4096",
      "Query rows of a hint that are used: the last ones."},
     INTEGER(hint_rows, 1, 4096)},
    {{"gpu.device", "integer", "auto", "\"auto\", or 0 .. 63",
      "The CUDA device that loads go to and stores come from. auto: the one of the first memory "
      "that is on a device, "
      "which is attached then. A number: it is attached at open, which fails where that cannot "
      "be."},
     INTEGER(gpu_device, 0, 63),
     .has_auto = true},
    {{"gpu.staging_bytes", "size", "64MiB", "1MiB .. 1TiB",
      "Pinned host memory, and as much of the device's, through which loads to a device go; taken "
      "when it is attached, at least four of the pieces that rows and codes travel in."},
     SIZE(gpu_staging_bytes, 1048576, TIB)},
    {{"gpu.query_bytes", "size", "16MiB", "4KiB .. 1TiB",
      "Host memory that queries and new keys on a device come to, of one item; taken when it is "
      "attached, as often as items are scored side by side (at most eight). An item with more is "
      "SPEC_E_INVALID."},
     SIZE(gpu_query_bytes, 4096, TIB)},
    {{"gpu.score_bytes", "size", "128MiB", "0 .. 1TiB",
      "Memory of the device in which rows are scored, of all items side by side: what their keys "
      "are chosen by (codes, or probe heads' keys) and a few numbers a query. Taken when it is "
      "attached. An item that needs more is scored by the host's processor; 0: each is."},
     SIZE(gpu_score_bytes, 0, TIB)},
    {{"gpu.store_bytes", "size", "64MiB", "1MiB .. 1TiB",
      "The same for stores from a device, beside it: rows that the host's stream has yet to pack, "
      "or that are on their way. A host that is a pass ahead of its device needs room for the "
      "pass's "
      "rows over all layers; what finds none is given up."},
     SIZE(gpu_store_bytes, 1048576, TIB)},
    {{"upper_bus_bytes_per_s", "size", "25GB", "0 .. 1TiB",
      "upper_bytes: what the bus moves a second, over which rows would go to a device that do not "
      "lie "
      "in that tier. Time that this takes is counted, and waited for where the clock is "
      "simulated; nobody waits on a real one, nor is it counted where rows go to a device. 0: "
      "nothing is charged."},
     SIZE(upper_bus_bytes_per_s, 0, TIB)},
    {{"submit.threads", "integer", "1", "0 .. 64",
      "Threads that do the work of get_important_submit; each does one call at a time. 0: submit "
      "begins the reads, and get_important_wait does the rest, whatever its timeout."},
     INTEGER(submit_threads, 0, 64)},
    {{"read.planner", "choice", "chunk", "\"chunk\" or \"range\"",
      "How chosen rows are read. chunk: the whole slab of each. range: the rows, neighbours "
      "together."},
     CHOICE(planner, "chunk", "range")},
    {{"read.gap_bytes", "size", "0", "0 .. 1GiB",
      "range: unwanted bytes between two rows that are read rather than skipped. 0: as the "
      "device was measured."},
     SIZE(gap_bytes, 0, GIB)},
    {{"store.layout", "choice", "paired", "\"paired\" or \"split\"",
      "How rows lie on disk. paired: K and V of a token together. split: K rows, then V "
      "rows, for identify keys. What was stored with the other one is not found."},
     CHOICE(layout, "paired", "split")},
    {{"store.checkpoint_bytes", "size", "64MiB", "1MiB .. 1TiB",
      "Growth of a rank's log, beyond what the last checkpoint left, after which it is written "
      "anew, shorter. On a small disk it is less: a 128th of the rank's share."},
     SIZE(checkpoint_bytes, MIB, TIB)},
    {{"maintain.bytes_per_s", "size", "64MiB", "0 .. 1TiB",
      "What may be read a second while maintain builds what rows lack, and while pieces are "
      "merged. 0: as fast as the device gives it behind everything else."},
     SIZE(maintain_bytes_per_s, 0, TIB)},
    {{"store.min_tokens", "integer", "1", "1 .. 16777216",
      "Passes with fewer new tokens are not stored."},
     INTEGER(store_min_tokens, 1, SC_LIMIT_REQUEST_TOKENS)},
    {{"store.write_budget", "size", "0", "0 .. 1024TiB",
      "What may be written to the device in a day, everything together, shared evenly by the "
      "ranks. "
      "A quarter of it may come at once; a pass that finds none left is not stored, and what can "
      "wait (merges, codes made later, a shorter log) leaves the last quarter of that to passes. "
      "The budget is of one run, which begins with nothing unless the store is new. 0: "
      "no limit."},
     SIZE(write_budget, 0, 1024 * TIB)},
    {{"store.admit", "choice", "all", "\"all\" or \"second\"",
      "What is stored of a pass. all: every chunk. second: chunks that an earlier pass computed "
      "too; what comes once is never written. It remembers about a million chunks in 2 MiB, until "
      "close."},
     CHOICE(admit, "all", "second")},
    {{"evict.policy", "choice", "lru", "\"value\", \"lru\" or \"lfu\"",
      "Which prefixes the disk gives up first, from their ends on. value: what is used least "
      "often, uses counting half as much each time that as much as is stored was used since; lru: "
      "longest ago; lfu: least often."},
     CHOICE(evict_policy, "value", "lru", "lfu")},
    {{"store.allow_shared", "choice", "no", "\"no\" or \"yes\"",
      "Whether a store's directory, rank directory or file may belong to another user, or be such "
      "that its group or others may write it. No: opening it is refused with its path, owner and "
      "mode."},
     CHOICE(allow_shared, "no", "yes")},
    {{"store.allow_network_fs", "choice", "no", "\"no\" or \"yes\"",
      "Whether the store's directory may be on a network or FUSE file system (NFS, SMB, 9P, Ceph, "
      "Lustre and others), where the lock of a writer on another host may not be seen. No: opening "
      "it is refused with its path and the file system. yes: the operator ensures that each rank "
      "has one writer."},
     CHOICE(allow_network_fs, "no", "yes")},
    {{"store.lossy", "choice", "yes", "\"no\" or \"yes\"",
      "Whether KV that was computed on decoded codes is stored. It says so in lookup."},
     CHOICE(store_lossy, "no", "yes")},
    {{"store.pruned", "choice", "no", "\"no\" or \"yes\"",
      "Whether KV that was computed on a part of its prefix's rows is stored. It says so in "
      "lookup."},
     CHOICE(store_pruned, "no", "yes")},
    {{"objects.hold_ms", "integer", "10000", "0 .. 60000",
      "Objects by key: for how long exists with HOLD keeps what it found from being evicted, if "
      "the call does not say. Milliseconds. A store should hold several times what is found in "
      "that time: while the rest is held, new values are evicted by newer ones."},
     INTEGER(objects_hold_ms, 0, 60000)},
    {{"objects.timeout_ms", "integer", "30000", "1 .. 3600000",
      "Objects by key: how long a get or put may take, if the call does not say. A put waits so "
      "long for space. Milliseconds."},
     INTEGER(objects_timeout_ms, 1, 3600000)},
    {{"objects.staging", "choice", "auto", "\"auto\", \"never\" or \"always\"",
      "Objects by key: whether values whose memory is page-aligned go through staging. auto: if it "
      "is measured to be an eighth faster, which it is on some disks of virtual machines when the "
      "host's memory has small pages. What is not page-aligned always goes through it."},
     CHOICE(objects_staging, "auto", "never", "always")},
    {{"objects.log_ppm", "integer", "15625", "15625 .. 500000",
      "Objects by key: the part of disk_bytes that is kept for the log, in millionths. 15625 is a "
      "64th, enough for values of 32 KiB and more; values of 4 KiB want an eighth."},
     INTEGER(objects_log_ppm, 15625, 500000)},
    {{"objects.submitted_max", "integer", "4096", "1 .. 65536",
      "Objects by key: operations that may be submitted at one time and were not polled yet. More "
      "are refused with SPEC_E_BUSY."},
     INTEGER(objects_submitted_max, 1, 65536)},
};
#define ROW_COUNT (sizeof(rows) / sizeof(rows[0]))
_Static_assert(ROW_COUNT <= 128, "config.c keeps so many bits of the keys that were given");
_Static_assert(PATH_BYTES_MAX == 3840 && SC_LIMIT_THREADS == 64 && SC_LIMIT_REQUESTS == 65536 &&
                   SC_LIMIT_REQUEST_TOKENS == 16777216 && SC_LIMIT_PROBE_HEADS == 16 &&
                   SC_LIMIT_LAYERS == 1024,
               "the texts above name these limits");
_Static_assert(SC_PRESET_RECOMPUTE == 0 && SC_PRESET_AS_LIKE == 1 && SC_PRESET_LAYERED == 9 &&
                   SC_PRESET_LAYERED_UNIFORM == 10 && SC_PRESET_INT8 == 11 && SC_PRESET_CAKE == 12 &&
                   SC_PRESET_ATTENTION_STORE == 15 && SC_PRESETS == 17 && SC_BASE_QUANTISED == 1 &&
                   SC_QUANTISE_YES == 2 && SC_BACKEND_AUTO == 0 && SC_BACKEND_PREAD == 2 &&
                   SC_IDENTIFY_QUANTISED == 3 && SC_SIMILARITY_MASS == 1 &&
                   SC_PREDICTOR_HINT == 5 && SC_PLANNER_RANGE == 1 && SC_LOAD_POLICY_SPLIT == 1 &&
                   SC_LOAD_POLICY_BIDIRECTIONAL == 2 && SC_POLICY_VALUE == 0 && SC_POLICY_LFU == 2 &&
                   SC_POLICY_SCORE == 3 && SC_ADMIT_SECOND == 1,
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
    {"prefetch.rule", "leave it out: guesses are read by what others wait for, or all of them with "
                      "prefetch.min_precision_ppm 0"},
    {"gpu.mirror", "leave it out: codes go to a device through gpu.staging_bytes"},
    {"layered.hot_ppm", "leave it out: what is delivered did not depend on it"},
    {"store.coarse_only", "leave it out; for want of space whole prefixes are evicted"},
    {"layered.planes", "give layered.bits_k and bits_v more bits where codes are too coarse"},
    {"layered.exact", "leave it out: rows of layered.exact_ppm come bit for bit"},
    {"fill", "it is named load_policy now; cut is split, and ends is bidirectional"},
    {"stage_bytes", "it is named staging_bytes now"},
    {"gpu.stage_bytes", "it is named gpu.staging_bytes now"},
    {"host_written", "it is named host_write_through now"},
    {"layered.widths", "it is named layered.bit_allocation now; even is uniform, and free is "
                       "per_channel"},
    {"layered.codes", "it is named layered.quantise now"},
    {"select.sketch_bytes", "it is named select.selector_bytes now"},
    {"gpu_bytes", "it is named upper_bytes now, since host memory stands for that tier"},
    {"gpu_policy", "it is named upper_policy now"},
    {"gpu.bus_bytes_per_s", "it is named upper_bus_bytes_per_s now"},
    {NULL, NULL},
};

const struct sc_config_removed_key *sc_config_removed_key_at(uint32_t i)
{
    return removed_keys[i].path != NULL ? &removed_keys[i] : NULL;
}

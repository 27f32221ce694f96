/* stat --format prometheus: the state of a store in Prometheus' text format.
 *
 *   # HELP spec_connector_stored_bytes Bytes of the KV rows that lookups can find.
 *   # TYPE spec_connector_stored_bytes gauge
 *   spec_connector_stored_bytes{store="/var/cache/spec",rank="0"} 1073741824
 *
 * A metric's samples of all ranks are in one block. An unreadable rank has spec_connector_readable
 * 0 and no other sample.
 * Threads: one. Tests: tests/unit/tools/test_ctl.py, tests/unit/tools/test_deploy.py (the
 * dashboard) */
#include "tools/ctl/ctl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum metric_id {
    READABLE,
    WRITER_OPEN,
    SEGMENTS,
    SEGMENT_BYTES,
    SEGMENTS_CLAIMED,
    READERS_OPEN,
    MEMBERS,
    STORED_TOKENS,
    STORED_BYTES,
    STORED_PIECES,
    STORED_EXTENTS,
    QUANTISED_TOKENS,
    QUANTISED_BYTES,
    SELECTOR_BYTES,
    EVICTED_PIECES,
    OUTDATED_PIECES,
    LOG_BYTES,
    LOG_RECORDS,
    LOG_RESTORED,
    LOG_REJECTED,
    LOG_LOST_BYTES,
    METRIC_COUNT
};

static const struct metric {
    const char *name, *type, *help;
} METRICS[METRIC_COUNT] = {
    [READABLE] = {"readable", "gauge", "1 if the files of the rank can be read."},
    [WRITER_OPEN] = {"writer_open", "gauge", "1 if a process has the rank open for writing."},
    [SEGMENTS] = {"segments", "gauge", "Segment files."},
    [SEGMENT_BYTES] = {"segment_bytes", "gauge", "Bytes that segment files take on disk."},
    [SEGMENTS_CLAIMED] = {"segments_claimed", "gauge",
                          "Segment files that a process may write rows into."},
    [MEMBERS] = {"members", "gauge", "Processes that store into the rank, or would take over."},
    [READERS_OPEN] = {"readers_open", "gauge", "1 if a process follows the rank's log."},
    [STORED_TOKENS] = {"stored_tokens", "gauge", "Tokens whose KV lookups can find."},
    [STORED_BYTES] = {"stored_bytes", "gauge", "Bytes of the KV rows that lookups can find."},
    [STORED_PIECES] = {"stored_pieces", "gauge", "Pieces: rows of one chunk from one pass."},
    [STORED_EXTENTS] = {"stored_extents", "gauge", "Extents that hold stored rows."},
    [QUANTISED_TOKENS] = {"quantised_tokens", "gauge", "Stored tokens with quantised rows."},
    [QUANTISED_BYTES] = {"quantised_bytes", "gauge", "Bytes that quantised rows take on disk."},
    [SELECTOR_BYTES] = {"selector_key_bytes", "gauge",
                        "Bytes of the keys that rows are selected by."},
    [EVICTED_PIECES] = {"evicted_pieces", "gauge",
                        "Evicted pieces whose records are still in the log."},
    [OUTDATED_PIECES] = {"outdated_pieces", "gauge",
                         "Pieces of earlier weights whose records are still in the log."},
    [LOG_BYTES] = {"log_bytes", "gauge", "Size of the log."},
    [LOG_RECORDS] = {"log_records", "gauge", "Records in the log since its last checkpoint."},
    [LOG_RESTORED] = {"log_restored_records", "gauge",
                      "Damaged records that were restored from their checksums."},
    [LOG_REJECTED] = {"log_rejected_records", "gauge", "Records that contradict others."},
    [LOG_LOST_BYTES] = {"log_lost_bytes", "gauge",
                        "Bytes of damaged ranges of the log, whose records are lost."},
};

/* The samples of one rank. */
struct samples {
    bool is_readable;
    uint64_t values[METRIC_COUNT];
};

static struct samples samples_of(const struct ctl_rank *rank)
{
    struct ctl_sum sum = ctl_sum_of(rank);
    return (struct samples){.is_readable = true,
                            .values = {[READABLE] = 1,
                                       [WRITER_OPEN] = rank->holder[0] != '\0',
                                       [SEGMENTS] = rank->segment_count,
                                       [SEGMENT_BYTES] = rank->segment_bytes,
                                       [SEGMENTS_CLAIMED] = rank->claimed_count,
                                       [MEMBERS] = rank->member_count,
                                       [READERS_OPEN] = rank->is_followed,
                                       [STORED_TOKENS] = sum.live_rows,
                                       [STORED_BYTES] = sum.live_bytes,
                                       [STORED_PIECES] = sum.live_pieces,
                                       [STORED_EXTENTS] = sum.live_extents,
                                       [QUANTISED_TOKENS] = sum.code_rows,
                                       [QUANTISED_BYTES] = sum.quantised_bytes,
                                       [SELECTOR_BYTES] = sum.probe_bytes,
                                       [EVICTED_PIECES] = sum.dropped_pieces,
                                       [OUTDATED_PIECES] = sum.void_pieces,
                                       [LOG_BYTES] = rank->log_bytes,
                                       [LOG_RECORDS] = rank->record_count,
                                       [LOG_RESTORED] = rank->damaged_count,
                                       [LOG_REJECTED] = rank->lie_count,
                                       [LOG_LOST_BYTES] = rank->gap_bytes}};
}

static void print_head(const char *name, const char *type, const char *help)
{
    printf("# HELP spec_connector_%s %s\n# TYPE spec_connector_%s %s\n", name, help, name, type);
}

/* A label's value: backslashes, quotes and newlines are escaped. */
static void print_label(const char *name, const char *value)
{
    printf("%s=\"", name);
    for (; *value != '\0'; value++) {
        if (*value == '\n')
            fputs("\\n", stdout);
        else if (*value == '\\' || *value == '"')
            printf("\\%c", *value);
        else
            putchar(*value);
    }
    putchar('"');
}

/* spec_connector_NAME{store="PATH",rank="N" and leaves the brace open. */
static void print_rank(const char *name, const struct ctl_store *store, const struct ctl_rank *rank)
{
    printf("spec_connector_%s{", name);
    print_label("store", store->path);
    printf(",rank=\"%" PRIu32 "\"", rank->rank);
}

static void print_store(const struct ctl_store *store)
{
    char id[33];
    ctl_hex_text(store->identity.store_id, id);
    print_head("store_info", "gauge", "1; the labels tell which store this is.");
    printf("spec_connector_store_info{");
    print_label("store", store->path);
    printf(",store_id=\"%s\",format=\"%" PRIu64 "\"} 1\n", id, store->identity.version);
}

static const struct {
    const char *name, *help;
} OBJECT_METRICS[] = {
    {"objects", "Objects by key that are stored."},
    {"object_bytes", "Bytes of the values of stored objects."},
    {"object_page_bytes", "Bytes of the pages of stored objects."},
    {"object_domains", "Domains that hold objects."},
    {"object_log_bytes", "Size of the log of objects."},
    {"object_segment_bytes", "Bytes that segment files of objects take on disk."}};
#define OBJECT_METRIC_COUNT (sizeof(OBJECT_METRICS) / sizeof(OBJECT_METRICS[0]))

/* What ranks hold of objects by key. A rank that cannot be read has no sample. */
static int print_objects(struct ctl_store *store)
{
    int code = CTL_OK;
    uint64_t(*values)[OBJECT_METRIC_COUNT] = ctl_alloc((store->rank_count + 1) * sizeof(values[0]));
    bool *is_read = ctl_alloc(store->rank_count + 1);
    for (uint64_t i = 0; i < store->rank_count; i++) {
        struct ctl_rank *rank = &store->ranks[i];
        struct ctl_object_sum sum;
        is_read[i] = ctl_objects_sum(store, rank, &sum);
        const uint64_t found[] = {sum.objects, sum.bytes,       sum.page_bytes,
                                  sum.domains, rank->log_bytes, rank->segment_bytes};
        memcpy(values[i], found, sizeof(found));
        code = is_read[i] ? code : CTL_FAILED;
    }
    for (uint64_t m = 0; m < OBJECT_METRIC_COUNT; m++) {
        print_head(OBJECT_METRICS[m].name, "gauge", OBJECT_METRICS[m].help);
        for (uint64_t i = 0; i < store->rank_count; i++) {
            if (!is_read[i])
                continue;
            print_rank(OBJECT_METRICS[m].name, store, &store->ranks[i]);
            printf("} %" PRIu64 "\n", values[i][m]);
        }
    }
    free(values);
    free(is_read);
    return code;
}

int ctl_prometheus(struct ctl_store *store)
{
    int code = CTL_OK;
    struct samples *samples = calloc(store->rank_count + 1, sizeof(*samples));
    if (samples == NULL) {
        fprintf(stderr, "spec-ctl: no memory for %" PRIu64 " ranks\n", store->rank_count);
        return CTL_FAILED;
    }
    for (uint64_t i = 0; i < store->rank_count; i++) {
        if (ctl_rank_load(store, &store->ranks[i]))
            samples[i] = samples_of(&store->ranks[i]);
        else
            code = CTL_FAILED;
    }
    print_store(store);
    for (uint32_t m = 0; m < METRIC_COUNT; m++) {
        print_head(METRICS[m].name, METRICS[m].type, METRICS[m].help);
        for (uint64_t i = 0; i < store->rank_count; i++) {
            if (m != READABLE && !samples[i].is_readable)
                continue;
            print_rank(METRICS[m].name, store, &store->ranks[i]);
            printf("} %" PRIu64 "\n", samples[i].values[m]);
        }
    }
    free(samples);
    struct ctl_store objects;
    if (!ctl_objects_open(store->path, -1, &objects))
        return CTL_FAILED;
    if (print_objects(&objects) != CTL_OK)
        code = CTL_FAILED;
    ctl_store_close(&objects);
    return code;
}

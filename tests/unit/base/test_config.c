/* The configuration: every key with values that are right, of a wrong type, out of range, unknown,
 * given twice; text that is not JSON; files; and docs/reference/config.md beside the table.
 *
 * Holds: a refusal names the key's path and leaves the result untouched.
 * Threads: one. */
#include "base/config_keys.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define TEXT_BYTES 8192

/* What the table promises, written a second time. Values stand as JSON. */
struct expected {
    const char *path;
    size_t offset;
    uint32_t member_bytes;
    uint64_t initial;
    const char *good[5];
    uint64_t good_values[5];
    const char *bad[9]; /* beside those that are wrong for every key */
};

#define MEMBER(name) offsetof(struct sc_config, name), sizeof(((struct sc_config *)NULL)->name)

static const struct expected expected[] = {
    {"preset",
     MEMBER(preset),
     SC_PRESET_AS_LIKE,
     {"\"recompute\"", "\"as-like\""},
     {SC_PRESET_RECOMPUTE, SC_PRESET_AS_LIKE},
     {"\"as_like\"", "\"\"", "\"AS-LIKE\"", "0", "1"}},
    {"chunk_tokens",
     MEMBER(chunk_tokens),
     64,
     {"16", "64", "256"},
     {16, 64, 256},
     {"8", "15", "17", "96", "257", "512", "0", "\"64\""}},
    {"disk_bytes",
     MEMBER(disk_bytes),
     0,
     {"0", "67108864", "\"64MiB\"", "\"20GB\"", "\"1024TiB\""},
     {0, 64 * MIB, 64 * MIB, 20000000000, 1024 * TIB},
     {"1", "67108863", "\"63MiB\"", "\"1025TiB\"", "\"18446744073709551615TiB\"",
      "18446744073709551616"}},
    {"segment_bytes",
     MEMBER(segment_bytes),
     64 * MIB,
     {"1048576", "\"1MiB\"", "\"1GiB\""},
     {MIB, MIB, GIB},
     {"0", "1048577", "\"512KiB\"", "\"1025MiB\"", "\"64MB\"", "\"2GiB\""}},
    {"staging_bytes",
     MEMBER(staging_bytes),
     256 * MIB,
     {"\"16MiB\"", "\"1TiB\"", "16777217"},
     {16 * MIB, TIB, 16777217},
     {"0", "16777215", "\"2TiB\"", "\"16MB\""}},
    {"host_bytes",
     MEMBER(host_bytes),
     SC_CONFIG_AUTO,
     {"0", "\"0GiB\"", "\"4GiB\"", "\"auto\""},
     {0, 0, 4 * GIB, SC_CONFIG_AUTO},
     {"\"2000TiB\"", "\"Auto\"", "18446744073709551615"}},
    {"host_write_through",
     MEMBER(host_write_through),
     0,
     {"\"no\"", "\"yes\""},
     {0, 1},
     {"\"maybe\"", "\"\"", "\"YES\"", "0", "1"}},
    {"host_policy",
     MEMBER(host_policy),
     SC_POLICY_VALUE,
     {"\"value\"", "\"lru\"", "\"lfu\"", "\"score\""},
     {SC_POLICY_VALUE, SC_POLICY_LRU, SC_POLICY_LFU, SC_POLICY_SCORE},
     {"\"fifo\"", "\"\"", "0"}},
    {"upper_bytes",
     MEMBER(upper_bytes),
     0,
     {"0", "\"4GiB\"", "\"auto\""},
     {0, 4 * GIB, SC_CONFIG_AUTO},
     {"\"2000TiB\"", "\"Auto\""}},
    {"upper_policy",
     MEMBER(upper_policy),
     0,
     {"\"same\"", "\"value\"", "\"lru\"", "\"lfu\"", "\"score\""},
     {0, SC_POLICY_VALUE + 1, SC_POLICY_LRU + 1, SC_POLICY_LFU + 1, SC_POLICY_SCORE + 1},
     {"\"auto\"", "\"\"", "0"}},
    {"io.backend",
     MEMBER(io_backend),
     SC_BACKEND_AUTO,
     {"\"auto\"", "\"io_uring\"", "\"pread\""},
     {SC_BACKEND_AUTO, SC_BACKEND_URING, SC_BACKEND_PREAD},
     {"\"uring\"", "\"\"", "1", "0"}},
    {"io.threads",
     MEMBER(io_threads),
     2,
     {"1", "64"},
     {1, 64},
     {"0", "65", "4294967297", "18446744073709551617", "\"two\"", "\"2\"", "2.0"}},
    {"io.in_flight_bytes",
     MEMBER(io_in_flight_bytes),
     8 * MIB,
     {"\"1MiB\"", "\"1GiB\"", "1048577"},
     {MIB, GIB, 1048577},
     {"0", "1048575", "\"2GiB\"", "1073741825"}},
    {"io.op_bytes",
     MEMBER(io_op_bytes),
     MIB,
     {"\"64KiB\"", "\"8MiB\"", "69632"},
     {64 * KIB, 8 * MIB, 69632},
     {"0", "65535", "65537", "\"60KiB\"", "\"9MiB\"", "8388609"}},
    {"load_policy",
     MEMBER(load_policy),
     1,
     {"\"load\"", "\"split\"", "\"bidirectional\""},
     {0, 1, 2},
     {"\"Cut\"", "1", "\"\""}},
    {"compute.tokens_per_s",
     MEMBER(compute_tokens_per_s),
     0,
     {"0", "50000", "1000000000"},
     {0, 50000, 1000000000},
     {"1000000001", "\"1\""}},
    {"max_requests", MEMBER(max_requests), 64, {"1", "65536"}, {1, 65536}, {"0", "65537"}},
    {"max_request_tokens",
     MEMBER(max_request_tokens),
     131072,
     {"1", "16777216"},
     {1, 16777216},
     {"0", "16777217", "4294967297"}},
    {"request_bytes",
     MEMBER(request_bytes),
     SC_CONFIG_AUTO,
     {"\"64KiB\"", "\"1TiB\"", "65537", "\"auto\""},
     {64 * KIB, TIB, 65537, SC_CONFIG_AUTO},
     {"0", "65535", "\"2TiB\"", "\"Auto\""}},
    {"index_bytes_max",
     MEMBER(index_bytes_max),
     GIB,
     {"\"1MiB\"", "\"1TiB\""},
     {MIB, TIB},
     {"0", "1048575", "\"2TiB\""}},
    {"lease_ns_max",
     MEMBER(lease_ns_max),
     30000000000,
     {"0", "86400000000000"},
     {0, 86400000000000},
     {"86400000000001", "\"30s\""}},
    {"select.retain_ppm", MEMBER(retain_ppm), 1000000, {"1000000", "0"}, {1000000, 0}, {"1000001"}},
    {"select.budget",
     MEMBER(budget),
     0,
     {"\"ratio\"", "\"count\"", "\"mass\""},
     {0, 1, 2},
     {"\"\"", "\"ratio \"", "\"RATIO\"", "0", "1"}},
    {"select.count",
     MEMBER(select_count),
     1024,
     {"0", "16777216"},
     {0, 16777216},
     {"16777217", "\"1\""}},
    {"select.mass_ppm",
     MEMBER(mass_ppm),
     900000,
     {"0", "1000000", "7"},
     {0, 1000000, 7},
     {"1000001", "\"1\""}},
    {"select.identify",
     MEMBER(identify),
     0,
     {"\"probes\"", "\"keys\"", "\"static\"", "\"quantised\""},
     {0, 1, 2, 3},
     {"\"\"", "\"probes \"", "\"PROBES\"", "0", "1"}},
    {"select.base", MEMBER(base), 0, {"\"none\"", "\"quantised\""}, {0, 1}, {"\"fine\"", "1"}},
    {"layered.bits_k",
     MEMBER(quarters_k),
     16,
     {"2", "6.0", "8.00"},
     {8, 24, 32},
     {"1", "7", "9", "4.", "4.25", "4.2", "4.125", "0.75", "\"4\""}},
    {"layered.bits_v",
     MEMBER(quarters_v),
     8,
     {"2.0", "5", "8"},
     {8, 20, 32},
     {"1.75", "2.5", "8.25"}},
    {"layered.bit_allocation",
     MEMBER(bit_allocation),
     0,
     {"\"uniform\"", "\"per_channel\""},
     {0, 1},
     {"\"any\"", "1"}},
    {"layered.exact_ppm", MEMBER(exact_ppm), 50000, {"0", "1000000"}, {0, 1000000}, {"1000001"}},
    {"layered.keep_first", MEMBER(exact_first), 0, {"0", "9"}, {0, 9}, {"16777217"}},
    {"layered.keep_last", MEMBER(exact_last), 0, {"0", "9"}, {0, 9}, {"16777217"}},
    {"layered.refine_bytes",
     MEMBER(refine_bytes),
     64 * MIB,
     {"0", "\"16MiB\"", "\"1TiB\""},
     {0, 16 * MIB, TIB},
     {"\"2TiB\""}},
    {"reorder.scope",
     MEMBER(reorder_scope),
     0,
     {"\"span\"", "\"node\""},
     {0, 1},
     {"\"none\"", "1"}},
    {"reorder.interval_s",
     MEMBER(reorder_interval_s),
     0,
     {"0", "600", "31536000"},
     {0, 600, 31536000},
     {"31536001", "\"600\""}},
    {"reorder.repeat_ppm",
     MEMBER(reorder_repeat_ppm),
     250000,
     {"0", "1", "1000000"},
     {0, 1, 1000000},
     {"1000001", "-1", "\"0\""}},
    {"reorder.bytes_max",
     MEMBER(reorder_bytes_max),
     256 * MIB,
     {"\"1MiB\"", "\"1TiB\""},
     {MIB, TIB},
     {"0", "\"2TiB\""}},
    {"layered.quantise", MEMBER(quantise), 0, {"\"auto\"", "\"no\"", "\"yes\""}, {0, 1, 2}, {"1"}},
    {"select.probe_heads", MEMBER(probe_heads), 0, {"0", "3", "16"}, {0, 3, 16}, {"17", "\"3\""}},
    {"select.alpha_milli",
     MEMBER(alpha_milli),
     600,
     {"0", "50000"},
     {0, 50000},
     {"50001", "\"600\""}},
    {"select.similarity",
     MEMBER(similarity),
     0,
     {"\"jaccard\"", "\"mass\""},
     {0, 1},
     {"\"\"", "\"jaccard \"", "\"JACCARD\"", "0", "1"}},
    {"select.similarity_mass_ppm",
     MEMBER(similarity_mass_ppm),
     900000,
     {"0", "1000000", "7"},
     {0, 1000000, 7},
     {"1000001", "\"1\""}},
    {"select.keep_first",
     MEMBER(keep_first),
     0,
     {"0", "4", "16777216"},
     {0, 4, 16777216},
     {"16777217", "\"4\""}},
    {"select.keep_last",
     MEMBER(keep_last),
     0,
     {"0", "4", "16777216"},
     {0, 4, 16777216},
     {"16777217", "\"4\""}},
    {"select.dense_layers", MEMBER(dense_layers), 0, {"0", "1024"}, {0, 1024}, {"1025"}},
    {"select.min_tokens",
     MEMBER(select_min_tokens),
     256,
     {"0", "1", "16777216"},
     {0, 1, 16777216},
     {"16777217", "\"4\""}},
    {"select.min_share_ppm",
     MEMBER(min_share_ppm),
     500000,
     {"0", "1000000", "7"},
     {0, 1000000, 7},
     {"1000001", "\"1\""}},
    {"select.unit", MEMBER(unit), 1, {"1", "16", "1024"}, {1, 16, 1024}, {"0", "1025"}},
    {"select.metric",
     MEMBER(metric),
     0,
     {"\"h2o\"", "\"last\"", "\"random\""},
     {0, 1, 2},
     {"\"\"", "\"h2o \"", "\"H2O\"", "0", "1"}},
    {"select.selector_bytes",
     MEMBER(selector_bytes),
     128 * MIB,
     {"0", "\"16MiB\"", "\"1TiB\""},
     {0, 16 * MIB, TIB},
     {"\"2TiB\""}},
    {"select.average_bytes",
     MEMBER(average_bytes),
     64 * MIB,
     {"0", "\"16MiB\"", "\"1TiB\""},
     {0, 16 * MIB, TIB},
     {"\"2TiB\""}},
    {"prefetch.predictor",
     MEMBER(predictor),
     0,
     {"\"none\"", "\"random\"", "\"sink\"", "\"static\"", "\"layer\""},
     {0, 1, 2, 3, 4},
     {"\"\"", "\"none \"", "\"NONE\"", "0", "1"}},
    {"prefetch.min_precision_ppm",
     MEMBER(min_precision_ppm),
     750000,
     {"0", "1000000", "7"},
     {0, 1000000, 7},
     {"1000001", "\"1\""}},
    {"hint.rows", MEMBER(hint_rows), 64, {"1", "4096"}, {1, 4096}, {"0", "4097"}},
    {"gpu.device",
     MEMBER(gpu_device),
     SC_CONFIG_AUTO,
     {"0", "63", "\"auto\""},
     {0, 63, SC_CONFIG_AUTO},
     {"64", "\"0\"", "\"cuda\""}},
    {"gpu.staging_bytes",
     MEMBER(gpu_staging_bytes),
     64 * MIB,
     {"\"1MiB\"", "2097152"},
     {MIB, 2 * MIB},
     {"1048575", "0", "\"auto\""}},
    {"gpu.query_bytes",
     MEMBER(gpu_query_bytes),
     16 * MIB,
     {"\"4KiB\"", "2097152"},
     {4096, 2 * MIB},
     {"4095", "0", "\"auto\""}},
    {"gpu.score_bytes",
     MEMBER(gpu_score_bytes),
     128 * MIB,
     {"\"1MiB\"", "0"},
     {MIB, 0},
     {"-1", "\"2000TiB\"", "\"auto\""}},
    {"gpu.store_bytes",
     MEMBER(gpu_store_bytes),
     64 * MIB,
     {"\"1MiB\"", "2097152"},
     {MIB, 2 * MIB},
     {"1048575", "0", "\"auto\""}},
    {"upper_bus_bytes_per_s",
     MEMBER(upper_bus_bytes_per_s),
     25000000000,
     {"0", "\"1GB\"", "\"1TiB\""},
     {0, 1000000000, TIB},
     {"\"2TiB\"", "\"auto\""}},
    {"submit.threads", MEMBER(submit_threads), 1, {"0", "64"}, {0, 64}, {"65"}},
    {"read.planner",
     MEMBER(planner),
     0,
     {"\"chunk\"", "\"range\""},
     {0, 1},
     {"\"\"", "\"chunk \"", "\"CHUNK\"", "0", "1"}},
    {"read.gap_bytes",
     MEMBER(gap_bytes),
     0,
     {"0", "\"64KiB\"", "\"1GiB\""},
     {0, 64 * KIB, GIB},
     {"\"2GiB\""}},
    {"store.layout",
     MEMBER(layout),
     0,
     {"\"paired\"", "\"split\""},
     {0, 1},
     {"\"\"", "\"paired \"", "\"PAIRED\"", "0", "1"}},
    {"store.checkpoint_bytes",
     MEMBER(checkpoint_bytes),
     64 * MIB,
     {"\"1MiB\"", "\"1TiB\"", "1048577"},
     {MIB, TIB, 1048577},
     {"0", "1048575", "\"2TiB\""}},
    {"maintain.bytes_per_s",
     MEMBER(maintain_bytes_per_s),
     64 * MIB,
     {"0", "\"16MiB\"", "\"1TiB\""},
     {0, 16 * MIB, TIB},
     {"\"2TiB\""}},
    {"store.min_tokens",
     MEMBER(store_min_tokens),
     1,
     {"1", "16777216"},
     {1, 16777216},
     {"0", "16777217"}},
    {"store.write_budget",
     MEMBER(write_budget),
     0,
     {"0", "\"100GB\"", "\"1024TiB\""},
     {0, 100000000000, 1024 * TIB},
     {"\"1025TiB\"", "-1"}},
    {"store.admit",
     MEMBER(admit),
     0,
     {"\"all\"", "\"second\""},
     {0, 1},
     {"\"none\"", "\"\"", "\"ALL\"", "0", "2"}},
    {"evict.policy",
     MEMBER(evict_policy),
     SC_POLICY_LRU,
     {"\"value\"", "\"lru\"", "\"lfu\""},
     {SC_POLICY_VALUE, SC_POLICY_LRU, SC_POLICY_LFU},
     {"\"fifo\"", "\"score\"", "0"}},
    {"store.allow_shared",
     MEMBER(allow_shared),
     0,
     {"\"no\"", "\"yes\""},
     {0, 1},
     {"\"maybe\"", "\"\"", "\"YES\"", "0", "true"}},
    {"store.writers",
     MEMBER(writers),
     SC_WRITERS_AUTO,
     {"\"auto\"", "\"one\"", "\"many\""},
     {SC_WRITERS_AUTO, SC_WRITERS_ONE, SC_WRITERS_MANY},
     {"\"two\"", "\"\"", "\"MANY\"", "2", "true"}},
    {"store.allow_network_fs",
     MEMBER(allow_network_fs),
     0,
     {"\"no\"", "\"yes\""},
     {0, 1},
     {"\"nfs\"", "\"\"", "\"YES\"", "0", "true"}},
    {"store.lossy",
     MEMBER(store_lossy),
     1,
     {"\"no\"", "\"yes\""},
     {0, 1},
     {"\"maybe\"", "\"\"", "\"YES\"", "0", "1"}},
    {"store.pruned",
     MEMBER(store_pruned),
     0,
     {"\"no\"", "\"yes\""},
     {0, 1},
     {"\"maybe\"", "\"\"", "\"YES\"", "0", "1"}},
    {"objects.hold_ms",
     MEMBER(objects_hold_ms),
     10000,
     {"0", "250", "60000"},
     {0, 250, 60000},
     {"60001", "-1"}},
    {"objects.timeout_ms",
     MEMBER(objects_timeout_ms),
     30000,
     {"1", "250", "3600000"},
     {1, 250, 3600000},
     {"0", "3600001"}},
    {"objects.staging",
     MEMBER(objects_staging),
     0,
     {"\"auto\"", "\"never\"", "\"always\""},
     {0, 1, 2},
     {"\"maybe\"", "\"\"", "\"AUTO\"", "0", "true"}},
    {"objects.log_ppm",
     MEMBER(objects_log_ppm),
     15625,
     {"15625", "125000", "500000"},
     {15625, 125000, 500000},
     {"15624", "500001"}},
    {"objects.submitted_max",
     MEMBER(objects_submitted_max),
     4096,
     {"1", "64", "65536"},
     {1, 64, 65536},
     {"0", "65537"}},
};
#define EXPECTED_COUNT (sizeof(expected) / sizeof(expected[0]))

/* Wrong for every key, whatever its type. */
static const char *const bad_always[] = {
    "null",       "true",       "false",     "[]",       "{}",        "[1,2]",      "{\"a\":1}",
    "-1",         "-0",         "00",        "-01",      "1e3",       "1E2",        "0.5",
    "1.",         "64.0",       "NaN",       "Infinity", "-Infinity", "1e999",      "\"64 MiB\"",
    "\" 64MiB\"", "\"64MiB \"", "\"-1MiB\"", "\"0x10\"", "\"MiB\"",   "\"064MiB\"", "\"1.5GiB\"",
    "\"64mib\"",  "\"64M\"",    "\"64MiBB\""};

struct fixture {
    struct sc_alloc alloc;
    struct sc_config config;
    struct spec_error error;
    char text[TEXT_BYTES];
    char directory[64];
    char file[96];
};

static int make(void **state)
{
    struct fixture *fx = calloc(1, sizeof(*fx));
    if (fx == NULL)
        return -1;
    sc_alloc_init(&fx->alloc);
    const char *tmp = getenv("TMPDIR");
    snprintf(fx->directory, sizeof(fx->directory), "%s/sc-config-XXXXXX",
             tmp != NULL && strlen(tmp) < 40 ? tmp : "/tmp");
    if (mkdtemp(fx->directory) == NULL)
        return -1;
    snprintf(fx->file, sizeof(fx->file), "%s/config.json", fx->directory);
    *state = fx;
    return 0;
}

static int done(void **state)
{
    struct fixture *fx = *state;
    unlink(fx->file);
    rmdir(fx->directory);
    bool is_clean = atomic_load(&fx->alloc.live_blocks) == 0;
    free(fx);
    return is_clean ? 0 : -1;
}

static spec_status parse(struct fixture *fx, const char *text)
{
    memset(&fx->config, 0x5a, sizeof(fx->config)); /* poison: proves what was written */
    memset(&fx->error, 0, sizeof(fx->error));
    fx->error.struct_size = sizeof(fx->error);
    return sc_config_parse(&fx->alloc, text, &fx->config, &fx->error);
}

/* Refused with this status; the text starts with `config: ` and contains `part`; nothing written.
 */
static void assert_refused(struct fixture *fx, const char *text, spec_status status,
                           const char *part)
{
    spec_status got = parse(fx, text);
    if (got != status || strstr(fx->error.text, part) == NULL)
        fail_msg("%s: got %s \"%s\", expected %s with \"%s\"", text, sc_status_name(got),
                 fx->error.text, sc_status_name(status), part);
    assert_int_equal(strncmp(fx->error.text, "config: ", 8), 0);
    assert_int_equal(fx->error.code, status);
    const unsigned char *bytes = (const unsigned char *)&fx->config;
    for (size_t i = 0; i < sizeof(fx->config); i++)
        assert_int_equal(bytes[i], 0x5a);
}

/* {"path":"d","io":{"threads":VALUE}} in fx->text. */
static const char *with(struct fixture *fx, const char *path, const char *value)
{
    const char *dot = strchr(path, '.');
    if (dot == NULL)
        snprintf(fx->text, TEXT_BYTES, "{\"path\":\"d\",\"%s\":%s}", path, value);
    else
        snprintf(fx->text, TEXT_BYTES, "{\"path\":\"d\",\"%.*s\":{\"%s\":%s}}", (int)(dot - path),
                 path, dot + 1, value);
    return fx->text;
}

static uint64_t member(const struct sc_config *config, const struct expected *key)
{
    uint32_t narrow;
    uint64_t wide;
    const char *at = (const char *)config + key->offset;
    memcpy(&narrow, at, sizeof(narrow));
    if (key->member_bytes == sizeof(narrow))
        return narrow;
    memcpy(&wide, at, sizeof(wide));
    return wide;
}

static void the_smallest_configuration_gives_every_default(void **state)
{
    struct fixture *fx = *state;
    assert_int_equal(parse(fx, " \t\r\n{ \"path\" : \"some/dir\" }\n"), SPEC_OK);
    assert_string_equal(fx->config.path, "some/dir");
    for (size_t i = 0; i < EXPECTED_COUNT; i++)
        assert_int_equal(member(&fx->config, &expected[i]), expected[i].initial);
}

static void the_table_and_this_test_know_the_same_keys(void **state)
{
    (void)state;
    uint32_t count = 0;
    for (; sc_config_row_at(count) != NULL; count++) {
        const char *path = sc_config_row_at(count)->shown.path;
        bool is_known = strcmp(path, "path") == 0;
        for (size_t i = 0; i < EXPECTED_COUNT; i++)
            is_known = is_known || strcmp(path, expected[i].path) == 0;
        if (!is_known)
            fail_msg("%s is in the table, not in this test", path);
    }
    assert_int_equal(count, EXPECTED_COUNT + 1);
    assert_null(sc_config_row_at(UINT32_MAX));
}

static void good_values_reach_their_member_and_no_other(void **state)
{
    struct fixture *fx = *state;
    for (size_t i = 0; i < EXPECTED_COUNT; i++)
        for (size_t j = 0; j < 5 && expected[i].good[j] != NULL; j++) {
            const char *text = with(fx, expected[i].path, expected[i].good[j]);
            if (parse(fx, text) != SPEC_OK)
                fail_msg("%s: %s", text, fx->error.text);
            for (size_t k = 0; k < EXPECTED_COUNT; k++) {
                uint64_t wanted = k == i ? expected[i].good_values[j] : expected[k].initial;
                if (k != i && strcmp(expected[k].path, "select.probe_heads") == 0)
                    wanted = sc_config_selects(&fx->config) ? 3 : 0;
                assert_int_equal(member(&fx->config, &expected[k]), wanted);
            }
        }
}

static void bad_values_are_refused_with_the_keys_path(void **state)
{
    struct fixture *fx = *state;
    char part[128];
    for (size_t i = 0; i < EXPECTED_COUNT; i++) {
        snprintf(part, sizeof(part), "config: %s: found ", expected[i].path);
        for (size_t j = 0; j < sizeof(bad_always) / sizeof(bad_always[0]); j++)
            assert_refused(fx, with(fx, expected[i].path, bad_always[j]), SPEC_E_CONFIG, part);
        for (size_t j = 0; j < 9 && expected[i].bad[j] != NULL; j++)
            assert_refused(fx, with(fx, expected[i].path, expected[i].bad[j]), SPEC_E_CONFIG, part);
    }
}

static void an_error_says_what_was_found_and_what_is_allowed(void **state)
{
    struct fixture *fx = *state;
    static const char *const cases[][3] = {
        {"io.threads", "\"two\"", "config: io.threads: found \"two\", expected an integer 1 .. 64"},
        {"staging_bytes", "1", "config: staging_bytes: found 1, expected a size 16MiB .. 1TiB"},
        {"io.backend", "[\"auto\"]",
         "config: io.backend: found an array, expected \"auto\", \"io_uring\" or \"pread\""},
        {"io.backend", "\"sim\"", /* as it was until 0.3.0, for tests */
         "config: io.backend: found \"sim\", expected \"auto\", \"io_uring\" or \"pread\""},
        {"chunk_tokens", "96",
         "config: chunk_tokens: found 96, expected an integer 16 .. 256, a power of two"},
        {"io.threads", "NaN", "config: io.threads: found NaN, expected an integer 1 .. 64"},
        {"disk_bytes", "4096",
         "config: disk_bytes: found 4096, expected 0 or at least segment_bytes, 67108864"},
        {"preset", "\"0123456789012345678901234567890123456789012345678901234567890\"",
         "config: preset: found \"01234567890123456789012345678901234567890123456..., "
         "expected recompute, as-like, as-h2o-lru, as-h2o-lfu, spi, random, "
         "impress[-itf[-ro]], spec[-itf], hinted, "
         "layered[-uniform], int8, cake, attention-store, or NAME+range"},
        {"store", "3", "config: store: found 3, expected an object"},
        {"store", "\"x\"", "config: store: found \"x\", expected an object"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_refused(fx, with(fx, cases[i][0], cases[i][1]), SPEC_E_CONFIG, "config: ");
        assert_string_equal(fx->error.text, cases[i][2]);
    }
}

static void unknown_keys_are_refused_wherever_they_stand(void **state)
{
    struct fixture *fx = *state;
    static const char *const cases[][2] = {
        {"{\"path\":\"d\",\"thread\":1}", "config: thread: unknown key"},
        {"{\"unknown\":{\"path\":1},\"path\":\"d\"}", "config: unknown: unknown key"},
        {"{\"path\":\"d\",\"io\":{\"thread\":1}}", "config: io.thread: unknown key"},
        {"{\"path\":\"d\",\"io\":{\"io\":{}}}", "config: io.io: unknown key"},
        {"{\"path\":\"d\",\"threads\":1}", "config: threads: unknown key"},
        {"{\"path\":\"d\",\"io.threads\":1}", "config: io.threads: unknown key"},
        {"{\"path\":\"d\",\"i\\u006f\":{}}", "config: i\\u006f: unknown key"},
        {"{\"path\":\"d\",\"Preset\":\"as-like\"}", "config: Preset: unknown key"},
        {"{\"path\":\"d\",\"\":1}", "config: : unknown key"},
        {"{\"path\":\"d\",\"sim\":{\"seed\":1}}", "config: sim: unknown key"},
        {"{\"path\":\"d\",\"io\":{\"\":1}}", "config: io.: unknown key"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_refused(fx, cases[i][0], SPEC_E_CONFIG, cases[i][1]);
}

static void an_unknown_key_is_told_the_nearest_one_that_exists(void **state)
{
    struct fixture *fx = *state;
    static const char *const cases[][2] = {
        {"{\"path\":\"d\",\"io\":{\"thread\":1}}",
         "config: io.thread: unknown key; did you mean io.threads?"},
        {"{\"pth\":\"d\"}", "config: pth: unknown key; did you mean path?"},
        {"{\"path\":\"d\",\"Preset\":1}", "config: Preset: unknown key; did you mean preset?"},
        {"{\"path\":\"d\",\"disk_byte\":1}",
         "config: disk_byte: unknown key; did you mean disk_bytes?"},
        {"{\"path\":\"d\",\"dsik_bytes\":1}",
         "config: dsik_bytes: unknown key; did you mean disk_bytes?"},
        {"{\"path\":\"d\",\"slect\":{}}", "config: slect: unknown key; did you mean select?"},
        /* The right name in the wrong object. */
        {"{\"path\":\"d\",\"retain_ppm\":1}",
         "config: retain_ppm: unknown key; did you mean select.retain_ppm?"},
        {"{\"path\":\"d\",\"layered\":{\"retain_pm\":1}}",
         "config: layered.retain_pm: unknown key; did you mean select.retain_ppm?"},
        {"{\"path\":\"d\",\"select\":{\"host_bytes\":1}}",
         "config: select.host_bytes: unknown key; did you mean host_bytes?"},
        /* Nothing is near. */
        {"{\"path\":\"d\",\"colour\":1}", "config: colour: unknown key"},
        {"{\"path\":\"d\",\"x\":1}", "config: x: unknown key"},
        {"{\"path\":\"d\",\"\":1}", "config: : unknown key"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_refused(fx, cases[i][0], SPEC_E_CONFIG, "unknown key");
        assert_string_equal(fx->error.text, cases[i][1]);
    }
}

static void a_removed_key_is_refused_with_advice(void **state)
{
    struct fixture *fx = *state;
    const struct sc_config_removed_key *removed;
    for (uint32_t i = 0; (removed = sc_config_removed_key_at(i)) != NULL; i++) {
        char config[256], sentence[512];
        const char *dot = strchr(removed->path, '.');
        if (dot == NULL)
            snprintf(config, sizeof(config), "{\"path\":\"d\",\"%s\":1}", removed->path);
        else
            snprintf(config, sizeof(config), "{\"path\":\"d\",\"%.*s\":{\"%s\":1}}",
                     (int)(dot - removed->path), removed->path, dot + 1);
        snprintf(sentence, sizeof(sentence), "config: %s was removed; %s", removed->path,
                 removed->advice);
        assert_refused(fx, config, SPEC_E_CONFIG, "was removed");
        assert_string_equal(fx->error.text, sentence);
    }
}

/* Every key that ends with a letter too much is told the key without it. */
static void every_key_is_the_nearest_of_a_slip_in_it(void **state)
{
    struct fixture *fx = *state;
    char path[64], wanted[160];
    for (size_t i = 0; i < EXPECTED_COUNT; i++) {
        snprintf(path, sizeof(path), "%sz", expected[i].path);
        snprintf(wanted, sizeof(wanted), "config: %s: unknown key; did you mean %s?", path,
                 expected[i].path);
        assert_refused(fx, with(fx, path, "1"), SPEC_E_CONFIG, "unknown key");
        assert_string_equal(fx->error.text, wanted);
    }
}

static void a_long_unknown_key_is_cut_in_the_error(void **state)
{
    struct fixture *fx = *state;
    char key[2000];
    memset(key, 'k', sizeof(key));
    key[sizeof(key) - 1] = '\0';
    snprintf(fx->text, TEXT_BYTES, "{\"path\":\"d\",\"%s\":1}", key);
    assert_refused(fx, fx->text, SPEC_E_CONFIG, "kkk: unknown key");
}

static void a_key_given_twice_is_refused_also_with_the_same_value(void **state)
{
    struct fixture *fx = *state;
    char part[128];
    for (size_t i = 0; i < EXPECTED_COUNT; i++) {
        const char *path = expected[i].path, *value = expected[i].good[0];
        const char *dot = strchr(path, '.');
        if (dot == NULL)
            snprintf(fx->text, TEXT_BYTES, "{\"%s\":%s,\"path\":\"d\",\"%s\":%s}", path, value,
                     path, value);
        else
            snprintf(fx->text, TEXT_BYTES, "{\"path\":\"d\",\"%.*s\":{\"%s\":%s,\"%s\":%s}}",
                     (int)(dot - path), path, dot + 1, value, dot + 1, value);
        snprintf(part, sizeof(part), "config: %s: given twice", path);
        assert_refused(fx, fx->text, SPEC_E_CONFIG, part);
    }
    assert_refused(fx, "{\"path\":\"d\",\"path\":\"d\"}", SPEC_E_CONFIG, "path: given twice");
    assert_refused(fx, "{\"io\":{},\"path\":\"d\",\"io\":{\"threads\":1}}", SPEC_E_CONFIG,
                   "config: io: given twice");
}

static void all_keys_may_be_given_at_once(void **state)
{
    struct fixture *fx = *state;
    assert_int_equal(
        parse(fx, "{\"io\":{},\"maintain\":{\"bytes_per_s\":\"2GB\"},"
                  "\"store\":{\"min_tokens\":7},\"path\":\"\\/a\\\\b\\u00e9\\ud83d\\ude00\\\"\","
                  "\"select\":{\"retain_ppm\":1000000},\"preset\":\"recompute\"}"),
        SPEC_OK);
    assert_string_equal(fx->config.path, "/a\\b\xc3\xa9\xf0\x9f\x98\x80\"");
    assert_int_equal(fx->config.maintain_bytes_per_s, 2000000000);
    assert_int_equal(fx->config.store_min_tokens, 7);
    assert_int_equal(fx->config.preset, SC_PRESET_RECOMPUTE);
    assert_int_equal(fx->config.io_threads, 2);
}

/* What each preset says of other keys, by hand; the rest is as without it. */
static const struct {
    const char *name;
    uint64_t preset, retain_ppm, identify, layout, predictor, probe_heads, base, planner;
    uint64_t min_precision_ppm, host_policy, bits, exact_ppm; /* bits 0: as by default */
    bool is_literature; /* matches are chosen from however short, and pruned passes stored */
} presets[] = {
    {"recompute", SC_PRESET_RECOMPUTE, 1000000, 0, 0, 0, 0, 0, 0, 750000, 0, 0, 50000, false},
    {"as-like", SC_PRESET_AS_LIKE, 1000000, 0, 0, 0, 0, 0, 0, 750000, 0, 0, 50000, false},
    {"as-h2o-lru", SC_PRESET_AS_H2O_LRU, 250000, SC_IDENTIFY_KEYS, 1, 0, 0, 0, 0, 750000,
     SC_POLICY_LRU, 0, 50000, true},
    {"as-h2o-lfu", SC_PRESET_AS_H2O_LFU, 250000, SC_IDENTIFY_KEYS, 1, 0, 0, 0, 0, 750000,
     SC_POLICY_LFU, 0, 50000, true},
    {"spi", SC_PRESET_SPI, 250000, SC_IDENTIFY_STATIC, 1, SC_PREDICTOR_STATIC, 0, 0, 0, 0,
     SC_POLICY_LRU, 0, 50000, true},
    {"random", SC_PRESET_RANDOM, 250000, 0, 1, SC_PREDICTOR_RANDOM, 3, 0, 0, 0, SC_POLICY_LRU, 0,
     50000, true},
    {"impress-itf", SC_PRESET_IMPRESS_ITF, 250000, 0, 1, 0, 3, 0, 0, 750000, 0, 0, 50000, true},
    {"spec-itf", SC_PRESET_SPEC_ITF, 250000, 0, 1, SC_PREDICTOR_LAYER, 3, 0, 0, 0, 0, 0, 50000,
     true},
    {"hinted", SC_PRESET_HINTED, 250000, SC_IDENTIFY_QUANTISED, 0, SC_PREDICTOR_HINT, 0, 0, 1,
     750000, 0, 0, 50000, false},
    {"layered", SC_PRESET_LAYERED, 1000000, SC_IDENTIFY_QUANTISED, 0, SC_PREDICTOR_HINT, 0, 1, 1,
     750000, 0, 0, 50000, false},
    {"layered-uniform", SC_PRESET_LAYERED_UNIFORM, 1000000, SC_IDENTIFY_QUANTISED, 0,
     SC_PREDICTOR_HINT, 0, 1, 1, 750000, 0, 0, 50000, false},
    {"int8", SC_PRESET_INT8, 1000000, SC_IDENTIFY_QUANTISED, 0, 0, 0, 1, 1, 750000, 0, 8, 0, false},
    {"cake", SC_PRESET_CAKE, 1000000, 0, 0, 0, 0, 0, 0, 750000, SC_POLICY_LRU, 0, 50000, false},
    {"impress", SC_PRESET_IMPRESS, 250000, 0, 1, 0, 3, 0, 0, 750000, SC_POLICY_SCORE, 0, 50000,
     true},
    {"spec", SC_PRESET_SPEC, 250000, 0, 1, SC_PREDICTOR_LAYER, 3, 0, 0, 0, SC_POLICY_SCORE, 0,
     50000, true},
    {"attention-store", SC_PRESET_ATTENTION_STORE, 1000000, 0, 0, 0, 0, 0, 0, 750000, SC_POLICY_LRU,
     0, 50000, false},
    {"impress-itf-ro", SC_PRESET_IMPRESS_ITF_RO, 250000, 0, 1, 0, 3, 0, 0, 750000, 0, 0, 50000,
     true},
};

static void a_preset_is_defaults_and_given_keys_win(void **state)
{
    struct fixture *fx = *state;
    assert_int_equal(sizeof(presets) / sizeof(presets[0]), SC_PRESETS);
    for (size_t i = 0; i < 2 * SC_PRESETS; i++) {
        size_t c = i % SC_PRESETS;
        struct sc_config plain;
        assert_int_equal(parse(fx, "{\"path\":\"d\"}"), SPEC_OK);
        plain = fx->config;
        plain.preset = (uint32_t)presets[c].preset;
        plain.retain_ppm = presets[c].retain_ppm;
        plain.identify = (uint32_t)presets[c].identify;
        plain.layout = (uint32_t)presets[c].layout;
        plain.predictor = (uint32_t)presets[c].predictor;
        plain.probe_heads = (uint32_t)presets[c].probe_heads;
        plain.base = (uint32_t)presets[c].base;
        plain.min_precision_ppm = presets[c].min_precision_ppm;
        plain.host_policy = (uint32_t)presets[c].host_policy;
        plain.quarters_k = presets[c].bits > 0 ? 4 * (uint32_t)presets[c].bits : plain.quarters_k;
        plain.quarters_v = presets[c].bits > 0 ? 4 * (uint32_t)presets[c].bits : plain.quarters_v;
        plain.exact_ppm = presets[c].exact_ppm;
        if (plain.preset == SC_PRESET_LAYERED) {
            plain.bit_allocation = 1;
            plain.quarters_k = 4 * 3;
        }
        plain.select_min_tokens = presets[c].is_literature ? 0 : plain.select_min_tokens;
        plain.min_share_ppm = presets[c].is_literature ? 0 : plain.min_share_ppm;
        plain.load_policy = presets[c].is_literature ? SC_LOAD_POLICY_LOAD : plain.load_policy;
        plain.load_policy =
            plain.preset == SC_PRESET_CAKE ? SC_LOAD_POLICY_BIDIRECTIONAL : plain.load_policy;
        bool is_staged = plain.preset == SC_PRESET_ATTENTION_STORE;
        bool is_dual = is_staged || plain.host_policy == SC_POLICY_SCORE;
        plain.load_policy = is_staged ? SC_LOAD_POLICY_LOAD : plain.load_policy;
        plain.host_write_through = is_staged ? 1 : 0;
        bool is_ordered =
            plain.preset == SC_PRESET_IMPRESS_ITF_RO || plain.host_policy == SC_POLICY_SCORE;
        plain.reorder_scope = is_ordered ? SC_REORDER_NODE : SC_REORDER_SPAN;
        plain.reorder_interval_s = is_ordered ? 600 : 0;
        plain.upper_bytes = is_dual ? SC_CONFIG_AUTO : 0;
        plain.store_pruned = presets[c].is_literature ? 1 : plain.store_pruned;
        plain.planner = i >= SC_PRESETS ? SC_PLANNER_RANGE : (uint32_t)presets[c].planner;
        snprintf(fx->text, TEXT_BYTES, "{\"path\":\"d\",\"preset\":\"%s%s\"}", presets[c].name,
                 i >= SC_PRESETS ? "+range" : "");
        assert_int_equal(parse(fx, fx->text), SPEC_OK);
        for (size_t k = 0; k < EXPECTED_COUNT; k++)
            assert_int_equal(member(&fx->config, &expected[k]), member(&plain, &expected[k]));
        snprintf(fx->text, TEXT_BYTES,
                 "{\"path\":\"d\",\"select\":{\"retain_ppm\":7,\"probe_heads\":0,"
                 "\"identify\":\"keys\"},\"preset\":\"%s+range\",\"store\":{\"layout\":\"split\"},"
                 "\"read\":{\"planner\":\"chunk\"},\"prefetch\":{\"predictor\":\"hint\"}}",
                 presets[c].name);
        assert_int_equal(parse(fx, fx->text), SPEC_OK);
        assert_int_equal(fx->config.preset, presets[c].preset);
        assert_int_equal(fx->config.retain_ppm, 7);
        assert_int_equal(fx->config.probe_heads, 0);
        assert_int_equal(fx->config.identify, SC_IDENTIFY_KEYS);
        assert_int_equal(fx->config.layout, 1);
        assert_int_equal(fx->config.planner, SC_PLANNER_CHUNK);
        assert_int_equal(fx->config.predictor, SC_PREDICTOR_HINT);
    }
    assert_refused(fx, with(fx, "preset", "\"spec+\""), SPEC_E_CONFIG, "config: preset: found");
    assert_refused(fx, with(fx, "preset", "\"+range\""), SPEC_E_CONFIG, "config: preset: found");
}

static void a_path_is_required_and_bounded(void **state)
{
    struct fixture *fx = *state;
    assert_refused(fx, "{}", SPEC_E_CONFIG, "config: path: missing, expected");
    assert_refused(fx, "{\"io\":{\"threads\":1}}", SPEC_E_CONFIG, "config: path: missing");
    static const char *const bad[] = {"\"\"",      "3",    "null",         "[\"d\"]",
                                      "{\"a\":1}", "true", "\"a\\u0000b\""};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        snprintf(fx->text, TEXT_BYTES, "{\"path\":%s}", bad[i]);
        assert_refused(fx, fx->text, SPEC_E_CONFIG, "config: path: found ");
    }
    assert_refused(fx, "{\"path\":\"a\\ud800b\"}", SPEC_E_CONFIG, "half a surrogate pair");
    assert_refused(fx, "{\"path\":\"a\\udc00b\"}", SPEC_E_CONFIG, "half a surrogate pair");
    for (int bytes = 3839; bytes <= 3841; bytes++) {
        snprintf(fx->text, TEXT_BYTES, "{\"path\":\"%0*d\"}", bytes, 7);
        if (bytes > SC_LIMIT_PATH_BYTES - SC_LIMIT_PATH_NAME_BYTES) {
            assert_refused(fx, fx->text, SPEC_E_CONFIG, "expected a directory's path");
            continue;
        }
        assert_int_equal(parse(fx, fx->text), SPEC_OK);
        assert_int_equal(strlen(fx->config.path), bytes);
    }
}

static void text_that_is_not_strict_json_is_refused_with_its_place(void **state)
{
    struct fixture *fx = *state;
    static const char *const cases[][2] = {
        {"{", "config: line 1 column 2: unexpected end"},
        {"{\"path\":\"d\"", "config: line 1 column 12: unexpected end"},
        {"{\"path\":\"d\"} x", "config: line 1 column 14: "},
        {"{\"path\":\"d\"}{}", "config: line 1 column 13: "},
        {"{\"path\":\"d\",}", "config: line 1 column 13: "},
        {"{,\"path\":\"d\"}", "config: line 1 column 2: "},
        {"{\"path\":\"d\" \"io\":{}}", "config: line 1 column 13: "},
        {"{\n \"path\" = \"d\"}", "config: line 2 column 9: "},
        {"{'path':\"d\"}", "config: line 1 column 2: expected a double quote"},
        {"{\"path\":'d'}", "config: line 1 column 9: "},
        {"{path:\"d\"}", "config: line 1 column 2: "},
        {"{\"path\":\"d\"} // x", "config: line 1 column 14: "},
        {"{\"path\":\"d\",/* x */\"io\":{}}", "config: line 1 column 13: "},
        {"{\"path\":\"d\",\"chunk_tokens\":0x40}", "config: line 1 column 29: "},
        {"{\"path\":\"d\",\"chunk_tokens\":064}", "config: line 1 column "},
        {"{\"path\":\"d\",\"chunk_tokens\":+64}", "config: line 1 column 28: "},
        {"{\"path\":\"d\",\"chunk_tokens\":}", "config: line 1 column 28: "},
        {"{\"path\":\"a\nb\"}", "config: line 1 column 11: a control character"},
        {"{\"pa\tth\":\"d\"}", "config: line 1 column 5: a control character"},
        {"{\"path\":\"\xff\"}", "config: line 1 column "},
        {"{\"path\":\"\\x\"}", "config: line 1 column "},
        {"{\"a\":[[[[[[[[[[[[]]]]]]]]]]]]}", "nesting too deep"},
        {"{\"path\":\"d\",\"io\":{\"threads\":1}", "unexpected end"},
        {"{\"path\":\"d\",\"io\":{\"threads\":1,}}", "config: line 1 column "},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_refused(fx, cases[i][0], SPEC_E_CONFIG, cases[i][1]);
}

static void file_write(const struct fixture *fx, const void *bytes, size_t count)
{
    FILE *file = fopen(fx->file, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static void a_file_is_read_like_inline_text(void **state)
{
    struct fixture *fx = *state;
    static const char text[] = "\n{\"path\": \"d\",\n \"io\": {\"threads\": 5}}\n";
    file_write(fx, text, sizeof(text) - 1);
    assert_int_equal(parse(fx, fx->file), SPEC_OK);
    assert_int_equal(fx->config.io_threads, 5);
    file_write(fx, text, sizeof(text)); /* its NUL too */
    assert_refused(fx, fx->file, SPEC_E_CONFIG, "config: line 4 column 1: a NUL byte");
    file_write(fx, text, 0);
    assert_refused(fx, fx->file, SPEC_E_CONFIG, "config: line 1 column 1: unexpected end");
    file_write(fx, "[]", 2);
    assert_refused(fx, fx->file, SPEC_E_CONFIG, "line 1 column 1: expected an object");
    file_write(fx, "null\n", 5);
    assert_refused(fx, fx->file, SPEC_E_CONFIG, "line 1 column 1: expected an object");
    file_write(fx, "\xef\xbb\xbf{\"path\":\"d\"}", 15);
    assert_refused(fx, fx->file, SPEC_E_CONFIG, "config: line 1 column 1: ");
}

static void a_file_that_cannot_be_read_is_named_with_the_reason(void **state)
{
    struct fixture *fx = *state;
    char expected_text[200];
    snprintf(expected_text, sizeof(expected_text),
             "config: cannot read \"%s\": No such file or directory", fx->file);
    assert_refused(fx, fx->file, SPEC_E_IO, "cannot read");
    assert_string_equal(fx->error.text, expected_text);
    assert_int_equal(fx->error.sys_errno, 2);
    assert_refused(fx, fx->directory, SPEC_E_IO, ": Is a directory");
    assert_refused(fx, "", SPEC_E_IO, "cannot read \"\": No such file");
    assert_refused(fx, "/dev/null", SPEC_E_IO, ": not a regular file");
    assert_int_equal(mkfifo(fx->file, 0600), 0); /* nobody writes: a read would block for ever */
    assert_refused(fx, fx->file, SPEC_E_IO, ": not a regular file");
    assert_refused(fx, NULL, SPEC_E_INVALID, "config: NULL");
}

static void a_text_or_file_above_the_limit_is_refused_and_one_at_it_is_read(void **state)
{
    struct fixture *fx = *state;
    char *text = malloc(SC_LIMIT_CONFIG_BYTES + 2);
    assert_non_null(text);
    memset(text, ' ', SC_LIMIT_CONFIG_BYTES + 1);
    text[SC_LIMIT_CONFIG_BYTES + 1] = '\0';
    memcpy(text, "{\"path\":\"d\"}", 12);
    assert_refused(fx, text, SPEC_E_CONFIG, "config: larger than 1048576 bytes");
    file_write(fx, text, SC_LIMIT_CONFIG_BYTES + 1);
    assert_refused(fx, fx->file, SPEC_E_CONFIG, "config: larger than 1048576 bytes");
    text[SC_LIMIT_CONFIG_BYTES] = '\0';
    assert_int_equal(parse(fx, text), SPEC_OK);
    file_write(fx, text, SC_LIMIT_CONFIG_BYTES);
    assert_int_equal(parse(fx, fx->file), SPEC_OK);
    free(text);
}

static void no_memory_for_the_file_is_told(void **state)
{
    struct fixture *fx = *state;
    file_write(fx, "{\"path\":\"d\"}", 12);
    sc_alloc_seal(&fx->alloc);
    assert_refused(fx, fx->file, SPEC_E_NO_MEMORY, "config: ");
    sc_alloc_unseal(&fx->alloc);
}

/* The lines of docs/reference/config.md that start with "| `" are the table, in its order. */
static void the_documentation_lists_the_same_keys(void **state)
{
    (void)state;
    FILE *file = fopen(SC_SOURCE_DIR "/docs/reference/config.md", "r");
    assert_non_null(file);
    char line[1024], wanted[1024];
    uint32_t i = 0;
    while (fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "| `", 3) != 0)
            continue;
        const struct sc_config_row *row = sc_config_row_at(i++);
        const struct sc_config_key *key = row != NULL ? &row->shown : NULL;
        if (key == NULL)
            fail_msg("docs/reference/config.md has a key too much: %s", line);
        snprintf(wanted, sizeof(wanted), "| `%s` | %s | %s | %s | %s |\n", key->path, key->type,
                 key->initial, key->allowed, key->help);
        assert_string_equal(line, wanted);
    }
    fclose(file);
    if (sc_config_row_at(i) != NULL)
        fail_msg("docs/reference/config.md lacks %s", sc_config_row_at(i)->shown.path);
}

/* Whether `name` is one of the names in the first cell of a table's line: "| a, b | ... |". */
static bool is_row_of(const char *line, const char *name)
{
    size_t bytes = strlen(name);
    for (const char *at = line; at[0] != '\0' && (at == line || at[0] != '|'); at++)
        if (strncmp(at, name, bytes) == 0 && at != line && at[-1] == ' ' &&
            (at[bytes] == ',' || at[bytes] == ' '))
            return true;
    return false;
}

/* A row that says "the whole prefix", or names a load policy, is held to it. */
static void the_documentation_says_what_of_a_match_a_preset_reuses(void **state)
{
    struct fixture *fx = *state;
    for (size_t i = 0; i < sizeof(presets) / sizeof(presets[0]); i++) {
        FILE *file = fopen(SC_SOURCE_DIR "/docs/reference/config.md", "r");
        char line[1024], setting[64];
        uint32_t rows = 0;
        assert_non_null(file);
        snprintf(setting, sizeof(setting), "\"%s\"", presets[i].name);
        assert_int_equal(parse(fx, with(fx, "preset", setting)), SPEC_OK);
        const uint32_t fill = fx->config.load_policy;
        while (fgets(line, sizeof(line), file) != NULL) {
            if (strncmp(line, "| ", 2) != 0 || !is_row_of(line, presets[i].name))
                continue;
            rows++;
            if (strstr(line, "the whole prefix") != NULL && fill == SC_LOAD_POLICY_SPLIT)
                fail_msg("%s promises as much as is worth loading: %s", presets[i].name, line);
            assert_int_equal(strstr(line, "`load_policy` bidirectional") != NULL,
                             fill == SC_LOAD_POLICY_BIDIRECTIONAL);
            if (strstr(line, "`load_policy` load") != NULL)
                assert_int_equal(fill, SC_LOAD_POLICY_LOAD);
            if (strstr(line, "`load_policy` split") != NULL)
                assert_int_equal(fill, SC_LOAD_POLICY_SPLIT);
        }
        fclose(file);
        assert_int_equal(rows, 1);
    }
}

int main(void)
{
#define CONFIG_TEST(test) cmocka_unit_test_setup_teardown(test, make, done)
    const struct CMUnitTest tests[] = {
        CONFIG_TEST(the_smallest_configuration_gives_every_default),
        CONFIG_TEST(the_table_and_this_test_know_the_same_keys),
        CONFIG_TEST(good_values_reach_their_member_and_no_other),
        CONFIG_TEST(bad_values_are_refused_with_the_keys_path),
        CONFIG_TEST(an_error_says_what_was_found_and_what_is_allowed),
        CONFIG_TEST(unknown_keys_are_refused_wherever_they_stand),
        CONFIG_TEST(an_unknown_key_is_told_the_nearest_one_that_exists),
        CONFIG_TEST(a_removed_key_is_refused_with_advice),
        CONFIG_TEST(every_key_is_the_nearest_of_a_slip_in_it),
        CONFIG_TEST(a_long_unknown_key_is_cut_in_the_error),
        CONFIG_TEST(a_key_given_twice_is_refused_also_with_the_same_value),
        CONFIG_TEST(all_keys_may_be_given_at_once),
        CONFIG_TEST(a_preset_is_defaults_and_given_keys_win),
        CONFIG_TEST(a_path_is_required_and_bounded),
        CONFIG_TEST(text_that_is_not_strict_json_is_refused_with_its_place),
        CONFIG_TEST(a_file_is_read_like_inline_text),
        CONFIG_TEST(a_file_that_cannot_be_read_is_named_with_the_reason),
        CONFIG_TEST(a_text_or_file_above_the_limit_is_refused_and_one_at_it_is_read),
        CONFIG_TEST(no_memory_for_the_file_is_told),
        CONFIG_TEST(the_documentation_lists_the_same_keys),
        CONFIG_TEST(the_documentation_says_what_of_a_match_a_preset_reuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* maintain: the background jobs (jobs.c), and the call that requests them.
 *
 *   tidy        logs failed pieces; removes runs that were pinned
 *   evict       evict.c
 *   checkpoint  shortens the log; during an erasure erase.c instead
 *   baseline    logs averages (baselines/baselines.h) and estimates (load_or_compute/)
 *   compact     chunks of many pieces (compact.c)
 *   spare       memory that the index needs next
 *
 * The store itself builds derived sections (store/section/build_sections.c). During a bypass
 * (bypass.h) averages and new compactions wait; the other jobs continue.
 * Threads: maintain any; steps on the executor's; open by one.
 * Tests: conformance (abi_135_*, abi_209_*), tests/unit/plugin/test_maintain.c */
#include "plugin/args/args.h"
#include "plugin/connector.h"

#define MAINTAIN_FLAGS                                                                             \
    (SPEC_MAINTAIN_REORDER | SPEC_MAINTAIN_CHECKPOINT | SPEC_MAINTAIN_EVICT |                      \
     SPEC_MAINTAIN_BYPASS | SPEC_MAINTAIN_BUILD | MAINTAIN_ERASES)
#define MAINTAIN_ERASES (SPEC_MAINTAIN_ERASE | SPEC_MAINTAIN_ERASE_SALT)

/* Another member may have written the log anew since the job was asked for. */
static bool checkpoint_is_due(spec_connector *conn)
{
    sc_store_turn_begin(conn->store);
    bool is_due = sc_store_checkpoint_due(conn->store);
    sc_store_turn_end(conn->store);
    return atomic_exchange(&conn->ranks.asks_checkpoint, false) || is_due;
}

static bool checkpoint_run(spec_connector *conn)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    if (sc_store_erasures(conn->store) > 0) /* it rewrites the log, too */
        return sc_plugin_erase_some(conn);
    if (conn->ranks.is_member && !checkpoint_is_due(conn))
        return false;
    sc_baseline_write_all(
        /* a checkpoint keeps the newest of each piece */
        &conn->baseline);
    spec_status status = sc_store_checkpoint(conn->store, &error);
    if (status != SPEC_OK && (status != SPEC_E_BUSY || !conn->ranks.is_member))
        SC_LOG(&conn->log, SPEC_LOG_WARN, "checkpoint: %s", error.text);
    if (atomic_load(&conn->compaction.waiting) > 0) /* one may be queued since the copy */
        sc_plugin_kick(conn, SC_JOB_COMPACT);
    return false;
}

static bool baseline_run(spec_connector *conn)
{
    if (sc_plugin_is_bypassed(conn))
        return false; /* its end kicks, or close writes */
    sc_plugin_load_policy_write(conn, false);
    return sc_baseline_write(&conn->baseline);
}

void sc_plugin_maintain_open(spec_connector *conn)
{
    static bool (*const RUNS[SC_JOBS])(spec_connector *) = {
        [SC_JOB_TIDY] = sc_plugin_tidy,       [SC_JOB_EVICT] = sc_plugin_evict_some,
        [SC_JOB_CHECKPOINT] = checkpoint_run, [SC_JOB_SPARE] = sc_plugin_index_spare,
        [SC_JOB_BASELINE] = baseline_run,     [SC_JOB_COMPACT] = sc_plugin_compact_some,
    };
    sc_plugin_jobs_open(conn, RUNS);
}

static spec_status salt_check(const struct spec_maintain_params *params, struct spec_error *reterr)
{
    bool needs = (params->flags & SPEC_MAINTAIN_ERASE_SALT) != 0;
    if (!needs && (params->salt.data != NULL || params->salt.byte_count > 0))
        return sc_fail(reterr, SPEC_E_INVALID, "maintain: a salt, and no ERASE_SALT");
    if (needs && (params->salt.data == NULL || params->salt.byte_count == 0 ||
                  params->salt.byte_count > SC_LIMIT_KEY_BYTES))
        return sc_fail(reterr, SPEC_E_INVALID,
                       "maintain: ERASE_SALT with a salt of %" PRIu64 " bytes, expected 1 to %u",
                       params->salt.byte_count, SC_LIMIT_KEY_BYTES);
    return SPEC_OK;
}

spec_status sc_plugin_maintain(spec_connector *conn, const struct spec_maintain_params *host_params,
                               struct spec_error *reterr)
{
    struct spec_maintain_params params;
    spec_status status = sc_plugin_args_read(&params, &sc_plugin_form_maintain, host_params,
                                             "maintain: params", reterr);
    if (status != SPEC_OK)
        return status;
    if (params.flags == 0 || (params.flags & ~MAINTAIN_FLAGS) != 0)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "maintain: flags are %#" PRIx32 ", expected some of %#x", params.flags,
                       MAINTAIN_FLAGS);
    if (!sc_plugin_can_store(conn) &&
        (params.flags & ~(SPEC_MAINTAIN_BYPASS | MAINTAIN_ERASES)) != 0)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "maintain: this process is a reader");
    status = salt_check(&params, reterr);
    if (status == SPEC_OK && (params.flags & SPEC_MAINTAIN_ERASE) != 0)
        status = sc_plugin_erase_put(conn, NULL, reterr);
    if (status == SPEC_OK && (params.flags & SPEC_MAINTAIN_ERASE_SALT) != 0)
        status = sc_plugin_erase_put(conn, &params.salt, reterr);
    if (status != SPEC_OK)
        return status;
    if ((params.flags & SPEC_MAINTAIN_BYPASS) != 0)
        sc_plugin_bypass(conn, params.deadline_ns);
    if ((params.flags & SPEC_MAINTAIN_CHECKPOINT) != 0) {
        atomic_store(&conn->ranks.asks_checkpoint, true);
        sc_plugin_kick(conn, SC_JOB_CHECKPOINT);
    }
    if ((params.flags & SPEC_MAINTAIN_EVICT) != 0)
        sc_plugin_evict_ask_least(conn);
    if ((params.flags & SPEC_MAINTAIN_BUILD) != 0)
        sc_store_build_start(conn->store, conn->config.maintain_bytes_per_s);
    if ((params.flags & SPEC_MAINTAIN_REORDER) != 0)
        sc_store_build_permutation(conn->store, conn->config.maintain_bytes_per_s);
    return SPEC_OK;
}

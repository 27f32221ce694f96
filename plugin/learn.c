/* Averages of the connector: where they come from and go to.
 *
 *   sums of a choice -> averages (memory) -> job, checkpoint, close -> the store's log
 *   the store's open, or its following    -> averages
 *
 * Holds: a reader learns from its writer's log, keeps what its own requests add in memory, and
 * writes nothing.
 * Threads: see each. Tests: tests/unit/plugin/test_guess.c, test_layered.c */
#include "plugin/select.h"

static uint32_t rows_of(void *user, uint64_t piece)
{
    const spec_connector *conn = user;
    return sc_store_piece_rows(conn->store, piece);
}

spec_status sc_plugin_averages_make(spec_connector *conn, struct spec_error *reterr)
{
    if (!sc_plugin_can_select(conn))
        return SPEC_OK; /* nothing is ever scored, nor chosen by averages */
    struct sc_plugin_averages_params params = {.alloc = &conn->alloc,
                                               .layer_count = conn->layer_count,
                                               .rows_max = conn->config.chunk_tokens,
                                               .bytes_max = conn->config.average_bytes,
                                               .rows_of = rows_of,
                                               .user = conn};
    return sc_plugin_averages_open(&params, &conn->averages, reterr);
}

void sc_plugin_on_average(const struct sc_store_average *average, void *user)
{
    spec_connector *conn = user;
    sc_plugin_averages_load(conn->averages, average);
}

static spec_status put(void *user, const struct sc_store_average *averages, uint64_t count)
{
    spec_connector *conn = user;
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status = sc_store_average_put(conn->store, averages, count, &error);
    if (status != SPEC_OK && status != conn->average_status) /* said once */
        SC_LOG(&conn->log, SPEC_LOG_WARN, "averages of %" PRIu64 " pieces are not written: %s",
               count, error.text);
    conn->average_status = status;
    return status;
}

bool sc_plugin_averages_write(spec_connector *conn)
{
    return sc_plugin_averages_flush(conn->averages, false, put, conn);
}

void sc_plugin_averages_write_all(spec_connector *conn)
{
    bool more = conn->role == SPEC_ROLE_WRITER;
    while (more)
        more = sc_plugin_averages_flush(conn->averages, true, put, conn);
}

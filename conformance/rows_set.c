/* rows_set: the set of tests of spec_connector.h, and the open before them. See suite.h.
 *
 * Every test can run with the default configuration. */
#include "conformance/suite.h"

#include <stdio.h>

static const struct conf_test *const GROUPS[] = {
    CONF_RULES,   CONF_SIZES,   CONF_OPEN,    CONF_NAMESPACE,  CONF_LOOKUP,        CONF_LOAD,
    CONF_LAYOUT,  CONF_FAILURE, CONF_SAVE,    CONF_STORE_CALL, CONF_HERD,          CONF_TICKET,
    CONF_HALVES,  CONF_ENDS,    CONF_ENGINE,  CONF_BATCH,      CONF_FIELD_REPORTS, CONF_PROCESS,
    CONF_LEASE,   CONF_RESET,   CONF_EVICT,   CONF_WORKER,     CONF_SELECT,        CONF_PROVENANCE,
    CONF_LAYERED, CONF_REFINE,  CONF_AHEAD,   CONF_VALUE,      CONF_COPIES,        CONF_SCALE,
    CONF_BYTES,   CONF_COLUMNS, CONF_RESCORE, CONF_STAGE,      CONF_WRITTEN,       CONF_CUT,
    CONF_DEVICE,  CONF_BYPASS,  CONF_GROUPS,  CONF_STATES,     CONF_OVERLAP,       CONF_ERASE,
    NULL};

static spec_status open_once(bool *ret_loaded, struct spec_error *reterr)
{
    static struct fixture fx;
    fx.error.struct_size = sizeof(fx.error);
    fx.role = SPEC_ROLE_WRITER;
    (void)snprintf(fx.store, sizeof(fx.store), "%s/first", conf_options.dir);
    spec_status status = spec_load(conf_options.so, &fx.plugin, reterr);
    *ret_loaded = status == SPEC_OK;
    if (status != SPEC_OK)
        return status;
    fx.api = fx.plugin.api;
    fixture_shape(&fx, (struct shape){3, 2, 16, SPEC_DTYPE_F16});
    status = fixture_try_open(&fx);
    if (status == SPEC_OK)
        fx.api->close(fx.conn);
    else
        *reterr = fx.error;
    return status;
}

const struct conf_set CONF_OF_ROWS = {
    .prefix = "ABI",
    .groups = GROUPS,
    .clauses = CONF_ROW_CLAUSES,
    .extra = "\"disk_bytes\": \"256MiB\", \"segment_bytes\": \"8MiB\", "
             "\"staging_bytes\": \"32MiB\", \"max_requests\": 16, \"max_request_tokens\": 8192",
    .setup = fixture_setup,
    .setup_bare = fixture_setup_bare,
    .teardown = fixture_teardown,
    .open_once = open_once,
    .judged = "a connector of ABI",
    .major = SPEC_ABI_MAJOR,
    .minor = SPEC_ABI_MINOR};

/* The connector's driver: joins a loaded plugin to requests of the runner, as a serving engine
 * would, layer by layer, through the ABI alone.
 *
 *   begin            lookup -> matched tokens
 *   before_layer     begin_layer (first pass of the prompt)
 *   before_attention get_important -> prefix rows straight into the cache
 *   after_attention  prefetch_next
 *   after_layer      store of the prefix's new rows
 *   settle           wait for tickets, release
 *
 * Holds: every ABI error becomes one line of text; a lost range releases the request and asks for a
 * restart; what was stored is on disk and visible before the next request begins.
 * Does not: share code with the plugin.
 * Threads: one.
 * Tests: tests/unit/engine/test_driver.c
 */
#ifndef ENG_CLI_DRIVER_H
#define ENG_CLI_DRIVER_H

#include "conformance/engine/cli/engine_run.h"
#include "conformance/engine/cli/report.h"

struct eng_driver;

struct eng_driver_params {
    const char *connector; /* path of the shared object */
    const char *config;    /* path or JSON text */
    const char *model_dir; /* its weight files make the namespace */
    const struct eng_model *model;
    enum eng_dtype kv_dtype;
    bool store;                /* false: read only what is there */
    bool store_query;          /* also the query's rows, not only the prefix's */
    struct eng_report *report; /* for --trace; may be NULL */
    void (*log)(int32_t level, const char *line, void *user); /* may be NULL */
    void *log_user;
};

eng_status eng_driver_open(const struct eng_driver_params *params, struct eng_driver **ret_driver,
                           struct eng_error *reterr);
/* Takes NULL. */
void eng_driver_close(struct eng_driver *driver);

/* Constant while the driver is open. */
const struct eng_source *eng_driver_source(const struct eng_driver *driver);

/* Why the last request's rows could not be stored (disk full, staging full), or NULL. */
const char *eng_driver_store_problem(const struct eng_driver *driver);

#endif

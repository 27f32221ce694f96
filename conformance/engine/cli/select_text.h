/* select_text: parses a spec_select from the text of --select and --rho.
 *
 *   {"budget": "ratio" | "count" | "mass", "retain_ppm", "mass_ppm", "count",   SPEC_SELECT_BUDGET
 *    "metric": "h2o" | "last" | "random",                                       .. METRIC
 *    "keep_first", "keep_last"}                                                 .. KEEP
 *
 * A group is given if one of its names is; its other members have the connector's defaults (ratio,
 * 1,000,000, nothing kept).
 * Threads: any. Tests: tests/unit/engine/test_cli.c */
#ifndef CONFORMANCE_ENGINE_CLI_SELECT_TEXT_H
#define CONFORMANCE_ENGINE_CLI_SELECT_TEXT_H

#include "abi/spec_connector.h"
#include "conformance/engine/error.h"

eng_status eng_select_parse(const char *text, struct spec_select *ret_select,
                            struct eng_error *reterr);

/* A ratio budget: 0 < rho <= 1, rounded to a millionth, at least one. */
struct spec_select eng_select_ratio(double rho);

#endif

/* altered: whole prefixes from a connector whose rows are changed before the attention reads them.
 *
 *   connector -> every row of a layer in the cache -> changed in place -> attention
 *
 *   ALTERED_FP8       K and V rounded to fp8 (e4m3), one scale per layer for K and one for V, which
 *                     maps the largest magnitude to 448, as a calibrated engine with an fp8 cache
 *   ALTERED_STAND_IN  per KV head, the rows that exact H2O would drop take K and V of the kept row
 *                     with the nearest key; positions and their number stay
 *
 * Invariants: only the prompt's pass is changed, once per layer; the connector's counters are its
 * own.
 * Threads: one. Tests: tests/unit/bench/test_altered.c  */
#ifndef BENCH_ALTERED_H
#define BENCH_ALTERED_H

#include "conformance/engine/cli/engine_run.h"
#include "conformance/engine/select_rows.h"

enum altered_kind { ALTERED_NONE, ALTERED_FP8, ALTERED_STAND_IN };

struct altered_params {
    enum altered_kind kind;
    const struct eng_source *inner; /* delivers every row of a match */
    const struct eng_model *model;
    struct eng_select_rule rule; /* ALTERED_STAND_IN: the rows that are kept, per head */
};

struct altered;

eng_status altered_open(const struct altered_params *params, struct altered **ret_altered,
                        struct eng_error *reterr);
/* Takes NULL. */
void altered_close(struct altered *altered);
const struct eng_source *altered_source(const struct altered *altered);

/* x rounded to the nearest value of e4m3, ties to even; beyond 448 it is 448. */
float altered_e4m3(float x);

#endif

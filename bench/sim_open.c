/* Contract: sim_open.h. */
#include "bench/sim_open.h"
#include "bench/bench.h"
#include "tests/sim/sim_connector.h"

spec_connector *bench_sim_open(struct sc_io_sim_disk *disk, const struct spec_model *model,
                               const char *config)
{
    spec_connector *conn = NULL;
    struct spec_error error = {.struct_size = sizeof(error)};
    const struct spec_open_params params = {
        .struct_size = sizeof(params), .role = SPEC_ROLE_WRITER, .config = config, .model = model};
    bench_must(sc_sim_connector_open(&params, disk, &conn, &error), &error, "open");
    return conn;
}

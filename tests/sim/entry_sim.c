/* The connector as it is shipped, but that one whose configuration has the group "sim" lies on a
 * simulated disk (tests/sim/sim_connector.h): so spec-conformance judges what no real device does
 * on demand.
 *
 *   open(config) -> with the group: the process's simulated disk; without: the real call
 *
 * Holds: all else is the real connector's; the disk lasts as long as the library is loaded, so that
 * what was closed is found again, by this process.
 * Threads: as the real one; on the disk, one (base/exec.h).
 * Tests: conformance_stalled */
#include "tests/sim/sim_connector.h"

#include <pthread.h>

/* The real connector's function, renamed by the build. */
const struct spec_api *sc_sim_real_api(uint32_t major);

static struct sc_io_sim_disk *the_disk;

static void disk_make(void)
{
    static struct sc_alloc alloc;
    sc_alloc_init(&alloc);
    const struct sc_io_sim_disk_params params = {.alloc = &alloc, .seed = 1};
    (void)sc_io_sim_disk_open(&params, &the_disk, NULL);
}

/* The judge unloads what it judged, and nothing would know of the disk any more. */
__attribute__((destructor)) static void disk_unmake(void)
{
    sc_io_sim_disk_close(the_disk);
}

static spec_status open_on_disk(const struct spec_open_params *params, spec_connector **ret_conn,
                                struct spec_error *reterr)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const size_t least = offsetof(struct spec_open_params, model);
    if (params == NULL || params->struct_size < least || !sc_sim_connector_is_meant(params->config))
        return sc_sim_real_api(SPEC_ABI_MAJOR)->open(params, ret_conn, reterr);
    (void)pthread_once(&once, disk_make);
    if (the_disk == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "sim disk");
    return sc_sim_connector_open(params, the_disk, ret_conn, reterr);
}

const struct spec_api *spec_connector_api(uint32_t major)
{
    static struct spec_api table;
    const struct spec_api *real = sc_sim_real_api(major);
    if (real == NULL)
        return NULL;
    table = *real;
    table.open = open_on_disk;
    return &table;
}

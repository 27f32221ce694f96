/* A back end as pread, but for one thing: who submits reads in the background comes back from that
 * when they have ended and whoever was told has had time to go on. On a machine that is a thread
 * which is interrupted there.
 *
 * Threads: as pread. */
#ifndef SC_TESTS_UNIT_STORE_LATE_IO_H
#define SC_TESTS_UNIT_STORE_LATE_IO_H

#include "store/io/io_backend.h"

#include <unistd.h>

static struct sc_io_backend late_backend;
static void (*late_goes_on)(struct sc_io *io, struct sc_io_op *ops);

static inline void late_submit(struct sc_io *io, struct sc_io_op *ops)
{
    bool waits = ops->kind == SC_IO_READ && ops->io_class == SC_IO_CLASS_BACKGROUND;
    late_goes_on(io, ops);
    for (uint32_t i = 0; i < 10 && waits; i++)
        (void)usleep(50);
}

static inline spec_status late_open(struct sc_io *io, void *user, struct spec_error *reterr)
{
    (void)user;
    spec_status status = sc_io_pread_open(io, NULL, reterr);
    late_goes_on = io->backend->submit;
    late_backend = *io->backend;
    late_backend.submit = late_submit;
    io->backend = &late_backend;
    return status;
}

static const struct sc_io_custom late_io = {.open = late_open};

#endif

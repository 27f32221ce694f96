/* watch: has a file or directory changed since it was last looked at? For those that are asked for
 * at ticks and hardly ever change: one stat instead of opening and reading.
 *
 *   stamp   ? ? A A A A B ?    ?: young, or no answer (sc_io_stamp)
 *   looks   x x x       x x
 *
 * A stamp is taken before the look, so that it differs at the next question if something changes
 * meanwhile. Once in SC_STORE_WATCH_ASKS questions the answer is to look all the same, because the
 * clock of a network's file server may be behind. A caller that fails to look does not wait for
 * that.
 * Threads: one at a time per watch.
 * Tests: tests/unit/store/test_watch.c */
#ifndef SC_STORE_LOG_WATCH_H
#define SC_STORE_LOG_WATCH_H

#include "store/io/io.h"

#include <stdbool.h>
#include <stdint.h>

#define SC_STORE_WATCH_ASKS 40u /* a second's, at 25 ms */

struct sc_store_watch { /* zeros: never looked */
    uint64_t stamp;     /* before the last look */
    uint32_t asks;      /* since then */
};

/* Returns the stamp of dir/name. */
uint64_t sc_store_watch_stamp(struct sc_io *io, const char *dir, const char *name);
/* Returns true if the caller must look now. `stamp`: taken just before. */
bool sc_store_watch_due(struct sc_store_watch *watch, uint64_t stamp);

#endif

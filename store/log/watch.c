/* Contract: watch.h. */
#include "store/log/watch.h"

#include "base/limits.h"

#include <string.h>

uint64_t sc_store_watch_stamp(struct sc_io *io, const char *dir, const char *name)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    size_t dir_bytes = strlen(dir), name_bytes = strlen(name);
    if (dir_bytes + name_bytes + 2 > sizeof(path))
        return SC_IO_STAMP_UNKNOWN;
    /* Not formatted: with cold caches, as at a tick, that takes as long as the stat. */
    memcpy(path, dir, dir_bytes);
    path[dir_bytes] = '/';
    memcpy(path + dir_bytes + 1, name, name_bytes + 1);
    return sc_io_stamp(io, path);
}

bool sc_store_watch_due(struct sc_store_watch *watch, uint64_t stamp)
{
    bool stands = stamp != SC_IO_STAMP_UNKNOWN && stamp == watch->stamp;
    if (stands && ++watch->asks < SC_STORE_WATCH_ASKS)
        return false;
    *watch = (struct sc_store_watch){.stamp = stamp};
    return true;
}

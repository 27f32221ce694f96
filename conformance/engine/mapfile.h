/* mapfile: a file mapped into memory, read-only.
 *
 * The map has the bytes of the file at open; an empty file is an error. A file that is cut while
 * mapped ends the process (SIGBUS).
 * Threads: any may read. Tests: tests/unit/engine/test_safetensors.c */
#ifndef CONFORMANCE_ENGINE_MAPFILE_H
#define CONFORMANCE_ENGINE_MAPFILE_H

#include <stdint.h>

#include "conformance/engine/error.h"

struct eng_mapfile {
    const uint8_t *data;
    uint64_t bytes;
};

eng_status eng_mapfile_open(const char *path, struct eng_mapfile *ret_map,
                            struct eng_error *reterr);
void eng_mapfile_close(struct eng_mapfile *map);

#endif

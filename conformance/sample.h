/* sample: how many seeds, flipped bytes and kills a test draws.
 *
 * By default a test runs a sample. With SC_ALL_SEEDS=1 in the environment (set by gcc's stage of
 * `./check --all`) it runs all of its seeds. A sanitized test always runs the sample.
 * Threads: any. */
#ifndef SC_CONFORMANCE_SAMPLE_H
#define SC_CONFORMANCE_SAMPLE_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static inline bool sample_is_whole(void)
{
#ifdef SC_SANITIZED
    return false;
#else
    const char *all = getenv("SC_ALL_SEEDS");
    return all != NULL && strcmp(all, "1") == 0;
#endif
}

/* A number of seeds, steps or bytes: of all, or of the sample. */
#define SAMPLE_OF(all, sample) (sample_is_whole() ? (all) : (sample))

#endif

/* config_near: the known key nearest to a wrong one, for the error's text.
 *
 *   "io.thread"  -> io.threads           few edits of the whole path
 *   "retain_pm"  -> select.retain_ppm    few edits of the last name, in another object
 *
 * Invariants: a path above the limit has no neighbour. The first of equally near rows wins.
 * Threads: any. Tests: tests/unit/base/test_config.c */
#include "base/config_keys.h"

#include <stdio.h>
#include <string.h>

#define NEAR_BYTES_MAX 40u /* of a path; the longest key is shorter */
#define EDIT_LETTERS   3u  /* letters per allowed edit */
#define EDITS_MAX      3u

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Returns the edits that turn a into b: a letter added, removed or replaced, or two neighbours
 * exchanged. Both have at most NEAR_BYTES_MAX bytes. */
static uint32_t edit_distance(const char *a, const char *b)
{
    uint32_t rows[3][NEAR_BYTES_MAX + 1]; /* rows of the prefixes i - 2, i - 1 and i of a, modulo
                                           * 3 */
    const uint32_t a_bytes = (uint32_t)strlen(a), b_bytes = (uint32_t)strlen(b);
    for (uint32_t j = 0; j <= b_bytes; j++)
        rows[0][j] = j;
    for (uint32_t i = 1; i <= a_bytes; i++) {
        const uint32_t *before = rows[(i - 1) % 3], *earlier = rows[(i + 1) % 3];
        uint32_t *row = rows[i % 3];
        row[0] = i;
        for (uint32_t j = 1; j <= b_bytes; j++) {
            row[j] = least(before[j], row[j - 1]) + 1;
            row[j] = least(row[j], before[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], earlier[j - 2] + 1);
        }
    }
    return rows[a_bytes % 3][b_bytes];
}

static const char *last_name(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot != NULL ? dot + 1 : path;
}

/* Keeps `candidate` in `near` if it is nearer to `path` than *least_edits. */
static void consider(const char *path, const char *compared, const char *candidate,
                     uint32_t *least_edits, char near[SC_CONFIG_NEAR_BYTES])
{
    if (strlen(compared) > NEAR_BYTES_MAX)
        return;
    const uint32_t edits = edit_distance(path, compared);
    if (edits >= *least_edits)
        return;
    *least_edits = edits;
    (void)snprintf(near, SC_CONFIG_NEAR_BYTES, "%s", candidate);
}

bool sc_config_near(const char *path, char near[SC_CONFIG_NEAR_BYTES])
{
    if (strlen(path) > NEAR_BYTES_MAX)
        return false;
    const struct sc_config_row *row;
    const char *name = last_name(path);
    uint32_t limit = least((uint32_t)strlen(path) / EDIT_LETTERS, EDITS_MAX) + 1, edits = limit;
    for (uint32_t i = 0; (row = sc_config_row_at(i)) != NULL; i++) {
        char group[SC_CONFIG_NEAR_BYTES];
        (void)snprintf(group, sizeof(group), "%.*s", (int)strcspn(row->shown.path, "."),
                       row->shown.path);
        consider(path, row->shown.path, row->shown.path, &edits, near);
        consider(path, group, group, &edits, near);
    }
    if (edits < limit)
        return true;
    limit = edits = least((uint32_t)strlen(name) / EDIT_LETTERS, EDITS_MAX) + 1;
    for (uint32_t i = 0; (row = sc_config_row_at(i)) != NULL; i++)
        consider(name, last_name(row->shown.path), row->shown.path, &edits, near);
    return edits < limit;
}

/* Scorings on the fake driver's device, for tests: what is asked, as the host has it, the sums of
 * it by ref/, and a connector that asks the device.
 *
 *   the host's stream   junk, then what is asked | the scoring | junk again
 *
 * Holds: where queries or new keys are the device's, its stream has them in time and no longer.
 * Threads: one a stand; several stands may have copies of one rig. */
#ifndef SC_TESTS_UNIT_PLUGIN_SCORE_DESK_H
#define SC_TESTS_UNIT_PLUGIN_SCORE_DESK_H

#include "tests/unit/plugin/device_fixture.h"

#include "plugin/device/device_scores.h"

#define SCENE_TOLERANCE 1e-5 /* of the largest sum */
#define SCENE_SLABS     64u
#define SCENE_TABLES    20u /* of widths; slabs have them in turn */

enum keys { ROWS, CODES, FREE }; /* FREE: codes of free widths, not turned */

struct question {
    enum keys keys;
    uint64_t count, heads, size, group, rows, fresh;
    uint32_t dtype, query_dtype, fresh_dtype;
    bool last_row, has_slots, is_total;
    uint64_t gap; /* behind each head of queries, bytes */
};

/* All of one, as the host has it. */
struct scene {
    const struct question *how;
    struct sc_kernels_importance what;
    uint8_t *keys, *queries, *fresh;
    uint64_t query_bytes, fresh_bytes;
    int64_t *slots;
    struct sc_kernels_slab slabs[SCENE_SLABS];
    uint8_t *quantised[2 * SCENE_SLABS];
    struct sc_kernels_bitplanes planes[SCENE_TABLES];
    struct sc_kernels_bitplanes_group *groups[SCENE_TABLES];
    uint8_t *bit_counts[SCENE_TABLES];
};

struct scene *scene_make(const struct question *how);
void scene_free(struct scene *scene);
/* [count], or [heads][count]. */
uint64_t sum_count(const struct question *how);
/* The caller's, to free. */
float *ref_sums(const struct scene *scene);
/* Each within SCENE_TOLERANCE. */
void sums_compare(const float *found, const float *expected, uint64_t count);

struct stand { /* a connector with a device, and its host */
    struct device_host host;
    struct rig rig;
};

/* gpu: members of that object, or "". Simulated, or in a directory with threads of its own. */
void stand_open(struct stand *stand, bool is_sim, const char *gpu);
/* Nothing flies any more, and boxes and rooms are free. */
void stand_close(struct stand *stand);
/* Nothing flies any more on the connector's device, and boxes and rooms are free. */
void stand_assert_idle(spec_connector *conn);
bool stand_takes(struct stand *stand, const struct scene *scene);
/* where: bits: queries, new keys. It succeeds. */
void stand_score(struct stand *stand, const struct scene *scene, uint32_t where, float *ret_sums);
/* `threads` hosts beside each other, on copies of the rig, score `turns` times each, from `where`
 * on; every sum is compared. */
void stand_score_beside(const struct stand *stand, const struct scene *scene, const float *right,
                        uint32_t threads, uint32_t where, uint32_t turns);
/* All of it is the host's; by a hint's streams. */
spec_status stand_hint(struct stand *stand, const struct scene *scene, float *ret_sums);

#endif

/* bench-cuda: what the CUDA path costs, beside what binds it on the same device.
 *
 *   ceilings   copies of 1 GiB there, on the device and back; multiply-adds of registers
 *   rows       place and pack; whole layers and picks out of host memory
 *   codes      both decoders
 *   scores     importance of a layer
 *   beside     a product while layers are placed
 *   calls, tier, drive
 *              through the ABI: a call with all in memory, from the host tier, from the drive;
 *              `connector` is all three
 *
 *   --dir DIR     where stores are made (a new folder)       --csv FILE   gets a line a figure
 *   --commit ID   for the CSV                                --parts a,b  some of the above
 *   --size full   quick (fewer rounds and layers, not judged), tiny (a few rows, not timed), or
 *                 shapes (full's, once each, not timed: for a fake driver before a real one)
 *
 * Shapes: rows of Llama-3-8B (8 KV heads of 128, 4 query heads each, bf16) and of OPT-6.7B (32 KV
 * heads of 128, f16), 8,192 tokens. Ends with 0, or 1 where a figure does not hold. Where there is
 * no device it says so, and ends with 0.
 *
 * Threads: one, and the plugin's. Tests: ctest bench_cuda_on_the_fake */
#include "bench/cuda/parts.h"

#include <inttypes.h>
#include <string.h>

static const struct {
    const char *name, *group; /* group: what else it is listed by; NULL: nothing */
    void (*run)(struct rig *rig);
} PARTS[] = {
    {"ceilings", NULL, part_ceilings}, {"rows", NULL, part_rows},
    {"codes", NULL, part_codes},       {"scores", NULL, part_scores},
    {"beside", NULL, part_beside},     {"calls", "connector", part_calls},
    {"tier", "connector", part_tier},  {"drive", "connector", part_drive},
};

static struct rig_sizes sizes_of(const char *name)
{
    struct rig_sizes sizes = {
        .copy_bytes = 1ull << 30,
        .llama = {"Llama-3-8B", 8, 128, 4, SC_KERNELS_BF16, 8192},
        .opt = {"OPT-6.7B", 32, 128, 1, SC_KERNELS_F16, 8192},
        .layers = 32,
        .picks = 410,
        .query_rows = 64,
        .rounds = 51,
        .load_rounds = 7,
        .product_side = 4096,
        .product_depth = 4096,
        .ffma_steps = 4096,
    };
    if (strcmp(name, "quick") == 0) {
        sizes.is_quick = true;
        sizes.layers = 4;
        sizes.rounds = 11;
        sizes.load_rounds = 3;
    } else if (strcmp(name, "tiny") == 0) {
        sizes.copy_bytes = 1 << 16;
        sizes.llama = (struct rig_shape){"Llama-3-8B", 2, 64, 2, SC_KERNELS_BF16, 192};
        sizes.opt = (struct rig_shape){"OPT-6.7B", 3, 64, 1, SC_KERNELS_F16, 144};
        sizes.layers = 3;
        sizes.picks = 10;
        sizes.query_rows = 5;
        sizes.rounds = sizes.load_rounds = 1;
        sizes.product_side = 128;
        sizes.product_depth = 64;
        sizes.ffma_steps = 20;
        sizes.is_tiny = true;
    } else if (strcmp(name, "shapes") == 0) {
        sizes.copy_bytes = 64u << 20;
        sizes.layers = 2;
        sizes.query_rows = 16;
        sizes.rounds = sizes.load_rounds = 1;
        sizes.product_side = 256;
        sizes.product_depth = 256;
        sizes.ffma_steps = 1;
        sizes.is_tiny = true;
    } else if (strcmp(name, "full") != 0) {
        bench_die("--size %s: expected full, quick, shapes or tiny", name);
    }
    return sizes;
}

/* Whether `list`, "a,b", has the name; all are in NULL. */
static bool is_listed(const char *list, const char *name)
{
    uint64_t length = strlen(name);
    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return true;
    }
    return list == NULL;
}

int main(int argc, char **argv)
{
    static struct rig rig;
    char why[256];
    const char *parts = bench_option(argc, argv, "--parts", NULL);
    rig.sizes = sizes_of(bench_option(argc, argv, "--size", "full"));
    rig.dir = bench_option(argc, argv, "--dir", "build/bench-store");
    rig.csv = bench_option(argc, argv, "--csv", NULL);
    rig.commit = bench_option(argc, argv, "--commit", "unknown");
    if (!rig_open(&rig, why, sizeof(why))) {
        printf("skipped: no CUDA device: %s\n", why);
        return 0;
    }
    /* Twice what the second cache has, on either side of a copy. */
    rig.sizes.window_bytes = rig.sizes.is_tiny ? 0 : 4ull * (uint64_t)rig.cache_bytes;
    printf("%s, capability %" PRIu32 ", %" PRIu32 " SM, driver %d.%d, commit %s\n",
           rig.device->name, rig.device->capability, rig.device->multiprocessors,
           rig.driver_version / 1000, rig.driver_version % 1000 / 10, rig.commit);
    if (!rig.sizes.is_tiny)
        printf("medians of %" PRIu64 " rounds (loads: %" PRIu64 ") [least .. most], ways in turn\n",
               rig.sizes.rounds, rig.sizes.load_rounds);
    for (uint32_t i = 0; i < sizeof(PARTS) / sizeof(PARTS[0]); i++)
        if (is_listed(parts, PARTS[i].name) ||
            (PARTS[i].group != NULL && is_listed(parts, PARTS[i].group)))
            PARTS[i].run(&rig);
    uint32_t failed = rig_figures_end(&rig);
    rig_close(&rig);
    return failed == 0 ? 0 : 1;
}

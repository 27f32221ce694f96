/* Device, memory, races and figures of bench cuda: see rig.h. */
#include "bench/cuda/rig.h"

#include "plugin/device/images.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FLIGHTS        64u
#define WARM_ROUNDS    2u
#define PAGE_BYTES     4096u
#define CLOCK_RATE     13 /* attributes of a device: kHz, and bytes */
#define L2_CACHE_BYTES 38

const struct sc_cuda_image *bench_cuda_images(uint32_t *ret_count);

static const char *const PRODUCT[] = {
#define NAME(name, params, threads) #name,
    SC_CUDA_KERNELS(NAME)};
static const char *const OWN[] = {BENCH_CUDA_KERNELS(NAME)
#undef NAME
};
static const uint32_t OWN_THREADS[] = {
#define THREADS(name, params, threads) threads,
    BENCH_CUDA_KERNELS(THREADS)
#undef THREADS
};

/* ---- Open and close ------------------------------------------------------------------------- */

void rig_check(struct rig *rig, sc_cu_result code, const char *call)
{
    char text[192];
    if (code != SC_CU_OK)
        bench_die("%s: %s", call, sc_gpu_result_text(rig->cu, code, text, sizeof(text)));
}

/* A call of the driver's that struct sc_cu has not; NULL: nor has the driver. */
static void *call_find(const char *name, int version)
{
    sc_cu_result (*get)(const char *name, void **ret_call, int version, uint64_t flags,
                        int *ret_found) = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), *call = NULL;
    void *found = library != NULL ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    memcpy(&get, &found, sizeof(found)); /* ISO C has no cast from one to the other */
    if (get == NULL || get(name, &call, version, 0, NULL) != SC_CU_OK)
        return NULL;
    return call;
}

static void calls_find(struct rig *rig)
{
    void *elapsed = call_find("cuEventElapsedTime", 2000);
    void *copy = call_find("cuMemcpyDtoDAsync", 3020);
    void *batch = call_find("cuMemcpyBatchAsync", 12080);
    if (elapsed == NULL || copy == NULL)
        bench_die("this driver has no cuEventElapsedTime or cuMemcpyDtoDAsync");
    memcpy(&rig->calls.elapsed, &elapsed, sizeof(elapsed));
    memcpy(&rig->calls.copy, &copy, sizeof(copy));
    memcpy(&rig->calls.batch, &batch, sizeof(batch));
}

static void own_load(struct rig *rig)
{
    struct sc_gpu_image images[SC_PLUGIN_IMAGES];
    uint32_t count;
    const struct sc_cuda_image *all = bench_cuda_images(&count);
    count = sc_plugin_images_of(all, count, images);
    const struct sc_gpu_image *image = sc_gpu_image_select(images, count, rig->device->capability);
    if (image == NULL)
        bench_die("no image of the bench's own kernels fits %s", rig->device->name);
    rig_check(rig, rig->cu->cuModuleLoadDataEx(&rig->module, image->bytes, 0, NULL, NULL),
              "cuModuleLoadDataEx");
    for (uint32_t i = 0; i < RIG_OWN_KERNELS; i++)
        rig_check(rig, rig->cu->cuModuleGetFunction(&rig->functions[i], rig->module, OWN[i]),
                  OWN[i]);
}

bool rig_open(struct rig *rig, char *ret_why, uint64_t why_bytes)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct sc_gpu_image images[SC_PLUGIN_IMAGES];
    uint32_t count;
    const struct sc_cuda_image *all = sc_cuda_images(&count);
    sc_alloc_init(&rig->alloc);
    const struct sc_gpu_params params = {.alloc = &rig->alloc,
                                         .poison = &rig->poison,
                                         .images = images,
                                         .image_count = sc_plugin_images_of(all, count, images),
                                         .kernels = PRODUCT,
                                         .kernel_count = RIG_PRODUCT_KERNELS,
                                         .slot_count = 1,
                                         .event_count = FLIGHTS,
                                         .hold_max = 1};
    if (sc_gpu_device_attach(&params, &rig->device, &error) != SPEC_OK) {
        (void)snprintf(ret_why, why_bytes, "%s", error.text);
        return false;
    }
    if (sc_gpu_enter(rig->device, &rig->entry, &error) != SPEC_OK)
        bench_die("the device: %s", error.text);
    rig->cu = rig->device->cu;
    calls_find(rig);
    own_load(rig);
    rig_check(rig, rig->cu->cuStreamCreate(&rig->stream, SC_CU_STREAM_NON_BLOCKING),
              "cuStreamCreate");
    rig_check(rig, rig->cu->cuEventCreate(&rig->first, 0), "cuEventCreate");
    rig_check(rig, rig->cu->cuEventCreate(&rig->last, 0), "cuEventCreate");
    rig_check(rig, rig->cu->cuDriverGetVersion(&rig->driver_version), "cuDriverGetVersion");
    sc_cu_device handle = rig->device->handle;
    rig_check(rig, rig->cu->cuDeviceGetAttribute(&rig->clock_khz, CLOCK_RATE, handle),
              "cuDeviceGetAttribute");
    rig_check(rig, rig->cu->cuDeviceGetAttribute(&rig->cache_bytes, L2_CACHE_BYTES, handle),
              "cuDeviceGetAttribute");
    return true;
}

void rig_close(struct rig *rig)
{
    rig_memory_free(rig, 0, 0);
    (void)rig->cu->cuEventDestroy(rig->first);
    (void)rig->cu->cuEventDestroy(rig->last);
    (void)rig->cu->cuStreamDestroy(rig->stream);
    (void)rig->cu->cuModuleUnload(rig->module);
    sc_gpu_leave(rig->device, &rig->entry);
    sc_gpu_device_detach(rig->device);
}

/* ---- Memory --------------------------------------------------------------------------------- */

sc_cu_ptr rig_device_memory(struct rig *rig, uint64_t bytes)
{
    if (rig->memory_count == RIG_MEMORY_MAX)
        bench_die("more than %u pieces of device memory", RIG_MEMORY_MAX);
    sc_cu_ptr *at = &rig->memory[rig->memory_count];
    rig_check(rig, rig->cu->cuMemAlloc(at, bytes), "cuMemAlloc");
    rig->memory_count++;
    return *at;
}

uint8_t *rig_host_memory(struct rig *rig, uint64_t bytes)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    if (rig->pin_count == RIG_MEMORY_MAX)
        bench_die("more than %u pieces of pinned memory", RIG_MEMORY_MAX);
    bytes = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    uint8_t *at = sc_alloc_huge(&rig->alloc, bytes);
    if (at == NULL)
        bench_die("no memory for %" PRIu64 " bytes", bytes);
    if (sc_gpu_pin(rig->device, at, bytes, &rig->pins[rig->pin_count], &error) != SPEC_OK)
        bench_die("%" PRIu64 " bytes are not pinned: %s", bytes, error.text);
    rig->pin_count++;
    return at;
}

sc_cu_ptr rig_seen(struct rig *rig, const void *at)
{
    for (uint32_t i = 0; i < rig->pin_count; i++) {
        const struct sc_gpu_pin *pin = &rig->pins[i];
        if ((const uint8_t *)at >= pin->at && (const uint8_t *)at < pin->at + pin->bytes)
            return sc_gpu_pin_address(pin, at);
    }
    bench_die("memory that is not pinned is to be seen by the device");
}

void rig_memory_free(struct rig *rig, uint32_t memory_count, uint32_t pin_count)
{
    rig_wait(rig, rig->stream);
    while (rig->memory_count > memory_count)
        rig_check(rig, rig->cu->cuMemFree(rig->memory[--rig->memory_count]), "cuMemFree");
    while (rig->pin_count > pin_count) {
        uint8_t *at = rig->pins[--rig->pin_count].at;
        sc_gpu_unpin(&rig->pins[rig->pin_count]);
        sc_alloc_free(&rig->alloc, at);
    }
}

void rig_wait(struct rig *rig, sc_cu_stream stream)
{
    rig_check(rig, rig->cu->cuStreamSynchronize(stream), "cuStreamSynchronize");
}

void rig_put(struct rig *rig, sc_cu_ptr to, const void *from, uint64_t bytes)
{
    rig_check(rig, rig->cu->cuMemcpyHtoDAsync(to, from, bytes, rig->stream), "cuMemcpyHtoDAsync");
    rig_wait(rig, rig->stream);
}

void rig_get(struct rig *rig, void *to, sc_cu_ptr from, uint64_t bytes)
{
    rig_check(rig, rig->cu->cuMemcpyDtoHAsync(to, from, bytes, rig->stream), "cuMemcpyDtoHAsync");
    rig_wait(rig, rig->stream);
}

void rig_put_any(struct rig *rig, sc_cu_ptr to, const void *from, uint64_t bytes)
{
    uint32_t memory = rig->memory_count, pins = rig->pin_count;
    uint8_t *pinned = rig_host_memory(rig, bytes);
    memcpy(pinned, from, bytes);
    rig_put(rig, to, pinned, bytes);
    rig_memory_free(rig, memory, pins);
}

void rig_poison(struct rig *rig, sc_cu_ptr at, uint64_t bytes)
{
    uint32_t memory = rig->memory_count, pins = rig->pin_count;
    uint64_t piece = bytes < (32u << 20) ? bytes : 32u << 20;
    uint8_t *pinned = rig_host_memory(rig, piece);
    memset(pinned, RIG_POISON, piece);
    for (uint64_t done = 0; done < bytes; done += piece)
        rig_put(rig, at + done, pinned, bytes - done < piece ? bytes - done : piece);
    rig_memory_free(rig, memory, pins);
}

void rig_random(void *at, uint64_t bytes, uint64_t seed, bool is_finite)
{
    const uint64_t kept = UINT64_C(0x80ff80ff80ff80ff), set = UINT64_C(0x3f003f003f003f00);
    for (uint64_t i = 0; i < bytes; i += 8) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t word = seed ^ seed >> 29;
        word = is_finite ? (word & kept) | set : word;
        memcpy((uint8_t *)at + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

/* ---- Launches ------------------------------------------------------------------------------- */

static void *taken(const void *params)
{
    union {
        const void *given;
        void *taken;
    } as = {params};
    return as.taken;
}

void rig_launch(struct rig *rig, sc_cu_stream stream, enum rig_kernel kernel,
                const struct sc_cuda_shape *shape, const void *params)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    void *argument = taken(params);
    const struct sc_gpu_grid grid = {.blocks_x = shape->grid[0],
                                     .blocks_y = shape->grid[1],
                                     .blocks_z = shape->grid[2],
                                     .threads = shape->block[0]};
    if (shape->grid[0] > 0 &&
        sc_gpu_launch(rig->device, stream, kernel, &grid, &argument, &error) != SPEC_OK)
        bench_die("%s: %s", PRODUCT[kernel], error.text);
}

void rig_launch_own(struct rig *rig, sc_cu_stream stream, enum rig_own_kernel kernel,
                    uint32_t blocks_x, uint32_t blocks_y, const void *params)
{
    void *argument = taken(params);
    rig_check(rig,
              rig->cu->cuLaunchKernel(rig->functions[kernel], blocks_x, blocks_y, 1,
                                      OWN_THREADS[kernel], 1, 1, 0, stream, &argument, NULL),
              OWN[kernel]);
}

/* ---- Races ---------------------------------------------------------------------------------- */

static double way_run(struct rig *rig, const struct rig_way *way, uint64_t *round)
{
    float ms = 0;
    rig_wait(rig, rig->stream);
    if (way->repeat == 0) {
        uint64_t begin_ns = bench_now_ns();
        way->run(rig, way->job, (*round)++);
        return (double)(bench_now_ns() - begin_ns);
    }
    rig_check(rig, rig->cu->cuEventRecord(rig->first, rig->stream), "cuEventRecord");
    for (uint32_t i = 0; i < way->repeat; i++)
        way->run(rig, way->job, (*round)++);
    rig_check(rig, rig->cu->cuEventRecord(rig->last, rig->stream), "cuEventRecord");
    rig_check(rig, rig->cu->cuEventSynchronize(rig->last), "cuEventSynchronize");
    rig_check(rig, rig->calls.elapsed(&ms, rig->first, rig->last), "cuEventElapsedTime");
    return (double)ms * 1e6 / way->repeat;
}

void rig_race(struct rig *rig, const struct rig_way *ways, uint32_t count, uint64_t rounds,
              struct rig_samples *ret_times)
{
    uint64_t rope[RIG_WAYS_MAX] = {0}, warm = rig->sizes.is_tiny ? 0 : WARM_ROUNDS;
    if (count > RIG_WAYS_MAX || rounds > RIG_ROUNDS_MAX)
        bench_die("a race of %" PRIu32 " ways and %" PRIu64 " rounds", count, rounds);
    for (uint32_t i = 0; i < count; i++)
        ret_times[i].count = 0;
    for (uint64_t round = 0; round < warm + rounds; round++)
        for (uint32_t n = 0; n < count; n++) {
            uint32_t i = (uint32_t)((n + round) % count);
            double ns = way_run(rig, &ways[i], &rope[i]);
            if (round >= warm)
                ret_times[i].of[ret_times[i].count++] = ns;
        }
}

struct rig_samples rig_ratio(const struct rig_samples *a, const struct rig_samples *b)
{
    struct rig_samples ratio = {.count = a->count < b->count ? a->count : b->count};
    for (uint64_t i = 0; i < ratio.count; i++)
        ratio.of[i] = a->of[i] / b->of[i];
    return ratio;
}

static int compare(const void *a, const void *b)
{
    double x, y;
    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    return x < y ? -1 : x > y;
}

static struct rig_samples sorted(const struct rig_samples *samples)
{
    struct rig_samples made = *samples;
    qsort(made.of, made.count, sizeof(made.of[0]), compare);
    return made;
}

double rig_median(const struct rig_samples *samples)
{
    struct rig_samples in_order = sorted(samples);
    return in_order.count > 0 ? in_order.of[in_order.count / 2] : 0;
}

/* ---- Figures -------------------------------------------------------------------------------- */

static bool holds(const struct rig_figure *figure)
{
    if (!figure->is_there || figure->floor == 0)
        return true;
    return figure->is_at_most ? figure->value <= figure->floor : figure->value >= figure->floor;
}

static const char *verdict(const struct rig *rig, const struct rig_figure *figure)
{
    if (rig->sizes.is_tiny || rig->sizes.is_quick)
        return "not judged";
    if (figure->floor == 0)
        return "told";
    if (!holds(figure))
        return "DOES NOT HOLD";
    bool reaches = figure->is_at_most ? figure->value <= figure->aim : figure->value >= figure->aim;
    return reaches ? "holds, and the aim" : "holds";
}

static void figure_print(const struct rig *rig, const struct rig_figure *figure)
{
    if (!figure->is_there)
        printf("%-58s not measured: %s\n", figure->name, figure->note);
    else if (rig->sizes.is_tiny) /* of a few rows, or of a device that is none: no speed */
        printf("%-58s works: %s\n", figure->name, figure->note);
    else if (figure->floor == 0)
        printf("%-58s %9.3f %-5s [%.3f .. %.3f] %s\n", figure->name, figure->value, figure->unit,
               figure->min, figure->max, figure->note);
    else
        printf("%-58s %9.3f %-5s [%.3f .. %.3f] %s %g, aim %g: %s (%s)\n", figure->name,
               figure->value, figure->unit, figure->min, figure->max,
               figure->is_at_most ? "at most" : "at least", figure->floor, figure->aim,
               verdict(rig, figure), figure->note);
    (void)fflush(stdout);
}

/* A field of a CSV line: commas and quotes are none of its text. */
static void field(FILE *file, const char *text)
{
    (void)fputc('"', file);
    for (; *text != '\0'; text++)
        (void)fputc(*text == '"' || *text == '\n' ? '\'' : *text, file);
    (void)fputc('"', file);
}

/* A line as soon as it is known: a program that ends early leaves what it has. */
static void figure_write(const struct rig *rig, const struct rig_figure *figure)
{
    char date[16];
    time_t now = time(NULL);
    struct tm day;
    FILE *file = fopen(rig->csv, "a");
    if (file == NULL)
        bench_die("%s cannot be written", rig->csv);
    (void)strftime(date, sizeof(date), "%Y-%m-%d", gmtime_r(&now, &day));
    if (fseek(file, 0, SEEK_END) == 0 && ftell(file) == 0)
        (void)fprintf(file, "device,driver,date,commit,figure,unit,bound,floor,aim,value,min,max,"
                            "verdict,note\n");
    field(file, rig->device->name);
    (void)fprintf(file, ",%d.%d,%s,%s,", rig->driver_version / 1000,
                  rig->driver_version % 1000 / 10, date, rig->commit);
    field(file, figure->name);
    if (!figure->is_there)
        (void)fprintf(file, ",,,,,,,,not measured,");
    else if (rig->sizes.is_tiny)
        (void)fprintf(file, ",,,,,,,,works,");
    else if (figure->floor == 0)
        (void)fprintf(file, ",%s,,,,%.6g,%.6g,%.6g,told,", figure->unit, figure->value, figure->min,
                      figure->max);
    else
        (void)fprintf(file, ",%s,%s,%g,%g,%.6g,%.6g,%.6g,\"%s\",", figure->unit,
                      figure->is_at_most ? "most" : "least", figure->floor, figure->aim,
                      figure->value, figure->min, figure->max, verdict(rig, figure));
    field(file, figure->note);
    (void)fputc('\n', file);
    if (fclose(file) != 0)
        bench_die("%s was not written whole", rig->csv);
}

static void figure_done(const struct rig *rig, const struct rig_figure *figure)
{
    figure_print(rig, figure);
    if (rig->csv != NULL)
        figure_write(rig, figure);
}

static struct rig_figure *figure_new(struct rig *rig, const char *name, const char *note)
{
    if (rig->figure_count == RIG_FIGURES_MAX)
        bench_die("more than %u figures", RIG_FIGURES_MAX);
    struct rig_figure *figure = &rig->figures[rig->figure_count++];
    *figure = (struct rig_figure){.unit = ""};
    (void)snprintf(figure->name, sizeof(figure->name), "%s", name);
    (void)snprintf(figure->note, sizeof(figure->note), "%s", note);
    return figure;
}

static void judge(struct rig *rig, const char *name, const char *unit, double floor, double aim,
                  bool is_at_most, const struct rig_samples *samples, const char *note)
{
    struct rig_samples in_order = sorted(samples);
    struct rig_figure *figure = figure_new(rig, name, note);
    figure->unit = unit;
    figure->floor = floor;
    figure->aim = aim;
    figure->is_at_most = is_at_most;
    figure->is_there = in_order.count > 0;
    if (figure->is_there) {
        figure->value = in_order.of[in_order.count / 2];
        figure->min = in_order.of[0];
        figure->max = in_order.of[in_order.count - 1];
    }
    figure_done(rig, figure);
}

void rig_judge(struct rig *rig, const char *name, const char *unit, double floor, double aim,
               const struct rig_samples *samples, const char *note)
{
    judge(rig, name, unit, floor, aim, false, samples, note);
}

void rig_judge_most(struct rig *rig, const char *name, const char *unit, double floor, double aim,
                    const struct rig_samples *samples, const char *note)
{
    judge(rig, name, unit, floor, aim, true, samples, note);
}

void rig_tell_rate(struct rig *rig, const char *name, const struct rig_samples *times, double bytes,
                   const char *note)
{
    struct rig_samples rates = {.count = times->count};
    for (uint64_t i = 0; i < times->count; i++)
        rates.of[i] = bytes / times->of[i];
    judge(rig, name, "GB/s", 0, 0, false, &rates, note);
}

void rig_tell(struct rig *rig, const char *name, const char *unit,
              const struct rig_samples *samples, const char *note)
{
    judge(rig, name, unit, 0, 0, false, samples, note);
}

void rig_tell_none(struct rig *rig, const char *name, const char *why)
{
    figure_done(rig, figure_new(rig, name, why));
}

uint32_t rig_figures_end(struct rig *rig)
{
    uint32_t failed = 0, judged = 0;
    for (uint32_t i = 0; i < rig->figure_count; i++) {
        judged += rig->figures[i].is_there && rig->figures[i].floor != 0;
        failed += !holds(&rig->figures[i]);
    }
    if (rig->sizes.is_tiny) {
        printf("%" PRIu32 " figures: all ways work, nothing is judged\n", rig->figure_count);
        return 0;
    }
    if (rig->sizes.is_quick)
        return 0;
    printf("%" PRIu32 " figures judged, %" PRIu32 " do not hold\n", judged, failed);
    return failed;
}

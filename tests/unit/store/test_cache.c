/* The cache of what frames hold: what it gives is what was put under that name, whoever took frames
 * meanwhile; what cannot have gone is there; every frame comes back.
 *
 * Threads: one, but the last test: four. */
#include "store/cache/written_frames.h"
#include "tests/unit/awaits.h"
#include "tests/unit/cases.h"

#include <pthread.h>

#define OP_BYTES 8192u
#define FRAMES   12u
#define COPIES   3u
#define WINDOWS  20u /* of a copy */

struct fixture {
    struct sc_alloc alloc;
    struct sc_exec *exec;
    struct sc_staging *frames;
    struct sc_store_cache *cache;
    uint64_t seed;
};

static uint64_t below(struct fixture *fx, uint64_t end)
{
    fx->seed = fx->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (fx->seed >> 33) % end;
}

static void fixture_init(struct fixture *fx, uint64_t seed)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    *fx = (struct fixture){.seed = seed};
    sc_alloc_init(&fx->alloc);
    const struct sc_exec_params exec = {.alloc = &fx->alloc, .seed = 1, .name = "cache"};
    assert_int_equal(sc_exec_open(&exec, &fx->exec, &error), SPEC_OK);
    const struct sc_staging_params params = {.alloc = &fx->alloc,
                                             .exec = fx->exec,
                                             .staging_bytes =
                                                 FRAMES * (OP_BYTES + SC_STAGING_SLACK_BYTES),
                                             .op_bytes = OP_BYTES};
    assert_int_equal(sc_staging_open(&params, &fx->frames, &error), SPEC_OK);
    assert_int_equal(sc_store_cache_open(&fx->alloc, fx->frames, OP_BYTES, &fx->cache, &error),
                     SPEC_OK);
    sc_alloc_seal(&fx->alloc); /* from here on nothing is allocated */
}

static void fixture_done(struct fixture *fx)
{
    assert_int_equal(sc_staging_used(fx->frames), 0);
    assert_int_equal(atomic_load(&fx->alloc.sealed_refusals), 0);
    sc_alloc_unseal(&fx->alloc);
    sc_store_cache_close(fx->cache);
    sc_staging_close(fx->frames);
    sc_exec_close(fx->exec);
    assert_int_equal(atomic_load(&fx->alloc.live_blocks), 0);
}

static uint8_t byte_of(uint64_t copy, uint64_t at)
{
    return (uint8_t)((copy * 131 + at) * UINT64_C(0x9e3779b97f4a7c15) >> 56);
}

static void bytes_fill(uint8_t *bytes, uint64_t copy, uint64_t at, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        bytes[i] = byte_of(copy, at + i);
}

static void bytes_check(const uint8_t *bytes, uint64_t copy, uint64_t at, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (bytes[i] != byte_of(copy, at + i))
            fail_msg("copy %" PRIu64 " at %" PRIu64 ": %u", copy, at + i, bytes[i]);
}

/* ---- Beside a twin --------------------------------------------------------------------------- */

enum holds { NOTHING, OUT, KEPT, DOUBT }; /* DOUBT: a load may have taken the frame */

struct window { /* of a copy: [at, + bytes) */
    uint64_t at, bytes;
    uint8_t *frame; /* OUT */
    enum holds holds;
};

struct pin {
    struct sc_store_cache_entry *entry;
    const uint8_t *bytes;
    uint64_t copy, at, count;
};

struct twin {
    struct fixture *fx;
    struct window windows[COPIES][WINDOWS];
    struct pin pins[4];
    uint8_t *loads[FRAMES];
    uint64_t load_count;
};

/* Windows of uneven length, one behind the other, as those of parts are. */
static void twin_init(struct twin *twin, struct fixture *fx)
{
    *twin = (struct twin){.fx = fx};
    for (uint64_t c = 0; c < COPIES; c++)
        for (uint64_t w = 0, at = below(fx, 3) * 100; w < WINDOWS; w++) {
            twin->windows[c][w].at = at;
            twin->windows[c][w].bytes = below(fx, 3) == 0 ? 1 + below(fx, OP_BYTES) : OP_BYTES;
            at += twin->windows[c][w].bytes;
        }
}

/* As writers take one: they leave a quarter free. */
static uint8_t *take(struct fixture *fx)
{
    return sc_store_cache_take(fx->cache, sc_staging_count(fx->frames) -
                                              sc_staging_count_for(fx->frames, SC_IO_CLASS_WRITER));
}

static void twin_write(struct twin *twin)
{
    struct fixture *fx = twin->fx;
    uint64_t copy = below(fx, COPIES), w = below(fx, WINDOWS);
    struct window *window = &twin->windows[copy][w];
    if (window->holds == OUT) {
        sc_store_cache_put(fx->cache, window->frame);
        window->holds = KEPT;
        return;
    }
    uint8_t *frame = window->holds == NOTHING ? take(fx) : NULL;
    if (frame == NULL)
        return;
    for (uint64_t c = 0; c < COPIES; c++) /* it may have been a kept one */
        for (uint64_t i = 0; i < WINDOWS; i++)
            if (twin->windows[c][i].holds == KEPT)
                twin->windows[c][i].holds = DOUBT;
    bytes_fill(frame, copy + 1, window->at, window->bytes);
    sc_store_cache_enter(fx->cache, frame, copy + 1, window->at, window->bytes);
    window->frame = frame;
    window->holds = OUT;
}

static void twin_load(struct twin *twin)
{
    struct fixture *fx = twin->fx;
    if (twin->load_count > 0 && below(fx, 2) == 0) {
        sc_staging_put(fx->frames, twin->loads[--twin->load_count]);
        return;
    }
    uint8_t *frame = sc_staging_take(fx->frames, SC_IO_CLASS_DEMAND);
    if (frame == NULL)
        return;
    memset(frame, 0x5a, sc_staging_frame_bytes(fx->frames));
    twin->loads[twin->load_count++] = frame;
    for (uint64_t c = 0; c < COPIES; c++)
        for (uint64_t i = 0; i < WINDOWS; i++)
            if (twin->windows[c][i].holds == KEPT)
                twin->windows[c][i].holds = DOUBT;
}

/* What the twin knows of these bytes: the least that one of their windows holds. */
static enum holds twin_holds(const struct twin *twin, uint64_t copy, uint64_t at, uint64_t count)
{
    enum holds least = OUT;
    for (uint64_t w = 0; w < WINDOWS; w++) {
        const struct window *window = &twin->windows[copy][w];
        if (window->at + window->bytes <= at || at + count <= window->at)
            continue;
        if (window->holds == NOTHING || window->holds == DOUBT)
            least = least == NOTHING ? NOTHING : window->holds;
    }
    return least;
}

/* Bytes that get does not have. */
static void twin_edges(const struct twin *twin, uint64_t copy, uint64_t at, uint64_t count,
                       uint8_t *bounce)
{
    uint64_t from, to;
    enum holds first = twin_holds(twin, copy, at, 1),
               last = twin_holds(twin, copy, at + count - 1, 1);
    sc_store_cache_edges(twin->fx->cache, copy + 1, at, count, bounce, &from, &to);
    assert_true(from < to && to <= count);
    bytes_check(bounce, copy + 1, at, from);
    bytes_check(bounce + to, copy + 1, at + to, count - to);
    if (first == OUT)
        assert_true(from > 0);
    if (last == OUT)
        assert_true(to < count);
    assert_true(twin_holds(twin, copy, at + from, 1) != OUT);
    assert_true(twin_holds(twin, copy, at + to - 1, 1) != OUT);
}

static void twin_get(struct twin *twin)
{
    struct fixture *fx = twin->fx;
    static uint8_t bounce[3 * OP_BYTES];
    struct pin *pin = &twin->pins[below(fx, 4)];
    if (pin->entry != NULL) {
        bytes_check(pin->bytes, pin->copy, pin->at, pin->count);
        sc_store_cache_unpin(fx->cache, pin->entry);
        pin->entry = NULL;
        return;
    }
    uint64_t copy = below(fx, COPIES), first = below(fx, WINDOWS);
    const struct window *window = &twin->windows[copy][first];
    const struct window *last = &twin->windows[copy][WINDOWS - 1];
    uint64_t at = window->at + below(fx, window->bytes), end = last->at + last->bytes;
    uint64_t count = 1 + below(fx, below(fx, 2) == 0 ? 100 : 2 * OP_BYTES);
    count = count < end - at ? count : end - at;
    enum holds holds = twin_holds(twin, copy, at, count);
    const uint8_t *bytes = sc_store_cache_get(fx->cache, copy + 1, at, count, bounce, &pin->entry);
    if (bytes != NULL)
        bytes_check(bytes, copy + 1, at, count);
    if (holds == OUT)
        assert_non_null(bytes);
    if (holds == NOTHING)
        assert_null(bytes);
    if (bytes == NULL)
        twin_edges(twin, copy, at, count, bounce);
    if (bytes == bounce || bytes == NULL)
        assert_null(pin->entry);
    pin->bytes = bytes;
    pin->copy = copy + 1;
    pin->at = at;
    pin->count = count;
}

static void twin_forget(struct twin *twin)
{
    uint64_t copy = below(twin->fx, COPIES), first = below(twin->fx, WINDOWS);
    uint64_t last = first + below(twin->fx, WINDOWS - first);
    struct window *windows = twin->windows[copy];
    sc_store_cache_forget(twin->fx->cache, copy + 1, windows[first].at,
                          windows[last].at + windows[last].bytes);
    for (uint64_t w = first; w <= last; w++) {
        if (windows[w].holds == OUT)
            sc_store_cache_put(twin->fx->cache, windows[w].frame);
        windows[w].holds = NOTHING;
    }
}

static void what_is_given_is_what_was_put(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct fixture fx;
        struct twin twin;
        fixture_init(&fx, seed);
        twin_init(&twin, &fx);
        for (uint32_t i = 0; i < 20000; i++)
            switch (below(&fx, 8)) {
            case 0:
            case 1:
            case 2:
                twin_write(&twin);
                break;
            case 3:
                twin_load(&twin);
                break;
            case 4:
                if (below(&fx, 8) == 0)
                    twin_forget(&twin);
                break;
            default:
                twin_get(&twin);
            }
        for (uint64_t p = 0; p < 4; p++)
            sc_store_cache_unpin(fx.cache, twin.pins[p].entry);
        for (uint64_t c = 0; c < COPIES; c++)
            for (uint64_t w = 0; w < WINDOWS; w++)
                if (twin.windows[c][w].holds == OUT)
                    sc_store_cache_put(fx.cache, twin.windows[c][w].frame);
        while (twin.load_count > 0)
            sc_staging_put(fx.frames, twin.loads[--twin.load_count]);
        fixture_done(&fx);
    }
}

/* A frame that is pinned when its writer is through, and forgotten meanwhile, is free at unpin. */
static void a_pinned_frame_outlives_its_writer(void **state)
{
    (void)state;
    struct fixture fx;
    struct sc_store_cache_entry *pins[2], *none;
    fixture_init(&fx, 1);
    uint8_t *frame = take(&fx);
    bytes_fill(frame, 7, 100, 50);
    sc_store_cache_enter(fx.cache, frame, 7, 100, 50);
    assert_ptr_equal(sc_store_cache_get(fx.cache, 7, 100, 50, NULL, &pins[0]), frame);
    sc_store_cache_put(fx.cache, frame);
    assert_ptr_equal(sc_store_cache_get(fx.cache, 7, 120, 30, NULL, &pins[1]), frame + 20);
    assert_int_equal(sc_staging_used(fx.frames), 1);
    sc_store_cache_forget(fx.cache, 7, 0, UINT64_MAX);
    assert_null(sc_store_cache_get(fx.cache, 7, 100, 1, NULL, &none));
    sc_store_cache_unpin(fx.cache, pins[0]);
    bytes_check(frame, 7, 100, 50);
    assert_int_equal(sc_staging_used(fx.frames), 1);
    sc_store_cache_unpin(fx.cache, pins[1]);
    fixture_done(&fx);
}

/* A forgotten frame is taken before any that is kept, whose bytes somebody may still ask for. */
static void what_is_forgotten_goes_first(void **state)
{
    (void)state;
    for (uint32_t is_out = 0; is_out < 2; is_out++) {
        struct fixture fx;
        struct sc_store_cache_entry *pin;
        uint8_t *frames[FRAMES], *taken[FRAMES];
        uint64_t count = 0, kept;
        fixture_init(&fx, 1);
        while ((frames[count] = take(&fx)) != NULL) {
            sc_store_cache_enter(fx.cache, frames[count], 7, count * OP_BYTES, OP_BYTES);
            count++;
        }
        for (kept = 0; sc_staging_take(fx.frames, SC_IO_CLASS_DEMAND) != NULL;
             kept++) /* the others */
            continue;
        for (uint64_t i = 0; i < count && is_out == 0; i++)
            sc_store_cache_put(fx.cache, frames[i]);
        sc_store_cache_forget(fx.cache, 7, OP_BYTES, 3 * OP_BYTES);
        for (uint64_t i = 0; i < count && is_out == 1; i++)
            sc_store_cache_put(fx.cache, frames[i]);
        for (uint64_t i = 0; i < 2; i++) {
            taken[i] = sc_staging_take(fx.frames, SC_IO_CLASS_DEMAND);
            assert_true(taken[i] == frames[1] || taken[i] == frames[2]);
        }
        for (uint64_t i = 0; i < count; i++) {
            bool is_here = i != 1 && i != 2;
            assert_int_equal(sc_store_cache_get(fx.cache, 7, i * OP_BYTES, 1, NULL, &pin) != NULL,
                             is_here);
            sc_store_cache_unpin(fx.cache, pin);
        }
        for (uint64_t i = 0; i < 2; i++)
            sc_staging_put(fx.frames, taken[i]);
        for (uint64_t i = 0; i < kept; i++)
            sc_staging_put(fx.frames, (uint8_t *)(uintptr_t)sc_staging_memory(fx.frames) +
                                          (count + i) * sc_staging_frame_bytes(fx.frames));
        fixture_done(&fx);
    }
}

/* ---- Threads --------------------------------------------------------------------------------- */

struct shared {
    struct fixture fx;
    _Atomic bool ends;
    _Atomic uint64_t newest; /* window that was entered last, of copy 1 */
    _Atomic uint64_t hits;   /* the test ends after a hundred */
};

static void *writer_main(void *argument)
{
    struct shared *shared = argument;
    uint32_t looks = 0;
    for (uint64_t w = 1; w < 30000 || atomic_load(&shared->hits) < 100; w++) {
        if (w > 30000 && !await_goes_on(&looks))
            break; /* no reader was fast enough a few times: the test says so */
        uint8_t *frame = take(&shared->fx);
        if (frame == NULL)
            continue;
        bytes_fill(frame, 1, w * OP_BYTES, OP_BYTES);
        sc_store_cache_enter(shared->fx.cache, frame, 1, w * OP_BYTES, OP_BYTES);
        atomic_store(&shared->newest, w);
        sc_store_cache_put(shared->fx.cache, frame);
        if (w % 16 == 0)
            sc_store_cache_forget(shared->fx.cache, 1, 0, (w - 8) * OP_BYTES);
    }
    atomic_store(&shared->ends, true);
    return NULL;
}

static void *reader_main(void *argument)
{
    struct shared *shared = argument;
    uint8_t bounce[2 * OP_BYTES];
    for (uint64_t i = 0; !atomic_load(&shared->ends); i++) {
        uint64_t newest = atomic_load(&shared->newest), back = i % 6, count = 1 + i * 37 % OP_BYTES;
        uint64_t at = (newest > back ? newest - back : 0) * OP_BYTES + i % 3 * 3000;
        struct sc_store_cache_entry *pin;
        const uint8_t *bytes = sc_store_cache_get(shared->fx.cache, 1, at, count, bounce, &pin);
        if (bytes == NULL)
            continue;
        for (uint64_t b = 0; b < count; b++)
            if (bytes[b] != byte_of(1, at + b))
                return argument;
        sc_store_cache_unpin(shared->fx.cache, pin);
        (void)atomic_fetch_add(&shared->hits, 1);
    }
    return NULL;
}

static void *taker_main(void *argument)
{
    struct shared *shared = argument;
    uint8_t *frames[FRAMES];
    for (uint64_t i = 0; !atomic_load(&shared->ends); i++) {
        uint64_t count = 0, most = i % FRAMES;
        while (count < most &&
               (frames[count] = sc_staging_take(shared->fx.frames, SC_IO_CLASS_DEMAND)) != NULL)
            memset(frames[count++], 0x5a, OP_BYTES);
        while (count > 0)
            sc_staging_put(shared->fx.frames, frames[--count]);
    }
    return NULL;
}

static void threads_see_no_other_bytes(void **state)
{
    (void)state;
    static struct shared shared;
    pthread_t threads[4];
    void *(*const mains[4])(void *) = {writer_main, reader_main, reader_main, taker_main};
    fixture_init(&shared.fx, 1);
    for (uint32_t t = 0; t < 4; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, mains[t], &shared), 0);
    for (uint32_t t = 0; t < 4; t++) {
        void *wrong;
        assert_int_equal(pthread_join(threads[t], &wrong), 0);
        assert_null(wrong);
    }
    assert_true(atomic_load(&shared.hits) >= 100);
    fixture_done(&shared.fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_given_is_what_was_put),
        cmocka_unit_test(a_pinned_frame_outlives_its_writer),
        cmocka_unit_test(what_is_forgotten_goes_first),
        cmocka_unit_test(threads_see_no_other_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

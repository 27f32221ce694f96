/* The staging pool: who may have how much, who is served next, and that nothing is lost.
 *
 * Holds: every test gives all frames back.
 * Threads: one (the seeded loop), but the last test: four workers. */
#include "store/cache/staging_pool.h"
#include "tests/unit/cases.h"

#define OP_BYTES 65536u

struct fixture {
    struct sc_alloc alloc;
    struct sc_exec *exec;
    struct sc_staging *frames;
};

static void fixture_init(struct fixture *fx, uint64_t count, uint32_t thread_count)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    sc_alloc_init(&fx->alloc);
    const struct sc_exec_params exec = {
        .alloc = &fx->alloc, .thread_count = thread_count, .seed = 1, .name = "frames"};
    assert_int_equal(sc_exec_open(&exec, &fx->exec, &error), SPEC_OK);
    const struct sc_staging_params params = {.alloc = &fx->alloc,
                                             .exec = fx->exec,
                                             .staging_bytes =
                                                 count * (OP_BYTES + SC_STAGING_SLACK_BYTES) + 1,
                                             .op_bytes = OP_BYTES};
    if (sc_staging_open(&params, &fx->frames, &error) != SPEC_OK)
        fail_msg("%s", error.text);
    assert_int_equal(sc_staging_count(fx->frames), count);
    sc_alloc_seal(&fx->alloc); /* from here on nothing is allocated */
}

static void fixture_done(struct fixture *fx)
{
    assert_int_equal(sc_staging_used(fx->frames), 0);
    assert_int_equal(atomic_load(&fx->alloc.sealed_refusals), 0);
    sc_alloc_unseal(&fx->alloc);
    sc_staging_close(fx->frames);
    sc_exec_close(fx->exec);
    assert_int_equal(atomic_load(&fx->alloc.live_blocks), 0);
}

static void run_all(struct fixture *fx)
{
    while (sc_exec_step_one(fx->exec))
        continue;
}

/* Takes until the pool refuses; returns how many. */
static uint64_t take_all(struct fixture *fx, uint32_t io_class, uint8_t **frames)
{
    uint64_t count = 0;
    while ((frames[count] = sc_staging_take(fx->frames, io_class)) != NULL)
        count++;
    return count;
}

static void gives_each_lane_its_share(void **state)
{
    (void)state;
    static const struct {
        uint64_t count, writer, speculative;
    } cases[] = {{4, 3, 2}, {5, 3, 2}, {7, 5, 3}, {16, 12, 8}, {241, 180, 120}};
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fixture fx;
        uint8_t *held[256];
        const struct {
            uint32_t io_class;
            uint64_t expected;
        } lanes[] = {{SC_IO_CLASS_DEMAND, cases[i].count},
                     {SC_IO_CLASS_WRITER, cases[i].writer},
                     {SC_IO_CLASS_SPECULATIVE, cases[i].speculative},
                     {SC_IO_CLASS_BACKGROUND, cases[i].speculative}};
        fixture_init(&fx, cases[i].count, 0);
        for (uint32_t j = 0; j < 4; j++) {
            const uint64_t taken = take_all(&fx, lanes[j].io_class, held);
            assert_int_equal(taken, lanes[j].expected);
            assert_int_equal(sc_staging_used(fx.frames), taken);
            for (uint64_t k = 0; k < taken; k++)
                sc_staging_put(fx.frames, held[k]);
        }
        fixture_done(&fx);
    }
}

static void gives_aligned_frames_that_do_not_overlap(void **state)
{
    (void)state;
    struct fixture fx;
    uint8_t *held[10];
    fixture_init(&fx, 9, 0);
    assert_int_equal(sc_staging_frame_bytes(fx.frames), OP_BYTES + 2 * SC_IO_PAGE_BYTES);
    assert_int_equal(sc_staging_bytes(fx.frames), 9 * sc_staging_frame_bytes(fx.frames));
    assert_int_equal(take_all(&fx, SC_IO_CLASS_DEMAND, held), 9);
    for (uint32_t i = 0; i < 9; i++) {
        assert_int_equal((uintptr_t)held[i] % SC_IO_PAGE_BYTES, 0);
        memset(held[i], (int)i, (size_t)sc_staging_frame_bytes(fx.frames));
    }
    for (uint32_t i = 0; i < 9; i++) {
        for (uint64_t j = 0; j < sc_staging_frame_bytes(fx.frames); j++)
            assert_int_equal(held[i][j], i);
        sc_staging_put(fx.frames, held[i] + i * 1000); /* any address inside */
    }
    fixture_done(&fx);
}

/* However many rights there are, memory that was used last serves first. */
/* Any range: lines that it begins or ends in are somebody else's too. */
static void leaves_bytes_as_they_are(void **state)
{
    (void)state;
    struct fixture fx = {0};
    fixture_init(&fx, 4, 0);
    uint8_t *frame = sc_staging_take(fx.frames, SC_IO_CLASS_DEMAND);
    for (uint32_t i = 0; i < OP_BYTES; i++)
        frame[i] = (uint8_t)(i * 7 + 1);
    sc_staging_leave(frame, OP_BYTES);
    sc_staging_leave(frame + 3, 61);
    sc_staging_leave(frame + 63, 2);
    sc_staging_leave(frame + OP_BYTES, 0);
    for (uint32_t i = 0; i < OP_BYTES; i++)
        assert_int_equal(frame[i], (uint8_t)(i * 7 + 1));
    sc_staging_put(fx.frames, frame);
    fixture_done(&fx);
}

static void keeps_the_right_to_a_frame_that_was_laid_down(void **state)
{
    (void)state;
    struct fixture fx;
    uint8_t *frames[9];
    fixture_init(&fx, 8, 0);
    assert_int_equal(take_all(&fx, SC_IO_CLASS_DEMAND, frames), 8);
    for (uint32_t i = 0; i < 8; i++)
        sc_staging_lay(fx.frames, frames[i]);
    assert_int_equal(sc_staging_used(fx.frames), 8);
    assert_null(sc_staging_take(fx.frames, SC_IO_CLASS_DEMAND)); /* all are spoken for */
    for (uint32_t i = 0; i < 5; i++) {
        assert_ptr_equal(sc_staging_candidate(fx.frames), frames[7]);
        sc_staging_put(fx.frames, frames[7]);
    }
    assert_int_equal(sc_staging_used(fx.frames), 3);
    uint8_t *taken = sc_staging_take(fx.frames, SC_IO_CLASS_DEMAND);
    assert_ptr_equal(taken, frames[7]);
    for (uint32_t i = 7; i-- > 4;) {
        assert_ptr_equal(sc_staging_candidate(fx.frames), frames[i]);
        memset(frames[i], (int)i, OP_BYTES);
    }
    for (uint32_t i = 4; i < 7; i++)
        sc_staging_put(fx.frames, frames[i]);
    sc_staging_put(fx.frames, taken);
    fixture_done(&fx);
}

/* What is kept is free, in every count; it is taken last, and then its bytes may not be claimed. */
static void keeps_frames_until_somebody_needs_them(void **state)
{
    (void)state;
    struct fixture fx;
    uint8_t *frames[9];
    uint64_t tickets[8];
    fixture_init(&fx, 8, 0);
    assert_int_equal(take_all(&fx, SC_IO_CLASS_DEMAND, frames), 8);
    for (uint32_t i = 0; i < 6; i++) {
        memset(frames[i], (int)i, OP_BYTES);
        tickets[i] = sc_staging_keep(fx.frames, frames[i]);
        assert_true(tickets[i] != 0);
    }
    assert_int_equal(sc_staging_used(fx.frames), 2);
    sc_staging_put(fx.frames, frames[6]);
    assert_true(sc_staging_claim(fx.frames, frames[2], tickets[2])); /* from the middle */
    assert_false(sc_staging_claim(fx.frames, frames[2], tickets[2]));
    assert_int_equal(frames[2][OP_BYTES - 1], 2);
    tickets[2] = sc_staging_keep(fx.frames, frames[2]);
    assert_ptr_equal(sc_staging_take(fx.frames, SC_IO_CLASS_DEMAND), frames[6]);
    assert_ptr_equal(sc_staging_take(fx.frames, SC_IO_CLASS_DEMAND), frames[2]);
    assert_ptr_equal(sc_staging_take(fx.frames, SC_IO_CLASS_DEMAND), frames[5]);
    assert_false(sc_staging_claim(fx.frames, frames[5], tickets[5]));
    sc_staging_put(fx.frames, frames[5]);
    assert_false(sc_staging_claim(fx.frames, frames[5], tickets[5])); /* it was somebody's */
    uint64_t again = sc_staging_keep(fx.frames, sc_staging_take(fx.frames, SC_IO_CLASS_DEMAND));
    assert_false(sc_staging_claim(fx.frames, frames[5], tickets[5]));
    assert_true(sc_staging_claim(fx.frames, frames[5], again));
    sc_staging_lay(fx.frames, frames[5]); /* whoever laid one down gets one, a kept one too */
    assert_ptr_equal(sc_staging_candidate(fx.frames), frames[5]);
    sc_staging_lay(fx.frames, frames[5]);
    for (uint32_t i = 4; i-- > 3;)
        assert_true(sc_staging_claim(fx.frames, frames[i], tickets[i]));
    for (uint32_t i = 0; i < 2; i++)
        assert_non_null(sc_staging_take(fx.frames, SC_IO_CLASS_DEMAND));
    assert_non_null(sc_staging_candidate(fx.frames));
    assert_true(sc_staging_claim(fx.frames, frames[0], tickets[0]));
    assert_null(sc_staging_take(fx.frames, SC_IO_CLASS_DEMAND));
    for (uint32_t i = 0; i < 8; i++)
        sc_staging_put(fx.frames, frames[i]);
    fixture_done(&fx);
}

/* The only frame there is may be a kept one, and be due to who laid his down: it is not claimed. */
static void claims_nothing_that_is_due(void **state)
{
    (void)state;
    struct fixture fx;
    uint8_t *frames[9];
    fixture_init(&fx, 8, 0);
    assert_int_equal(take_all(&fx, SC_IO_CLASS_DEMAND, frames), 8);
    uint64_t ticket = sc_staging_keep(fx.frames, frames[0]);
    sc_staging_lay(fx.frames, frames[1]);
    assert_ptr_equal(sc_staging_take(fx.frames, SC_IO_CLASS_DEMAND), frames[1]);
    assert_false(sc_staging_claim(fx.frames, frames[0], ticket));
    assert_ptr_equal(sc_staging_candidate(fx.frames), frames[0]);
    for (uint32_t i = 0; i < 8; i++)
        sc_staging_put(fx.frames, frames[i]);
    fixture_done(&fx);
}

static void refuses_a_pool_that_is_too_small(void **state)
{
    (void)state;
    struct sc_alloc alloc;
    sc_alloc_init(&alloc);
    static const struct {
        uint64_t staging_bytes, op_bytes;
    } cases[] = {{4u << 20, 1u << 20}, {16u << 20, 8u << 20}, {0, 65536},
                 {1u << 20, 0},        {1u << 20, 5000},      {UINT64_MAX, UINT64_MAX & ~4095ull}};
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct spec_error error = {.struct_size = sizeof(error)};
        struct sc_staging *frames = NULL;
        const struct sc_staging_params params = {.alloc = &alloc,
                                                 .staging_bytes = cases[i].staging_bytes,
                                                 .op_bytes = cases[i].op_bytes};
        assert_int_equal(sc_staging_open(&params, &frames, &error), SPEC_E_CONFIG);
        assert_non_null(strstr(error.text, "op_bytes"));
        assert_null(frames);
    }
    sc_staging_close(NULL);
    assert_int_equal(atomic_load(&alloc.live_blocks), 0);
}

static void opens_or_says_no_memory(void **state)
{
    (void)state;
    struct sc_alloc alloc;
    struct sc_fault fault;
    sc_alloc_init(&alloc);
    sc_fault_init(&fault);
    alloc.fault = &fault;
    const struct sc_staging_params params = {
        .alloc = &alloc, .staging_bytes = 1u << 20, .op_bytes = OP_BYTES};
    uint64_t n = 0;
    for (;; n++) {
        struct sc_staging *frames = NULL;
        sc_fault_init(&fault);
        sc_fault_arm(&fault, SC_FAULT_ALLOC, n);
        const spec_status status = sc_staging_open(&params, &frames, NULL);
        if (status == SPEC_OK) {
            sc_staging_close(frames);
            break;
        }
        assert_int_equal(status, SPEC_E_NO_MEMORY);
        assert_int_equal(atomic_load(&alloc.live_blocks), 0);
    }
    assert_int_equal(n, 5); /* the handle, three tables, the frames */
    assert_int_equal(atomic_load(&alloc.live_blocks), 0);
}

/* ---- Waiting -------------------------------------------------------------------------------- */

struct waiting {
    struct sc_staging_waiter waiter; /* first: the task is its first member */
    uint32_t stepped;
};

static void waiting_step(struct sc_task *task)
{
    struct waiting *waiting = (struct waiting *)task;
    assert_non_null(waiting->waiter.frame);
    waiting->stepped++;
}

static void waiting_init(struct waiting *waiting)
{
    memset(waiting, 0, sizeof(*waiting));
    waiting->waiter.task.step = waiting_step;
}

static void hands_frames_over_demand_first_oldest_first(void **state)
{
    (void)state;
    enum { FRAMES = 16, WAITS = 6 };
    struct fixture fx;
    uint8_t *held[FRAMES + 1];
    struct waiting waits[WAITS];
    static const uint32_t lanes[WAITS] = {SC_IO_CLASS_SPECULATIVE, SC_IO_CLASS_WRITER,
                                          SC_IO_CLASS_DEMAND,      SC_IO_CLASS_SPECULATIVE,
                                          SC_IO_CLASS_WRITER,      SC_IO_CLASS_DEMAND};
    static const uint32_t served[WAITS] = {2, 5, 1, 4, 0, 3};
    static const uint64_t reserve[WAITS] = {0, 0, 4, 4, 8, 8};
    fixture_init(&fx, FRAMES, 0);
    assert_int_equal(take_all(&fx, SC_IO_CLASS_DEMAND, held), FRAMES);
    for (uint32_t i = 0; i < WAITS; i++) {
        waiting_init(&waits[i]);
        assert_null(sc_staging_take_or_wait(fx.frames, lanes[i], &waits[i].waiter));
    }
    uint64_t put_count = 0;
    for (uint32_t i = 0; i < WAITS; i++) {
        /* One frame after another comes back, until this one is served and no other. */
        const struct waiting *next = &waits[served[i]];
        while (next->stepped == 0) {
            assert_true(put_count < FRAMES);
            sc_staging_put(fx.frames, held[put_count++]);
            run_all(&fx);
        }
        assert_int_equal(FRAMES - sc_staging_used(fx.frames), reserve[i]);
        for (uint32_t j = 0; j < WAITS; j++)
            assert_int_equal(waits[served[j]].stepped, j <= i);
    }
    while (put_count < FRAMES)
        sc_staging_put(fx.frames, held[put_count++]);
    for (uint32_t i = 0; i < WAITS; i++)
        sc_staging_put(fx.frames, waits[i].waiter.frame);
    fixture_done(&fx);
}

static void takes_at_once_when_a_frame_is_free(void **state)
{
    (void)state;
    struct fixture fx;
    struct waiting waiting;
    fixture_init(&fx, 4, 0);
    waiting_init(&waiting);
    uint8_t *frame = sc_staging_take_or_wait(fx.frames, SC_IO_CLASS_SPECULATIVE, &waiting.waiter);
    assert_non_null(frame);
    assert_false(sc_staging_wait_cancel(fx.frames, &waiting.waiter));
    run_all(&fx);
    assert_int_equal(waiting.stepped, 0);
    sc_staging_put(fx.frames, frame);
    sc_staging_put(fx.frames, NULL);
    fixture_done(&fx);
}

static void cancels_a_wait_until_the_frame_was_handed_over(void **state)
{
    (void)state;
    struct fixture fx;
    uint8_t *held[5];
    struct waiting first, second, third;
    fixture_init(&fx, 4, 0);
    assert_int_equal(take_all(&fx, SC_IO_CLASS_DEMAND, held), 4);
    waiting_init(&first);
    waiting_init(&second);
    waiting_init(&third);
    assert_null(sc_staging_take_or_wait(fx.frames, SC_IO_CLASS_DEMAND, &first.waiter));
    assert_null(sc_staging_take_or_wait(fx.frames, SC_IO_CLASS_DEMAND, &second.waiter));
    assert_null(sc_staging_take_or_wait(fx.frames, SC_IO_CLASS_DEMAND, &third.waiter));
    assert_true(sc_staging_wait_cancel(fx.frames, &second.waiter)); /* from the middle */
    assert_false(sc_staging_wait_cancel(fx.frames, &second.waiter));
    sc_staging_put(fx.frames, held[0]);
    assert_false(sc_staging_wait_cancel(fx.frames, &first.waiter)); /* too late: it owns one */
    assert_true(sc_staging_wait_cancel(fx.frames, &third.waiter));
    run_all(&fx);
    assert_int_equal(first.stepped, 1);
    assert_int_equal(second.stepped + third.stepped, 0);
    /* Who cancelled can wait again. */
    assert_null(sc_staging_take_or_wait(fx.frames, SC_IO_CLASS_DEMAND, &second.waiter));
    sc_staging_put(fx.frames, first.waiter.frame);
    run_all(&fx);
    assert_int_equal(second.stepped, 1);
    sc_staging_put(fx.frames, second.waiter.frame);
    for (uint32_t i = 1; i < 4; i++)
        sc_staging_put(fx.frames, held[i]);
    fixture_done(&fx);
}

static void serves_a_raised_waiter_at_once(void **state)
{
    (void)state;
    struct fixture fx;
    uint8_t *held[9];
    struct waiting speculative, other;
    fixture_init(&fx, 8, 0);
    const uint64_t taken = take_all(&fx, SC_IO_CLASS_SPECULATIVE, held);
    assert_int_equal(taken, 4);
    waiting_init(&speculative);
    waiting_init(&other);
    assert_null(sc_staging_take_or_wait(fx.frames, SC_IO_CLASS_SPECULATIVE, &other.waiter));
    assert_null(sc_staging_take_or_wait(fx.frames, SC_IO_CLASS_SPECULATIVE, &speculative.waiter));
    run_all(&fx);
    assert_int_equal(speculative.stepped, 0);
    sc_staging_wait_raise(fx.frames, &speculative.waiter,
                          SC_IO_CLASS_BACKGROUND); /* the same class */
    run_all(&fx);
    assert_int_equal(speculative.stepped, 0);
    sc_staging_wait_raise(fx.frames, &speculative.waiter, SC_IO_CLASS_DEMAND);
    run_all(&fx);
    assert_int_equal(speculative.stepped, 1);
    assert_int_equal(other.stepped, 0);
    sc_staging_wait_raise(fx.frames, &speculative.waiter, SC_IO_CLASS_DEMAND); /* not waiting now */
    run_all(&fx);
    assert_int_equal(speculative.stepped, 1);
    assert_true(sc_staging_wait_cancel(fx.frames, &other.waiter));
    sc_staging_put(fx.frames, speculative.waiter.frame);
    for (uint64_t i = 0; i < taken; i++)
        sc_staging_put(fx.frames, held[i]);
    fixture_done(&fx);
}

/* Random calls beside a model that only counts: after each, nobody waits for a frame that his class
 * may have, and no frame is lost. */
static void agrees_with_a_counting_twin(void **state)
{
    (void)state;
    enum { FRAMES = 11, WAITS = 24, STEPS = 20000 };
    static const uint64_t reserve[SC_IO_CLASSES] = {0, 6, 3,
                                                    6}; /* demand, spec., writer, backgr. */
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct fixture fx;
        struct waiting waits[WAITS];
        uint32_t lanes[WAITS];
        uint8_t is_waiting[WAITS] = {0};
        uint8_t *held[FRAMES];
        uint64_t held_count = 0, x = seed;
        fixture_init(&fx, FRAMES, 0);
        for (uint32_t i = 0; i < WAITS; i++)
            waiting_init(&waits[i]);
        for (uint32_t step = 0; step < STEPS; step++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            const uint32_t io_class = (uint32_t)(x >> 40) % SC_IO_CLASSES;
            struct waiting *at = &waits[(x >> 20) % WAITS];
            const uint64_t i = (uint64_t)(at - waits);
            const uint32_t choice = (uint32_t)(x >> 50) % 8;
            if (choice < 3 && held_count > 0) {
                const uint64_t j = (x >> 30) % held_count;
                sc_staging_put(fx.frames, held[j]);
                held[j] = held[--held_count];
            } else if (choice < 6 && !is_waiting[i]) {
                uint8_t *frame = sc_staging_take_or_wait(fx.frames, io_class, &at->waiter);
                if (frame != NULL)
                    held[held_count++] = frame;
                is_waiting[i] = frame == NULL;
                lanes[i] = io_class;
            } else if (choice == 6) {
                assert_int_equal(sc_staging_wait_cancel(fx.frames, &at->waiter), is_waiting[i]);
                is_waiting[i] = 0;
            } else if (choice == 7 && is_waiting[i]) {
                sc_staging_wait_raise(fx.frames, &at->waiter, io_class);
                lanes[i] = io_class;
            }
            run_all(&fx);
            for (uint32_t j = 0; j < WAITS; j++)
                if (waits[j].stepped > 0) {
                    if (!is_waiting[j] || held_count >= FRAMES)
                        fail_msg("seed %llu step %u: a frame for nobody", (unsigned long long)seed,
                                 step);
                    is_waiting[j] = 0;
                    waits[j].stepped = 0;
                    held[held_count++] = waits[j].waiter.frame;
                }
            assert_int_equal(sc_staging_used(fx.frames), held_count);
            for (uint32_t j = 0; j < WAITS; j++)
                if (is_waiting[j] && FRAMES - held_count > reserve[lanes[j]])
                    fail_msg("seed %llu step %u: waits beside a free frame",
                             (unsigned long long)seed, step);
        }
        for (uint32_t j = 0; j < WAITS; j++)
            (void)sc_staging_wait_cancel(fx.frames, &waits[j].waiter);
        while (held_count > 0)
            sc_staging_put(fx.frames, held[--held_count]);
        fixture_done(&fx);
    }
}

/* ---- Threads -------------------------------------------------------------------------------- */

struct user {
    struct sc_staging_waiter waiter; /* first: the task is its first member */
    struct fixture *fx;
    _Atomic uint32_t *users_left;
    uint32_t rounds_left;
    uint32_t io_class;
    uint8_t mark;
};

/* Fills a frame, checks that nobody else wrote into it, gives it back, asks for the next. */
static void user_step(struct sc_task *task)
{
    struct user *user = (struct user *)task;
    struct sc_staging *frames = user->fx->frames;
    struct sc_exec *exec = user->fx->exec;
    uint8_t *frame = user->waiter.frame;
    while (user->rounds_left > 0) {
        if (frame == NULL)
            frame = sc_staging_take_or_wait(frames, user->io_class, &user->waiter);
        if (frame == NULL)
            return; /* stepped again with one; the waiter may run elsewhere already */
        memset(frame, user->mark, 4096);
        for (uint32_t i = 0; i < 4096; i += 63)
            assert_int_equal(frame[i], user->mark);
        user->rounds_left--;
        user->waiter.frame = NULL;
        sc_staging_put(frames, frame);
        frame = NULL;
    }
    _Atomic uint32_t *users_left = user->users_left;
    (void)atomic_fetch_sub_explicit(users_left, 1, memory_order_acq_rel);
    sc_exec_wake(exec, users_left);
}

static void serves_many_users_on_four_threads(void **state)
{
    (void)state;
    enum { USERS = 12 };
    struct fixture fx;
    struct user users[USERS];
    _Atomic uint32_t users_left = USERS;
    fixture_init(&fx, 4, 4);
    for (uint32_t i = 0; i < USERS; i++) {
        users[i] = (struct user){.waiter = {.task = {.step = user_step}},
                                 .fx = &fx,
                                 .users_left = &users_left,
                                 .rounds_left = 2000,
                                 .io_class = i % SC_IO_CLASSES,
                                 .mark = (uint8_t)(i + 1)};
        sc_exec_post(fx.exec, &users[i].waiter.task, (enum sc_io_class)users[i].io_class);
    }
    for (uint32_t left; (left = atomic_load(&users_left)) > 0;)
        (void)sc_exec_wait(fx.exec, &users_left, left, SC_EXEC_FOREVER);
    fixture_done(&fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_each_lane_its_share),
        cmocka_unit_test(gives_aligned_frames_that_do_not_overlap),
        cmocka_unit_test(leaves_bytes_as_they_are),
        cmocka_unit_test(keeps_the_right_to_a_frame_that_was_laid_down),
        cmocka_unit_test(keeps_frames_until_somebody_needs_them),
        cmocka_unit_test(claims_nothing_that_is_due),
        cmocka_unit_test(refuses_a_pool_that_is_too_small),
        cmocka_unit_test(opens_or_says_no_memory),
        cmocka_unit_test(hands_frames_over_demand_first_oldest_first),
        cmocka_unit_test(takes_at_once_when_a_frame_is_free),
        cmocka_unit_test(cancels_a_wait_until_the_frame_was_handed_over),
        cmocka_unit_test(serves_a_raised_waiter_at_once),
        cmocka_unit_test(agrees_with_a_counting_twin),
        cmocka_unit_test(serves_many_users_on_four_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

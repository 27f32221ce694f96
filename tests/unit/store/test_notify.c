/* Mail: records arrive whole, in order and at least once, whatever is torn, foreign, full or cut
 * meanwhile.
 *
 * Threads: the race has three; else one beside the executor's. */
#include "store/internal.h"
#include "tests/unit/awaits.h"
#include "tests/unit/store/store_fixture.h"

#define RECORD_BYTES 128u
#define HEARD_MAX    4096u

static const struct world_setup setups[] = {
    {"sim", SC_BACKEND_SIM, 0, 2, SC_STORE_PAIRED, 64, 0, 8u << 20, 1u << 20, 1u << 16, 0,
     2u << 20},
    {"pread", SC_BACKEND_PREAD, 2, 2, SC_STORE_PAIRED, 64, 0, 8u << 20, 1u << 20, 1u << 16, 0,
     2u << 20},
};

/* Two ranks of one store: rank 0 takes what rank 1 posts. */
struct office {
    struct world *world;
    struct sc_store *sender;
    struct sc_store_notify heard[HEARD_MAX];
    uint64_t heard_count;
};

static struct sc_store *open_rank(struct world *world, uint32_t rank)
{
    struct sc_store *store = NULL;
    struct sc_store_params params = world->params;
    params.rank = rank;
    params.rank_count = 2;
    if (sc_store_open(&params, &store, &world->error) != SPEC_OK)
        fail_msg("open: %s", world->error.text);
    return store;
}

static void office_open(struct office *office, const struct world_setup *setup)
{
    *office = (struct office){.world = world_make(setup, 5)};
    office->world->store = open_rank(office->world, 0);
    office->sender = open_rank(office->world, 1);
}

static void office_close(struct office *office)
{
    sc_store_close(office->sender);
    world_free(office->world);
}

/* The writer's process ends, and another takes its place. */
static void office_reopen(struct office *office)
{
    sc_store_close(office->world->store);
    office->world->store = open_rank(office->world, 0);
    office->heard_count = 0;
}

static struct sc_store_notify letter(uint32_t kind, uint64_t number)
{
    struct sc_store_notify mail = {.kind = kind, .epoch = number, .piece = mix(number)};
    for (uint32_t i = 0; i < SC_STORE_HASH_BYTES; i++) {
        mail.hash[i] = (uint8_t)(number * 3 + i);
        mail.family[i] = (uint8_t)(number * 5 + 7 * i);
    }
    return mail;
}

static struct sc_store_notify failed(uint64_t number)
{
    return letter(SC_STORE_NOTIFY_FAILED, number);
}

static struct sc_store_notify epoch_of(uint64_t family, uint64_t epoch)
{
    struct sc_store_notify mail = letter(SC_STORE_NOTIFY_EPOCH, family);
    mail.epoch = epoch;
    memcpy(mail.family, &family, sizeof(family));
    return mail;
}

static spec_status post(struct office *office, const struct sc_store_notify *mail)
{
    return sc_store_notify_post(office->sender, 0, mail, &office->world->error);
}

static void post_ok(struct office *office, struct sc_store_notify mail)
{
    if (post(office, &mail) != SPEC_OK)
        fail_msg("post: %s", office->world->error.text);
}

static void on_notify(const struct sc_store_notify *mail, void *user)
{
    struct office *office = user;
    assert_true(office->heard_count < HEARD_MAX);
    office->heard[office->heard_count++] = *mail;
}

static void take(struct office *office)
{
    struct world *world = office->world;
    if (sc_store_notify_take(world->store, on_notify, office, &world->error) != SPEC_OK)
        fail_msg("take: %s", world->error.text);
}

/* Member by member: the structure has padding. */
static bool is_equal(const struct sc_store_notify *a, const struct sc_store_notify *b)
{
    return a->kind == b->kind && a->epoch == b->epoch && a->piece == b->piece &&
           memcmp(a->hash, b->hash, sizeof(a->hash)) == 0 &&
           memcmp(a->family, b->family, sizeof(a->family)) == 0;
}

static void assert_heard(const struct office *office, uint64_t at, struct sc_store_notify mail)
{
    assert_true(at < office->heard_count);
    assert_true(is_equal(&office->heard[at], &mail));
}

/* ---- Damage, on the simulated disk ---------------------------------------------------------- */

static const char MAIL_OF_0[] = "/sim/store/rank-0000-of-0002/mail";
static const char MAIL_OF_1[] = "/sim/store/rank-0001-of-0002/mail";

static uint64_t notify_bytes(const struct office *office)
{
    uint8_t byte;
    uint64_t bytes = 0;
    while (sc_io_sim_disk_peek(office->world->disk, MAIL_OF_0, bytes, &byte, 1))
        bytes++;
    return bytes;
}

static void resize(const struct office *office, uint64_t bytes)
{
    assert_true(sc_io_sim_disk_resize(office->world->disk, MAIL_OF_0, bytes));
}

static void flip(const struct office *office, uint64_t at)
{
    disk_flip(office->world, MAIL_OF_0, at, 0x10);
}

static uint64_t corrupt_records(const struct office *office)
{
    struct sc_store_stats stats;
    sc_store_stats(office->world->store, &stats);
    return stats.corrupt_records;
}

/* ---- Tests ---------------------------------------------------------------------------------- */

static void what_is_posted_is_taken_once_and_in_order(void **state)
{
    (void)state;
    for (uint32_t s = 0; s < sizeof(setups) / sizeof(setups[0]); s++) {
        struct office office;
        office_open(&office, &setups[s]);
        take(&office);
        assert_int_equal(office.heard_count, 0);
        for (uint64_t i = 0; i < 20; i++) {
            post_ok(&office, i % 2 == 0 ? failed(i) : epoch_of(i, i));
            if (i % 7 == 0)
                take(&office);
        }
        take(&office);
        take(&office);
        assert_int_equal(office.heard_count, 20);
        for (uint64_t i = 0; i < 20; i++)
            assert_heard(&office, i, i % 2 == 0 ? failed(i) : epoch_of(i, i));
        assert_int_equal(corrupt_records(&office), 0);
        office_close(&office);
    }
}

static void a_rank_that_is_not_there_yet_is_asked_again(void **state)
{
    (void)state;
    for (uint32_t s = 0; s < sizeof(setups) / sizeof(setups[0]); s++) {
        struct office office = {.world = world_make(&setups[s], 5)};
        struct sc_store_notify mail = failed(1);
        office.sender = open_rank(office.world, 1);
        assert_int_equal(post(&office, &mail), SPEC_PENDING);
        office.world->store = open_rank(office.world, 0);
        post_ok(&office, mail);
        take(&office);
        assert_int_equal(office.heard_count, 1);
        office_close(&office);
    }
}

static void a_full_mail_refuses_until_it_was_taken_and_loses_nothing(void **state)
{
    (void)state;
    for (uint32_t s = 0; s < sizeof(setups) / sizeof(setups[0]); s++) {
        struct office office;
        office_open(&office, &setups[s]);
        uint64_t posted = 0;
        for (uint32_t turn = 0; turn < 3; turn++) {
            struct sc_store_notify mail = failed(posted);
            spec_status status;
            while ((status = post(&office, &mail)) == SPEC_OK)
                mail = failed(++posted);
            assert_int_equal(status, SPEC_E_NO_SPACE);
            assert_int_equal(posted, (turn + 1) * SC_STORE_NOTIFY_BYTES_MAX / RECORD_BYTES);
            take(&office);
            assert_int_equal(office.heard_count, posted);
        }
        for (uint64_t i = 0; i < posted; i++)
            assert_heard(&office, i, failed(i));
        office_close(&office);
    }
}

static void a_cut_keeps_the_last_epoch_of_each_family(void **state)
{
    (void)state;
    struct office office;
    office_open(&office, &setups[0]);
    uint64_t count = SC_STORE_NOTIFY_CUT_BYTES / RECORD_BYTES;
    for (uint64_t i = 0; i < count; i++)
        post_ok(&office, i % 4 == 0 ? failed(i) : epoch_of(i % 3, count - i));
    take(&office);
    assert_int_equal(office.heard_count, count);
    assert_int_equal(notify_bytes(&office), 3 * RECORD_BYTES);
    take(&office);
    assert_int_equal(office.heard_count, count); /* what was kept was taken */
    post_ok(&office, failed(1000));
    office_reopen(&office);
    take(&office);
    assert_int_equal(office.heard_count, 4);
    for (uint64_t i = 0; i < 3; i++) {
        uint64_t first = i == 0 ? 3 : i; /* 0 has no epoch of its own: i % 4 == 0 */
        bool found = false;
        for (uint64_t j = 0; j < 3; j++)
            found = found ||
                    (office.heard[j].piece == mix(i) && office.heard[j].epoch == count - first);
        assert_true(found);
    }
    assert_heard(&office, 3, failed(1000));
    office_close(&office);
}

static void of_too_many_families_the_last_ones_are_kept(void **state)
{
    (void)state;
    struct office office;
    office_open(&office, &setups[0]);
    uint64_t count = SC_STORE_NOTIFY_CUT_BYTES / RECORD_BYTES;
    for (uint64_t i = 0; i < count; i++)
        post_ok(&office, epoch_of(i, 7));
    take(&office);
    office_reopen(&office);
    take(&office);
    assert_int_equal(office.heard_count, SC_STORE_NOTIFY_FAMILIES);
    for (uint64_t i = 0; i < SC_STORE_NOTIFY_FAMILIES; i++)
        assert_heard(&office, i, epoch_of(count - SC_STORE_NOTIFY_FAMILIES + i, 7));
    office_close(&office);
}

/* Other hands than ours made it long: no more than a mail may have is read, and all of it goes. */
static void a_mail_beyond_its_bound_is_cut(void **state)
{
    (void)state;
    struct office office;
    office_open(&office, &setups[0]);
    for (uint64_t i = 0; i < 5; i++)
        post_ok(&office, failed(i));
    resize(&office, 1u << 20);
    struct sc_store_notify mail = failed(5);
    assert_int_equal(post(&office, &mail), SPEC_E_NO_SPACE);
    take(&office);
    assert_int_equal(office.heard_count, 5);
    for (uint64_t i = 0; i < 5; i++)
        assert_heard(&office, i, failed(i));
    assert_int_equal(corrupt_records(&office), SC_STORE_NOTIFY_BYTES_MAX / RECORD_BYTES - 5);
    assert_int_equal(notify_bytes(&office), 0);
    post_ok(&office, mail);
    take(&office);
    assert_heard(&office, 5, mail);
    office_close(&office);
}

/* Somebody died while appending. */
static void a_torn_record_costs_no_other(void **state)
{
    (void)state;
    for (uint64_t left = 1; left < RECORD_BYTES; left += 21) {
        struct office office;
        office_open(&office, &setups[0]);
        post_ok(&office, failed(1));
        post_ok(&office, failed(2));
        resize(&office, RECORD_BYTES + left);
        take(&office);
        assert_int_equal(office.heard_count, 1);
        post_ok(&office, failed(3));
        post_ok(&office, failed(4));
        take(&office);
        assert_int_equal(office.heard_count, 3);
        assert_heard(&office, 0, failed(1));
        assert_heard(&office, 1, failed(3));
        assert_heard(&office, 2, failed(4));
        assert_int_equal(corrupt_records(&office), 1);
        office_close(&office);
    }
}

/* A full mail whose last append was torn, or whose last record is none, is cut all the same. */
static void a_torn_end_does_not_stop_the_cut(void **state)
{
    (void)state;
    for (uint32_t torn = 0; torn < 2; torn++) {
        struct office office;
        office_open(&office, &setups[0]);
        uint64_t count = SC_STORE_NOTIFY_BYTES_MAX / RECORD_BYTES;
        for (uint64_t i = 0; i < count; i++)
            post_ok(&office, failed(i));
        if (torn == 0)
            resize(&office, SC_STORE_NOTIFY_BYTES_MAX - RECORD_BYTES / 2);
        else
            flip(&office, SC_STORE_NOTIFY_BYTES_MAX - RECORD_BYTES / 2);
        struct sc_store_notify mail = failed(count);
        assert_int_equal(post(&office, &mail), SPEC_E_NO_SPACE);
        take(&office);
        assert_int_equal(office.heard_count, count - 1);
        post_ok(&office, mail);
        take(&office);
        assert_heard(&office, count - 1, mail);
        office_close(&office);
    }
}

/* The last record may still be on its way to the file: it is taken when it is whole. */
static void a_record_that_is_not_whole_yet_is_waited_for(void **state)
{
    (void)state;
    struct office office;
    office_open(&office, &setups[0]);
    post_ok(&office, failed(1));
    post_ok(&office, failed(2));
    flip(&office, 2 * RECORD_BYTES - 1);
    take(&office);
    assert_int_equal(office.heard_count, 1);
    assert_int_equal(corrupt_records(&office), 0);
    flip(&office, 2 * RECORD_BYTES - 1);
    take(&office);
    assert_int_equal(office.heard_count, 2);
    assert_heard(&office, 1, failed(2));
    office_close(&office);
}

static void every_flipped_byte_makes_a_record_none(void **state)
{
    (void)state;
    struct office office;
    office_open(&office, &setups[0]);
    post_ok(&office, epoch_of(1, 1));
    post_ok(&office, failed(2));
    for (uint64_t at = 0; at < RECORD_BYTES; at++) {
        office_reopen(&office);
        flip(&office, at);
        take(&office);
        assert_int_equal(office.heard_count, 1);
        assert_heard(&office, 0, failed(2));
        assert_int_equal(corrupt_records(&office), 1);
        flip(&office, at);
    }
    office_close(&office);
}

static void a_record_of_another_rank_is_none(void **state)
{
    (void)state;
    struct office office;
    uint8_t record[RECORD_BYTES];
    office_open(&office, &setups[0]);
    post_ok(&office, failed(1));
    post_ok(&office, failed(2));
    struct sc_store_notify mail = failed(3);
    assert_int_equal(sc_store_notify_post(office.sender, 1, &mail, NULL), SPEC_OK);
    assert_true(sc_io_sim_disk_peek(office.world->disk, MAIL_OF_1, 0, record, RECORD_BYTES));
    assert_true(sc_io_sim_disk_poke(office.world->disk, MAIL_OF_0, 0, record, RECORD_BYTES));
    take(&office);
    assert_int_equal(office.heard_count, 1);
    assert_heard(&office, 0, failed(2));
    office_close(&office);
}

/* Every read and write fails once: nothing is lost that was said to be posted. */
static void faults_cost_time_and_no_record(void **state)
{
    (void)state;
    static const enum sc_fault_kind kinds[] = {SC_FAULT_READ, SC_FAULT_WRITE, SC_FAULT_RESERVE};
    for (uint32_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
        for (uint64_t n = 0;; n++) {
            struct office office;
            office_open(&office, &setups[0]);
            struct sc_fault *fault = &office.world->fault;
            bool posted[200] = {false};
            sc_fault_arm(fault, kinds[k], n);
            for (uint64_t i = 0; i < 200; i++) {
                struct sc_store_notify mail = failed(i);
                posted[i] = post(&office, &mail) == SPEC_OK;
                if (i % 50 == 49)
                    (void)sc_store_notify_take(office.world->store, on_notify, &office, NULL);
            }
            bool fired = atomic_load(&fault->fired[kinds[k]]) > 0;
            take(&office);
            uint64_t at = 0;
            for (uint64_t i = 0; i < 200; i++) {
                struct sc_store_notify mail = failed(i);
                while (posted[i] && at < office.heard_count && !is_equal(&office.heard[at], &mail))
                    at++;
                if (posted[i] && at == office.heard_count)
                    fail_msg("fault %u at %" PRIu64 ": record %" PRIu64 " was lost", k, n, i);
            }
            office_close(&office);
            if (!fired)
                break;
        }
}

#define RACE_SENDERS 2u
#define RACE_RECORDS 1000u

struct sender {
    struct office *office;
    uint64_t first;
    _Atomic bool is_done; /* all of it is posted */
};

static void *send_all(void *user)
{
    struct sender *sender = user;
    for (uint64_t i = 0; i < RACE_RECORDS; i++) {
        struct sc_store_notify mail = failed(sender->first + i);
        uint32_t looks = 0;
        while (sc_store_notify_post(sender->office->sender, 0, &mail, NULL) != SPEC_OK &&
               await_goes_on(&looks))
            continue; /* one that is not posted is missed at the end */
    }
    atomic_store(&sender->is_done, true);
    return NULL;
}

static void two_senders_and_a_writer_that_cuts_lose_nothing(void **state)
{
    (void)state;
    static struct office office;
    office_open(&office, &setups[1]);
    pthread_t threads[RACE_SENDERS];
    struct sender senders[RACE_SENDERS];
    for (uint64_t i = 0; i < RACE_SENDERS; i++) {
        senders[i] = (struct sender){.office = &office, .first = i * RACE_RECORDS};
        assert_int_equal(pthread_create(&threads[i], NULL, send_all, &senders[i]), 0);
    }
    while (!atomic_load(&senders[0].is_done) || !atomic_load(&senders[1].is_done)) {
        take(&office); /* a full mail makes them wait for it, however slow the disk is */
        usleep(100);
    }
    for (uint64_t i = 0; i < RACE_SENDERS; i++)
        (void)pthread_join(threads[i], NULL);
    take(&office);
    assert_int_equal(office.heard_count, RACE_SENDERS * RACE_RECORDS);
    assert_int_equal(corrupt_records(&office), 0);
    uint64_t next[RACE_SENDERS] = {0};
    for (uint64_t i = 0; i < office.heard_count; i++) {
        uint64_t number = office.heard[i].epoch, from = number / RACE_RECORDS;
        assert_true(from < RACE_SENDERS);
        assert_int_equal(number, from * RACE_RECORDS + next[from]); /* in order, once */
        next[from]++;
    }
    office_close(&office);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_posted_is_taken_once_and_in_order),
        cmocka_unit_test(a_rank_that_is_not_there_yet_is_asked_again),
        cmocka_unit_test(a_full_mail_refuses_until_it_was_taken_and_loses_nothing),
        cmocka_unit_test(a_cut_keeps_the_last_epoch_of_each_family),
        cmocka_unit_test(of_too_many_families_the_last_ones_are_kept),
        cmocka_unit_test(a_mail_beyond_its_bound_is_cut),
        cmocka_unit_test(a_torn_record_costs_no_other),
        cmocka_unit_test(a_torn_end_does_not_stop_the_cut),
        cmocka_unit_test(a_record_that_is_not_whole_yet_is_waited_for),
        cmocka_unit_test(every_flipped_byte_makes_a_record_none),
        cmocka_unit_test(a_record_of_another_rank_is_none),
        cmocka_unit_test(faults_cost_time_and_no_record),
        cmocka_unit_test(two_senders_and_a_writer_that_cuts_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_crash: kills and torn files; afterwards a store reopens and keeps its promises.
 *
 *   kills    A child stores prompts and notes its tickets' results in shared memory. It is killed
 *            with SIGKILL at a random moment, 200 times (every fifth after its first store). Then
 *            the parent opens the store: stored prompts are found whole, all hits are compared.
 *   images   copies of such stores, with the log cut inside its last record, or with zeroed
 *            sectors in the rows stored last; only the last prompt may be lost
 *
 * A row's truth is a function of the tokens before it (fixture.h). A failure prints the seed;
 * argv[2] repeats it, except for a kill's moment. The test knows only where the log's records begin
 * (docs/reference/store-format.md). The counts of kills and images are printed.
 *
 * Threads: one, beside the plugin's. Tests: it is one; argv[1] is the connector. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "conformance/fixture.h"
#include "conformance/sample.h"

#define STORES           SAMPLE_OF(8u, 2u)
#define KILLS_PER_STORE  25u
#define IMAGES_PER_STORE 8u
#define PROMPTS_MAX      1024u
#define PROMPTS_A_KILL   24u
#define KILLS_A_STORING  5u /* one of so many children stores a prompt before it may be killed */
#define TRUNKS           4u
#define PROMPT_TOKENS    400u
#define FRAME_BYTES      32u /* magic, payload bytes u32, place u64, chain u64, checksum u64 */

enum note { NOTE_BEGUN = 1, NOTE_STORED, NOTE_NOT_STORED, NOTE_WRONG };

/* Shared with the child. */
struct notes {
    _Atomic uint32_t opened;
    _Atomic uint32_t ended; /* prompts of this child */
    _Atomic uint64_t count;
    _Atomic uint32_t prompts[PROMPTS_MAX]; /* enum note */
    char wrong[200];
};

static struct notes *notes;
static uint64_t seed = 1;
static uint64_t kills, kills_in_open, stored_total, images_cut, images_zeroed;
static uint64_t dice_state;

static uint64_t dice(uint64_t sides)
{
    dice_state = dice_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (dice_state >> 33) % sides;
}

/* Prompt i of a store: a trunk that others share, left at a place of its own. */
static struct prompt prompt_of(uint64_t store, uint64_t i)
{
    uint64_t key = (seed * 1000 + store) * 10000;
    struct prompt trunk = prompt_make(key + i % TRUNKS, PROMPT_TOKENS);
    uint64_t at = (i * 97 + store * 13) % (PROMPT_TOKENS - 20);
    uint64_t count = at + 20 + (i * 31) % (PROMPT_TOKENS - 20 - at + 1);
    struct prompt prompt = prompt_diverge(&trunk, at, count, key + 5000 + i);
    prompt_free(&trunk);
    return prompt;
}

/* ---- The child ---- */

struct child {
    struct fixture *fx;
    uint64_t store;
};

static void child_run(const struct child *child)
{
    struct fixture *fx = child->fx;
    if (fixture_try_open(fx) != SPEC_OK) {
        (void)snprintf(notes->wrong, sizeof(notes->wrong), "open: %.150s", fx->error.text);
        _exit(1);
    }
    atomic_store(&notes->opened, 1);
    for (uint64_t n = 0; n < PROMPTS_A_KILL && atomic_load(&notes->count) < PROMPTS_MAX; n++) {
        uint64_t i = atomic_fetch_add(&notes->count, 1);
        struct prompt prompt = prompt_of(child->store, i);
        bool stored = false;
        atomic_store(&notes->prompts[i], NOTE_BEGUN);
        const char *wrong = request_run(fx->api, fx->conn, &fx->shape, &prompt, &stored);
        if (wrong != NULL) {
            (void)snprintf(notes->wrong, sizeof(notes->wrong), "prompt %" PRIu64 ": %s", i, wrong);
            atomic_store(&notes->prompts[i], NOTE_WRONG);
            _exit(1);
        }
        atomic_store(&notes->prompts[i], stored ? NOTE_STORED : NOTE_NOT_STORED);
        atomic_fetch_add(&notes->ended, 1);
        prompt_free(&prompt);
    }
    for (;;)
        pause(); /* all is stored: the kill is still to come */
}

static void sleep_us(uint64_t us)
{
    struct timespec left = {(time_t)(us / 1000000), (long)(us % 1000000 * 1000)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

static void kill_one(const struct child *child)
{
    atomic_store(&notes->opened, 0);
    atomic_store(&notes->ended, 0);
    bool storing = kills % KILLS_A_STORING == KILLS_A_STORING - 1;
    bool early = dice(8) == 0 && !storing; /* some die while they open */
    pid_t pid = conf_fork();
    assert_true(pid >= 0);
    if (pid == 0)
        child_run(child);
    int status = 0;
    pid_t ended = 0;
    while (!early && ended == 0 && atomic_load(storing ? &notes->ended : &notes->opened) == 0) {
        sleep_us(100);
        ended = waitpid(pid, &status, WNOHANG);
    }
    if (ended == 0) {
        sleep_us(dice(early ? 3000 : 25000));
        kills_in_open += atomic_load(&notes->opened) == 0;
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
    }
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        fail_msg("seed %" PRIu64 ", kill %" PRIu64 ": the child ended by itself: %s", seed, kills,
                 notes->wrong);
    kills++;
}

/* ---- Looking at what is left ---- */

/* Compares all that the store promises of a prompt; returns how many tokens that is. A range may
 * turn out void only where the files were damaged. */
static uint64_t check_prompt(struct fixture *fx, uint64_t store, uint64_t i, bool damaged)
{
    struct prompt prompt = prompt_of(store, i);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, found.matched_tokens);
    uint64_t good = found.matched_tokens;
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
        struct spec_important item = important(found.request, layer, &area.memory);
        area_poison(&area);
        spec_status status = fx->api->get_important(fx->conn, &item, 1, &fx->error);
        if (status == SPEC_OK) {
            if (!area_is_right(&area, &fx->shape, &prompt, 0, found.matched_tokens, layer))
                fail_msg("seed %" PRIu64 ", store %" PRIu64 ", prompt %" PRIu64 ": wrong bytes",
                         seed, store, i);
            continue;
        }
        if (!damaged || (status != SPEC_E_CORRUPT && status != SPEC_E_IO))
            fail_msg("seed %" PRIu64 ", store %" PRIu64 ", prompt %" PRIu64 ": %s", seed, store, i,
                     fx->error.text);
        good = item.failed_position;
    }
    fixture_release(fx, found.request);
    area_free(&area);
    prompt_free(&prompt);
    return good;
}

/* Prompts [first, count) of a store; those that were called stored must be whole, but for `lost`
 * (UINT64_MAX: none). */
static void check_prompts(struct fixture *fx, uint64_t store, uint64_t first, uint64_t lost)
{
    uint64_t count = atomic_load(&notes->count);
    for (uint64_t i = first; i < count; i++) {
        uint32_t note = atomic_load(&notes->prompts[i]);
        uint64_t good = check_prompt(fx, store, i, lost != UINT64_MAX);
        struct prompt prompt = prompt_of(store, i);
        uint64_t whole = prompt.count - 1;
        prompt_free(&prompt);
        if (note == NOTE_STORED && i < lost && good != whole)
            fail_msg("seed %" PRIu64 ", store %" PRIu64 ": prompt %" PRIu64
                     " was stored, and %" PRIu64 " of %" PRIu64 " tokens are found",
                     seed, store, i, good, whole);
    }
}

static uint64_t last_stored(void)
{
    uint64_t i = atomic_load(&notes->count);
    while (i > 0 && atomic_load(&notes->prompts[i - 1]) != NOTE_STORED)
        i--;
    return i == 0 ? UINT64_MAX : i - 1;
}

/* ---- Images ---- */

static const char *copy_from;
static char copy_to[4096], log_path[4200];

static int copy_entry(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    char to[8192];
    (void)walk;
    (void)snprintf(to, sizeof(to), "%s%s", copy_to, path + strlen(copy_from));
    if (type == FTW_D)
        return mkdir(to, 0700);
    int in = open(path, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_EXCL, 0600);
    uint8_t *bytes = malloc((size_t)info->st_size + 1);
    bool good = in >= 0 && out >= 0 && bytes != NULL &&
                read(in, bytes, (size_t)info->st_size) == info->st_size &&
                write(out, bytes, (size_t)info->st_size) == info->st_size;
    free(bytes);
    (void)close(in), (void)close(out);
    const char *name = strrchr(path, '/');
    if (name != NULL && strcmp(name, "/log") == 0)
        (void)snprintf(log_path, sizeof(log_path), "%.4100s", to);
    return good ? 0 : -1;
}

/* Where the last record begins, and where it ends. */
static void find_last_record(const char *path, uint64_t *ret_first, uint64_t *ret_end)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    uint8_t head[FRAME_BYTES];
    uint64_t at = 0, first = UINT64_MAX;
    while (fseek(file, (long)at, SEEK_SET) == 0 &&
           fread(head, 1, sizeof(head), file) == sizeof(head) && memcmp(head, "SCL2", 4) == 0) {
        uint32_t payload_bytes;
        memcpy(&payload_bytes, head + 4, sizeof(payload_bytes));
        struct stat info;
        assert_int_equal(fstat(fileno(file), &info), 0);
        if (at + FRAME_BYTES + payload_bytes > (uint64_t)info.st_size)
            break; /* torn by the kill already */
        first = at;
        at += FRAME_BYTES + payload_bytes;
    }
    fclose(file);
    assert_true(first != UINT64_MAX); /* docs/reference/store-format.md and this test part ways */
    *ret_first = first;
    *ret_end = at;
}

static void cut_log(void)
{
    uint64_t first, end;
    find_last_record(log_path, &first, &end);
    uint64_t cut = first + 1 + dice(end - first - 1);
    assert_int_equal(truncate(log_path, (off_t)cut), 0);
    images_cut++;
}

static uint8_t needle[64];
static uint64_t zeroed;

/* Zeroes 1 .. 8 sectors around each place where the needle lies. */
static int zero_entry(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)walk;
    if (type != FTW_F || info->st_size < 4096)
        return 0;
    uint8_t *bytes = malloc((size_t)info->st_size);
    int file = open(path, O_RDWR);
    assert_true(file >= 0 && bytes != NULL);
    assert_int_equal(read(file, bytes, (size_t)info->st_size), info->st_size);
    static const uint8_t ZEROS[8 * 512];
    for (uint8_t *at = bytes;
         (at = memmem(at, (size_t)(bytes + info->st_size - at), needle, sizeof(needle))) != NULL;
         at += sizeof(needle)) {
        uint64_t sector = (uint64_t)(at - bytes) / 512 * 512;
        uint64_t zero_bytes = 512 * (1 + dice(8));
        if (sector + zero_bytes > (uint64_t)info->st_size)
            zero_bytes = (uint64_t)info->st_size - sector;
        assert_int_equal(pwrite(file, ZEROS, zero_bytes, (off_t)sector), zero_bytes);
        zeroed++;
    }
    free(bytes);
    (void)close(file);
    return 0;
}

/* Zeroes sectors where rows of the last stored prompt lie that no other prompt has. */
static void zero_last_extent(struct fixture *fx, uint64_t store, uint64_t last)
{
    struct prompt prompt = prompt_of(store, last);
    uint8_t row[4096];
    assert_int_equal(row_bytes(&fx->shape), sizeof(needle));
    truth_row(&fx->shape, &prompt, prompt.count - 1 - dice(19), (uint32_t)dice(fx->shape.layers),
              (int)dice(2), row);
    memcpy(needle, row, sizeof(needle));
    prompt_free(&prompt);
    zeroed = 0;
    assert_int_equal(nftw(copy_to, zero_entry, 16, FTW_PHYS), 0);
    assert_true(zeroed > 0);
    images_zeroed++;
}

static void check_images(struct fixture *fx, uint64_t store)
{
    char source[3200];
    uint64_t last = last_stored();
    if (last == UINT64_MAX)
        return;
    (void)snprintf(source, sizeof(source), "%s", fx->store);
    for (uint64_t i = 0; i < IMAGES_PER_STORE; i++) {
        (void)snprintf(copy_to, sizeof(copy_to), "%s/image-%" PRIu64 "-%" PRIu64, fx->dir, store,
                       i);
        copy_from = source;
        assert_int_equal(nftw(source, copy_entry, 16, FTW_PHYS), 0);
        if (i % 2 == 0)
            cut_log();
        else
            zero_last_extent(fx, store, last);
        (void)snprintf(fx->store, sizeof(fx->store), "%.3000s", copy_to);
        fixture_open(fx);
        check_prompts(fx, store, 0, last);
        struct prompt anew = prompt_make(store + 77, 100); /* and it can be stored to */
        assert_true(fixture_store(fx, &anew));
        fixture_check(fx, &anew, 99);
        prompt_free(&anew);
        fixture_close(fx);
        conf_remove_tree(copy_to);
    }
    (void)snprintf(fx->store, sizeof(fx->store), "%s", source);
}

/* ---- All of it ---- */

static void run_store(struct fixture *fx, uint64_t store)
{
    struct child child = {fx, store};
    memset(notes, 0, sizeof(*notes));
    (void)snprintf(fx->store, sizeof(fx->store), "%s/store-%" PRIu64, fx->dir, store);
    for (uint64_t i = 0; i < KILLS_PER_STORE; i++) {
        uint64_t before = atomic_load(&notes->count);
        kill_one(&child);
        if (i + 1 == KILLS_PER_STORE)
            check_images(fx, store); /* of what the last kill left, before anyone repairs it */
        fixture_open(fx);
        check_prompts(fx, store, i + 1 == KILLS_PER_STORE ? 0 : before, UINT64_MAX);
        fixture_close(fx);
    }
    for (uint64_t i = 0; i < atomic_load(&notes->count); i++)
        stored_total += atomic_load(&notes->prompts[i]) == NOTE_STORED;
    conf_remove_tree(fx->store);
}

static void killed_at_random_a_store_keeps_its_promises(void **state)
{
    struct fixture *fx = *state;
    fixture_shape(fx, (struct shape){4, 2, 16, SPEC_DTYPE_F16});
    for (uint64_t store = 0; store < STORES; store++)
        run_store(fx, store);
    printf("kills: %" PRIu64 " (%" PRIu64
           " while opening), prompts stored and found again: %" PRIu64 "\nimages: %" PRIu64
           " cut inside the last record, %" PRIu64 " with zeroed sectors; seed %" PRIu64 "\n",
           kills, kills_in_open, stored_total, images_cut, images_zeroed, seed);
    assert_true(kills >= STORES * KILLS_PER_STORE);
    assert_true(images_cut + images_zeroed >= STORES * 50 / 8);
    assert_true(stored_total > 0);
}

int main(int argc, char **argv)
{
    static char dir[] = "crash-XXXXXX";
    static char full[2048];
    static struct conf_shared shared;
    if (argc < 2 || mkdtemp(dir) == NULL || realpath(dir, full) == NULL) {
        fprintf(stderr, "usage: test_crash SO [SEED]   (in a directory that can be written)\n");
        return 2;
    }
    if (argc > 2)
        seed = strtoull(argv[2], NULL, 10);
    dice_state = seed;
    notes = mmap(NULL, sizeof(*notes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(notes != MAP_FAILED);
    conf_options = (struct conf_options){.so = argv[1],
                                         .extra = "\"disk_bytes\": \"128MiB\", "
                                                  "\"segment_bytes\": \"1MiB\", "
                                                  "\"staging_bytes\": \"16MiB\", "
                                                  "\"max_requests\": 4, "
                                                  "\"max_request_tokens\": 1024",
                                         .dir = full,
                                         .require_hits = true,
                                         .shared = &shared};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(killed_at_random_a_store_keeps_its_promises,
                                        fixture_setup_bare, fixture_teardown),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    conf_remove_tree(full);
    return failed == 0 ? 0 : 1;
}

/* Back ends under test; see io_fixture.h. */
#include "tests/unit/store/io_fixture.h"

static void test_log_line(int32_t level, const char *line, void *user)
{
    (void)level;
    (void)line;
    (void)user;
}

void fixture_io_open(struct fixture *fx, struct sc_io **ret_io)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    const struct sc_io_params params = {.alloc = &fx->alloc,
                                        .exec = fx->exec,
                                        .log = &fx->log,
                                        .fault = &fx->fault,
                                        .backend = fx->setup->backend,
                                        .ring_count = fx->setup->ring_count,
                                        .in_flight_bytes = fx->setup->in_flight_bytes,
                                        .custom = sc_io_sim_custom(fx->disk),
                                        .files_reserved = 4};
    const spec_status status = sc_io_open(&params, ret_io, &error);
    if (status != SPEC_OK)
        fail_msg("sc_io_open: %s", error.text);
}

void fixture_init(struct fixture *fx, const struct setup *setup, uint64_t seed, uint32_t journal,
                  uint64_t capacity_bytes)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    memset(fx, 0, sizeof(*fx));
    fx->setup = setup;
    sc_alloc_init(&fx->alloc);
    sc_log_init(&fx->log, test_log_line, NULL, 3);
    sc_fault_init(&fx->fault);
    const struct sc_exec_params exec = {
        .alloc = &fx->alloc, .thread_count = setup->thread_count, .seed = seed, .name = "test"};
    assert_int_equal(sc_exec_open(&exec, &fx->exec, &error), SPEC_OK);
    const char *root = "/sim";
    char made[] = "/var/tmp/sc-io-XXXXXX";
    if (setup->backend == SC_BACKEND_SIM) {
        const struct sc_io_sim_disk_params disk = {.alloc = &fx->alloc,
                                                   .seed = seed,
                                                   .capacity_bytes = capacity_bytes,
                                                   .journal = journal};
        const struct sc_io_sim_device device = {
            .bytes_per_s = 1000000000u, .op_ns = 10000, .ops_per_s = setup->ops_per_s};
        assert_int_equal(sc_io_sim_disk_open(&disk, &fx->disk, &error), SPEC_OK);
        sc_io_sim_disk_device(fx->disk, &device);
    } else {
        root = mkdtemp(made);
        assert_non_null(root);
    }
    (void)snprintf(fx->dir, sizeof(fx->dir), "%s/d", root);
    fixture_io_open(fx, &fx->io);
    if (sc_io_mkdir(fx->io, fx->dir, &error) != SPEC_OK)
        fail_msg("mkdir: %s", error.text);
}

void remove_tree(const char *path)
{
    DIR *dir = opendir(path);
    if (dir != NULL) {
        for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
            char child[4096 + 300];
            if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
                continue;
            (void)snprintf(child, sizeof(child), "%.4096s/%s", path, entry->d_name);
            remove_tree(child);
        }
        (void)closedir(dir);
    }
    (void)remove(path);
}

void fixture_done(struct fixture *fx)
{
    sc_io_close(fx->io);
    sc_io_sim_disk_close(fx->disk);
    sc_exec_close(fx->exec);
    sc_log_done(&fx->log);
    assert_int_equal(atomic_load(&fx->alloc.live_blocks), 0);
    assert_int_equal(atomic_load(&fx->alloc.sealed_refusals), 0);
    if (fx->setup->backend != SC_BACKEND_SIM) {
        char *slash = strrchr(fx->dir, '/');
        *slash = '\0'; /* the directory that mkdtemp made */
        remove_tree(fx->dir);
    }
}

const char *path_of(const struct fixture *fx, const char *name)
{
    static char paths[4][4096];
    static uint32_t turn;
    char *path = paths[turn++ % 4];
    (void)snprintf(path, sizeof(paths[0]), "%s/%s", fx->dir, name);
    return path;
}

struct sc_io_file *open_file(struct fixture *fx, const char *name, uint32_t flags)
{
    struct sc_io_file *file = NULL;
    struct spec_error error = {.struct_size = sizeof(error)};
    if (sc_io_file_open(fx->io, path_of(fx, name), flags, &file, &error) != SPEC_OK)
        fail_msg("open %s: %s", name, error.text);
    return file;
}

void test_op_done(struct sc_io_op *op)
{
    struct test_op *test = op->user;
    struct sc_exec *exec = test->fx->exec;
    (void)atomic_fetch_add(&test->done_count, 1);
    test->done_ns = sc_exec_now_ns(exec);
    test->order = atomic_fetch_add(&test->fx->order_next, 1);
    /* The last touch of test: it may be on the stack of who waits. */
    _Atomic uint32_t *word = &test->fx->done_count;
    (void)atomic_fetch_add_explicit(word, 1, memory_order_acq_rel);
    sc_exec_wake(exec, word);
}

void op_set(struct fixture *fx, struct test_op *test, struct sc_io_file *file, uint32_t kind,
            void *buffer, uint64_t bytes, uint64_t offset)
{
    *test = (struct test_op){.fx = fx,
                             .op = {.file = file,
                                    .kind = kind,
                                    .buffer = buffer,
                                    .bytes = bytes,
                                    .offset = offset,
                                    .io_class = SC_IO_CLASS_DEMAND,
                                    .done = test_op_done,
                                    .user = test,
                                    .status = SPEC_E_STALE}};
}

void wait_done(struct fixture *fx, uint32_t count)
{
    for (;;) {
        const uint32_t now = atomic_load_explicit(&fx->done_count, memory_order_acquire);
        if (now >= count)
            return;
        assert_true(sc_exec_wait(fx->exec, &fx->done_count, now, SC_EXEC_FOREVER));
    }
}

void submit(struct fixture *fx, struct test_op *tests, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct sc_io_op *op = &tests[i].op;
        sc_io_submit(fx->io, &op, 1);
    }
}

void submit_at_once(struct fixture *fx, struct test_op *tests, uint32_t count)
{
    struct sc_io_op *batch[64];
    assert_true(count <= 64);
    for (uint32_t i = 0; i < count; i++)
        batch[i] = &tests[i].op;
    sc_io_submit(fx->io, batch, count);
}

const char *uring_refusal(void)
{
    static struct spec_error why;
    static bool is_asked, works;
    if (!is_asked) {
        struct sc_alloc alloc;
        struct sc_log log;
        struct sc_exec *exec = NULL;
        struct sc_io *io = NULL;
        sc_alloc_init(&alloc);
        sc_log_init(&log, NULL, NULL, 0);
        why.struct_size = sizeof(why);
        const struct sc_exec_params one = {.alloc = &alloc, .thread_count = 1, .name = "ask"};
        assert_int_equal(sc_exec_open(&one, &exec, NULL), SPEC_OK);
        const struct sc_io_params params = {
            .alloc = &alloc, .exec = exec, .log = &log, .backend = SC_BACKEND_URING};
        works = sc_io_open(&params, &io, &why) == SPEC_OK;
        sc_io_close(io);
        sc_exec_close(exec);
        sc_log_done(&log);
        is_asked = true;
    }
    return works ? NULL : why.text;
}

spec_status transfer(struct fixture *fx, struct sc_io_file *file, uint32_t kind, void *buffer,
                     uint64_t bytes, uint64_t offset)
{
    struct test_op test;
    op_set(fx, &test, file, kind, buffer, bytes, offset);
    const uint32_t before = atomic_load(&fx->done_count);
    submit(fx, &test, 1);
    wait_done(fx, before + 1);
    assert_int_equal(atomic_load(&test.done_count), 1);
    return test.op.status;
}

uint8_t *page_memory(uint64_t bytes)
{
    uint8_t *memory = aligned_alloc(PAGE, (size_t)bytes);
    assert_non_null(memory);
    return memory;
}

void fill(uint8_t *buffer, uint64_t bytes, uint64_t seed)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;
    for (uint64_t i = 0; i < bytes; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        buffer[i] = (uint8_t)(x >> 56);
    }
}

uint64_t random_next(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

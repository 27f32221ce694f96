/* How rows are coded: tables of widths, each once, also by threads beside each other; turns of
 * positions against the kernel's and against a model's formula; what is learned of ranges and of
 * queries, and what is not.
 *
 * Threads: some tests start their own. */
#include "plugin/quant/quant.h"
#include "tests/unit/plugin/plugin_fixture.h"
#include "tests/unit/threads.h"

#include <math.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define HEADS    2u
#define SIZE     64u
#define CHANNELS (HEADS * SIZE)
#define THREADS  4u

static struct sc_alloc g_alloc;

static int setup(void **state)
{
    (void)state;
    sc_alloc_init(&g_alloc);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sc_alloc_done(&g_alloc);
    return 0;
}

/* ---- Tables --------------------------------------------------------------------------------- */

#define TABLES 48u

static struct sc_plugin_tables tables_open(uint64_t capacity)
{
    struct sc_plugin_tables tables;
    assert_int_equal(sc_plugin_tables_open(&tables, &g_alloc, HEADS, SIZE, capacity, NULL),
                     SPEC_OK);
    return tables;
}

/* The number-th table, of rows of CHANNELS / 2 bytes: 4 bits a channel, but for two units of 8. */
static void table_number(uint64_t number, uint8_t ret_packed[CHANNELS / 2])
{
    uint8_t to[CHANNELS];
    uint64_t few = number % 8, many = (few + 1 + number / 8) % 8; /* of the first head */
    memset(to, 4, sizeof(to));
    memset(to + few * 8, 2, 8);
    memset(to + many * 8, 6, 8);
    sc_plugin_table_pack(to, CHANNELS, ret_packed);
}

static void a_table_is_found_by_what_it_says(void **state)
{
    (void)state;
    struct sc_plugin_tables tables = tables_open(TABLES);
    const struct sc_plugin_table *added[TABLES];
    uint8_t packed[CHANNELS / 2];
    for (uint64_t i = 0; i < TABLES; i++) {
        table_number(i, packed);
        assert_null(sc_plugin_tables_find(&tables, packed));
        added[i] = sc_plugin_tables_add(&tables, packed, CHANNELS / 2);
        assert_non_null(added[i]);
        assert_int_equal(added[i]->planes.row_bytes, CHANNELS / 2);
    }
    for (uint64_t i = 0; i < TABLES; i++) {
        table_number(i, packed);
        assert_ptr_equal(sc_plugin_tables_find(&tables, packed), added[i]);
        assert_ptr_equal(sc_plugin_tables_add(&tables, packed, CHANNELS / 2), added[i]);
        assert_memory_equal(added[i]->packed, packed, sizeof(packed));
        for (uint64_t c = 0; c < CHANNELS; c++)
            assert_int_equal(added[i]->planes.to[c], packed[c / 2] >> (c % 2 * 4) & 15);
        assert_null(sc_plugin_tables_add(&tables, packed, CHANNELS / 2 + 1)); /* of other rows */
    }
    sc_plugin_tables_close(&tables, &g_alloc);
}

static void what_does_not_fit_is_not_had(void **state)
{
    (void)state;
    struct sc_plugin_tables tables = tables_open(3);
    uint8_t packed[CHANNELS / 2];
    for (uint64_t i = 0; i < 6; i++) {
        table_number(i, packed);
        assert_int_equal(sc_plugin_tables_add(&tables, packed, CHANNELS / 2) != NULL, i < 3);
    }
    for (uint64_t i = 0; i < 6; i++) {
        table_number(i, packed);
        assert_int_equal(sc_plugin_tables_find(&tables, packed) != NULL, i < 3);
    }
    sc_plugin_tables_close(&tables, &g_alloc);
    tables = tables_open(0);
    assert_null(sc_plugin_tables_find(&tables, packed));
    assert_null(sc_plugin_tables_add(&tables, packed, CHANNELS / 2));
    sc_plugin_tables_close(&tables, &g_alloc);
}

/* Bytes of a block that are no table take no room, any number of them. */
static void what_is_no_table_is_not_one(void **state)
{
    (void)state;
    struct sc_plugin_tables tables = tables_open(1);
    uint8_t packed[CHANNELS / 2];
    for (uint32_t bits = 9; bits < 16; bits++) { /* more bits than a code has */
        memset(packed, (int)(bits | bits << 4), sizeof(packed));
        assert_null(sc_plugin_tables_add(&tables, packed, (uint64_t)CHANNELS * bits / 8));
    }
    for (uint64_t b = 0; b < sizeof(packed); b++) { /* no whole bytes */
        memset(packed, 0x44, sizeof(packed));
        packed[b] = 0x45;
        assert_null(sc_plugin_tables_add(&tables, packed, CHANNELS / 2));
        packed[b] = 0x53; /* the same bits in all, two channels of other planes */
        assert_null(sc_plugin_tables_add(&tables, packed, CHANNELS / 2));
    }
    table_number(5, packed);
    assert_null(sc_plugin_tables_add(&tables, packed, CHANNELS / 2 - 1));
    assert_null(sc_plugin_tables_add(&tables, packed, 0));
    assert_null(sc_plugin_tables_find(&tables, packed));
    assert_non_null(sc_plugin_tables_add(&tables, packed, CHANNELS / 2));
    sc_plugin_tables_close(&tables, &g_alloc);
}

static void the_table_of_no_bits_is_there(void **state)
{
    (void)state;
    struct sc_plugin_tables tables = tables_open(1);
    const uint8_t zeros[CHANNELS / 2] = {0};
    assert_non_null(tables.none);
    assert_int_equal(tables.none->planes.row_bytes, 0);
    assert_ptr_equal(sc_plugin_tables_find(&tables, zeros), tables.none);
    assert_ptr_equal(sc_plugin_tables_add(&tables, zeros, 0), tables.none);
    assert_null(sc_plugin_tables_add(&tables, zeros, 1));
    sc_plugin_tables_close(&tables, &g_alloc);
}

struct adder {
    struct sc_plugin_tables *tables;
    uint64_t number;
    const struct sc_plugin_table *added[TABLES];
    pthread_t thread;
};

static void *tables_add(void *argument)
{
    static const uint64_t STEPS[THREADS] = {1, 5, 7, 11}; /* each goes to all tables */
    struct adder *adder = argument;
    uint8_t packed[CHANNELS / 2];
    for (uint64_t round = 0; round < 20; round++)
        for (uint64_t i = 0; i < TABLES; i++) {
            uint64_t at = (i * STEPS[adder->number] + adder->number) % TABLES;
            table_number(at, packed);
            const struct sc_plugin_table *found = sc_plugin_tables_find(adder->tables, packed);
            const struct sc_plugin_table *added =
                sc_plugin_tables_add(adder->tables, packed, CHANNELS / 2);
            if (added == NULL || (found != NULL && found != added) ||
                memcmp(added->packed, packed, sizeof(packed)) != 0 ||
                added->planes.groups[0].offset != 0 || added->planes.row_bytes != CHANNELS / 2)
                return NULL;
            adder->added[at] = added;
        }
    return adder;
}

static void threads_that_add_the_same_get_the_same(void **state)
{
    (void)state;
    struct sc_plugin_tables tables = tables_open(TABLES);
    static struct adder adders[THREADS];
    for (uint64_t i = 0; i < THREADS; i++) {
        adders[i] = (struct adder){.tables = &tables, .number = i};
        assert_int_equal(pthread_create(&adders[i].thread, NULL, tables_add, &adders[i]), 0);
    }
    for (uint64_t i = 0; i < THREADS; i++) {
        void *ended;
        assert_int_equal(pthread_join(adders[i].thread, &ended), 0);
        assert_ptr_equal(ended, &adders[i]);
    }
    for (uint64_t i = 1; i < THREADS; i++)
        assert_memory_equal(adders[i].added, adders[0].added, sizeof(adders[0].added));
    assert_int_equal(tables.count, TABLES + 1);
    sc_plugin_tables_close(&tables, &g_alloc);
}

/* ---- Turns ---------------------------------------------------------------------------------- */

static struct spec_model model_of(uint32_t kind, double theta)
{
    return (struct spec_model){
        .struct_size = sizeof(struct spec_model),
        .head_size = SIZE,
        .rope_kind = kind,
        .rope_theta = theta,
    };
}

static struct spec_model model_llama3(void)
{
    struct spec_model model = model_of(SPEC_ROPE_HALF, 500000);
    model.rope_scaling_kind = "llama3";
    model.rope_scaling[0] = 8;
    model.rope_scaling[1] = 1;
    model.rope_scaling[2] = 4;
    model.rope_scaling[3] = 8192;
    return model;
}

/* As transformers has it, by wavelengths. */
static double frequency_of(const struct spec_model *model, uint64_t pair)
{
    double frequency = pow(model->rope_theta, -(double)(2 * pair) / (double)model->head_size);
    if (model->rope_scaling_kind == NULL)
        return frequency;
    const double *scaling = model->rope_scaling;
    double wavelength = 2 * M_PI / frequency;
    if (wavelength < scaling[3] / scaling[2])
        return frequency;
    if (wavelength > scaling[3] / scaling[1])
        return frequency / scaling[0];
    double smooth = (scaling[3] / wavelength - scaling[1]) / (scaling[2] - scaling[1]);
    return (1 - smooth) * frequency / scaling[0] + smooth * frequency;
}

static struct sc_plugin_rope turns_open(const struct spec_model *model, uint64_t count,
                                        bool is_known)
{
    struct sc_plugin_rope turns;
    bool known = !is_known;
    assert_int_equal(sc_plugin_rope_open(&turns, &g_alloc, model, count, &known, NULL), SPEC_OK);
    assert_int_equal(known, is_known);
    return turns;
}

static void turns_are_the_kernels_of_the_models_frequencies(void **state)
{
    (void)state;
    static const uint64_t FIRST[] = {0, 1, 63, 64, 100, 990, 4000, 4095};
    static const uint64_t COUNTS[] = {1, 64, 3, 65, 96, 0, 96, 1};
    const struct spec_model models[3] = {model_of(SPEC_ROPE_HALF, 10000),
                                         model_of(SPEC_ROPE_INTERLEAVED, 1000000), model_llama3()};
    for (uint32_t m = 0; m < 3; m++) {
        struct sc_plugin_rope turns = turns_open(&models[m], 4096, true);
        double frequencies[SIZE / 2];
        float wanted[SIZE];
        bool is_interleaved = models[m].rope_kind == SPEC_ROPE_INTERLEAVED;
        assert_int_equal(turns.rotary.turned, SIZE);
        assert_int_equal(turns.rotary.pairs,
                         is_interleaved ? SC_KERNELS_ROTARY_INTERLEAVED : SC_KERNELS_ROTARY_HALF);
        for (uint64_t i = 0; i < SIZE / 2; i++) {
            frequencies[i] = frequency_of(&models[m], i);
            assert_true(fabs(turns.frequencies[i] - frequencies[i]) <= 1e-15 * frequencies[i]);
        }
        for (uint32_t i = 0; i < sizeof(FIRST) / sizeof(FIRST[0]); i++) {
            const float *got = sc_plugin_rope_get(&turns, FIRST[i], COUNTS[i]);
            assert_non_null(got);
            for (uint64_t row = 0; row < COUNTS[i]; row++) {
                sc_kernels_rope_row(FIRST[i] + row, turns.frequencies, SIZE, wanted);
                assert_memory_equal(got + row * SIZE, wanted, sizeof(wanted));
                for (uint64_t p = 0; p < SIZE / 2; p++) {
                    double angle = (double)(FIRST[i] + row) * frequencies[p];
                    assert_true(fabs((double)got[row * SIZE + p] - cos(angle)) < 1e-6);
                    assert_true(fabs((double)got[row * SIZE + SIZE / 2 + p] - sin(angle)) < 1e-6);
                }
            }
            assert_ptr_equal(sc_plugin_rope_get(&turns, FIRST[i], COUNTS[i]), got);
        }
        sc_plugin_rope_close(&turns, &g_alloc);
    }
}

/* Llama 3.1's: the fastest pairs as they were, the slowest 8 times slower, some in between. */
static void llama3_stretches_slow_pairs_alone(void **state)
{
    (void)state;
    const struct spec_model scaled = model_llama3(), plain = model_of(SPEC_ROPE_HALF, 500000);
    struct sc_plugin_rope turns = turns_open(&scaled, 64, true), as = turns_open(&plain, 64, true);
    uint32_t between = 0;
    assert_true(turns.frequencies[0] == as.frequencies[0]);
    assert_true(turns.frequencies[SIZE / 2 - 1] == as.frequencies[SIZE / 2 - 1] / 8);
    for (uint64_t i = 0; i < SIZE / 2; i++)
        between += turns.frequencies[i] != as.frequencies[i] &&
                   turns.frequencies[i] != as.frequencies[i] / 8;
    assert_in_range(between, 1, 8);
    sc_plugin_rope_close(&turns, &g_alloc);
    sc_plugin_rope_close(&as, &g_alloc);
}

static void positions_beyond_the_capacity_have_none(void **state)
{
    (void)state;
    const struct spec_model model = model_of(SPEC_ROPE_HALF, 10000);
    struct sc_plugin_rope turns = turns_open(&model, 100, true);
    uint64_t end = turns.capacity;
    assert_in_range(end, 100 + 256, 128 + 256); /* with the rows of a chunk behind */
    assert_non_null(sc_plugin_rope_get(&turns, 0, end));
    assert_non_null(sc_plugin_rope_get(&turns, end - 1, 1));
    assert_null(sc_plugin_rope_get(&turns, end - 1, 2));
    assert_null(sc_plugin_rope_get(&turns, end, 1));
    assert_null(sc_plugin_rope_get(&turns, 0, end + 1));
    assert_null(sc_plugin_rope_get(&turns, 1, UINT64_MAX));
    assert_null(sc_plugin_rope_get(&turns, UINT64_MAX, 1));
    sc_plugin_rope_close(&turns, &g_alloc);
    turns = turns_open(&model, UINT64_MAX, true); /* address space alone, and not all of it */
    assert_int_equal(turns.capacity, 1u << 20);
    assert_non_null(sc_plugin_rope_get(&turns, (1u << 20) - 3, 3));
    assert_null(sc_plugin_rope_get(&turns, (1u << 20) - 3, 4));
    sc_plugin_rope_close(&turns, &g_alloc);
}

/* In a child, since what it may map is limited: as many positions as a quarter of that holds. */
static uint32_t opened_within(uint64_t bytes)
{
    struct spec_model model = model_of(SPEC_ROPE_HALF, 10000);
    struct sc_plugin_rope turns;
    bool is_known;
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long long pages = 0;
    if (file == NULL || fscanf(file, "%llu", &pages) != 1)
        return 1;
    fclose(file);
    uint64_t used = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    struct rlimit limit = {used + bytes, used + bytes};
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        return 2;
    if (sc_plugin_rope_open(&turns, &g_alloc, &model, UINT64_MAX, &is_known, NULL) != SPEC_OK)
        return 3;
    uint64_t has = 2 * turns.capacity * SIZE * sizeof(float);
    if (has > bytes / 4 || has < bytes / 12 || turns.rotary.turned != SIZE)
        return 4;
    if (sc_plugin_rope_get(&turns, turns.capacity - 1, 1) == NULL ||
        sc_plugin_rope_get(&turns, turns.capacity, 1) != NULL)
        return 5;
    sc_plugin_rope_close(&turns, &g_alloc);
    return 0;
}

static void under_a_limit_of_address_space_fewer_positions_have_turns(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* they map as they like */
#endif
    static const uint64_t BYTES[] = {UINT64_C(1) << 20, UINT64_C(100) << 20, UINT64_C(1) << 30};
    for (uint32_t i = 0; i < 3; i++) {
        int status;
        pid_t child = fork();
        if (child == 0)
            _exit((int)opened_within(BYTES[i]));
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

static void nothing_is_turned(const struct spec_model *model, bool is_known)
{
    struct sc_plugin_rope turns = turns_open(model, 1000, is_known);
    assert_int_equal(turns.rotary.turned, 0);
    assert_null(sc_plugin_rope_get(&turns, 0, 1));
    sc_plugin_rope_close(&turns, &g_alloc);
}

static void what_is_not_known_is_not_turned(void **state)
{
    (void)state;
    struct spec_model model = model_of(SPEC_ROPE_NONE, 0);
    nothing_is_turned(&model, true);
    model = model_of(SPEC_ROPE_HALF, 10000);
    model.head_size = 63;
    nothing_is_turned(&model, true);
    static const double THETAS[] = {0, .5, -1, INFINITY, NAN};
    for (uint32_t i = 0; i < 5; i++) {
        model = model_of(SPEC_ROPE_HALF, THETAS[i]);
        nothing_is_turned(&model, false);
    }
    static const char *const KINDS[] = {"yarn", "linear", "Llama3", "llama3 "};
    for (uint32_t i = 0; i < 4; i++) {
        model = model_llama3();
        model.rope_scaling_kind = KINDS[i];
        nothing_is_turned(&model, false);
    }
    static const double BAD[] = {0, -1, NAN}; /* of any of its parameters */
    for (uint32_t p = 0; p < 4; p++)
        for (uint32_t i = 0; i < 3; i++) {
            model = model_llama3();
            model.rope_scaling[p] = BAD[i];
            nothing_is_turned(&model, false);
        }
    model = model_llama3();
    model.rope_scaling[1] = model.rope_scaling[2];
    nothing_is_turned(&model, false);
    model = model_of(SPEC_ROPE_INTERLEAVED, 10000);
    model.rope_scaling_kind = "";
    struct sc_plugin_rope turns = turns_open(&model, 1000, true);
    assert_int_equal(turns.rotary.turned, SIZE);
    sc_plugin_rope_close(&turns, &g_alloc);
}

static void lines_count(int32_t level, const char *line, void *user)
{
    (void)level;
    *(uint32_t *)user += strstr(line, "rope_scaling_kind") != NULL;
}

/* Who codes by free widths is told at open that nothing is turned back, once; others are not. */
static void what_is_not_known_is_said_once(void **state)
{
    (void)state;
    static const struct {
        const char *scaling, *bit_counts;
        uint32_t lines;
    } CASES[] = {{"yarn", "per_channel", 1}, {"yarn", "uniform", 0}, {NULL, "per_channel", 0}};
    for (uint32_t i = 0; i < 3; i++) {
        struct rig rig;
        char config[256];
        uint32_t lines = 0;
        rig_init(&rig, true, "");
        rig.rope = (struct rig_rope){
            .kind = SPEC_ROPE_HALF, .theta = 10000, .scaling_kind = CASES[i].scaling};
        struct spec_model model = rig_model(&rig);
        (void)snprintf(
            config, sizeof(config),
            "{\"path\": \"%s\", \"preset\": \"layered-uniform\", \"staging_bytes\": \"16MiB\", "
            "\"host_bytes\": 0, \"layered\": {\"bit_allocation\": \"%s\"}}",
            rig.path, CASES[i].bit_counts);
        const struct spec_open_params params = {.struct_size = sizeof(params),
                                                .config = config,
                                                .model = &model,
                                                .log = lines_count,
                                                .log_user = &lines,
                                                .log_level_max = SPEC_LOG_DEBUG};
        struct spec_error error = {.struct_size = sizeof(error)};
        if (sc_sim_connector_open(&params, rig.disk, &rig.conn, &error) != SPEC_OK)
            fail_msg("%s", error.text);
        struct prompt prompt = rig_prompt(1, 0, 0, 100);
        assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
        assert_int_equal(lines, CASES[i].lines);
        rig_end(&rig, &prompt);
    }
}

struct turner {
    struct sc_plugin_rope *turns;
    uint64_t number;
    double sum;
    pthread_t thread;
};

static void *turns_sum(void *argument)
{
    struct turner *turner = argument;
    for (uint64_t i = 0; i < 16; i++) {
        uint64_t first = (i + 4 * turner->number) % 16 * 64;
        const float *rows = sc_plugin_rope_get(turner->turns, first, 64);
        for (uint64_t j = 0; rows != NULL && j < 64 * (uint64_t)SIZE; j++)
            turner->sum += rint((double)rows[j] * 1024); /* in any order the same */
    }
    return NULL;
}

static void threads_that_want_the_same_turns_get_the_same(void **state)
{
    (void)state;
    const struct spec_model model = model_of(SPEC_ROPE_HALF, 10000);
    struct sc_plugin_rope turns = turns_open(&model, 1024, true);
    struct turner turners[THREADS];
    for (uint64_t i = 0; i < THREADS; i++)
        turners[i] = (struct turner){.turns = &turns, .number = i % 2};
    threads_run(turns_sum, turners, sizeof(turners[0]), THREADS);
    for (uint64_t i = 0; i < THREADS; i++)
        assert_true(turners[i].sum != 0 && turners[i].sum == turners[0].sum);
    sc_plugin_rope_close(&turns, &g_alloc);
}

/* ---- Learning ------------------------------------------------------------------------------- */

#define GROUP 2u /* query heads of a KV head */

struct school {
    struct sc_plugin_tables tables;
    struct sc_plugin_learning learning;
    float queries[40][HEADS * GROUP][SIZE];
    struct sc_kernels_queries view;
    uint8_t spans[CHANNELS * 2];
};

/* capacity: of tables; bits: of K and of V, 0: it has no table */
static struct school *school_open(uint64_t capacity, uint64_t bits_k, uint64_t bits_v)
{
    struct school *school = calloc(1, sizeof(*school));
    assert_non_null(school);
    school->tables = tables_open(capacity);
    school->learning =
        (struct sc_plugin_learning){.kernels = sc_kernels_get(sc_kernels_level_best()),
                                    .tables = &school->tables,
                                    .head_count = HEADS,
                                    .head_size = SIZE,
                                    .layer_count = 2,
                                    .query_group = GROUP,
                                    .rotary = {SC_KERNELS_ROTARY_HALF, SIZE},
                                    .row_bytes = {CHANNELS * bits_k / 8, CHANNELS * bits_v / 8}};
    school->view =
        (struct sc_kernels_queries){(const uint8_t *)school->queries, sizeof(school->queries[0]),
                                    sizeof(school->queries[0][0]), 40, SC_KERNELS_F32};
    assert_int_equal(sc_plugin_learning_open(&school->learning, &g_alloc, NULL), SPEC_OK);
    return school;
}

static void school_close(struct school *school)
{
    sc_plugin_learning_close(&school->learning, &g_alloc);
    sc_plugin_tables_close(&school->tables, &g_alloc);
    free(school);
}

/* Of channels [first, end) of each head one span, of the others another. */
static void spans_set(struct school *school, uint64_t first, uint64_t end, float wide, float others)
{
    for (uint64_t c = 0; c < CHANNELS; c++) {
        const float span = c % SIZE >= first && c % SIZE < end ? wide : others;
        sc_kernels_dtypes[SC_KERNELS_F16].narrow(school->spans + 2 * c, &span, 1);
    }
}

static void queries_set(struct school *school, uint64_t first, uint64_t end, float wide,
                        float others)
{
    for (uint64_t row = 0; row < 40; row++)
        for (uint64_t n = 0; n < (uint64_t)HEADS * GROUP * SIZE; n++)
            school->queries[row][n / SIZE][n % SIZE] =
                (n % SIZE >= first && n % SIZE < end ? wide : others) * (row % 2 == 0 ? 1 : -1);
}

static const struct sc_plugin_table *first(struct school *school, uint32_t layer, uint32_t part)
{
    return sc_plugin_calibrate_first(&school->learning, layer, part, school->spans);
}

static const struct sc_plugin_table *now(const struct school *school, uint32_t layer, uint32_t part)
{
    return sc_plugin_learnt_table(&school->learning, layer, part);
}

static void all_are(const struct sc_plugin_table *table, uint32_t bits)
{
    for (uint64_t c = 0; c < CHANNELS; c++)
        assert_int_equal(table->planes.to[c], bits);
}

static void the_first_table_is_of_the_first_spans(void **state)
{
    (void)state;
    struct school *school = school_open(20, 4, 3);
    for (uint32_t part = 0; part < 2; part++) {
        assert_null(now(school, 0, part));
        spans_set(school, 8, 16, 8, .5f);
        const struct sc_plugin_table *table = first(school, 0, part);
        assert_non_null(table);
        assert_int_equal(table->planes.row_bytes, CHANNELS * (part == 0 ? 4 : 3) / 8);
        assert_ptr_equal(now(school, 0, part), table);
        for (uint64_t c = 0; c < CHANNELS; c++)
            assert_true(c % SIZE / 8 == 1 || table->planes.to[c] < table->planes.to[8]);
        spans_set(school, 0, 8, 100, .1f);
        assert_ptr_equal(first(school, 0, part), table); /* it has one */
        assert_null(now(school, 1, part));
    }
    spans_set(school, 0, 0, 1, 1);
    all_are(first(school, 1, 0), 4);
    spans_set(school, 0, 0, 0, 0); /* nothing differs: zero weights */
    all_are(first(school, 1, 1), 3);
    school_close(school);
}

/* In front of the next slab, and only once. */
static void queries_that_come_first_count_from_the_next_slab_on(void **state)
{
    (void)state;
    struct school *school = school_open(20, 4, 3);
    sc_plugin_calibrate_due(&school->learning, 0, 0);
    assert_null(now(school, 0, 0));
    queries_set(school, 8, 24, 30, 1);
    sc_plugin_calibrate_queries(&school->learning, 1, &school->view);
    sc_plugin_calibrate_due(&school->learning, 1, 0); /* there are no ranges yet */
    assert_null(now(school, 1, 0));
    spans_set(school, 0, 0, 1, 1);
    const struct sc_plugin_table *even = first(school, 0, 0), *even_v = first(school, 0, 1);
    sc_plugin_calibrate_due(&school->learning, 0, 0);
    assert_ptr_equal(now(school, 0, 0), even);
    sc_plugin_calibrate_queries(&school->learning, 0, &school->view);
    assert_ptr_equal(now(school, 0, 0), even); /* a request waits for no table */
    sc_plugin_calibrate_due(&school->learning, 0, 0);
    sc_plugin_calibrate_due(&school->learning, 0, 1);
    assert_ptr_equal(now(school, 0, 1), even_v);
    const struct sc_plugin_table *next = now(school, 0, 0);
    assert_ptr_not_equal(next, even);
    queries_set(school, 0, 8, 300, 1);
    sc_plugin_calibrate_queries(&school->learning, 0, &school->view);
    sc_plugin_calibrate_due(&school->learning, 0, 0);
    assert_ptr_equal(now(school, 0, 0), next);
    school_close(school);
}

/* Channels that queries look at get bits, and so do those that turn with them; after the next slab,
 * and in the layer that they were of. */
static void queries_make_another_table_where_it_pays(void **state)
{
    (void)state;
    struct school *school = school_open(20, 4, 0);
    spans_set(school, 0, 0, 1, 1);
    const struct sc_plugin_table *even = first(school, 0, 0);
    all_are(even, 4);
    assert_ptr_equal(first(school, 1, 0), even);
    queries_set(school, 8, 24, 30, 1);
    sc_plugin_calibrate_queries(&school->learning, 0, &school->view);
    assert_ptr_equal(now(school, 0, 0), even);
    sc_plugin_calibrate_slab(&school->learning, 0, 0, school->spans);
    const struct sc_plugin_table *next = now(school, 0, 0);
    assert_ptr_not_equal(next, even);
    assert_int_equal(next->planes.row_bytes, even->planes.row_bytes);
    for (uint64_t c = 0; c < CHANNELS; c++) {
        bool is_seen = c % (SIZE / 2) >= 8 && c % (SIZE / 2) < 24;
        assert_true(is_seen ? next->planes.to[c] > 4 : next->planes.to[c] < 4);
    }
    sc_plugin_calibrate_slab(&school->learning, 1, 0, school->spans);
    assert_ptr_equal(now(school, 1, 0), even);
    assert_non_null(sc_plugin_tables_find(&school->tables, even->packed)); /* it stays */
    school_close(school);
}

static void a_table_that_hardly_pays_is_not_made(void **state)
{
    (void)state;
    struct school *school = school_open(20, 4, 0);
    spans_set(school, 0, 0, 1, 1);
    const struct sc_plugin_table *even = first(school, 0, 0);
    queries_set(school, 0, 32, 1.1f, 1);
    sc_plugin_calibrate_queries(&school->learning, 0, &school->view);
    for (uint32_t i = 0; i < 40; i++)
        sc_plugin_calibrate_slab(&school->learning, 0, 0, school->spans);
    assert_ptr_equal(now(school, 0, 0), even);
    school_close(school);
}

/* Whether weights were made, of which a table is made, since this was asked last. */
static bool weights_were_made(struct school *school)
{
    bool were_made = false;
    for (uint64_t c = 0; c < CHANNELS; c++) {
        were_made = were_made || school->learning.weights[c] != -1;
        school->learning.weights[c] = -1; /* no weight is negative */
    }
    return were_made;
}

static void a_table_is_looked_at_again_when_twice_as_many_slabs_were_seen(void **state)
{
    (void)state;
    struct school *school = school_open(20, 4, 3);
    uint32_t looks[2] = {0};
    spans_set(school, 0, 0, 1, 1);
    (void)weights_were_made(school);
    for (uint32_t part = 0; part < 2; part++)
        for (uint32_t slabs = 1; slabs <= 256; slabs++) {
            sc_plugin_calibrate_due(&school->learning, 0, part);
            (void)first(school, 0, part); /* it has one, but for the first slab */
            if (slabs > 1)
                sc_plugin_calibrate_slab(&school->learning, 0, part, school->spans);
            looks[part] += weights_were_made(school);
        }
    school_close(school);
    assert_int_equal(looks[0], 7); /* at the first slab, and after 8, 16, .. 256 */
    assert_int_equal(looks[1], 7);
}

/* Fewer rows than say something: no table of them. */
static void few_queries_say_nothing(void **state)
{
    (void)state;
    struct school *school = school_open(20, 4, 0);
    spans_set(school, 0, 0, 1, 1);
    const struct sc_plugin_table *even = first(school, 0, 0);
    queries_set(school, 8, 24, 30, 1);
    school->view.row_count = 15;
    sc_plugin_calibrate_queries(&school->learning, 0, &school->view);
    for (uint32_t i = 0; i < 40; i++)
        sc_plugin_calibrate_slab(&school->learning, 0, 0, school->spans);
    assert_ptr_equal(now(school, 0, 0), even);
    school->view.row_count = 1;
    sc_plugin_calibrate_queries(&school->learning, 0, &school->view);
    sc_plugin_calibrate_slab(&school->learning, 0, 0, school->spans);
    assert_ptr_not_equal(now(school, 0, 0), even);
    school_close(school);
}

/* However often the world changes. */
static void a_layer_makes_a_bounded_number_of_tables(void **state)
{
    (void)state;
    struct school *school = school_open(40, 4, 0);
    const struct sc_plugin_table *seen[16], *last = NULL;
    uint32_t count = 0;
    for (uint32_t round = 0, slabs = 1; round < 12; round++, slabs *= 2)
        for (uint32_t i = 0; i < slabs; i++) {
            float wide = ldexpf(1, 2 * (int)(round < 8 ? round : 7));
            uint64_t at = round % 8 * 8;
            spans_set(school, at, at + 8, round < 8 ? wide : 4 * wide, 0.01f);
            if (last == NULL)
                seen[count++] = last = first(school, 0, 0);
            else
                sc_plugin_calibrate_slab(&school->learning, 0, 0, school->spans);
            if (now(school, 0, 0) != last) {
                assert_true(count < 16);
                seen[count++] = last = now(school, 0, 0);
            }
        }
    assert_in_range(count, 4, SC_PLUGIN_TABLES_A_LAYER);
    assert_true(school->learning.learnt[0].tables <= SC_PLUGIN_TABLES_A_LAYER);
    for (uint32_t i = 0; i < count; i++)
        assert_ptr_equal(sc_plugin_tables_find(&school->tables, seen[i]->packed), seen[i]);
    school->learning.learnt[0].tables = SC_PLUGIN_TABLES_A_LAYER;
    school->learning.learnt[0].slabs_next = 0;
    memset(school->learning.learnt[0].spans, 0, CHANNELS * sizeof(float));
    spans_set(school, 56, 64, 1000, 0.01f);
    sc_plugin_calibrate_slab(&school->learning, 0, 0, school->spans);
    assert_ptr_equal(now(school, 0, 0), last);
    school_close(school);
}

/* Queries that are no numbers, or too large to count, change nothing of what others say. */
static void queries_that_are_no_numbers_say_nothing(void **state)
{
    (void)state;
    static const float BAD[] = {NAN, INFINITY, -INFINITY, 1e30f, -3e38f};
    for (uint32_t b = 0; b < 5; b++) {
        struct school *school = school_open(20, 4, 0);
        spans_set(school, 0, 0, 1, 1);
        const struct sc_plugin_table *even = first(school, 0, 0);
        queries_set(school, 0, 0, BAD[b], BAD[b]);
        sc_plugin_calibrate_queries(&school->learning, 0, &school->view);
        sc_plugin_calibrate_slab(&school->learning, 0, 0, school->spans);
        assert_ptr_equal(now(school, 0, 0), even);
        queries_set(school, 8, 24, 30, 1);
        for (uint64_t row = 0; row < 40; row++)
            school->queries[row][1][40] = BAD[b];
        sc_plugin_calibrate_queries(&school->learning, 0, &school->view);
        sc_plugin_calibrate_slab(&school->learning, 0, 0, school->spans);
        const struct sc_plugin_table *next = now(school, 0, 0);
        assert_ptr_not_equal(next, even);
        for (uint64_t c = 0; c < SIZE; c++)
            assert_true(isfinite(school->learning.learnt[0].queries[c]));
        assert_true(next->planes.to[8] > next->planes.to[0]);
        school_close(school);
    }
}

/* Who may not wait does not, and nothing is noted then. */
static void what_cannot_be_noted_at_once_is_not(void **state)
{
    (void)state;
    struct school *school = school_open(20, 4, 0);
    spans_set(school, 0, 0, 1, 1);
    assert_non_null(first(school, 0, 0));
    queries_set(school, 8, 24, 30, 1);
    pthread_mutex_lock(&school->learning.lock);
    sc_plugin_calibrate_queries(&school->learning, 0, &school->view);
    sc_plugin_calibrate_slab(&school->learning, 0, 0, school->spans);
    assert_non_null(now(school, 0, 0));
    assert_int_equal(school->learning.learnt[0].rows, 0);
    assert_int_equal(school->learning.learnt[0].slabs, 1);
    pthread_mutex_unlock(&school->learning.lock);
    school_close(school);
}

static void without_room_there_is_no_table(void **state)
{
    (void)state;
    struct school *school = school_open(1, 4, 0);
    spans_set(school, 8, 16, 8, .5f);
    const struct sc_plugin_table *table = first(school, 0, 0);
    assert_non_null(table);
    assert_ptr_equal(first(school, 1, 0), table); /* the same widths are the same table */
    queries_set(school, 40, 56, 300, 1);
    sc_plugin_calibrate_queries(&school->learning, 0, &school->view);
    sc_plugin_calibrate_slab(&school->learning, 0, 0, school->spans);
    assert_ptr_equal(now(school, 0, 0), table);
    school_close(school);
    school = school_open(1, 4, 2);
    assert_non_null(first(school, 0, 1));
    assert_null(first(school, 0, 0));
    assert_null(now(school, 0, 0));
    school_close(school);
    school = school_open(1, 0, 0); /* nothing has a table: nothing is learned */
    sc_plugin_calibrate_queries(&school->learning, 0, &school->view);
    school_close(school);
}

struct learner {
    struct school *school;
    uint32_t number;
    pthread_t thread;
};

static void *learn(void *argument)
{
    struct learner *learner = argument;
    struct school *school = learner->school;
    uintptr_t bad = 0;
    for (uint32_t i = 0; i < 200; i++) {
        uint32_t layer = (i + learner->number) % 2;
        const struct sc_plugin_table *table = now(school, layer, 0);
        if (table == NULL)
            table = first(school, layer, 0);
        bad += table == NULL || table->planes.row_bytes != CHANNELS / 2;
        sc_plugin_calibrate_slab(&school->learning, layer, 0, school->spans);
        sc_plugin_calibrate_queries(&school->learning, layer, &school->view);
    }
    return (void *)bad;
}

static void threads_may_learn_beside_each_other(void **state)
{
    (void)state;
    struct school *school = school_open(40, 4, 0);
    struct learner learners[THREADS];
    spans_set(school, 8, 16, 8, .5f);
    queries_set(school, 8, 24, 30, 1);
    for (uint32_t i = 0; i < THREADS; i++)
        learners[i] = (struct learner){.school = school, .number = i};
    threads_run(learn, learners, sizeof(learners[0]), THREADS);
    school_close(school);
}

/* ---- Notes ---------------------------------------------------------------------------------- */

#define NOTE_KIND 3u

static struct school *noted(const uint16_t *words, uint64_t count)
{
    struct school *school = school_open(40, 4, 0);
    assert_int_equal(sc_plugin_learnt_words(&school->learning), count);
    sc_plugin_learnt_load(&school->learning, NOTE_KIND, words, count);
    return school;
}

static bool put(struct school *school, uint64_t *written, uint16_t *ret_words)
{
    return sc_plugin_learnt_put(&school->learning, NOTE_KIND, written, ret_words);
}

/* What a process has of a note is not written by it again, until it has learnt something itself. */
static void what_a_note_says_is_not_noted_again(void **state)
{
    (void)state;
    struct school *school = school_open(40, 4, 0);
    uint64_t count = sc_plugin_learnt_words(&school->learning), written = 0;
    uint16_t *words = malloc(count * sizeof(*words)), *again = malloc(count * sizeof(*again));
    assert_true(words != NULL && again != NULL);
    spans_set(school, 0, 0, 1, 1);
    (void)first(school, 0, 0);
    assert_false(put(school, &written, words)); /* a layer is without one */
    (void)first(school, 1, 0);
    queries_set(school, 8, 24, 30, 1);
    sc_plugin_calibrate_queries(&school->learning, 0, &school->view);
    assert_true(put(school, &written, words));
    assert_false(put(school, &written, again));
    school_close(school);
    for (uint32_t times = 0; times < 2; times++) {
        school = noted(words, count);
        written = 0;
        assert_false(put(school, &written, again));
        assert_memory_equal(words, again, count * sizeof(*words));
        assert_false(put(school, &written, again));
        spans_set(school, 0, 0, 1, 1);
        for (uint32_t i = 0; i < SC_PLUGIN_SLABS_NEXT; i++)
            sc_plugin_calibrate_slab(&school->learning, 0, 0, school->spans);
        assert_true(put(school, &written, again)); /* by the note's queries, another table */
        assert_false(put(school, &written, again));
        school_close(school);
    }
    school = noted(words, count); /* queries of the other layer, which the note has none of */
    written = 0;
    sc_plugin_calibrate_queries(&school->learning, 1, &school->view);
    assert_true(put(school, &written, again));
    school_close(school);
    free(words);
    free(again);
}

/* A log that was not written anew has them all. */
static void the_last_note_counts(void **state)
{
    (void)state;
    struct school *school = school_open(40, 4, 0);
    uint64_t count = sc_plugin_learnt_words(&school->learning), written = 0;
    uint16_t *old = malloc(count * sizeof(*old)), *last = malloc(count * sizeof(*last));
    uint16_t *words = malloc(count * sizeof(*words));
    assert_true(old != NULL && last != NULL && words != NULL);
    spans_set(school, 0, 0, 1, 1);
    (void)first(school, 0, 0);
    (void)first(school, 1, 0);
    queries_set(school, 0, 8, 5, 1);
    sc_plugin_calibrate_queries(&school->learning, 1, &school->view);
    assert_true(put(school, &written, old));
    queries_set(school, 8, 24, 30, 1);
    sc_plugin_calibrate_queries(&school->learning, 1, &school->view);
    sc_plugin_calibrate_slab(&school->learning, 1, 0, school->spans);
    assert_true(put(school, &written, last));
    assert_memory_not_equal(old, last, count * sizeof(*old));
    school_close(school);
    school = noted(old, count);
    sc_plugin_learnt_load(&school->learning, NOTE_KIND, last, count);
    written = 0;
    assert_false(put(school, &written, words));
    assert_memory_equal(words, last, count * sizeof(*words));
    sc_plugin_calibrate_queries(&school->learning, 1, &school->view); /* now it has its own */
    sc_plugin_learnt_load(&school->learning, NOTE_KIND, old, count);
    (void)put(school, &written, words);
    assert_memory_not_equal(words + count - CHANNELS, old + count - CHANNELS,
                            CHANNELS * sizeof(*words));
    school_close(school);
    free(old);
    free(last);
    free(words);
}

/* Counts slabs that are measured for a first table, and slabs that are coded. */
static struct {
    const struct sc_kernels *kernels; /* what does the work */
    uint64_t measured, quantised;
} g_encoded;

static bool encode_counted(const struct sc_kernels_bitplanes_encode *encode)
{
    bool is_quantised = encode->planes->row_bytes > 0; /* else by the table of no bits */
    g_encoded.quantised += is_quantised;
    g_encoded.measured += !is_quantised;
    return g_encoded.kernels->bitplanes_encode(encode);
}

/* One slab of each layer makes its table; the others take it as it is. */
static void one_slab_of_a_layer_is_measured_first(void **state)
{
    (void)state;
    enum { LAYERS = 3, SLABS = 300 / 64 };
    struct rig rig;
    struct prompt prompt = rig_prompt(1, 0, 0, 300), other = rig_prompt(2, 0, 0, 300);
    rig_init(&rig, true,
             "\"preset\": \"layered-uniform\", \"layered\": {\"bit_allocation\": \"per_channel\"}");
    rig_shape(&rig, LAYERS, 2, 32, SPEC_DTYPE_F16);
    rig_open(&rig);
    g_encoded.kernels = rig.conn->kernels;
    g_encoded.measured = g_encoded.quantised = 0;
    struct sc_kernels counted = *rig.conn->kernels;
    counted.bitplanes_encode = encode_counted;
    rig.conn->kernels = &counted;
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    rig_background(&rig);
    assert_int_equal(rig_fill(&rig, &other), SPEC_OK);
    rig_background(&rig);
    rig.conn->kernels = g_encoded.kernels;
    assert_int_equal(g_encoded.measured, LAYERS); /* K: V's codes have no table here */
    assert_true(g_encoded.quantised >= 2 * LAYERS * SLABS);
    rig_prompt_free(&prompt);
    rig_prompt_free(&other);
    rig_done(&rig);
}

/* The whole way: nothing of it goes to the log again. */
static void who_learns_nothing_writes_nothing(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(1, 0, 0, 300);
    rig_begin_shape(
        &rig, true,
        "\"preset\": \"layered-uniform\", \"layered\": {\"bit_allocation\": \"per_channel\"}", 3, 2,
        32, SPEC_DTYPE_F16);
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    for (uint32_t layer = 0; layer < 3; layer++) {
        static const float QUERIES[32][4 * 32];
        struct sc_kernels_queries view = {(const uint8_t *)QUERIES, sizeof(QUERIES[0]),
                                          32 * sizeof(float), 32, SC_KERNELS_F32};
        rig_background(&rig);
        sc_plugin_calibrate_queries(&rig.conn->quant->learning, layer, &view);
    }
    for (uint32_t opened = 0; opened < 3; opened++) {
        struct sc_store_stats before, after;
        rig_reopen(&rig);
        assert_non_null(sc_plugin_learnt_table(&rig.conn->quant->learning, 2, 0));
        assert_true(rig.conn->quant->learning.learnt[0].rows > 0);
        sc_store_stats(rig.conn->store, &before);
        sc_plugin_quant_write(rig.conn);
        sc_store_stats(rig.conn->store, &after);
        assert_int_equal(before.log_bytes, after.log_bytes);
    }
    rig_end(&rig, &prompt);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_is_found_by_what_it_says),
        cmocka_unit_test(what_does_not_fit_is_not_had),
        cmocka_unit_test(what_is_no_table_is_not_one),
        cmocka_unit_test(the_table_of_no_bits_is_there),
        cmocka_unit_test(threads_that_add_the_same_get_the_same),
        cmocka_unit_test(turns_are_the_kernels_of_the_models_frequencies),
        cmocka_unit_test(llama3_stretches_slow_pairs_alone),
        cmocka_unit_test(positions_beyond_the_capacity_have_none),
        cmocka_unit_test(under_a_limit_of_address_space_fewer_positions_have_turns),
        cmocka_unit_test(what_is_not_known_is_not_turned),
        cmocka_unit_test(what_is_not_known_is_said_once),
        cmocka_unit_test(threads_that_want_the_same_turns_get_the_same),
        cmocka_unit_test(the_first_table_is_of_the_first_spans),
        cmocka_unit_test(queries_that_come_first_count_from_the_next_slab_on),
        cmocka_unit_test(queries_make_another_table_where_it_pays),
        cmocka_unit_test(what_a_note_says_is_not_noted_again),
        cmocka_unit_test(the_last_note_counts),
        cmocka_unit_test(who_learns_nothing_writes_nothing),
        cmocka_unit_test(a_table_is_looked_at_again_when_twice_as_many_slabs_were_seen),
        cmocka_unit_test(one_slab_of_a_layer_is_measured_first),
        cmocka_unit_test(a_table_that_hardly_pays_is_not_made),
        cmocka_unit_test(few_queries_say_nothing),
        cmocka_unit_test(a_layer_makes_a_bounded_number_of_tables),
        cmocka_unit_test(queries_that_are_no_numbers_say_nothing),
        cmocka_unit_test(what_cannot_be_noted_at_once_is_not),
        cmocka_unit_test(without_room_there_is_no_table),
        cmocka_unit_test(threads_may_learn_beside_each_other),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, setup, teardown);
}

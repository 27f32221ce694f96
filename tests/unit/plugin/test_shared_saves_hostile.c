/* Shared saves in random orders. Many requests store prompts of one tree, layer by layer, alone and
 * in arrays; passes are aborted, requests are released, passes become worse, resets and erasures
 * come between. What a lookup promises is loaded and compared, row by row.
 *
 * A row is a function of the tokens in front of it, of the salt, of the extra key, and of what its
 * pass was computed on. So a row that is found under other tokens is seen, and so is a row that was
 * computed on worse rows than the match says.
 *
 * Each order is drawn from one seed. A failed case prints it.
 * Threads: one, but for the last case. */
#include "tests/unit/plugin/plugin_fixture.h"
#include "tests/unit/threads.h"

#define TEXTS        6u
#define TEXT_MOST    220u /* tokens */
#define SALTS        2u
#define QUALITIES    3u /* SPEC_PROVENANCE_EXACT .. PRUNED */
#define REQUESTS     12u
#define TICKETS_MOST 512u
#define WAIT_NS      UINT64_C(20000000000)

/* What an order may contain, beside calls that store, abort and release. */
enum spice {
    WORSE = 1,     /* passes become worse half-way */
    RESETS = 2,    /* and erasures */
    FAULTS = 4,    /* of writes */
    SMALL = 8,     /* the disk holds little */
    TIGHT = 16,    /* rows are large, staging is not */
    SECOND = 32,   /* store.admit */
    BUDGET = 64,   /* store.write_budget */
    LIMITED = 128, /* max_request_tokens */
    SPICES = 256
};

struct text {
    uint64_t count, key_at; /* key_at == count: it has no extra key */
    uint32_t tokens[TEXT_MOST];
    uint64_t history[SALTS][QUALITIES][TEXT_MOST];
};

struct member {
    spec_request handle;                 /* 0: none */
    uint32_t text, salt, quality, layer; /* layer: the next one; 0: no pass is open */
    bool is_stale, is_sure;              /* sure: all that it has stored must be found */
    bool is_exact;                       /* and as EXACT */
    uint64_t known, end;                 /* tokens; where the next pass begins */
    uint64_t first, count, known_before;
};

struct told {
    spec_ticket ticket;
    uint32_t text, salt;
    bool is_sure, is_exact, is_current; /* nothing that it stored was reset or erased */
    uint64_t first, count;
};

struct play {
    struct rig rig;
    uint64_t seed, random;
    uint32_t spice;
    bool is_lossy; /* what was stored may be gone */
    bool is_threaded;
    bool is_sure; /* nothing but the orders' own acts keeps a pass from being stored */
    struct text texts[TEXTS];
    struct member members[REQUESTS];
    struct told told[TICKETS_MOST];
    uint64_t told_count, stored, refused, late;
};

static uint64_t draw(struct play *play, uint64_t below)
{
    play->random = rig_mix(play->random);
    return (play->random >> 16) % below;
}

#define CHECK(play, condition)                                                                     \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("seed %" PRIu64 ", spice %" PRIu32 ", line %d: %s", (play)->seed,             \
                     (play)->spice, __LINE__, #condition);                                         \
    } while (0)

/* ---- Texts ----------------------------------------------------------------------------------- */

static uint64_t key_of(const struct text *text, uint64_t position)
{
    return position >= text->key_at ? 77 : 0;
}

static void text_make(struct play *play, uint32_t at)
{
    struct text *text = &play->texts[at];
    text->count = TEXT_MOST / 2 + draw(play, TEXT_MOST / 2);
    uint64_t shared = 0;
    if (at > 0) {
        const struct text *of = &play->texts[draw(play, at)];
        shared = draw(play, of->count);
        shared = draw(play, 3) == 0 ? shared / 16 * 16 : shared;
        shared = shared < text->count ? shared : text->count;
        memcpy(text->tokens, of->tokens, shared * sizeof(uint32_t));
    }
    for (uint64_t i = shared; i < text->count; i++)
        text->tokens[i] = (uint32_t)(rig_mix(play->random + i) % 5000);
    text->key_at = draw(play, 5) == 0 ? draw(play, text->count) : text->count;
    for (uint32_t salt = 0; salt < SALTS; salt++)
        for (uint32_t quality = 0; quality < QUALITIES; quality++) {
            uint64_t history = 3 + salt * 5;
            for (uint64_t i = 0; i < text->count; i++) {
                history = rig_mix(history ^ text->tokens[i] ^ key_of(text, i) << 40);
                text->history[salt][quality][i] = rig_mix(history + quality);
            }
        }
}

static struct prompt prompt_of(struct play *play, uint32_t text, uint32_t salt, uint32_t quality)
{
    struct text *of = &play->texts[text];
    return (struct prompt){of->count, of->tokens, of->history[salt][quality]};
}

/* Tokens in common, with their keys. */
static uint64_t common_of(const struct text *a, const struct text *b)
{
    uint64_t at = 0;
    while (at < a->count && at < b->count && a->tokens[at] == b->tokens[at] &&
           key_of(a, at) == key_of(b, at))
        at++;
    return at;
}

static struct spec_lookup_result look(struct play *play, uint32_t text, uint32_t salt,
                                      uint64_t count, uint32_t flags, spec_status *ret_status)
{
    const struct text *of = &play->texts[text];
    struct spec_extra_key key = {
        .struct_size = sizeof(key), .first_token = of->key_at, .value = {"image", 5}};
    struct spec_lookup_params params = {.struct_size = sizeof(params),
                                        .flags = flags,
                                        .tokens = of->tokens,
                                        .token_count = count,
                                        .max_tokens = count,
                                        .priority = (int64_t)draw(play, 3)};
    if (salt > 0)
        params.salt = (struct spec_bytes){"salt", 4};
    if (of->key_at < count) {
        params.extra_keys = &key;
        params.extra_key_count = 1;
    }
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    *ret_status = sc_plugin_lookup(play->rig.conn, &params, &found, NULL);
    return found;
}

static uint64_t matched_of(struct play *play, uint32_t text, uint32_t salt, uint64_t count,
                           uint32_t flags)
{
    spec_status status;
    struct spec_lookup_result found =
        look(play, text, salt, count, flags | SPEC_LOOKUP_PEEK, &status);
    CHECK(play, status == SPEC_OK);
    return found.matched_tokens;
}

/* ---- What is found --------------------------------------------------------------------------- */

/* Every row that was delivered is one of the row's, and no worse than the match. */
static void rows_check(struct play *play, const struct area *area, uint32_t text, uint32_t salt,
                       uint64_t rows, uint32_t layer, uint32_t worst)
{
    struct rig *rig = &play->rig;
    uint64_t part_bytes = rig_part_bytes(rig);
    uint8_t *row = malloc(part_bytes);
    for (uint32_t part = 0; part < 2; part++) {
        const uint8_t *base = part == 0 ? area->memory.k_base : area->memory.v_base;
        for (uint64_t j = 0; j < rows; j++) {
            bool is_right = false;
            for (uint32_t quality = 0; quality <= worst && !is_right; quality++) {
                struct prompt prompt = prompt_of(play, text, salt, quality);
                rig_row(rig, &prompt, j, layer, part, row);
                is_right = memcmp(base + j * part_bytes, row, part_bytes) == 0;
            }
            if (!is_right)
                fail_msg("seed %" PRIu64 ", spice %" PRIu32 ": text %" PRIu32 ", salt %" PRIu32
                         ", layer %" PRIu32 ", row %" PRIu64 " of %" PRIu64 " is wrong (worst %u)",
                         play->seed, play->spice, text, salt, layer, j, rows, worst);
        }
    }
    free(row);
}

static void text_read(struct play *play, uint32_t text, uint32_t salt, uint32_t flags)
{
    struct rig *rig = &play->rig;
    spec_status status;
    struct spec_lookup_result found =
        look(play, text, salt, play->texts[text].count, flags, &status);
    if (status == SPEC_E_BUSY) /* all requests are taken */
        return;
    CHECK(play, status == SPEC_OK);
    CHECK(play, found.provenance.kind == SPEC_PROVENANCE_EXACT ||
                    (flags & SPEC_LOOKUP_REQUIRE_EXACT) == 0);
    for (uint32_t layer = 0; layer < rig->layers && found.matched_tokens > 0; layer++) {
        struct area area = rig_area(rig, found.matched_tokens);
        struct spec_important item = rig_item(found.request, layer, &area.memory);
        status = sc_plugin_begin_layer(rig->conn, &found.request, 1, layer, NULL);
        if (status == SPEC_OK)
            status = sc_plugin_get_important(rig->conn, &item, 1, NULL);
        bool is_outrun = play->is_threaded && status == SPEC_E_STALE;
        CHECK(play, status == SPEC_OK || is_outrun);
        CHECK(play, is_outrun || item.row_count == found.matched_tokens);
        if (!is_outrun)
            rows_check(play, &area, text, salt, item.row_count, layer, found.provenance.kind);
        rig_area_free(&area);
    }
    rig_release(rig, found.request);
}

static void all_read(struct play *play)
{
    for (uint32_t text = 0; text < TEXTS; text++)
        for (uint32_t salt = 0; salt < SALTS; salt++)
            for (uint32_t flags = 0; flags < 2; flags++)
                text_read(play, text, salt, flags == 0 ? 0 : SPEC_LOOKUP_REQUIRE_EXACT);
}

/* ---- What is told ---------------------------------------------------------------------------- */

/* is_last: nobody stores any more, so that the ticket is done. */
static void told_check(struct play *play, uint64_t at, bool is_last)
{
    struct told *told = &play->told[at];
    spec_status status = SPEC_PENDING;
    uint64_t kept = 0;
    uint64_t timeout_ns = is_last ? WAIT_NS : draw(play, 2) * 1000000;
    (void)sc_plugin_wait_kept(play->rig.conn, &told->ticket, 1, timeout_ns, &status, &kept, NULL);
    CHECK(play, status != SPEC_PENDING || !is_last);
    CHECK(play, kept <= told->count);
    CHECK(play, status != SPEC_OK || kept == told->count);
    bool is_there = told->is_current && !play->is_lossy;
    bool is_exact = told->is_exact && (play->is_sure || (told->first == 0 && status == SPEC_OK));
    if ((play->spice & WORSE) != 0) /* better rows may come, and what hangs on worse ones goes */
        is_there = is_there && is_exact;
    if (is_there && kept > 0)
        CHECK(play, matched_of(play, told->text, told->salt, told->first + kept, 0) ==
                        told->first + kept);
    if (is_there && is_exact && status == SPEC_OK)
        CHECK(play, matched_of(play, told->text, told->salt, told->first + kept,
                               SPEC_LOOKUP_REQUIRE_EXACT) == told->first + kept);
    if (status == SPEC_PENDING)
        return;
    play->stored += status == SPEC_OK;
    play->refused += status != SPEC_OK;
    if (told->is_current && told->is_sure && status != SPEC_OK)
        fail_msg("seed %" PRIu64 ", spice %" PRIu32 ": tokens %" PRIu64 " + %" PRIu64
                 " of text %" PRIu32 " are lost: %s",
                 play->seed, play->spice, told->first, told->count, told->text,
                 sc_status_name(status));
    *told = play->told[--play->told_count];
}

static void all_told_check(struct play *play, bool is_last)
{
    for (uint64_t i = play->told_count; i-- > 0;)
        told_check(play, i, is_last);
}

/* ---- Acts ------------------------------------------------------------------------------------ */

static void open_one(struct play *play, struct member *member)
{
    uint32_t text = (uint32_t)draw(play, TEXTS), salt = draw(play, 6) == 0;
    uint64_t count = 1 + draw(play, play->texts[text].count);
    uint64_t common = common_of(&play->texts[text], &play->texts[draw(play, TEXTS)]);
    if (draw(play, 2) == 0) /* so that the tokens behind it may become those of either text */
        count = common > 0 ? common : count;
    else if (draw(play, 2) == 0)
        count = play->texts[text].count;
    spec_status status;
    struct spec_lookup_result found = look(play, text, salt, count, 0, &status);
    if (status == SPEC_E_BUSY)
        return;
    CHECK(play, status == SPEC_OK);
    uint32_t worst = found.provenance.kind;
    *member = (struct member){.handle = found.request,
                              .text = text,
                              .salt = salt,
                              .quality = worst,
                              .is_sure = worst == SPEC_PROVENANCE_EXACT,
                              .is_exact = worst == SPEC_PROVENANCE_EXACT,
                              .known = count,
                              .end = found.matched_tokens};
}

/* With layer 0: the range, and ids that come with it, perhaps of another text. */
static bool pass_begin(struct play *play, struct member *member, struct spec_store_params *params)
{
    struct text *text = &play->texts[member->text];
    bool has_key = text->key_at < text->count; /* keys are told with lookup */
    for (uint32_t tries = 0; tries < 4 && !has_key; tries++) {
        uint32_t other = (uint32_t)draw(play, TEXTS);
        const struct text *of = &play->texts[other];
        if (of->key_at == of->count && common_of(text, of) >= member->known)
            member->text = other;
    }
    text = &play->texts[member->text];
    uint64_t most = text->key_at < member->known ? text->count : text->key_at;
    most = most < member->known ? member->known : most;
    uint64_t end = member->end + 1 + draw(play, text->count);
    uint64_t which = draw(play, 3);
    end = which == 0 ? member->known : which == 1 ? most : end;
    end = end < most ? end : most;
    if (end <= member->end)
        return false;
    uint64_t first = member->end;
    if (first > 0 && draw(play, 8) == 0)
        first = draw(play, first);
    member->known_before = member->known;
    if (end > member->known) {
        if (first > member->known)
            return false;
        params->tokens = text->tokens + member->known;
        params->tokens_count = end - member->known;
        member->known = end;
    }
    member->first = first;
    member->count = end - first;
    return true;
}

static void rows_make(struct play *play, const struct member *member, uint32_t layer,
                      struct area *area)
{
    struct rig *rig = &play->rig;
    struct prompt prompt = prompt_of(play, member->text, member->salt, member->quality);
    *area = rig_area(rig, member->count);
    rig_area_fill(rig, area, &prompt, member->first, member->count, layer);
}

static void ticket_note(struct play *play, const struct member *member, spec_ticket ticket)
{
    CHECK(play, ticket != 0);
    CHECK(play, play->told_count < TICKETS_MOST);
    play->told[play->told_count++] = (struct told){.ticket = ticket,
                                                   .text = member->text,
                                                   .salt = member->salt,
                                                   .is_sure = member->is_sure && play->is_sure,
                                                   .is_exact = member->is_exact,
                                                   .is_current = !member->is_stale,
                                                   .first = member->first,
                                                   .count = member->count};
}

static void release_one(struct play *play, struct member *member)
{
    rig_release(&play->rig, member->handle);
    *member = (struct member){.handle = 0};
}

/* The next layer of some members, in one call; only: NULL, or of that one alone. */
static void store_some(struct play *play, const struct member *only)
{
    struct spec_store_params params[REQUESTS];
    struct area areas[REQUESTS];
    struct member *members[REQUESTS];
    spec_ticket tickets[REQUESTS] = {0};
    uint64_t count = 0, chance = only != NULL ? 8 : 1 + draw(play, 8);
    for (uint64_t i = 0; i < REQUESTS; i++) {
        struct member *member = &play->members[i];
        bool is_meant = only == NULL || member == only;
        if (member->handle == 0 || member->is_stale || !is_meant || draw(play, 8) >= chance)
            continue;
        struct spec_store_params *at = &params[count];
        *at = (struct spec_store_params){.struct_size = sizeof(*at), .layer = member->layer};
        if (member->layer == 0 && !pass_begin(play, member, at)) {
            if (draw(play, 3) == 0) /* it has stored all, as a rule */
                release_one(play, member);
            continue;
        }
        if ((play->spice & WORSE) != 0 && draw(play, 24) == 0 && member->quality + 1 < QUALITIES)
            member->quality += 1 + (uint32_t)draw(play, QUALITIES - member->quality - 1);
        member->is_exact = member->is_exact && member->quality == 0;
        member->is_sure = member->is_sure && member->quality == 0; /* else better rows may come */
        at->computed_on = member->quality;
        at->request = member->handle;
        at->first_token = member->first;
        at->token_count = member->count;
        if (draw(play, 4) == 0) {
            at->flags = SPEC_STORE_WAIT;
            at->wait_ns = 1000000;
        }
        rows_make(play, member, member->layer, &areas[count]);
        members[count++] = member;
    }
    for (uint64_t i = 0; i < count; i++)
        params[i].memory = &areas[i].memory;
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status = SPEC_OK;
    if (count > 0)
        status = sc_plugin_store(play->rig.conn, params, count, tickets, &error);
    bool is_outrun = play->is_threaded && status == SPEC_E_STALE; /* another thread has reset */
    if (status != SPEC_OK && !is_outrun)
        fail_msg("seed %" PRIu64 ": %s", play->seed, error.text);
    for (uint64_t i = 0; i < count; i++) {
        rig_area_free(&areas[i]);
        struct member *member = members[i];
        if (is_outrun) {
            release_one(play, member);
            continue;
        }
        if (++member->layer < play->rig.layers)
            continue;
        member->layer = 0;
        member->end = member->first + member->count;
        ticket_note(play, member, tickets[i]);
    }
}

static void abort_one(struct play *play, struct member *member)
{
    spec_status status = sc_plugin_store_abort(play->rig.conn, member->handle, 0, NULL);
    bool may_be_stale = member->is_stale || play->is_threaded;
    CHECK(play, status == SPEC_OK || (status == SPEC_E_STALE && may_be_stale));
    if (member->layer > 0)
        member->known = member->known_before;
    member->layer = 0;
}

/* The member's pass, or its next one, up to some layer, before the others go on. Then perhaps it is
 * aborted and begun again, with other ids. */
static void store_at_once(struct play *play, struct member *member)
{
    for (uint32_t layer = (uint32_t)draw(play, play->rig.layers + 1); layer > 0; layer--)
        store_some(play, member);
    if (member->handle == 0 || member->layer == 0 || draw(play, 2) == 0)
        return;
    abort_one(play, member);
    for (uint32_t layer = 0; layer < play->rig.layers; layer++)
        store_some(play, member);
}

static void forget_all(struct play *play, bool salted_alone)
{
    for (uint64_t i = 0; i < REQUESTS; i++)
        if (play->members[i].handle != 0 && (!salted_alone || play->members[i].salt > 0))
            play->members[i].is_stale = true;
    for (uint64_t i = 0; i < play->told_count; i++)
        if (!salted_alone || play->told[i].salt > 0)
            play->told[i].is_current = false;
}

static void reset_all(struct play *play)
{
    struct rig *rig = &play->rig;
    if (draw(play, 2) == 0) {
        CHECK(play, sc_plugin_reset(rig->conn, NULL) == SPEC_OK);
        forget_all(play, false);
        return;
    }
    const struct spec_maintain_params params = {
        .struct_size = sizeof(params), .flags = SPEC_MAINTAIN_ERASE_SALT, .salt = {"salt", 4}};
    spec_status status = sc_plugin_maintain(rig->conn, &params, NULL);
    CHECK(play, status == SPEC_OK || status == SPEC_E_BUSY || status == SPEC_E_NO_SPACE);
    forget_all(play, true);
    play->is_sure = false; /* nothing is stored meanwhile */
    for (uint64_t i = 0; i < play->told_count; i++)
        play->told[i].is_sure = false;
}

static void let_go_on(struct play *play)
{
    if (play->is_threaded) {
        sched_yield();
        return;
    }
    for (uint64_t i = draw(play, 40); i > 0; i--)
        if (!sc_exec_step_one(play->rig.conn->exec))
            rig_pass_ns(&play->rig, 1000 + draw(play, 100000));
}

static void act(struct play *play)
{
    struct member *member = &play->members[draw(play, REQUESTS)];
    uint64_t what = draw(play, 100);
    if (member->handle == 0 && what < 70)
        open_one(play, member);
    else if (what < 74)
        store_some(play, NULL);
    else if (what < 76 && member->handle != 0)
        abort_one(play, member);
    else if (what < 78 && member->handle != 0)
        store_at_once(play, member);
    else if (what < 80 && member->handle != 0)
        release_one(play, member);
    else if (what < 90)
        let_go_on(play);
    else if (what < 95)
        all_told_check(play, false);
    else if (what < 97)
        text_read(play, (uint32_t)draw(play, TEXTS), (uint32_t)draw(play, SALTS), 0);
    else if (what < 98 && (play->spice & RESETS) != 0 && (!play->is_threaded || draw(play, 6) == 0))
        reset_all(play);
    else if (what < 99 && (play->spice & FAULTS) != 0)
        sc_io_sim_fault_nth(play->rig.disk, SC_SIM_WRITE_EIO, draw(play, 8));
}

/* ---- Orders ---------------------------------------------------------------------------------- */

static void idle_check(struct play *play)
{
    spec_connector *conn = play->rig.conn;
    uint64_t holds = 0;
    CHECK(play, rig_saves_are_free(&play->rig));
    for (uint64_t i = 0; i < conn->config.max_requests; i++)
        holds += atomic_load(&conn->requests.slots[i].holds);
    CHECK(play, holds == 0);
    CHECK(play, atomic_load(&conn->saves.sharers.listed) == 0);
    CHECK(play, sc_counted(&conn->stats.tickets_open) == 0);
    CHECK(play, sc_counted(&conn->stats.requests_open) == 0);
}

static void play_one(uint64_t seed, uint32_t spice, uint64_t acts, uint64_t *ret_stored,
                     uint64_t *ret_refused)
{
    struct play *play = calloc(1, sizeof(*play));
    char extra[512];
    play->seed = seed;
    play->random = rig_mix(seed + spice * 1000003);
    play->spice = spice;
    play->is_lossy = (spice & (FAULTS | SMALL)) != 0;
    play->is_sure = (spice & ~(uint32_t)(RESETS | WORSE)) == 0;
    (void)snprintf(extra, sizeof(extra),
                   "\"chunk_tokens\": %u, \"max_requests\": %u, \"max_request_tokens\": %u%s%s%s%s",
                   draw(play, 2) == 0 ? 16u : 64u, draw(play, 2) == 0 ? REQUESTS + 4 : 8u,
                   (spice & LIMITED) != 0 ? 100u : 16384u,
                   (spice & SMALL) != 0 ? ", \"disk_bytes\": \"4MiB\", \"segment_bytes\": \"1MiB\""
                                        : "",
                   (spice & SECOND) != 0   ? ", \"store\": {\"admit\": \"second\"}"
                   : (spice & BUDGET) != 0 ? ", \"store\": {\"write_budget\": \"1MiB\"}"
                   : draw(play, 2) == 0    ? ", \"store\": {\"layout\": \"split\"}"
                                           : "",
                   "", "");
    rig_init(&play->rig, true, extra);
    rig_shape(&play->rig, 1 + (uint32_t)draw(play, 5), (spice & TIGHT) != 0 ? 32 : 2,
              (spice & TIGHT) != 0 ? 128 : 8, SPEC_DTYPE_F16);
    rig_open(&play->rig);
    if (draw(play, 2) == 0)
        sc_io_sim_disk_rate(play->rig.disk, 1000000 << draw(play, 8));
    for (uint32_t i = 0; i < TEXTS; i++)
        text_make(play, i);
    for (uint64_t i = 0; i < acts; i++) {
        act(play);
        if (play->told_count + REQUESTS > TICKETS_MOST)
            break;
    }
    for (uint64_t i = 0; i < REQUESTS; i++)
        if (play->members[i].handle != 0)
            release_one(play, &play->members[i]);
    all_told_check(play, true);
    idle_check(play);
    sc_io_sim_fault_ppm(play->rig.disk, SC_SIM_WRITE_EIO, 0);
    rig_check_index(&play->rig);
    all_read(play);
    rig_reopen(&play->rig);
    all_read(play);
    idle_check(play);
    *ret_stored += play->stored;
    *ret_refused += play->refused;
    rig_done(&play->rig);
    free(play);
}

static void orders(const char *name, uint32_t spice, uint64_t count, uint64_t acts)
{
    const char *from = getenv("SEED"), *more = getenv("SEEDS");
    uint64_t first = from != NULL ? strtoull(from, NULL, 10) : 1, stored = 0, refused = 0;
    count = more != NULL ? strtoull(more, NULL, 10) : count;
    for (uint64_t seed = first; seed < first + count; seed++)
        play_one(seed, spice, acts, &stored, &refused);
    print_message("%s: %" PRIu64 " orders, %" PRIu64 " passes stored, %" PRIu64 " refused\n", name,
                  count, stored, refused);
}

/* ---- Threads --------------------------------------------------------------------------------- */

static void *play_beside(void *user)
{
    struct play *play = user;
    for (uint64_t i = 0; i < 1500 && play->told_count + REQUESTS < TICKETS_MOST; i++)
        act(play);
    for (uint64_t i = 0; i < REQUESTS; i++)
        if (play->members[i].handle != 0)
            release_one(play, &play->members[i]);
    all_told_check(play, true);
    return NULL;
}

/* Each thread has requests of its own, of the same texts. */
static void threads_play(uint64_t seed, uint32_t spice, uint64_t *ret_stored, uint64_t *ret_refused)
{
    enum { THREADS = 5 };
    struct play *plays = calloc(THREADS, sizeof(*plays));
    plays[0].random = plays[0].seed = seed;
    plays[0].spice = spice;
    plays[0].is_threaded = true;
    plays[0].is_lossy = (spice & RESETS) != 0;
    rig_init(&plays[0].rig, false, "\"chunk_tokens\": 16, \"max_requests\": 24");
    rig_shape(&plays[0].rig, 4, 2, 8, SPEC_DTYPE_F16);
    rig_open(&plays[0].rig);
    for (uint32_t i = 0; i < TEXTS; i++)
        text_make(&plays[0], i);
    for (uint64_t i = 1; i < THREADS; i++) {
        plays[i] = plays[0];
        plays[i].random = plays[i].seed = seed + i * 1000;
        plays[i].spice = i < 3 ? spice & ~(uint32_t)RESETS : spice;
    }
    threads_run(play_beside, plays, sizeof(*plays), THREADS);
    for (uint64_t i = 0; i < THREADS; i++) {
        *ret_stored += plays[i].stored;
        *ret_refused += plays[i].refused;
    }
    idle_check(&plays[0]);
    rig_check_index(&plays[0].rig);
    all_read(&plays[0]);
    rig_reopen(&plays[0].rig);
    all_read(&plays[0]);
    rig_done(&plays[0].rig);
    free(plays);
}

static void threads_store_prompts_of_one_tree(void **state)
{
    (void)state;
    static const uint32_t spices[] = {0, WORSE, RESETS | WORSE};
    const char *more = getenv("SEEDS");
    uint64_t count = more != NULL ? strtoull(more, NULL, 10) : 2;
    for (uint64_t i = 0; i < 3; i++) {
        uint64_t stored = 0, refused = 0;
        for (uint64_t seed = 1; seed <= count; seed++)
            threads_play(seed, spices[i], &stored, &refused);
        print_message("threads, spice %" PRIu32 ": %" PRIu64 " passes stored, %" PRIu64
                      " refused\n",
                      spices[i], stored, refused);
    }
}

static void all_that_is_told_and_found_is_right(void **state)
{
    (void)state;
    orders("plain", 0, 60, 250);
}

static void where_passes_become_worse(void **state)
{
    (void)state;
    orders("worse", WORSE, 60, 250);
}

static void beside_resets_and_erasures(void **state)
{
    (void)state;
    orders("resets", RESETS | WORSE, 60, 250);
}

static void where_room_is_short_or_disks_fail(void **state)
{
    (void)state;
    static const uint32_t spices[] = {FAULTS | RESETS | WORSE,
                                      SMALL | RESETS,
                                      SMALL | FAULTS | WORSE,
                                      TIGHT | WORSE,
                                      TIGHT | RESETS | FAULTS,
                                      SECOND | WORSE,
                                      BUDGET,
                                      LIMITED | RESETS | WORSE,
                                      LIMITED | SMALL};
    for (uint64_t i = 0; i < sizeof(spices) / sizeof(*spices); i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "spice %" PRIu32, spices[i]);
        orders(name, spices[i], 15, 250);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_that_is_told_and_found_is_right),
        cmocka_unit_test(where_passes_become_worse),
        cmocka_unit_test(beside_resets_and_erasures),
        cmocka_unit_test(where_room_is_short_or_disks_fail),
        cmocka_unit_test(threads_store_prompts_of_one_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

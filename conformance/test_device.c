/* test_device: rows, queries, new keys and hints in CUDA memory, and errors without a driver:
 * ABI-199 .. ABI-204.
 *
 *   area    [guard | described memory | guard] of the host
 *   there   as many bytes on the device, equally aligned; up, down: registered host memory
 *
 * Invariants: a test enqueues work before a load, loads, and enqueues work after it without
 * waiting. Guards are compared too. Connectors that wait for a held stream run into main.c's time
 * limit.
 * Threads: one. Tests: see fixture.h; on a fake driver, tests/cuda (conformance_device). */
#include "conformance/choice.h"
#include "conformance/device/driver.h"
#include "conformance/quantised.h"
#include "conformance/suite.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE        4096u
#define BUSY_BYTES  (UINT64_C(4) << 20) /* of a copy that keeps a stream busy */
#define BUSY_COPIES 8u
#define SECOND      0x3cu /* poison of another kind */

/* ---- The host's side of a device ------------------------------------------------------------ */

struct card {
    const struct sc_cu *cu;
    sc_cu_context context;
    sc_cu_stream stream;
};

static void ok(sc_cu_result code)
{
    if (code != SC_CU_OK)
        fail_msg("a call of the driver: CUDA %d", (int)code);
}

static struct card card_open(void)
{
    const char *why;
    sc_cu_device device;
    struct card card = {.cu = conf_driver(&why)};
    if (card.cu == NULL)
        conf_skip(why);
    ok(card.cu->cuDeviceGet(&device, 0));
    ok(card.cu->cuDevicePrimaryCtxRetain(&card.context, device));
    ok(card.cu->cuCtxPushCurrent(card.context));
    ok(card.cu->cuStreamCreate(&card.stream, SC_CU_STREAM_NON_BLOCKING));
    return card;
}

static void card_close(struct card *card)
{
    sc_cu_context popped;
    sc_cu_device device;
    ok(card->cu->cuStreamSynchronize(card->stream));
    ok(card->cu->cuStreamDestroy(card->stream));
    ok(card->cu->cuCtxPopCurrent(&popped));
    assert_ptr_equal(popped, card->context);
    ok(card->cu->cuDeviceGet(&device, 0));
    ok(card->cu->cuDevicePrimaryCtxRelease(device));
}

struct there {
    const struct card *card;
    struct area *area;
    struct spec_memory memory; /* the area's, on the device */
    uint64_t bytes;            /* the area's, guards included, from `lead` on */
    uint64_t lead;
    uint8_t *up, *second, *down;
    sc_cu_ptr at;
};

static uint8_t *pinned(const struct card *card, uint64_t bytes)
{
    uint64_t pages = (bytes + PAGE - 1) / PAGE * PAGE;
    uint8_t *memory = aligned_alloc(PAGE, pages);
    assert_non_null(memory);
    memset(memory, POISON, pages);
    ok(card->cu->cuMemHostRegister(memory, pages, SC_CU_HOSTREGISTER_DEVICEMAP));
    return memory;
}

static void unpinned(const struct card *card, uint8_t *memory)
{
    ok(card->cu->cuMemHostUnregister(memory));
    free(memory);
}

static struct there there_make(const struct card *card, struct area *area, sc_cu_stream stream)
{
    struct there there = {.card = card,
                          .area = area,
                          .memory = area->memory,
                          .bytes = area->byte_count,
                          .lead = (uintptr_t)area->bytes % 256};
    uint64_t whole = there.lead + there.bytes;
    there.up = pinned(card, whole);
    there.second = pinned(card, whole);
    there.down = pinned(card, whole);
    memset(there.second, SECOND, whole);
    ok(card->cu->cuMemAlloc(&there.at, whole));
    uint8_t *base = (uint8_t *)(uintptr_t)(there.at + there.lead);
    there.memory.k_base = base + ((uint8_t *)area->memory.k_base - area->bytes);
    there.memory.v_base = base + ((uint8_t *)area->memory.v_base - area->bytes);
    there.memory.device = SPEC_DEVICE_CUDA;
    there.memory.stream = stream;
    return there;
}

static void there_free(struct there *there)
{
    ok(there->card->cu->cuStreamSynchronize(there->memory.stream));
    unpinned(there->card, there->up);
    unpinned(there->card, there->second);
    unpinned(there->card, there->down);
    ok(there->card->cu->cuMemFree(there->at));
}

/* Given to the stream: poison goes there, or of the second kind; what is there comes back. */
static void there_poison(const struct there *there, const uint8_t *kind)
{
    ok(there->card->cu->cuMemcpyHtoDAsync(there->at, kind, there->lead + there->bytes,
                                          there->memory.stream));
}

static void there_fetch(const struct there *there)
{
    ok(there->card->cu->cuMemcpyDtoHAsync(there->down, there->at, there->lead + there->bytes,
                                          there->memory.stream));
}

/* Waits for the stream; what came back is the area's. */
static void there_read(const struct there *there)
{
    ok(there->card->cu->cuStreamSynchronize(there->memory.stream));
    memcpy(there->area->bytes, there->down + there->lead, there->bytes);
}

/* A load's status; skips where the connector has no such memory at all. */
static spec_status load(struct fixture *fx, struct spec_important *item)
{
    spec_status status = fx->api->get_important(fx->conn, item, 1, &fx->error);
    if (status == SPEC_OK)
        assert_int_equal(item->status, SPEC_OK);
    if (status == SPEC_E_UNSUPPORTED) {
        char reason[200];
        (void)snprintf(reason, sizeof(reason), "the connector takes no CUDA memory: %.150s",
                       fx->error.text);
        conf_skip(reason);
    }
    return status;
}

/* ---- 199 ---- */

static void abi_199_without_a_device_its_memory_is_unsupported_and_host_loads_go_on(void **state)
{
    struct fixture *fx = *state;
    const char *why;
    if (conf_driver(&why) != NULL)
        conf_skip("there is a CUDA device");
    struct held held = hold(fx, 1990, 200);
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, held.found.matched_tokens);
    struct spec_memory there = area.memory;
    there.device = SPEC_DEVICE_CUDA;
    for (uint32_t round = 0; round < 2 && held.found.matched_tokens > 0; round++) {
        struct spec_important item = important(held.found.request, 1, &there);
        fx->error.text[0] = '\0';
        assert_status(fx->api->get_important(fx->conn, &item, 1, &fx->error), SPEC_E_UNSUPPORTED);
        assert_true(strlen(fx->error.text) > 0);
        area_expect(&area, &fx->shape, &held.prompt, 0, 0, 1);
        fixture_check_layers(fx, &held.found, &held.prompt, 0);
    }
    area_free(&area);
    let_go(fx, &held);
}

/* What the host's memory gets, and a device's. */
static void compare_layer(struct fixture *fx, struct card *card, const struct held *held,
                          const struct shape *shape, enum layout layout, uint32_t layer)
{
    uint64_t rows = held->found.matched_tokens;
    struct area area = area_make(shape, layout, rows), twin = area_twin(&area);
    struct there there = there_make(card, &twin, card->stream);
    struct spec_important host = important(held->found.request, layer, &area.memory);
    struct spec_important item = important(held->found.request, layer, &there.memory);
    assert_ok(fx, fx->api->get_important(fx->conn, &host, 1, &fx->error));
    there_poison(&there, there.up);
    assert_ok(fx, load(fx, &item));
    there_fetch(&there);
    there_read(&there);
    assert_memory_equal(twin.bytes, area.bytes, area.byte_count);
    assert_int_equal(item.row_count, host.row_count);
    assert_int_equal(item.next_position, host.next_position);
    there_free(&there);
    free(twin.bytes);
    area_free(&area);
}

static void abi_199_a_device_gets_the_bytes_that_the_hosts_memory_gets(void **state)
{
    struct fixture *fx = *state;
    struct card card = card_open();
    struct held held = hold(fx, 1991, 300);
    struct shape wider = fx->shape;
    wider.dtype = SPEC_DTYPE_F32;
    for (enum layout layout = 0; layout < LAYOUTS; layout++)
        for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
            compare_layer(fx, &card, &held, &fx->shape, layout, layer);
            compare_layer(fx, &card, &held, &wider, layout, layer);
        }
    let_go(fx, &held);
    fixture_close(fx);
    card_close(&card);
}

/* As a host has it that did not reach the prefix's end, or has nothing of it. */
static void abi_199_a_request_without_a_match_gets_no_row_there(void **state)
{
    struct fixture *fx = *state;
    struct card card = card_open();
    struct prompt prompt = prompt_make(1992, 80);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, 16);
    struct there there = there_make(&card, &area, card.stream);
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
        struct spec_important item = important(found.request, layer, &there.memory);
        there_poison(&there, there.up);
        assert_ok(fx, load(fx, &item));
        assert_int_equal(item.row_count, 0);
        there_fetch(&there);
        there_read(&there);
        area_expect(&area, &fx->shape, &prompt, 0, 0, layer);
        there.memory.k_bytes = there.memory.v_bytes = layer % 2 == 0 ? 0 : there.memory.k_bytes;
    }
    there_free(&there);
    area_free(&area);
    fixture_release(fx, found.request);
    prompt_free(&prompt);
    fixture_close(fx);
    card_close(&card);
}

/* ---- 200 ---- */

/* A load that stands between a stream's other work: what is there before it, behind it, and after
 * somebody has written over it. */
struct between {
    struct area area;
    struct there there;
    uint8_t *second; /* what comes back last */
    uint8_t *busy;   /* [BUSY_BYTES] */
    sc_cu_ptr busy_at;
};

static void between_make(struct between *between, const struct fixture *fx, const struct card *card,
                         const struct held *held, sc_cu_stream stream)
{
    between->area = area_make(&fx->shape, LAYOUT_VLLM, held->found.matched_tokens);
    between->there = there_make(card, &between->area, stream);
    between->second = pinned(card, between->there.lead + between->there.bytes);
    between->busy = pinned(card, BUSY_BYTES);
    ok(card->cu->cuMemAlloc(&between->busy_at, BUSY_BYTES));
}

static void between_before(struct between *between)
{
    const struct there *there = &between->there;
    there_poison(there, there->second);
    for (uint32_t i = 0; i < BUSY_COPIES; i++)
        ok(there->card->cu->cuMemcpyHtoDAsync(between->busy_at, between->busy, BUSY_BYTES,
                                              there->memory.stream));
    there_poison(there, there->up);
}

static void between_behind(struct between *between)
{
    const struct there *there = &between->there;
    there_fetch(there);
    there_poison(there, there->second);
    ok(there->card->cu->cuMemcpyDtoHAsync(between->second, there->at, there->lead + there->bytes,
                                          there->memory.stream));
}

static void between_expect(struct between *between, const struct fixture *fx,
                           const struct held *held, uint32_t layer)
{
    const struct there *there = &between->there;
    there_read(there);
    area_expect(&between->area, &fx->shape, &held->prompt, 0, held->found.matched_tokens, layer);
    assert_memory_equal(between->second, there->second, there->lead + there->bytes);
}

static void between_free(struct between *between)
{
    const struct card *card = between->there.card;
    there_free(&between->there);
    unpinned(card, between->second);
    unpinned(card, between->busy);
    ok(card->cu->cuMemFree(between->busy_at));
    area_free(&between->area);
}

static void abi_200_a_load_stands_in_its_place_among_its_streams_work(void **state)
{
    struct fixture *fx = *state;
    struct card card = card_open();
    struct held held = hold(fx, 2000, 300);
    for (uint32_t kind = 0; kind < 2; kind++) { /* a stream, and the legacy default one */
        struct between between;
        between_make(&between, fx, &card, &held, kind == 0 ? card.stream : NULL);
        for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
            struct spec_important item =
                important(held.found.request, layer, &between.there.memory);
            between_before(&between);
            assert_ok(fx, load(fx, &item));
            between_behind(&between);
            between_expect(&between, fx, &held, layer);
        }
        between_free(&between);
    }
    let_go(fx, &held);
    fixture_close(fx);
    card_close(&card);
}

static void abi_200_items_of_one_call_stand_on_streams_of_their_own(void **state)
{
    struct fixture *fx = *state;
    struct card card = card_open();
    struct held held = hold(fx, 2001, 300);
    sc_cu_stream streams[3] = {card.stream, NULL, NULL};
    struct between between[3];
    struct spec_important items[3];
    ok(card.cu->cuStreamCreate(&streams[1], SC_CU_STREAM_NON_BLOCKING));
    for (uint32_t i = 0; i < 3; i++)
        between_make(&between[i], fx, &card, &held, streams[i]);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 3; i++) {
            items[i] = important(held.found.request, (round + i) % 3, &between[i].there.memory);
            between_before(&between[i]);
        }
        if (fx->api->get_important(fx->conn, items, 3, &fx->error) == SPEC_E_UNSUPPORTED)
            conf_skip("the connector takes no CUDA memory");
        for (uint32_t i = 0; i < 3; i++)
            between_behind(&between[i]);
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(items[i].status, SPEC_OK);
            between_expect(&between[i], fx, &held, (round + i) % 3);
        }
    }
    for (uint32_t i = 0; i < 3; i++)
        between_free(&between[i]);
    ok(card.cu->cuStreamDestroy(streams[1]));
    let_go(fx, &held);
    fixture_close(fx);
    card_close(&card);
}

/* The stream's work until submit comes before the rows, what it gets behind wait comes after. */
static void abi_200_the_halves_of_a_load_stand_where_submit_and_wait_are(void **state)
{
    struct fixture *fx = *state;
    struct card card = card_open();
    struct held held = hold(fx, 2002, 300);
    struct between between;
    between_make(&between, fx, &card, &held, card.stream);
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
        struct spec_important item = important(held.found.request, layer, &between.there.memory);
        spec_ticket ticket = 0;
        between_before(&between);
        if (fx->api->get_important_submit(fx->conn, &item, 1, &ticket, &fx->error) ==
            SPEC_E_UNSUPPORTED)
            conf_skip("the connector takes no CUDA memory");
        assert_true(ticket != 0);
        assert_ok(fx, fx->api->get_important_wait(fx->conn, ticket, UINT64_MAX, &fx->error));
        between_behind(&between);
        between_expect(&between, fx, &held, layer);
    }
    between_free(&between);
    let_go(fx, &held);
    fixture_close(fx);
    card_close(&card);
}

typedef void (*hold_stream)(sc_cu_stream stream, int on); /* of a driver made for tests */
typedef sc_cu_result (*wait_value)(sc_cu_stream stream, sc_cu_ptr at, uint32_t value,
                                   unsigned flags);

/* What stops the card's stream: nothing of it goes on until it is let go. */
struct stop {
    const struct card *card;
    hold_stream hold; /* or, of a real driver, */
    wait_value wait;  /* until the round has come to the word */
    uint8_t *page;    /* the word is its first one */
    uint32_t round;
};

static _Atomic uint32_t *stop_word(const struct stop *stop)
{
    return (_Atomic uint32_t *)(void *)stop->page;
}

static struct stop stop_make(const struct card *card)
{
    struct stop stop = {.card = card};
    void *hold = conf_driver_symbol("fake_hold");
    void *wait = conf_driver_call("cuStreamWaitValue32", 12000);
    memcpy(&stop.hold, &hold, sizeof(hold));
    memcpy(&stop.wait, &wait, sizeof(wait));
    if (stop.hold == NULL && stop.wait == NULL)
        conf_skip("no CUDA driver whose streams can be held");
    stop.page = pinned(card, PAGE);
    atomic_store(stop_word(&stop), 0);
    return stop;
}

static void stop_free(struct stop *stop)
{
    unpinned(stop->card, stop->page);
}

static void stop_hold(struct stop *stop)
{
    if (stop->hold != NULL)
        stop->hold(stop->card->stream, 1);
    else
        ok(stop->wait(stop->card->stream, (sc_cu_ptr)(uintptr_t)stop->page, ++stop->round, 0));
}

static void stop_let_go(struct stop *stop)
{
    if (stop->hold != NULL)
        stop->hold(stop->card->stream, 0);
    else
        atomic_store(stop_word(stop), stop->round);
}

/* One load behind all that the stream was given: of all rows (even ways), or of rows that the
 * host's queries choose; by get_important (way & 2 is 0), or by its halves. stop: NULL, or what the
 * stream stands at from before the load until after it. */
static void load_behind(struct quantised *quantised, const struct card *card, struct stop *stop,
                        uint32_t way)
{
    struct fixture *fx = quantised->scene.fx;
    struct shot shot = shot_of(way / 4, (way & 1) != 0 ? 200000 : 0);
    struct spec_lookup_result found = scene_find(&quantised->scene, 0);
    spec_ticket ticket = 0;
    shot_make(quantised, &shot, &found);
    struct there there = there_make(card, &shot.answer.area, card->stream);
    shot.answer.item.destination = &there.memory;
    there_poison(&there, there.up);
    if (stop != NULL)
        stop_hold(stop);
    if ((way & 2) == 0) {
        assert_ok(fx, load(fx, &shot.answer.item));
    } else {
        assert_ok(
            fx, fx->api->get_important_submit(fx->conn, &shot.answer.item, 1, &ticket, &fx->error));
        assert_ok(fx, fx->api->get_important_wait(fx->conn, ticket, UINT64_MAX, &fx->error));
    }
    there_fetch(&there);
    if (stop != NULL)
        stop_let_go(stop);
    there_read(&there);
    shot_expect(quantised, &shot);
    there_free(&there);
    shot_free(&shot);
    fixture_release(fx, found.request);
}

/* All rows, and rows chosen by the host's queries: the call is through, in both halves, while the
 * destination's stream stands still. The first load attaches the device, for which a driver may
 * wait for all streams: it loads kernels. Where the test hangs, the last line names the way. */
static void abi_200_no_call_waits_for_a_destinations_stream(void **state)
{
    struct fixture *fx = *state;
    if (conf_options.one_set)
        conf_skip("no CUDA stream may stand still: what turns memory into a device's frees it");
    struct card card = card_open();
    struct stop stop = stop_make(&card);
    struct quantised quantised = quantised_open(fx, WIDE, 2003, 4, 2);
    load_behind(&quantised, &card, NULL, 0);
    for (uint32_t way = 0; way < 12; way++) {
        if (stop.hold == NULL) /* a real driver */
            (void)fprintf(stderr, "    way %" PRIu32 " of 12\n", way + 1);
        load_behind(&quantised, &card, &stop, way);
    }
    quantised_expect_sure(&quantised);
    quantised_close(&quantised);
    fixture_close(fx);
    stop_free(&stop);
    card_close(&card);
}

/* ---- 201 ---- */

typedef sc_cu_result (*begin_capture)(sc_cu_stream stream, int mode);
typedef sc_cu_result (*end_capture)(sc_cu_stream stream, void **ret_graph);
typedef sc_cu_result (*end_graph)(void *graph);

static void load_while_captured(struct fixture *fx, struct card *card, const struct there *there,
                                spec_request request)
{
    void *calls[3] = {conf_driver_call("cuStreamBeginCapture", 10010),
                      conf_driver_call("cuStreamEndCapture", 10000),
                      conf_driver_call("cuGraphDestroy", 10000)};
    begin_capture begin;
    end_capture end;
    end_graph destroy;
    void *graph = NULL;
    spec_ticket ticket = 0;
    memcpy(&begin, &calls[0], sizeof(begin));
    memcpy(&end, &calls[1], sizeof(end));
    memcpy(&destroy, &calls[2], sizeof(destroy));
    assert_true(begin != NULL && end != NULL && destroy != NULL);
    struct spec_important item = important(request, 1, &there->memory);
    ok(begin(card->stream, 0)); /* global: nobody may do what breaks it */
    spec_status status = fx->api->get_important(fx->conn, &item, 1, &fx->error);
    spec_status half = fx->api->get_important_submit(fx->conn, &item, 1, &ticket, &fx->error);
    ok(end(card->stream, &graph));
    assert_non_null(graph);
    ok(destroy(graph));
    if (status == SPEC_E_UNSUPPORTED)
        conf_skip("the connector takes no CUDA memory");
    assert_int_equal(status, SPEC_E_INVALID);
    assert_int_equal(half, SPEC_E_INVALID);
}

static void abi_201_a_stream_that_is_captured_is_invalid_and_the_capture_goes_on(void **state)
{
    struct fixture *fx = *state;
    struct card card = card_open();
    struct held held = hold(fx, 2010, 200);
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, held.found.matched_tokens);
    struct there there = there_make(&card, &area, card.stream);
    for (uint32_t round = 0; round < 2; round++) { /* the first to name a device, and another */
        there_poison(&there, there.up);
        ok(card.cu->cuStreamSynchronize(card.stream));
        load_while_captured(fx, &card, &there, held.found.request);
        there_fetch(&there);
        there_read(&there);
        area_expect(&area, &fx->shape, &held.prompt, 0, 0, 1);
        struct spec_important item = important(held.found.request, 1, &there.memory);
        there_poison(&there, there.up);
        assert_ok(fx, load(fx, &item));
        there_fetch(&there);
        there_read(&there);
        area_expect(&area, &fx->shape, &held.prompt, 0, held.found.matched_tokens, 1);
    }
    there_free(&there);
    area_free(&area);
    let_go(fx, &held);
    fixture_close(fx);
    card_close(&card);
}

/* The item is INVALID, whatever is done with it; then one that is right is as ever. */
static void expect_invalid(struct fixture *fx, struct there *there, const struct held *held,
                           const struct spec_memory *wrong)
{
    struct spec_important item = important(held->found.request, 1, wrong);
    spec_ticket ticket = 0;
    there_poison(there, there->up);
    assert_status(load(fx, &item), SPEC_E_INVALID);
    assert_status(fx->api->get_important_submit(fx->conn, &item, 1, &ticket, &fx->error),
                  SPEC_E_INVALID);
    there_fetch(there);
    there_read(there);
    area_expect(there->area, &fx->shape, &held->prompt, 0, 0, 1);
    item = important(held->found.request, 1, &there->memory);
    assert_ok(fx, load(fx, &item));
    there_fetch(there);
    there_read(there);
    area_expect(there->area, &fx->shape, &held->prompt, 0, held->found.matched_tokens, 1);
}

static void abi_201_memory_that_is_not_the_devices_is_invalid(void **state)
{
    struct fixture *fx = *state;
    struct card card = card_open();
    struct held held = hold(fx, 2011, 200);
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, held.found.matched_tokens);
    struct area plain = area_twin(&area);
    struct there there = there_make(&card, &area, card.stream);
    struct spec_memory wrong = there.memory;
    if (held.found.matched_tokens > 0) {
        wrong.k_base = plain.memory.k_base; /* the host's */
        wrong.v_base = plain.memory.v_base;
        expect_invalid(fx, &there, &held, &wrong);
        wrong.k_base = there.memory.k_base; /* one of them */
        expect_invalid(fx, &there, &held, &wrong);
        wrong.k_base = there.second; /* the host's, which the device can reach */
        wrong.v_base = there.second + there.memory.k_bytes;
        expect_invalid(fx, &there, &held, &wrong);
        for (uint64_t i = 0; i < there.lead + there.bytes; i++)
            assert_int_equal(there.second[i], SECOND);
        wrong = there.memory;
        wrong.v_bytes += UINT64_C(1) << 40; /* it ends before that */
        expect_invalid(fx, &there, &held, &wrong);
        wrong = there.memory;
        wrong.device_index = -1;
        expect_invalid(fx, &there, &held, &wrong);
        area_expect(&plain, &fx->shape, &held.prompt, 0, 0, 1);
    }
    there_free(&there);
    free(plain.bytes);
    area_free(&area);
    let_go(fx, &held);
    fixture_close(fx);
    card_close(&card);
}

/* A stream, memory and an index of the second device, where the connector has the first. */
static void expect_second_device_invalid(struct fixture *fx, struct card *card, struct there *there,
                                         const struct held *held)
{
    const struct sc_cu *cu = card->cu;
    sc_cu_device device;
    sc_cu_context context, popped;
    sc_cu_stream stream;
    sc_cu_ptr at;
    ok(cu->cuDeviceGet(&device, 1));
    ok(cu->cuDevicePrimaryCtxRetain(&context, device));
    ok(cu->cuCtxPushCurrent(context));
    ok(cu->cuStreamCreate(&stream, SC_CU_STREAM_NON_BLOCKING));
    ok(cu->cuMemAlloc(&at, there->bytes));
    ok(cu->cuCtxPopCurrent(&popped));
    struct spec_memory wrong = there->memory;
    wrong.stream = stream;
    expect_invalid(fx, there, held, &wrong);
    wrong.stream = card->stream;
    wrong.v_base = (void *)(uintptr_t)at;
    expect_invalid(fx, there, held, &wrong);
    wrong.stream = stream;
    wrong.k_base = wrong.v_base;
    wrong.device_index = 1; /* all of it right, but the connector's device is another */
    expect_invalid(fx, there, held, &wrong);
    ok(cu->cuCtxPushCurrent(context));
    ok(cu->cuStreamDestroy(stream));
    ok(cu->cuMemFree(at));
    ok(cu->cuCtxPopCurrent(&popped));
    ok(cu->cuDevicePrimaryCtxRelease(device));
}

static void abi_201_another_device_and_a_second_one_are_invalid(void **state)
{
    struct fixture *fx = *state;
    struct card card = card_open();
    int count = 0;
    struct held held = hold(fx, 2012, 200);
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, held.found.matched_tokens);
    struct there there = there_make(&card, &area, card.stream);
    struct spec_important item = important(held.found.request, 1, &there.memory);
    assert_ok(fx, load(fx, &item)); /* so this one is the connector's */
    ok(card.cu->cuDeviceGetCount(&count));
    if (count > 1 && held.found.matched_tokens > 0)
        expect_second_device_invalid(fx, &card, &there, &held);
    there_free(&there);
    area_free(&area);
    let_go(fx, &held);
    fixture_close(fx);
    card_close(&card);
    if (count < 2)
        conf_skip("one CUDA device");
}

/* ---- 202 ---- */

typedef void (*fail_once)(const char *name, int n, int code); /* of a driver made for tests */

static void expect_failure(struct fixture *fx, struct card *card, fail_once arm, const char *call)
{
    struct held held = hold(fx, 2020, 200);
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, held.found.matched_tokens);
    struct there there = there_make(card, &area, card->stream);
    struct spec_important item = important(held.found.request, 1, &there.memory);
    char reason[sizeof(fx->error.text)];
    assert_ok(fx, load(fx, &item));
    arm(call, 1, SC_CU_LAUNCH_FAILED);
    assert_status(fx->api->get_important(fx->conn, &item, 1, &fx->error), SPEC_E_IO);
    const char *named = strstr(fx->error.text, call);
    if (named == NULL || strstr(named, "719") == NULL)
        fail_msg("%s failed with 719, and the text is: %s", call, fx->error.text);
    (void)snprintf(reason, sizeof(reason), "%s", named);
    for (uint32_t round = 0; round < 2; round++) {
        assert_status(fx->api->get_important(fx->conn, &item, 1, &fx->error), SPEC_E_UNSUPPORTED);
        if (strstr(fx->error.text, reason) == NULL)
            fail_msg("the reason was: %s; now it is: %s", reason, fx->error.text);
        fixture_check_layers(fx, &held.found, &held.prompt, 0); /* the match stays */
    }
    arm(call, 0, 0);
    let_go(fx, &held);
    fixture_close(fx);
    there_free(&there);
    area_free(&area);
}

static void abi_202_a_call_of_the_driver_that_fails_ends_loads_to_the_device_alone(void **state)
{
    struct fixture *fx = *state;
    static const char *const CALLS[] = {"cuEventRecord", "cuStreamWaitEvent", "cuMemcpyHtoDAsync",
                                        "cuLaunchKernel"};
    if (conf_options.one_set)
        conf_skip("no CUDA device is beside the host: all loads of this connector go to one");
    struct card card = card_open();
    void *symbol = conf_driver_symbol("fake_fault");
    fail_once arm;
    memcpy(&arm, &symbol, sizeof(arm));
    for (uint32_t i = 0; arm != NULL && i < sizeof(CALLS) / sizeof(CALLS[0]); i++) {
        if (fx->conn == NULL)
            fixture_open(fx);
        expect_failure(fx, &card, arm, CALLS[i]);
    }
    card_close(&card);
    if (arm == NULL)
        conf_skip("no CUDA driver that fails on demand");
}

/* ---- 203 ---- */

/* Of each layer: its rows go there, are stored, and are written over, and nobody waits; but those
 * of every third one, which are the host's. false: it was given up. */
static bool store_from(struct fixture *fx, struct card *card, spec_request request,
                       const struct prompt *prompt, enum layout layout)
{
    spec_ticket ticket = 0;
    struct area *areas = calloc(fx->shape.layers, sizeof(*areas));
    struct there *theres = calloc(fx->shape.layers, sizeof(*theres));
    assert_non_null(areas);
    assert_non_null(theres);
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
        areas[layer] = area_make(&fx->shape, layout, prompt->count);
        theres[layer] = there_make(card, &areas[layer], card->stream);
        struct there *there = &theres[layer];
        bool is_host = layer % 3 == 2;
        struct spec_store_params params = {.struct_size = sizeof(params),
                                           .request = request,
                                           .layer = layer,
                                           .token_count = prompt->count,
                                           .memory =
                                               is_host ? &areas[layer].memory : &there->memory};
        area_fill(&areas[layer], &fx->shape, prompt, 0, layer);
        memcpy(there->up + there->lead, areas[layer].bytes, there->bytes);
        there_poison(there, there->up);
        spec_status status = fx->api->store(fx->conn, &params, 1, &ticket, &fx->error);
        if (status == SPEC_E_UNSUPPORTED && layer == 0)
            conf_skip("the connector takes no CUDA memory");
        assert_ok(fx, status);
        there_poison(there, there->second);
        area_poison(&areas[layer]);
    }
    bool stored = fixture_wait(fx, ticket) == SPEC_OK;
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
        there_free(&theres[layer]);
        area_free(&areas[layer]);
    }
    free(theres);
    free(areas);
    return stored;
}

static void abi_203_a_source_is_stored_as_it_stood_in_its_streams_order(void **state)
{
    struct fixture *fx = *state;
    struct card card = card_open();
    for (enum layout layout = 0; layout < LAYOUTS; layout++) {
        struct prompt prompt = prompt_make(2030 + (uint64_t)layout, 200);
        struct spec_lookup_result found = fixture_find(fx, &prompt);
        bool stored = store_from(fx, &card, found.request, &prompt, layout);
        fixture_release(fx, found.request);
        fixture_check(fx, &prompt, stored ? 199 : 0);
        prompt_free(&prompt);
    }
    fixture_close(fx);
    card_close(&card);
}

/* ---- 204 ---- */

/* The host's bytes on the device, at the same alignment, when the stream comes to it. */
struct source {
    const struct card *card;
    uint64_t bytes;
    uint8_t *up, *second; /* pinned: what is meant, and what comes to stand there afterwards */
    sc_cu_ptr at;
};

static struct source source_make(const struct card *card, const void *from, uint64_t bytes)
{
    struct source source = {.card = card, .bytes = bytes};
    source.up = pinned(card, bytes);
    source.second = pinned(card, bytes);
    memcpy(source.up, from, bytes);
    memset(source.second, SECOND, bytes);
    ok(card->cu->cuMemAlloc(&source.at, bytes));
    return source;
}

static void source_write(const struct source *source, const uint8_t *from)
{
    ok(source->card->cu->cuMemcpyHtoDAsync(source->at, from, source->bytes, source->card->stream));
}

/* Other bytes stood there, and the stream is busy before it gets those that are meant. */
static void source_put(const struct source *source)
{
    source_write(source, source->second);
    for (uint32_t i = 0; i < BUSY_COPIES; i++)
        source_write(source, i % 2 == 0 ? source->up : source->second);
    source_write(source, source->up);
}

static void source_free(struct source *source)
{
    ok(source->card->cu->cuStreamSynchronize(source->card->stream));
    unpinned(source->card, source->up);
    unpinned(source->card, source->second);
    ok(source->card->cu->cuMemFree(source->at));
}

static void queries_turn(struct spec_queries *queries, const struct source *source)
{
    queries->device = SPEC_DEVICE_CUDA;
    queries->data = (const void *)(uintptr_t)source->at;
    queries->stream = source->card->stream;
}

enum where { QUERIES_THERE = 1, KEYS_THERE = 2 };

/* One call, or its two halves; the sources are written over right behind the call. */
static spec_status ask_once(struct fixture *fx, struct answer *answer, bool is_submitted,
                            const struct source sources[2])
{
    spec_ticket ticket = 0;
    if (is_submitted) {
        spec_status status =
            fx->api->get_important_submit(fx->conn, &answer->item, 1, &ticket, &fx->error);
        if (status == SPEC_OK)
            status = fx->api->get_important_wait(fx->conn, ticket, UINT64_MAX, &fx->error);
        if (status != SPEC_E_UNSUPPORTED)
            assert_ok(fx, status);
    }
    assert_ok(fx, ticket != 0 ? SPEC_OK : load(fx, &answer->item));
    for (uint32_t i = 0; i < 2; i++)
        source_write(&sources[i], sources[i].second);
    return answer->item.status;
}

/* To the host's memory, as the same item asked with the host's. */
static void ask_there(struct scene *scene, const struct card *card, const struct ask *ask,
                      const struct answer *right, enum where where, bool is_submitted)
{
    struct fixture *fx = scene->fx;
    struct spec_lookup_result found = scene_find(scene, 0);
    struct answer answer = answer_make(scene, ask, &found);
    struct area *keys = &answer.new_keys;
    struct source sources[2] = {source_make(card, answer.query_numbers, answer.queries.byte_count),
                                source_make(card, keys->memory.k_base, keys->memory.k_bytes)};
    struct spec_memory there = keys->memory;
    there.k_base = (void *)(uintptr_t)sources[1].at;
    there.v_base = NULL; /* keys alone are read */
    there.v_bytes = 0;
    there.device = SPEC_DEVICE_CUDA;
    there.stream = card->stream;
    answer.item = answer_item(ask, &answer);
    if ((where & QUERIES_THERE) != 0)
        queries_turn(&answer.queries, &sources[0]);
    if ((where & KEYS_THERE) != 0)
        answer.item.new_keys = &there;
    source_put(&sources[0]);
    source_put(&sources[1]);
    assert_int_equal(ask_once(fx, &answer, is_submitted, sources), SPEC_OK);
    answer_expect(scene, ask, &answer);
    if (right != NULL && found.matched_tokens > 0) {
        answer_expect_same(scene, right, &answer);
        assert_int_equal(answer.area.byte_count, right->area.byte_count);
        assert_memory_equal(answer.area.bytes, right->area.bytes, right->area.byte_count);
    }
    source_free(&sources[0]);
    source_free(&sources[1]);
    answer_free(&answer);
    fixture_release(fx, found.request);
}

#define MATCHED 170u

/* probes: KV heads whose keys are looked at first. The heads' sets agree, or are each one's own. */
static void abi_204_queries_and_new_keys_there_choose_what_the_hosts_do(void **state)
{
    struct fixture *fx = *state;
    static const struct shape SHAPE = {3, 4, 16, SPEC_DTYPE_F16};
    struct card card = card_open();
    for (uint32_t agree = 0; agree < 8; agree += 7) {
        fixture_shape(fx, SHAPE);
        scene_configure(fx, 3, "", "");
        struct scene scene = scene_open(fx, SHAPE, 3, agree, 2040 + agree, MATCHED);
        for (uint32_t layer = 0; layer < SHAPE.layers; layer++) {
            struct ask ask = ask_ratio(layer, 250000);
            if (layer == 1 && agree > 0) /* else all rows would come */
                ask.heads = SPEC_QUERIES_PROBE;
            struct spec_lookup_result found = scene_find(&scene, 0);
            struct answer right = answer_make(&scene, &ask, &found);
            right.item = answer_item(&ask, &right);
            assert_ok(fx, fx->api->get_important(fx->conn, &right.item, 1, &fx->error));
            answer_expect(&scene, &ask, &right);
            fixture_release(fx, found.request);
            for (uint32_t where = QUERIES_THERE; where <= (QUERIES_THERE | KEYS_THERE); where++)
                for (uint32_t submitted = 0; submitted < 2; submitted++)
                    ask_there(&scene, &card, &ask, &right, (enum where)where, submitted != 0);
            answer_free(&right);
        }
        scene_close(&scene);
        fixture_close(fx);
    }
    card_close(&card);
}

/* The hint of a layer whose queries are these; then it is asked for by the host's. */
static void hint_there(struct scene *scene, const struct card *card, const struct ask *ask,
                       const struct answer *right, bool waits)
{
    struct fixture *fx = scene->fx;
    struct spec_lookup_result found = scene_find(scene, 0);
    struct answer answer = answer_make(scene, ask, &found);
    struct source source = source_make(card, answer.query_numbers, answer.queries.byte_count);
    struct spec_queries hint = answer.queries;
    queries_turn(&hint, &source);
    assert_ok(fx, fx->api->begin_layer(fx->conn, &found.request, 1, ask->layer - 1, &fx->error));
    source_put(&source);
    spec_status status =
        fx->api->prefetch_next(fx->conn, found.request, ask->layer - 1, &hint, &fx->error);
    source_write(&source, source.second);
    if (status == SPEC_E_UNSUPPORTED)
        conf_skip("the connector takes no CUDA memory");
    assert_ok(fx, status);
    if (waits)
        ok(card->cu->cuStreamSynchronize(card->stream));
    answer.item = answer_item(ask, &answer);
    assert_ok(fx, fx->api->get_important(fx->conn, &answer.item, 1, &fx->error));
    answer_expect(scene, ask, &answer);
    if (found.matched_tokens > 0) {
        answer_expect_same(scene, right, &answer);
        assert_memory_equal(answer.area.bytes, right->area.bytes, right->area.byte_count);
    }
    source_free(&source);
    answer_free(&answer);
    fixture_release(fx, found.request);
}

static void abi_204_a_hint_is_copied_in_the_streams_order(void **state)
{
    struct fixture *fx = *state;
    static const struct shape SHAPE = {3, 4, 16, SPEC_DTYPE_F16};
    struct card card = card_open();
    fixture_shape(fx, SHAPE);
    scene_configure(fx, 3,
                    "\"retain_ppm\": 250000, \"min_tokens\": 0}, \"prefetch\": "
                    "{\"predictor\": \"hint\", \"min_precision_ppm\": 0",
                    "");
    struct scene scene = scene_open(fx, SHAPE, 3, 7, 2050, MATCHED);
    for (uint32_t layer = 1; layer < SHAPE.layers; layer++) {
        struct ask ask = ask_ratio(layer, 250000);
        struct spec_lookup_result found = scene_find(&scene, 0);
        struct answer right = answer_make(&scene, &ask, &found);
        right.item = answer_item(&ask, &right);
        assert_ok(fx, fx->api->get_important(fx->conn, &right.item, 1, &fx->error));
        fixture_release(fx, found.request);
        for (uint32_t round = 0; round < 8; round++)
            hint_there(&scene, &card, &ask, &right, round % 2 == 0);
        answer_free(&right);
    }
    scene_close(&scene);
    fixture_close(fx);
    card_close(&card);
}

const struct conf_test CONF_DEVICE[] = {
    OPENED(abi_199_without_a_device_its_memory_is_unsupported_and_host_loads_go_on),
    OPENED(abi_199_a_device_gets_the_bytes_that_the_hosts_memory_gets),
    OPENED(abi_199_a_request_without_a_match_gets_no_row_there),
    OPENED(abi_200_a_load_stands_in_its_place_among_its_streams_work),
    OPENED(abi_200_items_of_one_call_stand_on_streams_of_their_own),
    OPENED(abi_200_the_halves_of_a_load_stand_where_submit_and_wait_are),
    BARE(abi_200_no_call_waits_for_a_destinations_stream),
    OPENED(abi_201_a_stream_that_is_captured_is_invalid_and_the_capture_goes_on),
    OPENED(abi_201_memory_that_is_not_the_devices_is_invalid),
    OPENED(abi_201_another_device_and_a_second_one_are_invalid),
    OPENED(abi_202_a_call_of_the_driver_that_fails_ends_loads_to_the_device_alone),
    OPENED(abi_203_a_source_is_stored_as_it_stood_in_its_streams_order),
    BARE(abi_204_queries_and_new_keys_there_choose_what_the_hosts_do),
    BARE(abi_204_a_hint_is_copied_in_the_streams_order),
    END,
};

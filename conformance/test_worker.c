/* test_worker: several processes over one store, with real kills: ABI-028, 029, 139.
 *
 *   test  --command-->  worker (forked before anything is open: no thread, no connector)
 *         <--answer--   ... opens, looks up, loads, stores; the test asserts
 *
 * A worker asserts nothing; it compares its rows with the truth and reports. Threads, Tests: see
 * fixture.h. */
#include "conformance/suite.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum op {
    OP_OPEN,   /* role, rank, rank_count */
    OP_STORE,  /* `layers` layers of a prompt; status: of the last ticket */
    OP_LOAD,   /* lookup, all layers compared, release */
    OP_HOLD,   /* lookup; the request is kept */
    OP_RELOAD, /* the layers of the kept request */
    OP_ATTACH, /* a lease: attach, all layers compared, release */
    OP_RESET,
    OP_CLOSE
};

struct command {
    uint32_t op, role, rank, rank_count, layers;
    uint64_t seed, count, salt;
    struct spec_lookup_result leased;
};

struct answer {
    spec_status status;
    uint64_t matched;
    struct spec_lookup_result found;
    char wrong[160]; /* "": all that was delivered is right */
};

struct worker {
    pid_t pid;
    int fd;
    struct fixture fx;
    struct spec_lookup_result held; /* of HOLD */
};

/* ---- In the worker ---- */

static void worker_load(struct worker *worker, const struct prompt *prompt,
                        const struct spec_lookup_result *found, struct answer *answer)
{
    struct fixture *fx = &worker->fx;
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, found->matched_tokens);
    for (uint32_t layer = 0; layer < fx->shape.layers && answer->status == SPEC_OK; layer++) {
        struct spec_important item = important(found->request, layer, &area.memory);
        area_poison(&area);
        answer->status = fx->api->get_important(fx->conn, &item, 1, &fx->error);
        if (answer->status == SPEC_OK &&
            !area_is_right(&area, &fx->shape, prompt, 0, found->matched_tokens, layer))
            (void)snprintf(answer->wrong, sizeof(answer->wrong), "layer %u: wrong bytes",
                           (unsigned)layer);
    }
    area_free(&area);
}

static void worker_store(struct worker *worker, const struct prompt *prompt, uint32_t layers,
                         struct answer *answer)
{
    struct fixture *fx = &worker->fx;
    struct spec_lookup_params params = lookup_params(prompt);
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    answer->status = fx->api->lookup(fx->conn, &params, &found, &fx->error);
    uint64_t first = found.matched_tokens;
    for (uint32_t layer = 0; layer < layers && answer->status == SPEC_OK; layer++) {
        spec_ticket ticket;
        spec_status ended = SPEC_OK;
        answer->status =
            fixture_put(fx, found.request, prompt, first, prompt->count - first, layer, &ticket);
        if (answer->status == SPEC_OK && ticket != 0)
            answer->status = fx->api->wait(fx->conn, &ticket, 1, CONF_WAIT_NS, &ended, &fx->error);
        if (answer->status == SPEC_OK)
            answer->status = ended;
    }
    if (layers == fx->shape.layers) /* else the pass stays open */
        (void)fx->api->release(fx->conn, found.request, &fx->error);
}

static void worker_find(struct worker *worker, const struct command *command,
                        const struct prompt *prompt, struct answer *answer)
{
    struct fixture *fx = &worker->fx;
    struct spec_lookup_params params = lookup_params(prompt);
    struct spec_attach_params lease = {.struct_size = sizeof(lease),
                                       .lease = {command->leased.lease, 64}};
    answer->found = (struct spec_lookup_result){.struct_size = sizeof(answer->found)};
    answer->status = command->op == OP_ATTACH
                         ? fx->api->attach(fx->conn, &lease, &answer->found, &fx->error)
                         : fx->api->lookup(fx->conn, &params, &answer->found, &fx->error);
    answer->matched = answer->found.matched_tokens;
    if (answer->status != SPEC_OK || answer->found.request == 0)
        return;
    if (command->op == OP_HOLD) {
        worker->held = answer->found;
        return;
    }
    worker_load(worker, prompt, &answer->found, answer);
    (void)fx->api->release(fx->conn, answer->found.request, &fx->error);
}

static void worker_do(struct worker *worker, const struct command *command, struct answer *answer)
{
    struct fixture *fx = &worker->fx;
    struct prompt prompt = prompt_make(command->seed, command->count > 0 ? command->count : 1);
    prompt_salt(&prompt, command->salt);
    if (command->op == OP_OPEN) {
        fx->role = command->role;
        fx->rank = fx->model.tp_rank = command->rank;
        fx->rank_count = fx->model.tp_size = command->rank_count;
        answer->status = fixture_try_open(fx);
    } else if (command->op == OP_STORE) {
        worker_store(worker, &prompt, command->layers, answer);
    } else if (command->op == OP_RELOAD) {
        worker_load(worker, &prompt, &worker->held, answer);
    } else if (command->op == OP_RESET) {
        answer->status = fx->api->reset(fx->conn, &fx->error);
    } else if (command->op == OP_CLOSE) {
        fx->api->close(fx->conn);
        fx->conn = NULL;
    } else {
        worker_find(worker, command, &prompt, answer);
    }
    if (answer->status != SPEC_OK && answer->wrong[0] == '\0' && command->op == OP_OPEN)
        (void)snprintf(answer->wrong, sizeof(answer->wrong), "%.150s", fx->error.text);
    prompt_free(&prompt);
}

static _Noreturn void worker_run(struct worker *worker)
{
    struct command command;
    while (read(worker->fd, &command, sizeof(command)) == (ssize_t)sizeof(command)) {
        struct answer answer = {.status = SPEC_OK};
        worker_do(worker, &command, &answer);
        if (write(worker->fd, &answer, sizeof(answer)) != (ssize_t)sizeof(answer) ||
            command.op == OP_CLOSE)
            break;
    }
    _exit(0); /* closed, or the test is over, however it ended */
}

/* ---- In the test ---- */

static struct worker worker_start(const struct fixture *fx)
{
    int ends[2];
    struct worker worker = {.fx = *fx};
    assert_null(fx->conn);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    worker.pid = conf_fork();
    assert_true(worker.pid >= 0);
    if (worker.pid == 0) {
        close(ends[0]);
        worker.fd = ends[1];
        worker_run(&worker);
    }
    close(ends[1]);
    worker.fd = ends[0];
    return worker;
}

static void worker_end(struct worker *worker, bool kills)
{
    int status;
    if (kills)
        assert_int_equal(kill(worker->pid, SIGKILL), 0);
    close(worker->fd);
    assert_int_equal(waitpid(worker->pid, &status, 0), worker->pid);
    if (!kills)
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static struct answer ask(struct worker *worker, struct command command)
{
    struct answer answer;
    assert_int_equal(write(worker->fd, &command, sizeof(command)), sizeof(command));
    if (recv(worker->fd, &answer, sizeof(answer), MSG_WAITALL) != (ssize_t)sizeof(answer))
        fail_msg("a worker died");
    if (answer.wrong[0] != '\0')
        fail_msg("%s", answer.wrong);
    return answer;
}

static struct worker worker_open(const struct fixture *fx, uint32_t role, uint32_t rank,
                                 uint32_t rank_count)
{
    struct worker worker = worker_start(fx);
    struct command command = {.op = OP_OPEN, .role = role, .rank = rank, .rank_count = rank_count};
    assert_int_equal(ask(&worker, command).status, SPEC_OK);
    return worker;
}

static void worker_close(struct worker *worker)
{
    assert_int_equal(ask(worker, (struct command){.op = OP_CLOSE}).status, SPEC_OK);
    worker_end(worker, false);
}

static struct command about(enum op op, uint64_t seed, uint64_t count, uint64_t salt)
{
    return (struct command){.op = op, .layers = 3, .seed = seed, .count = count, .salt = salt};
}

/* Until as much is found, or a while has passed. */
static void await_load(struct worker *worker, uint64_t seed, uint64_t count, uint64_t salt,
                       uint64_t expected)
{
    uint32_t tries = 0;
    struct answer answer;
    do {
        answer = ask(worker, about(OP_LOAD, seed, count, salt));
        assert_int_equal(answer.status, SPEC_OK);
        assert_in_range(answer.matched, 0, expected);
    } while (answer.matched != expected && conf_wait(&tries) &&
             (conf_options.require_hits || tries < 20));
    if (conf_options.require_hits)
        assert_int_equal(answer.matched, expected);
}

static void abi_028_a_writer_killed_between_layers_leaves_the_minimum(void **state)
{
    struct fixture *fx = *state;
    struct worker ranks[2] = {worker_open(fx, SPEC_ROLE_WRITER, 0, 2),
                              worker_open(fx, SPEC_ROLE_WRITER, 1, 2)};
    struct worker reader = worker_open(fx, SPEC_ROLE_READER, 0, 2);
    bool all = true;
    for (uint32_t rank = 0; rank < 2; rank++)
        all = ask(&ranks[rank], about(OP_STORE, 3000, 300, rank)).status == SPEC_OK && all;
    await_load(&reader, 3000, 300, 0, all ? 299 : 0);
    for (uint64_t round = 0; round < 3; round++) {
        uint64_t seed = 3001 + round;
        struct command part = about(OP_STORE, seed, 300, 1);
        part.layers = 2;
        (void)ask(&ranks[0], about(OP_STORE, seed, 300, 0));
        (void)ask(&ranks[1], part);
        if (round < 2) /* the last one finds its pass whole again, or begins anew */
            worker_end(&ranks[1], true);
        for (int i = 0; i < 20; i++) {
            assert_int_equal(ask(&reader, about(OP_LOAD, seed, 300, 0)).matched, 0);
            assert_int_equal(ask(&ranks[0], about(OP_LOAD, seed, 300, 0)).matched, 0);
            usleep(5000);
        }
        if (round < 2)
            ranks[1] = worker_open(fx, SPEC_ROLE_WRITER, 1, 2);
        await_load(&ranks[1], 3000, 300, 1, all ? 299 : 0); /* what was whole is there */
        await_load(&reader, 3000, 300, 0, all ? 299 : 0);
        bool whole = ask(&ranks[1], about(OP_STORE, seed, 300, 1)).status == SPEC_OK;
        await_load(&reader, seed, 300, 0, whole && all ? 299 : 0);
    }
    worker_close(&reader);
    worker_close(&ranks[0]);
    worker_close(&ranks[1]);
}

static void abi_139_a_reset_of_a_reader_reaches_the_writers_process(void **state)
{
    struct fixture *fx = *state;
    struct worker writer = worker_open(fx, SPEC_ROLE_WRITER, 0, 1);
    struct worker reader = worker_open(fx, SPEC_ROLE_READER, 0, 1);
    bool stored = ask(&writer, about(OP_STORE, 3010, 300, 0)).status == SPEC_OK;
    await_load(&reader, 3010, 300, 0, stored ? 299 : 0);
    assert_int_equal(ask(&reader, (struct command){.op = OP_RESET}).status, SPEC_OK);
    assert_int_equal(ask(&reader, about(OP_LOAD, 3010, 300, 0)).matched, 0);
    for (uint32_t tries = 0; ask(&writer, about(OP_LOAD, 3010, 300, 0)).matched != 0;)
        assert_true(conf_wait(&tries));
    worker_end(&writer, true); /* and it is on the disk */
    writer = worker_open(fx, SPEC_ROLE_WRITER, 0, 1);
    assert_int_equal(ask(&writer, about(OP_LOAD, 3010, 300, 0)).matched, 0);
    stored = ask(&writer, about(OP_STORE, 3010, 300, 9)).status == SPEC_OK;
    await_load(&reader, 3010, 300, 9, stored ? 299 : 0);
    worker_close(&reader);
    worker_close(&writer);
}

static uint64_t wall_ns(void)
{
    struct timespec now;
    assert_int_equal(clock_gettime(CLOCK_REALTIME, &now), 0);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The writer stores others until nothing of the prompt is promised there, or 60 of them. */
static void store_others(struct worker *writer, uint64_t seed, uint64_t count)
{
    for (uint64_t i = 0; i < 60; i++)
        (void)ask(writer, about(OP_STORE, seed + i, count, 0));
}

static void abi_029_a_reader_process_reads_on_its_lease_what_was_evicted(void **state)
{
    struct fixture *fx = *state;
    fx->extra =
        "\"disk_bytes\": \"4MiB\", \"segment_bytes\": \"1MiB\", \"staging_bytes\": \"16MiB\", "
        "\"max_requests\": 16, \"max_request_tokens\": 4096, \"lease_ns_max\": 3000000000";
    struct worker writer = worker_open(fx, SPEC_ROLE_WRITER, 0, 1);
    struct worker reader = worker_open(fx, SPEC_ROLE_READER, 0, 1);
    bool stored = ask(&writer, about(OP_STORE, 3020, 900, 0)).status == SPEC_OK;
    await_load(&reader, 3020, 900, 0, stored ? 899 : 0);
    struct answer held = ask(&reader, about(OP_HOLD, 3020, 900, 0));
    assert_int_equal(held.status, SPEC_OK);
    store_others(&writer, 3100, 900);
    struct answer before = ask(&reader, about(OP_RELOAD, 3020, 900, 0));
    struct command attach = about(OP_ATTACH, 3020, 900, 0);
    attach.leased = held.found;
    spec_status attached = held.matched > 0 ? ask(&reader, attach).status : SPEC_OK;
    if (held.matched > 0 && wall_ns() < held.found.lease_expiry_ns) { /* in time */
        assert_int_equal(before.status, SPEC_OK);
        assert_true(attached == SPEC_OK || attached == SPEC_E_STALE); /* it may know by now */
    }
    while (wall_ns() <= held.found.lease_expiry_ns)
        usleep(2000);
    store_others(&writer, 3200, 900);
    if (held.matched > 0) {
        (void)ask(&reader, about(OP_RELOAD, 3020, 900, 0)); /* right, or refused */
        assert_int_equal(ask(&reader, attach).status, SPEC_E_STALE);
    }
    if (conf_options.require_hits) { /* then a miss */
        assert_true(held.matched > 0);
        for (uint32_t tries = 0; ask(&reader, about(OP_LOAD, 3020, 900, 0)).matched != 0;)
            assert_true(conf_wait(&tries));
    }
    worker_close(&reader);
    worker_close(&writer);
}

const struct conf_test CONF_WORKER[] = {
    BARE(abi_028_a_writer_killed_between_layers_leaves_the_minimum),
    BARE(abi_029_a_reader_process_reads_on_its_lease_what_was_evicted),
    BARE(abi_139_a_reset_of_a_reader_reaches_the_writers_process),
    END,
};

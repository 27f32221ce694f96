/* ticket: completion of stores, one 64-bit word each, changed by compare-and-swap.
 *
 *   word  [generation 32][remaining 16][status 8][flags 8]     flags 0: free
 *   spec_ticket  [generation 32][slot + 1 32]
 *
 * A ticket is reported done once, then ended, even if several threads ask at once. The first
 * failure of its parts is kept. Threads: any. Tests: conformance (abi_100_*, abi_101_*) */
#include "plugin/connector.h"

#define TICKET_USED         UINT64_C(1)
#define TICKET_FORGOTTEN    UINT64_C(2) /* freed with its last part: nobody asks */
#define TICKET_STATUS_SHIFT 8
#define TICKET_PART         (UINT64_C(1) << 16)
#define TICKET_GENERATION   (UINT64_C(1) << 32)
#define TICKET_REMAINING(w) ((w) >> 16 & 0xffff)
#define TICKET_FREED(w)     ((w) & ~(TICKET_GENERATION - 1))
#define TICKET_STATUS(w)    (-(spec_status)((w) >> TICKET_STATUS_SHIFT & 0xff))

spec_ticket sc_plugin_ticket_take(spec_connector *conn, uint32_t remaining)
{
    uint64_t hint = atomic_fetch_add_explicit(&conn->tickets.hint, 1, memory_order_relaxed);
    for (uint64_t i = 0; i < SC_LIMIT_TICKETS; i++) {
        uint64_t slot = (hint + i) % SC_LIMIT_TICKETS;
        _Atomic uint64_t *word = &conn->tickets.slots[slot].word;
        uint64_t old = atomic_load_explicit(word, memory_order_relaxed);
        if (old & TICKET_USED)
            continue;
        uint64_t generation = (old >> 32) + 1;
        uint64_t new = generation << 32 | (uint64_t)remaining << 16 | TICKET_USED;
        if (atomic_compare_exchange_strong(word, &old, new)) {
            atomic_store(&conn->tickets.slots[slot].kept, 0); /* the ticket is not published yet */
            sc_count(&conn->stats.tickets_open, 1);
            return generation << 32 | (slot + 1);
        }
    }
    return 0;
}

/* Returns NULL if it is no ticket's number. */
static struct sc_plugin_ticket *ticket_slot(spec_connector *conn, spec_ticket ticket)
{
    uint64_t slot = (ticket & UINT32_MAX) - 1;
    return slot < SC_LIMIT_TICKETS ? &conn->tickets.slots[slot] : NULL;
}

static _Atomic uint64_t *ticket_word(spec_connector *conn, spec_ticket ticket)
{
    struct sc_plugin_ticket *slot = ticket_slot(conn, ticket);
    return slot != NULL ? &slot->word : NULL;
}

void sc_plugin_ticket_kept(spec_connector *conn, spec_ticket ticket, uint64_t tokens)
{
    _Atomic uint64_t *kept = &ticket_slot(conn, ticket)->kept;
    uint64_t old = atomic_load(kept);
    while (old < tokens && !atomic_compare_exchange_weak(kept, &old, tokens))
        continue;
}

void sc_plugin_ticket_resolve(spec_connector *conn, spec_ticket ticket, spec_status status)
{
    sc_plugin_ticket_resolve_parts(conn, ticket, 1, status);
}

void sc_plugin_ticket_resolve_parts(spec_connector *conn, spec_ticket ticket, uint64_t parts,
                                    spec_status status)
{
    if (parts == 0)
        return;
    _Atomic uint64_t *word = ticket_word(conn, ticket);
    uint64_t old = atomic_load(word), new;
    do {
        SC_ASSERT(&conn->poison, (old & TICKET_USED) && TICKET_REMAINING(old) >= parts);
        new = old - parts *TICKET_PART;
        if (status != SPEC_OK && TICKET_STATUS(old) == SPEC_OK)
            new |= (uint64_t)(-status) << TICKET_STATUS_SHIFT;
        if ((new &TICKET_FORGOTTEN) && TICKET_REMAINING(new) == 0)
            new = TICKET_FREED(new);
    } while (!atomic_compare_exchange_weak(word, &old, new));
    if (!(new &TICKET_USED))
        sc_uncount(&conn->stats.tickets_open, 1);
    atomic_fetch_add_explicit(&conn->tickets.word, 1, memory_order_release);
    sc_exec_wake(conn->exec, &conn->tickets.word);
}

void sc_plugin_ticket_forget(spec_connector *conn, spec_ticket ticket)
{
    _Atomic uint64_t *word = ticket_word(conn, ticket);
    uint64_t old = atomic_load(word), new;
    do {
        SC_ASSERT(&conn->poison, old & TICKET_USED);
        new = TICKET_REMAINING(old) == 0 ? TICKET_FREED(old) : old | TICKET_FORGOTTEN;
    } while (!atomic_compare_exchange_weak(word, &old, new));
    if (!(new &TICKET_USED))
        sc_uncount(&conn->stats.tickets_open, 1);
}

static bool is_ticket_word(uint64_t word, spec_ticket ticket)
{
    return (word & TICKET_USED) && word >> 32 == ticket >> 32;
}

static spec_status check_tickets(spec_connector *conn, const spec_ticket *tickets, uint64_t count,
                                 const spec_status *statuses, struct spec_error *reterr)
{
    if ((tickets == NULL || statuses == NULL) && count > 0)
        return sc_fail(reterr, SPEC_E_INVALID, "tickets or ret_statuses is NULL");
    for (uint64_t i = 0; i < count; i++) {
        const _Atomic uint64_t *word = ticket_word(conn, tickets[i]);
        if (word == NULL || !is_ticket_word(atomic_load(word), tickets[i]))
            return sc_fail(reterr, SPEC_E_INVALID,
                           "ticket %#" PRIx64 " is unknown, or was reported done before",
                           tickets[i]);
        for (uint64_t j = 0; j < i; j++)
            if (tickets[j] == tickets[i])
                return sc_fail(reterr, SPEC_E_INVALID, "ticket %#" PRIx64 " is named twice",
                               tickets[i]);
    }
    return SPEC_OK;
}

/* Returns the ticket's status, and ends it if done. INVALID: another thread ended it since the
 * check; its slot may be reused. */
static spec_status report_one(spec_connector *conn, spec_ticket ticket, uint64_t *ret_kept)
{
    struct sc_plugin_ticket *slot = ticket_slot(conn, ticket);
    *ret_kept = 0;
    if (slot == NULL)
        return SPEC_E_INVALID;
    _Atomic uint64_t *word = &slot->word;
    uint64_t value = atomic_load(word);
    do {
        *ret_kept = 0;
        if (!is_ticket_word(value, ticket))
            return SPEC_E_INVALID;
        *ret_kept = atomic_load(&slot->kept);
        if (TICKET_REMAINING(value) != 0) {
            if (is_ticket_word(atomic_load(word), ticket))
                return SPEC_PENDING;
            *ret_kept = 0; /* it may be that of the slot's new ticket */
            return SPEC_E_INVALID;
        }
    } while (!atomic_compare_exchange_weak(word, &value, TICKET_FREED(value)));
    sc_uncount(&conn->stats.tickets_open, 1);
    return TICKET_STATUS(value);
}

static spec_status tickets_report(spec_connector *conn, const spec_ticket *tickets, uint64_t count,
                                  spec_status *ret_statuses, uint64_t *ret_kept,
                                  uint64_t *ret_pending_count, struct spec_error *reterr)
{
    spec_status status = SPEC_OK;
    *ret_pending_count = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t kept;
        ret_statuses[i] = report_one(conn, tickets[i], &kept);
        if (ret_kept != NULL)
            ret_kept[i] = kept;
        *ret_pending_count += ret_statuses[i] == SPEC_PENDING;
        if (ret_statuses[i] == SPEC_E_INVALID)
            status =
                sc_fail(reterr, SPEC_E_INVALID,
                        "ticket %#" PRIx64 " was reported to another thread meanwhile", tickets[i]);
    }
    return status;
}

spec_status sc_plugin_poll(spec_connector *conn, const spec_ticket *tickets, uint64_t count,
                           spec_status *ret_statuses, struct spec_error *reterr)
{
    spec_status status = check_tickets(conn, tickets, count, ret_statuses, reterr);
    if (status != SPEC_OK)
        return status;
    uint64_t pending_count;
    return tickets_report(conn, tickets, count, ret_statuses, NULL, &pending_count, reterr);
}

static uint64_t count_pending(spec_connector *conn, const spec_ticket *tickets, uint64_t count)
{
    uint64_t pending_count = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t word = atomic_load(ticket_word(conn, tickets[i]));
        pending_count += is_ticket_word(word, tickets[i]) && TICKET_REMAINING(word) != 0;
    }
    return pending_count;
}

spec_status sc_plugin_wait(spec_connector *conn, const spec_ticket *tickets, uint64_t count,
                           uint64_t timeout_ns, spec_status *ret_statuses,
                           struct spec_error *reterr)
{
    return sc_plugin_wait_kept(conn, tickets, count, timeout_ns, ret_statuses, NULL, reterr);
}

spec_status sc_plugin_wait_kept(spec_connector *conn, const spec_ticket *tickets, uint64_t count,
                                uint64_t timeout_ns, spec_status *ret_statuses, uint64_t *ret_kept,
                                struct spec_error *reterr)
{
    spec_status status = check_tickets(conn, tickets, count, ret_statuses, reterr);
    if (status != SPEC_OK)
        return status;
    uint64_t now_ns = sc_exec_now_ns(conn->exec);
    uint64_t deadline_ns =
        timeout_ns > SC_EXEC_FOREVER - now_ns ? SC_EXEC_FOREVER : now_ns + timeout_ns;
    bool in_time = true;
    for (;;) {
        uint32_t seen = atomic_load_explicit(&conn->tickets.word, memory_order_acquire);
        if (count_pending(conn, tickets, count) == 0 || !in_time)
            break;
        in_time = sc_exec_wait(conn->exec, &conn->tickets.word, seen, deadline_ns);
    }
    uint64_t pending_count;
    status = tickets_report(conn, tickets, count, ret_statuses, ret_kept, &pending_count, reterr);
    if (status == SPEC_OK && pending_count > 0)
        return sc_fail(reterr, SPEC_E_TIMEOUT, "%" PRIu64 " of %" PRIu64 " tickets are pending",
                       pending_count, count);
    return status;
}

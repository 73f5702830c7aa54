/* The loop: receive, send what is due, answer, wait. How it waits decides how late packets are and what that costs.
 *
 * Departures are times fixed by the shaper, so waking up late never changes a rate; it only adds to the delay, and is
 * counted. Up to a budget the loop waits awake for a departure that is near; beyond it, and while packets come in one by
 * one at a high rate, it rests for a moment and then moves what has gathered.
 */
#define _GNU_SOURCE
#include "linkemu.h"

#include <poll.h>
#include <signal.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define RECEIVE_BUDGET 256                      /* frames of one port before departures get their turn */
#define NEAR_NS (50 * NS_PER_US)                /* a departure this near is waited for awake ... */
#define AWAKE_SHARE 20                          /* ... for at most 1/20 of the time, */
#define AWAKE_BUDGET_NS (2 * NS_PER_MS)         /* saved up to this */
#define REST_NS (100 * NS_PER_US)              /* beyond it, and under load, packets gather this long */
#define LISTEN_NS NS_PER_MS                     /* control is heard at least this often */
#define SLICE_NS (100 * NS_PER_US)

enum pace { QUIET, MOVING, FLOODED };   /* of the last round; flooded: more is waiting to be received */

struct waiting {
    uint64_t looked_ns;         /* when wait_for_work() was last called */
    uint64_t awake_ns;          /* budget left */
    uint64_t woken_ns, listened_ns;
    bool awake;                 /* the last call did not sleep although nothing was due */
};

static volatile sig_atomic_t signalled;

static void on_signal(int number)
{
    (void)number;
    signalled = 1;
}

static void catch_signals(sigset_t *while_waiting)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGINT);
    sigprocmask(SIG_BLOCK, &blocked, while_waiting);    /* delivered only inside ppoll: no signal falls between */
    sigdelset(while_waiting, SIGTERM);
    sigdelset(while_waiting, SIGINT);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

/* A short slice means an early deadline: on busy cores we wait less for our turn, and are pushed aside less by the very
 * receivers we wake. Needs no privilege; kernels before 6.12 ignore it. The C library has no name for this call. */
static void ask_for_short_slices(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t slice_ns, deadline, period;
    } attributes = {.size = 48, .policy = SCHED_OTHER, .slice_ns = SLICE_NS};
    if (sched_getscheduler(0) != SCHED_OTHER)
        return;                 /* somebody gave us something better */
    attributes.nice = getpriority(PRIO_PROCESS, 0);
    syscall(SYS_sched_setattr, 0, &attributes, 0);
}

/* Waits at most `timeout_ns` for the control sockets and, if asked, for packets; serves whom it hears. */
static void hear(struct emulator *emu, struct control *control, uint64_t timeout_ns, bool with_ports,
                 const sigset_t *signals)
{
    struct pollfd fds[2 + MAX_CLIENTS + MAX_PORTS];
    fds[0] = (struct pollfd){.fd = control->owner, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = control->listener, .events = POLLIN};
    for (unsigned i = 0; i < MAX_CLIENTS; i++)
        fds[2 + i] = (struct pollfd){.fd = control->clients[i].fd,
                                     .events = control->clients[i].reply.used ? POLLOUT : POLLIN};
    nfds_t used = 2 + MAX_CLIENTS;
    for (uint32_t i = 0; with_ports && i < emu->num_ports; i++)
        fds[used++] = (struct pollfd){.fd = emu->ports[i].receive_fd, .events = POLLIN};
    struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / NS_PER_S), .tv_nsec = (long)(timeout_ns % NS_PER_S)};
    if (ppoll(fds, used, timeout_ns == NEVER ? NULL : &timeout, signals) <= 0)
        return;
    if (fds[0].revents)
        emu->stop = true;       /* the owner is gone */
    if (fds[1].revents)
        control_accept(control);
    for (unsigned i = 0; i < MAX_CLIENTS; i++)
        if (fds[2 + i].revents)
            control_serve(emu, control, i, fds[2 + i].revents);
    for (nfds_t i = 2 + MAX_CLIENTS; i < used; i++)
        if (fds[i].revents & (POLLERR | POLLHUP | POLLNVAL))
            port_clear_error(&emu->ports[i - 2 - MAX_CLIENTS]);
}

/* True while the budget lets us wait awake. */
static bool stay_awake(struct waiting *waiting, uint64_t now_ns, bool near)
{
    uint64_t elapsed_ns = now_ns - waiting->looked_ns;
    waiting->looked_ns = now_ns;
    waiting->awake_ns += elapsed_ns / AWAKE_SHARE;
    if (waiting->awake_ns > AWAKE_BUDGET_NS)
        waiting->awake_ns = AWAKE_BUDGET_NS;
    if (waiting->awake)
        waiting->awake_ns -= elapsed_ns < waiting->awake_ns ? elapsed_ns : waiting->awake_ns;
    return waiting->awake = near && waiting->awake_ns > 0;
}

/* How long until there is something to do: 0 is now, NEVER is until somebody says something. */
static uint64_t time_ahead_ns(const struct emulator *emu, uint64_t now_ns)
{
    uint64_t next_ns = schedule_next_ns(&emu->schedule, &emu->pool);
    if (next_ns == NEVER)
        return NEVER;
    return next_ns > now_ns ? next_ns - now_ns : 0;
}

static void wait_for_work(struct emulator *emu, struct control *control, struct waiting *waiting, enum pace pace,
                          const sigset_t *signals)
{
    uint64_t now_ns = clock_ns(), ahead_ns = pace == FLOODED ? 0 : time_ahead_ns(emu, now_ns);
    bool awake = stay_awake(waiting, now_ns, ahead_ns > 0 && ahead_ns < NEAR_NS);
    if (ahead_ns == 0 || awake) {
        if (now_ns - waiting->listened_ns < LISTEN_NS)
            return;
        hear(emu, control, 0, true, signals);
        waiting->listened_ns = now_ns;
        return;
    }
    if (pace == MOVING && now_ns - waiting->woken_ns < REST_NS)
        hear(emu, control, REST_NS, false, signals);
    else if (ahead_ns != NEVER && waiting->awake_ns >= NEAR_NS)
        hear(emu, control, ahead_ns - NEAR_NS, true, signals);    /* waking up takes a core its time, too */
    else
        hear(emu, control, ahead_ns, true, signals);
    waiting->woken_ns = waiting->listened_ns = clock_ns();
}

void loop_run(struct emulator *emu, struct control *control)
{
    struct waiting waiting = {.looked_ns = clock_ns()};
    sigset_t signals;
    catch_signals(&signals);
    prctl(PR_SET_TIMERSLACK, 1);        /* the default of 50 us would be our largest error */
    ask_for_short_slices();
    while (!emu->stop && !signalled) {
        unsigned received = 0;
        for (uint32_t i = 0; i < emu->num_ports; i++)
            received += port_receive(emu, &emu->ports[i], RECEIVE_BUDGET);
        unsigned sent = fabric_dispatch(emu, clock_ns());
        enum pace pace = received >= RECEIVE_BUDGET ? FLOODED : received || sent ? MOVING : QUIET;
        wait_for_work(emu, control, &waiting, pace, &signals);
    }
}

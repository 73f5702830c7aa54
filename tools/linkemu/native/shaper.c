/* What a link does to packets: loss, policing, a bounded queue drained at a rate, then a delay.
 *
 * Pure in time: every function gets `now_ns` and looks at no clock, so tests drive it in virtual time. It knows the
 * sizes of packets, never their bytes. A virtual clock (`busy_ns`) replaces a real queue: a packet's departure is fixed
 * when it arrives, hence the rate is exact however late the sending process wakes up.
 */
#include "linkemu.h"

#include <string.h>

#define MAX_RATE_BPS 100000000000ull
#define MAX_TIME_US 60000000ull
#define MAX_QUEUE_BYTES (1ull << 32)
#define MIN_QUEUE_BYTES 48000ull        /* 32 full packets: less cannot hold one burst of a TCP sender */
#define MIN_QUEUE_TIME_US 10000ull
#define MIN_CROSS_PHASE_US 1000ull
#define CROSS_MEMORY_NS (60 * NS_PER_S)
#define PPM 1000000ull

void shaper_init(struct shaper *shaper, uint64_t seed, uint64_t now_ns)
{
    memset(shaper, 0, sizeof *shaper);
    rng_seed(&shaper->loss_rng, seed);
    rng_seed(&shaper->jitter_rng, ~seed);
    shaper->cross_ns = shaper->cross_epoch_ns = shaper->police_ns = now_ns;
}

const char *shape_problem(const struct shape *shape)
{
    if (shape->rate_bps > MAX_RATE_BPS || shape->policer_bps > MAX_RATE_BPS)
        return "a rate is above 100 Gbit/s";
    if (shape->rate_bps && shape->rate_bps < 1000)
        return "rate_bps is below 1000; to stop a link, cut it";
    if (shape->delay_us > MAX_TIME_US || shape->jitter_us > MAX_TIME_US)
        return "delay_us or jitter_us is above one minute";
    if (shape->reorder > 1)
        return "reorder is 0 or 1";
    if (shape->loss_ppm > PPM || shape->burst_enter_ppm > PPM || shape->burst_exit_ppm > PPM
        || shape->burst_loss_ppm > PPM)
        return "a probability is above 1000000 ppm";
    if (shape->burst_enter_ppm && (!shape->burst_exit_ppm || !shape->burst_loss_ppm))
        return "bursty loss needs burst_enter_ppm, burst_exit_ppm and burst_loss_ppm above 0";
    if (shape->queue_bytes > MAX_QUEUE_BYTES || shape->policer_burst_bytes > MAX_QUEUE_BYTES)
        return "queue_bytes or policer_burst_bytes is above 4 GiB";
    if (!shape->policer_bps != !shape->policer_burst_bytes)
        return "a policer needs both policer_bps and policer_burst_bytes";
    if (shape->cross_bps && shape->cross_bps >= shape->rate_bps)
        return "cross_bps must be below rate_bps";
    if (!shape->cross_on_us != !shape->cross_off_us)
        return "cross_on_us and cross_off_us come together";
    if (shape->cross_on_us && (shape->cross_on_us < MIN_CROSS_PHASE_US || shape->cross_off_us < MIN_CROSS_PHASE_US
                               || shape->cross_on_us > MAX_TIME_US || shape->cross_off_us > MAX_TIME_US))
        return "cross_on_us and cross_off_us lie between 1000 and 60000000";
    return NULL;
}

uint64_t shape_queue_limit_bytes(const struct shape *shape)
{
    if (shape->queue_bytes || !shape->rate_bps)
        return shape->queue_bytes;
    uint64_t round_trip_us = 2 * shape->delay_us;
    if (round_trip_us < MIN_QUEUE_TIME_US)
        round_trip_us = MIN_QUEUE_TIME_US;
    uint64_t bytes = (uint64_t)((double)shape->rate_bps / 8e6 * (double)round_trip_us);
    return bytes < MIN_QUEUE_BYTES ? MIN_QUEUE_BYTES : bytes;
}

static bool is_lost(struct shaper *shaper)
{
    const struct shape *shape = &shaper->shape;
    bool lost = rng_chance_ppm(&shaper->loss_rng, (uint32_t)shape->loss_ppm);
    if (!shape->burst_enter_ppm) {
        shaper->in_burst = false;
        return lost;
    }
    uint64_t turn = shaper->in_burst ? shape->burst_exit_ppm : shape->burst_enter_ppm;
    if (rng_chance_ppm(&shaper->loss_rng, (uint32_t)turn))
        shaper->in_burst = !shaper->in_burst;
    return (shaper->in_burst && rng_chance_ppm(&shaper->loss_rng, (uint32_t)shape->burst_loss_ppm)) || lost;
}

static bool is_policed(struct shaper *shaper, uint32_t ip_bytes, uint64_t now_ns)
{
    const struct shape *shape = &shaper->shape;
    if (!shape->policer_bps)
        return false;
    if (now_ns > shaper->police_ns) {
        shaper->police_tokens += (double)(now_ns - shaper->police_ns) * (double)shape->policer_bps / 8e9;
        shaper->police_ns = now_ns;
    }
    if (shaper->police_tokens > (double)shape->policer_burst_bytes)
        shaper->police_tokens = (double)shape->policer_burst_bytes;
    if (shaper->police_tokens < (double)ip_bytes)
        return true;
    shaper->police_tokens -= (double)ip_bytes;
    return false;
}

/* Where in its square wave the cross traffic is at `at_ns`: on or off, and until when. */
static bool cross_is_on(const struct shaper *shaper, uint64_t at_ns, uint64_t *until_ns)
{
    uint64_t on_ns = shaper->shape.cross_on_us * NS_PER_US, period_ns = on_ns + shaper->shape.cross_off_us * NS_PER_US;
    if (!on_ns) {
        *until_ns = NEVER;
        return true;
    }
    uint64_t offset_ns = (at_ns - shaper->cross_epoch_ns) % period_ns;
    bool on = offset_ns < on_ns;
    *until_ns = at_ns - offset_ns + (on ? on_ns : period_ns);
    return on;
}

/* Cross traffic is a fluid: between two looks it has put `share * elapsed` of sending time into the same queue. It is
 * always slower than the link, so an empty queue stays empty and the past before that needs no accounting. */
static void account_cross(struct shaper *shaper, uint64_t now_ns)
{
    const struct shape *shape = &shaper->shape;
    uint64_t at_ns = shaper->cross_ns;
    if (now_ns <= at_ns)
        return;
    shaper->cross_ns = now_ns;
    if (!shape->cross_bps)
        return;
    if (now_ns - at_ns > CROSS_MEMORY_NS)
        at_ns = now_ns - CROSS_MEMORY_NS;
    double share = (double)shape->cross_bps / (double)shape->rate_bps;
    while (at_ns < now_ns && shaper->busy_ns > at_ns) {
        uint64_t until_ns;
        bool on = cross_is_on(shaper, at_ns, &until_ns);
        if (until_ns > now_ns)
            until_ns = now_ns;
        if (on)
            shaper->busy_ns += (uint64_t)((double)(until_ns - at_ns) * share);
        at_ns = until_ns;
    }
}

uint64_t shaper_backlog_bytes(struct shaper *shaper, uint64_t now_ns)
{
    account_cross(shaper, now_ns);
    if (shaper->busy_ns <= now_ns)
        return 0;
    return (uint64_t)((double)(shaper->busy_ns - now_ns) * (double)shaper->shape.rate_bps / 8e9 + 0.5);
}

/* In order, jitter wanders: a new value is drawn every few jitters and approached in a straight line. Its slope stays
 * above -1/4, so packets keep their order by themselves; drawing one value per packet and then sorting would hold
 * everything back to the largest value seen. */
static uint64_t wandering_jitter_ns(struct shaper *shaper, uint64_t jitter_ns, uint64_t at_ns)
{
    uint64_t period_ns = 4 * jitter_ns < 10 * NS_PER_MS ? 10 * NS_PER_MS : 4 * jitter_ns;
    if (at_ns >= shaper->knot_ns + 2 * period_ns)
        shaper->knot_ns = at_ns - period_ns;
    while (at_ns >= shaper->knot_ns + period_ns) {
        shaper->knot_ns += period_ns;
        shaper->knot_from_ns = shaper->knot_to_ns;
        shaper->knot_to_ns = rng_below(&shaper->jitter_rng, jitter_ns + 1);
    }
    double part = at_ns > shaper->knot_ns ? (double)(at_ns - shaper->knot_ns) / (double)period_ns : 0.0;
    double from = (double)shaper->knot_from_ns, to = (double)shaper->knot_to_ns;
    return (uint64_t)(from + (to - from) * part);
}

static uint64_t propagate(struct shaper *shaper, uint64_t serialized_ns)
{
    const struct shape *shape = &shaper->shape;
    uint64_t due_ns = serialized_ns + shape->delay_us * NS_PER_US, jitter_ns = shape->jitter_us * NS_PER_US;
    if (jitter_ns && shape->reorder)
        due_ns += rng_below(&shaper->jitter_rng, jitter_ns + 1);
    else if (jitter_ns)
        due_ns += wandering_jitter_ns(shaper, jitter_ns, serialized_ns);
    if (!shape->reorder && due_ns < shaper->last_due_ns)
        due_ns = shaper->last_due_ns;
    shaper->last_due_ns = due_ns;
    return due_ns;
}

static uint64_t serialize(struct shaper *shaper, uint32_t ip_bytes, uint64_t now_ns)
{
    uint64_t rate_bps = shaper->shape.rate_bps;
    if (!rate_bps)
        return shaper->busy_ns = now_ns;
    if (shaper->busy_ns < now_ns) {
        shaper->busy_ns = now_ns;
        shaper->busy_remainder = 0;
    }
    uint64_t bit_ns = (uint64_t)ip_bytes * 8 * NS_PER_S + shaper->busy_remainder;
    shaper->busy_ns += bit_ns / rate_bps;
    shaper->busy_remainder = bit_ns % rate_bps;
    return shaper->busy_ns;
}

enum verdict shaper_admit(struct shaper *shaper, uint32_t ip_bytes, uint64_t now_ns, struct timing *timing)
{
    if (is_lost(shaper))
        return LOST;
    if (is_policed(shaper, ip_bytes, now_ns))
        return POLICED;
    if (shaper->shape.rate_bps
        && shaper_backlog_bytes(shaper, now_ns) + ip_bytes > shape_queue_limit_bytes(&shaper->shape))
        return QUEUE_FULL;
    timing->serialized_ns = serialize(shaper, ip_bytes, now_ns);
    timing->due_ns = propagate(shaper, timing->serialized_ns);
    return PASSED;
}

/* Does the change concern packets that still wait in the queue? */
bool shape_moves_queue(const struct shape *old, const struct shape *new)
{
    return old->rate_bps != new->rate_bps || old->delay_us != new->delay_us || old->jitter_us != new->jitter_us
        || old->reorder != new->reorder;
}

/* A queued instant keeps its distance in bits: half the rate, twice the time. */
static uint64_t rescale(uint64_t at_ns, uint64_t now_ns, uint64_t old_rate_bps, uint64_t new_rate_bps)
{
    if (at_ns <= now_ns)
        return at_ns;
    if (!new_rate_bps || !old_rate_bps)
        return now_ns;
    return now_ns + (uint64_t)((double)(at_ns - now_ns) * (double)old_rate_bps / (double)new_rate_bps);
}

void shaper_change(struct shaper *shaper, const struct shape *shape, uint64_t now_ns)
{
    account_cross(shaper, now_ns);
    struct shape old = shaper->shape;
    shaper->shape = *shape;
    if (old.rate_bps != shape->rate_bps) {
        shaper->busy_ns = rescale(shaper->busy_ns, now_ns, old.rate_bps, shape->rate_bps);
        shaper->busy_remainder = 0;
    }
    if (old.policer_bps != shape->policer_bps || old.policer_burst_bytes != shape->policer_burst_bytes) {
        shaper->police_tokens = (double)shape->policer_burst_bytes;
        shaper->police_ns = now_ns;
    }
    if (old.cross_on_us != shape->cross_on_us || old.cross_off_us != shape->cross_off_us || !old.cross_bps)
        shaper->cross_epoch_ns = now_ns;
    if (old.jitter_us != shape->jitter_us) {
        shaper->knot_from_ns = shaper->knot_to_ns = 0;
        shaper->knot_ns = 0;
    }
    if (shape_moves_queue(&old, shape))
        shaper->last_due_ns = 0;        /* line_reshape() offers every packet again, in order */
}

/* A packet of the line under the changed shape: what is in flight stays, what is queued moves. */
void shaper_retime(struct shaper *shaper, uint64_t old_rate_bps, uint64_t now_ns, struct timing *timing)
{
    if (timing->serialized_ns <= now_ns) {
        shaper->last_due_ns = timing->due_ns;
        return;
    }
    if (old_rate_bps != shaper->shape.rate_bps)
        timing->serialized_ns = rescale(timing->serialized_ns, now_ns, old_rate_bps, shaper->shape.rate_bps);
    timing->due_ns = propagate(shaper, timing->serialized_ns);
}

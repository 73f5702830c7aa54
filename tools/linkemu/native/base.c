/* Small things without an opinion: the clock, seeded random numbers, growing text, the lateness histogram. */
#define _GNU_SOURCE
#include "linkemu.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint64_t read_clock(clockid_t which)
{
    struct timespec now;
    clock_gettime(which, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t clock_ns(void) { return read_clock(CLOCK_MONOTONIC); }

uint64_t wall_clock_ns(void) { return read_clock(CLOCK_REALTIME); }

/* splitmix64: one word of state, so that every pair can own two independent streams. */
void rng_seed(struct rng *rng, uint64_t seed) { rng->state = seed; }

uint64_t rng_next(struct rng *rng)
{
    uint64_t z = rng->state += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

bool rng_chance_ppm(struct rng *rng, uint32_t ppm)
{
    return ppm != 0 && ((rng_next(rng) >> 32) * 1000000ull >> 32) < ppm;
}

/* Uniform in [0, limit); the bias of the multiplication is below 2^-31 for the limits used here. */
uint64_t rng_below(struct rng *rng, uint64_t limit)
{
    return (uint64_t)((double)(rng_next(rng) >> 11) * 0x1p-53 * (double)limit);
}

void text_add(struct text *text, const char *format, ...)
{
    for (;;) {
        size_t room = text->capacity - text->used;
        va_list arguments;
        va_start(arguments, format);
        int wanted = vsnprintf(text->data ? text->data + text->used : NULL, room, format, arguments);
        va_end(arguments);
        if (wanted < 0 || text->failed) {
            text->failed = true;
            return;
        }
        if ((size_t)wanted < room) {
            text->used += (size_t)wanted;
            return;
        }
        size_t capacity = (text->capacity + (size_t)wanted + 1) * 2;
        char *grown = realloc(text->data, capacity);
        if (!grown) {
            text->failed = true;
            return;
        }
        text->data = grown;
        text->capacity = capacity;
    }
}

/* Microseconds, one bucket each below 8, then eight per power of two: 12.5 % resolution up to 16 s. */
static unsigned late_bucket(uint64_t us)
{
    if (us < 8)
        return (unsigned)us;
    unsigned exponent = 63u - (unsigned)__builtin_clzll(us);
    unsigned index = (exponent - 2) * 8 + (unsigned)((us >> (exponent - 3)) & 7);
    return index < LATE_BUCKETS ? index : LATE_BUCKETS - 1;
}

static uint64_t late_bucket_end_us(unsigned index)
{
    if (index < 8)
        return index + 1;
    return (uint64_t)(index % 8 + 9) << (index / 8 - 1);
}

void lateness_note(struct lateness *late, uint64_t late_ns)
{
    late->count++;
    late->sum_ns += late_ns;
    if (late_ns > late->max_ns)
        late->max_ns = late_ns;
    if (late_ns > NS_PER_MS)
        late->over_1ms++;
    late->bucket[late_bucket(late_ns / NS_PER_US)]++;
}

void lateness_merge(struct lateness *into, const struct lateness *from)
{
    into->count += from->count;
    into->sum_ns += from->sum_ns;
    into->over_1ms += from->over_1ms;
    if (from->max_ns > into->max_ns)
        into->max_ns = from->max_ns;
    for (unsigned i = 0; i < LATE_BUCKETS; i++)
        into->bucket[i] += from->bucket[i];
}

/* The upper end of the bucket that holds the quantile: never an understatement. */
uint64_t lateness_quantile_us(const struct lateness *late, unsigned per_mille)
{
    uint64_t wanted = (late->count * per_mille + 999) / 1000, seen = 0;
    for (unsigned i = 0; i < LATE_BUCKETS; i++) {
        seen += late->bucket[i];
        if (seen >= wanted && seen > 0)
            return late_bucket_end_us(i);
    }
    return 0;
}

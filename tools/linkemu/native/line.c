/* Packet memory, the lines of the pairs, and the schedule.
 *
 * All memory is taken once, at start. A line is a doubly linked list ordered by departure; the schedule is a binary heap
 * of the pairs that have something in line, keyed by the departure of their first packet: a few entries, however many
 * packets are in flight. Decides nothing about links: times come from shaper.c.
 */
#define _GNU_SOURCE
#include "linkemu.h"

#include <stdlib.h>
#include <sys/mman.h>

bool pool_open(struct pool *pool, uint32_t capacity, uint32_t mtu_bytes)
{
    /* Untouched pages cost nothing, and the free list is last in, first out: only what is in use becomes resident. */
    pool->slot_bytes = ((size_t)mtu_bytes + ETHERNET_BYTES + 63) / 64 * 64;
    void *memory = mmap(NULL, pool->slot_bytes * capacity, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    pool->packets = calloc(capacity, sizeof *pool->packets);
    if (memory == MAP_FAILED || !pool->packets)
        return false;
    pool->memory = memory;
    pool->capacity = capacity;
    for (uint32_t i = 0; i < capacity; i++)
        pool->packets[i].next = i + 1 < capacity ? (int32_t)(i + 1) : NO_PACKET;
    pool->free_head = 0;
    return true;
}

int32_t pool_take(struct pool *pool)
{
    int32_t index = pool->free_head;
    if (index == NO_PACKET)
        return NO_PACKET;
    pool->free_head = pool->packets[index].next;
    pool->used++;
    return index;
}

void pool_give(struct pool *pool, int32_t index)
{
    pool->packets[index].next = pool->free_head;
    pool->free_head = index;
    pool->used--;
}

unsigned char *pool_ip(const struct pool *pool, int32_t index)
{
    return pool->memory + (size_t)index * pool->slot_bytes + ETHERNET_BYTES;
}

/* ---- schedule ---- */

static uint64_t first_due_ns(const struct pool *pool, const struct pair *pair)
{
    return pool->packets[pair->head].timing.due_ns;
}

static void heap_put(struct schedule *schedule, uint32_t index, struct pair *pair)
{
    schedule->heap[index] = pair;
    pair->heap_index = (int32_t)index;
}

static void heap_rise(struct schedule *schedule, const struct pool *pool, struct pair *pair)
{
    uint32_t index = (uint32_t)pair->heap_index;
    while (index > 0) {
        struct pair *parent = schedule->heap[(index - 1) / 2];
        if (first_due_ns(pool, parent) <= first_due_ns(pool, pair))
            break;
        heap_put(schedule, index, parent);
        index = (index - 1) / 2;
    }
    heap_put(schedule, index, pair);
}

static void heap_sink(struct schedule *schedule, const struct pool *pool, struct pair *pair)
{
    uint32_t index = (uint32_t)pair->heap_index;
    for (;;) {
        uint32_t child = 2 * index + 1;
        if (child >= schedule->used)
            break;
        if (child + 1 < schedule->used
            && first_due_ns(pool, schedule->heap[child + 1]) < first_due_ns(pool, schedule->heap[child]))
            child++;
        if (first_due_ns(pool, pair) <= first_due_ns(pool, schedule->heap[child]))
            break;
        heap_put(schedule, index, schedule->heap[child]);
        index = child;
    }
    heap_put(schedule, index, pair);
}

static void heap_add(struct schedule *schedule, const struct pool *pool, struct pair *pair)
{
    heap_put(schedule, schedule->used++, pair);
    heap_rise(schedule, pool, pair);
}

static void heap_remove(struct schedule *schedule, const struct pool *pool, struct pair *pair)
{
    uint32_t index = (uint32_t)pair->heap_index;
    struct pair *last = schedule->heap[--schedule->used];
    pair->heap_index = -1;
    if (last == pair)
        return;
    heap_put(schedule, index, last);
    heap_rise(schedule, pool, last);
    heap_sink(schedule, pool, last);
}

uint64_t schedule_next_ns(const struct schedule *schedule, const struct pool *pool)
{
    return schedule->used ? first_due_ns(pool, schedule->heap[0]) : NEVER;
}

/* ---- lines ---- */

/* Sorted from the tail: where order is kept, the first comparison ends it. */
static void link_packet(struct pool *pool, struct pair *pair, int32_t index)
{
    struct packet *packets = pool->packets, *packet = &packets[index];
    int32_t before = pair->tail;
    while (before != NO_PACKET && packets[before].timing.due_ns > packet->timing.due_ns)
        before = packets[before].previous;
    packet->previous = before;
    packet->next = before == NO_PACKET ? pair->head : packets[before].next;
    if (packet->next == NO_PACKET)
        pair->tail = index;
    else
        packets[packet->next].previous = index;
    if (before == NO_PACKET)
        pair->head = index;
    else
        packets[before].next = index;
    pair->line_packets++;
}

void line_insert(struct pool *pool, struct schedule *schedule, struct pair *pair, int32_t index)
{
    link_packet(pool, pair, index);
    if (pair->heap_index < 0)
        heap_add(schedule, pool, pair);
    else if (pair->head == index)
        heap_rise(schedule, pool, pair);
}

int32_t line_pop(struct pool *pool, struct schedule *schedule, struct pair *pair)
{
    int32_t index = pair->head, next = pool->packets[index].next;
    if (next == NO_PACKET) {
        heap_remove(schedule, pool, pair);
        pair->head = pair->tail = NO_PACKET;
    } else {
        pair->head = next;
        pool->packets[next].previous = NO_PACKET;
        heap_sink(schedule, pool, pair);
    }
    pair->line_packets--;
    return index;
}

void line_flush(struct pool *pool, struct schedule *schedule, struct pair *pair)
{
    while (pair->head != NO_PACKET)
        pool_give(pool, line_pop(pool, schedule, pair));
}

void line_reshape(struct pool *pool, struct schedule *schedule, struct pair *pair, const struct shape *shape,
                  uint64_t now_ns)
{
    struct shape old = pair->shaper.shape;
    shaper_change(&pair->shaper, shape, now_ns);
    if (!shape_moves_queue(&old, shape) || pair->head == NO_PACKET)
        return;
    heap_remove(schedule, pool, pair);
    int32_t index = pair->head;
    pair->head = pair->tail = NO_PACKET;
    pair->line_packets = 0;
    while (index != NO_PACKET) {
        int32_t next = pool->packets[index].next;
        shaper_retime(&pair->shaper, old.rate_bps, now_ns, &pool->packets[index].timing);
        link_packet(pool, pair, index);
        index = next;
    }
    heap_add(schedule, pool, pair);
}

/* From port to port: which region an address belongs to, and the way of a packet through its pair.
 *
 * Knows ports, pairs and routes; opens nothing and reads no text.
 */
#include "linkemu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool fabric_start(struct emulator *emu, char *error)
{
    size_t num_pairs = (size_t)emu->num_ports * emu->num_ports;
    emu->pairs = calloc(num_pairs ? num_pairs : 1, sizeof *emu->pairs);
    emu->schedule.heap = calloc(num_pairs ? num_pairs : 1, sizeof *emu->schedule.heap);
    if (!emu->pairs || !emu->schedule.heap || !pool_open(&emu->pool, emu->pool_packets, emu->mtu_bytes)) {
        snprintf(error, ERROR_BYTES, "not enough memory for %u packets; ask for fewer with --pool", emu->pool_packets);
        return false;
    }
    emu->started_ns = emu->counted_since_ns = clock_ns();
    for (size_t i = 0; i < num_pairs; i++) {
        struct pair *pair = &emu->pairs[i];
        struct rng seeder;
        rng_seed(&seeder, emu->seed + i * 0x632be59bd9b4e019ull);
        shaper_init(&pair->shaper, rng_next(&seeder), emu->started_ns);
        pair->from = (uint16_t)(i / emu->num_ports);
        pair->to = (uint16_t)(i % emu->num_ports);
        pair->head = pair->tail = NO_PACKET;
        pair->heap_index = -1;
    }
    for (uint32_t i = 0; i < emu->num_ports; i++)
        shaper_init(&emu->ports[i].uplink, 0, emu->started_ns);
    return true;
}

struct pair *fabric_pair(struct emulator *emu, uint32_t from, uint32_t to)
{
    return &emu->pairs[(size_t)from * emu->num_ports + to];
}

void fabric_reset_counters(struct emulator *emu)
{
    for (uint32_t i = 0; i < emu->num_ports; i++) {
        port_read_statistics(&emu->ports[i]);   /* the kernel's counts start anew, too */
        memset(&emu->ports[i].counters, 0, sizeof emu->ports[i].counters);
    }
    for (uint32_t i = 0; i < emu->num_ports * emu->num_ports; i++)
        memset(&emu->pairs[i].counters, 0, sizeof emu->pairs[i].counters);
    emu->counted_since_ns = clock_ns();
    emu->cpu_since_ns = process_cpu_ns();
}

/* ---- routes ---- */

static uint32_t mask_of(uint8_t length) { return length ? UINT32_MAX << (32 - length) : 0; }

bool route_add(struct emulator *emu, uint32_t address, uint8_t length, uint16_t port)
{
    if (emu->num_routes == MAX_ROUTES)
        return false;
    uint32_t at = 0;
    while (at < emu->num_routes && emu->routes[at].length >= length)
        at++;
    memmove(&emu->routes[at + 1], &emu->routes[at], (emu->num_routes - at) * sizeof emu->routes[0]);
    uint32_t mask = mask_of(length);
    emu->routes[at] = (struct route){.address = address & mask, .mask = mask, .length = length, .port = port};
    emu->num_routes++;
    return true;
}

bool route_remove(struct emulator *emu, uint32_t address, uint8_t length, uint16_t port)
{
    for (uint32_t i = 0; i < emu->num_routes; i++) {
        struct route *route = &emu->routes[i];
        if (route->length != length || route->port != port || route->address != (address & route->mask))
            continue;
        memmove(route, route + 1, (emu->num_routes - i - 1) * sizeof *route);
        emu->num_routes--;
        return true;
    }
    return false;
}

int route_find(const struct emulator *emu, uint32_t address)
{
    for (uint32_t i = 0; i < emu->num_routes; i++)
        if ((address & emu->routes[i].mask) == emu->routes[i].address)
            return emu->routes[i].port;
    return -1;
}

/* ---- packets ---- */

static uint32_t big_endian_32(const unsigned char *b)
{
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static void enter_pair(struct emulator *emu, struct pair *pair, const unsigned char *ip, uint32_t ip_bytes,
                       uint64_t arrival_ns)
{
    struct pair_counters *count = &pair->counters;
    count->in_packets++;
    count->in_bytes += ip_bytes;
    if (pair->cut) {
        count->cut++;
        return;
    }
    int32_t index = pool_take(&emu->pool);      /* before the shaper: a packet we cannot hold must not use the link */
    if (index == NO_PACKET) {
        count->pool_empty++;
        return;
    }
    struct packet *packet = &emu->pool.packets[index];
    /* Through what the region's links share first: where that ends, the pair's own link begins. */
    enum verdict verdict = shaper_admit(&emu->ports[pair->from].uplink, ip_bytes, arrival_ns, &packet->timing);
    if (verdict == PASSED) {
        arrival_ns = packet->timing.serialized_ns;
        verdict = shaper_admit(&pair->shaper, ip_bytes, arrival_ns, &packet->timing);
    }
    if (verdict != PASSED) {
        pool_give(&emu->pool, index);
        count->lost += verdict == LOST;
        count->policed += verdict == POLICED;
        count->queue_full += verdict == QUEUE_FULL;
        return;
    }
    uint64_t backlog_bytes = shaper_backlog_bytes(&pair->shaper, arrival_ns);
    if (backlog_bytes > count->queue_bytes_max)
        count->queue_bytes_max = backlog_bytes;
    packet->ip_bytes = ip_bytes;
    memcpy(pool_ip(&emu->pool, index), ip, ip_bytes);
    line_insert(&emu->pool, &emu->schedule, pair, index);
}

void fabric_accept(struct emulator *emu, struct port *from, const unsigned char *ip, uint32_t captured_bytes,
                   uint64_t arrival_ns)
{
    if (captured_bytes < 20 || ip[0] >> 4 != 4 || (ip[0] & 15) < 5) {
        from->counters.malformed++;
        return;
    }
    uint32_t ip_bytes = (uint32_t)ip[2] << 8 | ip[3];   /* the frame may be padded beyond it */
    if (ip_bytes > emu->mtu_bytes) {
        from->counters.offloaded++;
        return;
    }
    if (ip_bytes < 20 || ip_bytes > captured_bytes) {
        from->counters.malformed++;
        return;
    }
    int to = route_find(emu, big_endian_32(ip + 16));
    if (to < 0 || &emu->ports[to] == from) {
        from->counters.no_route++;
        return;
    }
    enter_pair(emu, fabric_pair(emu, (uint32_t)(from - emu->ports), (uint32_t)to), ip, ip_bytes, arrival_ns);
}

static void send_batch(struct emulator *emu, struct port *port)
{
    unsigned sent = port->batch_used;   /* a port that leads nowhere takes everything */
    uint64_t now_ns = clock_ns();
    if (port->kind == PORT_PACKET)
        sent = packet_send(emu, port);
    else if (port->kind == PORT_TUN)
        sent = tun_send(emu, port);
    for (uint32_t i = 0; i < port->batch_used; i++) {
        struct pair_counters *count = &port->batch_pair[i]->counters;
        const struct packet *packet = &emu->pool.packets[port->batch[i]];
        if (i < sent) {
            count->out_packets++;
            count->out_bytes += packet->ip_bytes;
            lateness_note(&count->late, now_ns > packet->timing.due_ns ? now_ns - packet->timing.due_ns : 0);
        } else {
            count->send_failed++;
        }
        pool_give(&emu->pool, port->batch[i]);
    }
    port->batch_used = 0;
}

/* Sends what is due at `now_ns`; says how many packets that were. */
unsigned fabric_dispatch(struct emulator *emu, uint64_t now_ns)
{
    unsigned moved = 0;
    while (schedule_next_ns(&emu->schedule, &emu->pool) <= now_ns) {
        struct pair *pair = emu->schedule.heap[0];
        struct port *port = &emu->ports[pair->to];
        port->batch[port->batch_used] = line_pop(&emu->pool, &emu->schedule, pair);
        port->batch_pair[port->batch_used++] = pair;
        moved++;
        if (port->batch_used == BATCH_PACKETS)
            send_batch(emu, port);
    }
    for (uint32_t i = 0; i < emu->num_ports; i++)
        if (emu->ports[i].batch_used)
            send_batch(emu, &emu->ports[i]);
    return moved;
}

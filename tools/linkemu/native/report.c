/* Shapes and counters as JSON: one line per report. Changes nothing. */
#define _GNU_SOURCE
#include "linkemu.h"

#include <string.h>
#include <time.h>

uint64_t process_cpu_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * NS_PER_S + (uint64_t)used.tv_nsec;
}

static void add_count(struct text *text, const char *name, uint64_t value)
{
    text_add(text, ",\"%s\":%llu", name, (unsigned long long)value);
}

static void add_lateness(struct text *text, const struct lateness *late)
{
    text_add(text, ",\"late\":{\"packets\":%llu", (unsigned long long)late->count);
    add_count(text, "mean_ns", late->count ? late->sum_ns / late->count : 0);
    add_count(text, "p50_us", lateness_quantile_us(late, 500));
    add_count(text, "p99_us", lateness_quantile_us(late, 990));
    add_count(text, "p999_us", lateness_quantile_us(late, 999));
    add_count(text, "max_us", late->max_ns / NS_PER_US);
    add_count(text, "over_1ms", late->over_1ms);
    text_add(text, "}");
}

static void add_port(struct text *text, struct port *port)
{
    const struct port_counters *count = &port->counters;
    port_read_statistics(port);
    text_add(text, "{\"name\":\"%s\",\"open\":%s", port->name, port->receive_fd >= 0 ? "true" : "false");
    add_count(text, "in_packets", count->in_packets);
    add_count(text, "not_ipv4", count->not_ipv4);
    add_count(text, "malformed", count->malformed);
    add_count(text, "no_route", count->no_route);
    add_count(text, "no_neighbour", count->no_neighbour);
    add_count(text, "offloaded", count->offloaded);
    add_count(text, "ring_full", count->ring_full);
    add_count(text, "device_errors", count->device_errors);
    text_add(text, "}");
}

static void add_pair_names(struct emulator *emu, struct text *text, const struct pair *pair)
{
    text_add(text, "{\"from\":\"%s\",\"to\":\"%s\"", emu->ports[pair->from].name, emu->ports[pair->to].name);
}

static void add_pair(struct emulator *emu, struct text *text, struct pair *pair, uint64_t now_ns)
{
    const struct pair_counters *count = &pair->counters;
    add_pair_names(emu, text, pair);
    add_count(text, "in_packets", count->in_packets);
    add_count(text, "in_bytes", count->in_bytes);
    add_count(text, "out_packets", count->out_packets);
    add_count(text, "out_bytes", count->out_bytes);
    add_count(text, "lost", count->lost);
    add_count(text, "policed", count->policed);
    add_count(text, "queue_full", count->queue_full);
    add_count(text, "cut", count->cut);
    add_count(text, "pool_empty", count->pool_empty);
    add_count(text, "send_failed", count->send_failed);
    add_count(text, "line_packets", pair->line_packets);
    add_count(text, "queue_bytes", shaper_backlog_bytes(&pair->shaper, now_ns));
    add_count(text, "queue_bytes_max", count->queue_bytes_max);
    add_lateness(text, &count->late);
    text_add(text, "}");
}

void report_stats(struct emulator *emu, struct text *reply)
{
    static struct lateness total;       /* too large for comfort on the stack; one thread */
    uint64_t now_ns = clock_ns();
    memset(&total, 0, sizeof total);
    text_add(reply, "{\"ok\":true,\"elapsed_us\":%llu",
             (unsigned long long)((now_ns - emu->counted_since_ns) / NS_PER_US));
    add_count(reply, "cpu_us", (process_cpu_ns() - emu->cpu_since_ns) / NS_PER_US);
    add_count(reply, "pool_used", emu->pool.used);
    text_add(reply, ",\"ports\":[");
    for (uint32_t i = 0; i < emu->num_ports; i++) {
        text_add(reply, i ? "," : "");
        add_port(reply, &emu->ports[i]);
    }
    text_add(reply, "],\"pairs\":[");
    bool first = true;
    for (uint32_t i = 0; i < emu->num_ports * emu->num_ports; i++) {
        struct pair *pair = &emu->pairs[i];
        if (pair->from == pair->to)
            continue;
        text_add(reply, first ? "" : ",");
        first = false;
        add_pair(emu, reply, pair, now_ns);
        lateness_merge(&total, &pair->counters.late);
    }
    text_add(reply, "]");
    add_lateness(reply, &total);
    text_add(reply, "}\n");
}

void report_shapes(struct emulator *emu, struct text *reply)
{
    bool first = true;
    text_add(reply, "{\"ok\":true,\"shapes\":[");
    for (uint32_t i = 0; i < emu->num_ports * emu->num_ports; i++) {
        const struct pair *pair = &emu->pairs[i];
        if (pair->from == pair->to)
            continue;
        text_add(reply, first ? "" : ",");
        first = false;
        add_pair_names(emu, reply, pair);
        text_add(reply, ",\"cut\":%s", pair->cut ? "true" : "false");
        add_count(reply, "queue_limit_bytes", shape_queue_limit_bytes(&pair->shaper.shape));
        shape_print(&pair->shaper.shape, reply);
        text_add(reply, "}");
    }
    text_add(reply, "]}\n");
}

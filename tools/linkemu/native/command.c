/* Commands in text, one per line, and their replies in JSON, one per line. The only file that reads text from outside.
 *
 * A command takes effect as a whole or not at all. What came from outside is quoted in replies only after cleaning.
 */
#define _GNU_SOURCE
#include "linkemu.h"

#include <string.h>

#define MAX_WORDS 96
#define QUOTE_BYTES 48

struct words {
    char *word[MAX_WORDS];
    unsigned count;
};

static bool refuse(struct text *reply, const char *sentence, const char *quoted)
{
    char clean[QUOTE_BYTES] = "";
    for (unsigned i = 0; quoted && quoted[i] && i + 1 < QUOTE_BYTES; i++)
        clean[i] = quoted[i] > ' ' && quoted[i] < 127 && quoted[i] != '"' && quoted[i] != '\\' ? quoted[i] : '?';
    text_add(reply, "{\"ok\":false,\"error\":\"%s%s%s\"}\n", sentence, quoted ? ": " : "", clean);
    return false;
}

static int find_port(const struct emulator *emu, const char *name)
{
    for (uint32_t i = 0; i < emu->num_ports; i++)
        if (strcmp(emu->ports[i].name, name) == 0)
            return (int)i;
    return -1;
}

static bool is_name(const char *name, size_t room)
{
    size_t length = strlen(name);
    return length > 0 && length < room
        && strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == length;
}

/* ---- verbs ---- */

static bool set_port_key(struct emulator *emu, struct port *port, const char *key, char *value, uint16_t index)
{
    uint32_t address;
    uint8_t length;
    if (strcmp(key, "interface") == 0 && is_name(value, sizeof port->interface))
        strcpy(port->interface, value);
    else if (strcmp(key, "peer") == 0 && is_name(value, sizeof port->peer))
        strcpy(port->peer, value);
    else if (strcmp(key, "netns") == 0 && value[0] == '/' && strlen(value) < sizeof port->netns)
        strcpy(port->netns, value);
    else if (strcmp(key, "mac") == 0 && parse_mac(value, port->mac))
        port->mac_known = true;
    else if (strcmp(key, "kind") == 0 && strcmp(value, "packet") == 0)
        port->kind = PORT_PACKET;
    else if (strcmp(key, "kind") == 0 && strcmp(value, "tun") == 0)
        port->kind = PORT_TUN;
    else if (strcmp(key, "kind") == 0 && strcmp(value, "null") == 0)
        port->kind = PORT_NULL;
    else
        return strcmp(key, "prefix") == 0 && parse_prefix(value, &address, &length)
            && route_add(emu, address, length, index);
    return true;
}

static bool run_port(struct emulator *emu, struct words *words, struct text *reply)
{
    char *name = words->word[1];
    if (emu->pairs)
        return refuse(reply, "ports are given before everything else", NULL);
    if (emu->num_ports == MAX_PORTS)
        return refuse(reply, "too many ports", NULL);
    if (!is_name(name, NAME_BYTES) || find_port(emu, name) >= 0)
        return refuse(reply, "not a new name of letters, digits, '-', '_', '.'", name);
    struct port port = {.kind = PORT_PACKET, .peer = "eth0", .receive_fd = -1, .send_fd = -1};
    uint32_t routes_before = emu->num_routes;
    struct route routes[MAX_ROUTES];
    memcpy(routes, emu->routes, sizeof routes);
    strcpy(port.name, name);
    for (unsigned i = 2; i < words->count; i++) {
        char *value = strchr(words->word[i], '=');
        if (value)
            *value++ = 0;
        if (!value || !set_port_key(emu, &port, words->word[i], value, (uint16_t)emu->num_ports)) {
            memcpy(emu->routes, routes, sizeof routes);
            emu->num_routes = routes_before;
            return refuse(reply, "not a setting of a port, or not a value for it", words->word[i]);
        }
    }
    if (port.kind != PORT_NULL && !port.interface[0]) {
        memcpy(emu->routes, routes, sizeof routes);
        emu->num_routes = routes_before;
        return refuse(reply, "a port needs interface=", name);
    }
    emu->ports[emu->num_ports++] = port;
    return true;
}

static struct pair *named_pair(struct emulator *emu, struct words *words, struct text *reply)
{
    char error[ERROR_BYTES];
    if (!emu->pairs && !fabric_start(emu, error)) {
        refuse(reply, error, NULL);
        return NULL;
    }
    int from = find_port(emu, words->word[1]), to = find_port(emu, words->word[2]);
    if (from < 0 || to < 0) {
        refuse(reply, "no such region", words->word[from < 0 ? 1 : 2]);
        return NULL;
    }
    if (from == to) {
        refuse(reply, "a region has no link to itself", words->word[1]);
        return NULL;
    }
    return fabric_pair(emu, (uint32_t)from, (uint32_t)to);
}

static bool run_set(struct emulator *emu, struct words *words, struct text *reply)
{
    struct pair *pair = named_pair(emu, words, reply);
    if (!pair)
        return false;
    struct shape shape = pair->shaper.shape;
    for (unsigned i = 3; i < words->count; i++) {
        char *value = strchr(words->word[i], '=');
        uint64_t number;
        if (value)
            *value++ = 0;
        if (!value || !parse_number(value, &number) || !shape_set_key(&shape, words->word[i], number))
            return refuse(reply, "not a setting of a link, or not a whole number", words->word[i]);
    }
    const char *problem = shape_problem(&shape);
    if (problem)
        return refuse(reply, problem, NULL);
    line_reshape(&emu->pool, &emu->schedule, pair, &shape, clock_ns());
    return true;
}

static bool run_uplink(struct emulator *emu, struct words *words, struct text *reply)
{
    char error[ERROR_BYTES];
    if (!emu->pairs && !fabric_start(emu, error))
        return refuse(reply, error, NULL);
    int port = find_port(emu, words->word[1]);
    struct shape shape = {0};
    if (port < 0)
        return refuse(reply, "no such region", words->word[1]);
    if (!parse_number(words->word[2], &shape.rate_bps) || !parse_number(words->word[3], &shape.queue_bytes))
        return refuse(reply, "an uplink is a rate in bit/s and a queue in bytes, whole numbers", NULL);
    const char *problem = shape_problem(&shape);
    if (problem)
        return refuse(reply, problem, NULL);
    shaper_change(&emu->ports[port].uplink, &shape, clock_ns());
    return true;
}

static bool run_cut(struct emulator *emu, struct words *words, struct text *reply)
{
    struct pair *pair = named_pair(emu, words, reply);
    if (!pair)
        return false;
    pair->cut = words->word[0][0] == 'c';
    if (pair->cut) {            /* a cut cable delivers nothing, not even what was on it */
        pair->counters.cut += pair->line_packets;
        line_flush(&emu->pool, &emu->schedule, pair);
        pair->shaper.busy_ns = 0;
    }
    return true;
}

static bool run_route(struct emulator *emu, struct words *words, struct text *reply)
{
    int port = find_port(emu, words->word[1]);
    bool add = words->word[0][0] == 'r';
    uint32_t address;
    uint8_t length;
    if (port < 0)
        return refuse(reply, "no such region", words->word[1]);
    if (!parse_prefix(words->word[2], &address, &length))
        return refuse(reply, "not an IPv4 prefix", words->word[2]);
    if (add && !route_add(emu, address, length, (uint16_t)port))
        return refuse(reply, "too many routes", NULL);
    if (!add && !route_remove(emu, address, length, (uint16_t)port))
        return refuse(reply, "the region has no such route", words->word[2]);
    return true;
}

static bool run_reopen(struct emulator *emu, struct words *words, struct text *reply)
{
    char error[ERROR_BYTES] = "";
    int port = find_port(emu, words->word[1]);
    if (port < 0 || !emu->running)
        return refuse(reply, "no such region is open", words->word[1]);
    port_close(&emu->ports[port]);
    if (emu->ports[port].netns[0])
        emu->ports[port].mac_known = false;     /* a new interface has a new address */
    if (!port_open(emu, &emu->ports[port], error))
        return refuse(reply, error, NULL);
    return true;
}

static bool run_plain(struct emulator *emu, struct words *words, struct text *reply)
{
    const char *verb = words->word[0];
    if (!emu->pairs)
        return refuse(reply, "not while the configuration is read", verb);
    if (strcmp(verb, "stats") == 0)
        report_stats(emu, reply);
    else if (strcmp(verb, "shapes") == 0)
        report_shapes(emu, reply);
    else if (strcmp(verb, "reset") == 0)
        fabric_reset_counters(emu);
    else
        emu->stop = true;
    return true;
}

static const struct {
    const char *name;
    unsigned min_words, max_words;
    bool (*run)(struct emulator *, struct words *, struct text *);
} VERBS[] = {
    {"port", 2, MAX_WORDS, run_port},  {"set", 4, MAX_WORDS, run_set}, {"cut", 3, 3, run_cut},
    {"mend", 3, 3, run_cut},           {"route", 3, 3, run_route},     {"unroute", 3, 3, run_route},
    {"reopen", 2, 2, run_reopen},      {"stats", 1, 1, run_plain},     {"shapes", 1, 1, run_plain},
    {"reset", 1, 1, run_plain},        {"quit", 1, 1, run_plain},         {"uplink", 4, 4, run_uplink},
};

static bool run_words(struct emulator *emu, struct words *words, struct text *reply)
{
    for (size_t i = 0; i < sizeof VERBS / sizeof VERBS[0]; i++) {
        if (strcmp(VERBS[i].name, words->word[0]) != 0)
            continue;
        if (words->count < VERBS[i].min_words || words->count > VERBS[i].max_words)
            return refuse(reply, "wrong number of words for this command", words->word[0]);
        return VERBS[i].run(emu, words, reply);
    }
    return refuse(reply, "no such command", words->word[0]);
}

/* Says whether the command was obeyed; the reply says the same. */
bool command_run(struct emulator *emu, char *line, struct text *reply)
{
    size_t before = reply->used;
    struct words words = {.count = 0};
    char *rest = NULL;
    for (char *word = strtok_r(line, " \t\r", &rest); word; word = strtok_r(NULL, " \t\r", &rest)) {
        if (words.count == MAX_WORDS)
            return refuse(reply, "too many words", NULL);
        words.word[words.count++] = word;
    }
    if (!words.count)
        return refuse(reply, "an empty command", NULL);
    bool obeyed = run_words(emu, &words, reply);
    if (obeyed && reply->used == before)
        text_add(reply, "{\"ok\":true}\n");
    return obeyed && !reply->failed;
}

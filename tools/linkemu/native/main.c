/* linkemu: a wide-area network between a few network namespaces, in one thread.
 *
 *   linkemu [options] < configuration      run; `port` lines first, then any other command (see README.md)
 *   linkemu offload INTERFACE              switch off what the emulator cannot carry, and end
 *
 * This file holds the options and the start; the loop is in loop.c, what a link does in shaper.c.
 */
#define _GNU_SOURCE
#include "linkemu.h"

#include <arpa/inet.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

struct options {
    const char *socket;
    uint64_t control_fd, owner_fd, parent, mtu_bytes, pool_packets, ring_frames, seed;
    unsigned char gateway_mac[MAC_BYTES];
    struct in_addr gateway;
};

static const struct option LONG_OPTIONS[] = {
    {"socket", required_argument, NULL, 's'},      {"control-fd", required_argument, NULL, 'c'},
    {"owner-fd", required_argument, NULL, 'o'},    {"parent", required_argument, NULL, 'p'},
    {"seed", required_argument, NULL, 'e'},        {"mtu", required_argument, NULL, 'm'},
    {"pool", required_argument, NULL, 'n'},        {"ring", required_argument, NULL, 'r'},
    {"gateway", required_argument, NULL, 'g'},     {"gateway-mac", required_argument, NULL, 'G'},
    {NULL, 0, NULL, 0},
};

static bool read_number(const char *argument, uint64_t low, uint64_t high, uint64_t *value)
{
    return parse_number(argument, value) && *value >= low && *value <= high;
}

static bool read_option(struct options *options, int key, const char *argument)
{
    switch (key) {
    case 's':
        options->socket = argument;
        return true;
    case 'c':
        return read_number(argument, 0, 1 << 20, &options->control_fd);
    case 'o':
        return read_number(argument, 0, 1 << 20, &options->owner_fd);
    case 'p':
        return read_number(argument, 1, UINT32_MAX, &options->parent);
    case 'e':
        return read_number(argument, 0, UINT64_MAX, &options->seed);
    case 'm':
        return read_number(argument, 576, 9216, &options->mtu_bytes);
    case 'n':
        return read_number(argument, 64, 4 << 20, &options->pool_packets);
    case 'r':
        return read_number(argument, 64, 1 << 20, &options->ring_frames);
    case 'g':
        return inet_pton(AF_INET, argument, &options->gateway) == 1;
    case 'G':
        return parse_mac(argument, options->gateway_mac);
    default:
        return false;
    }
}

static bool read_options(struct options *options, int count, char **arguments)
{
    *options = (struct options){.control_fd = NEVER, .owner_fd = NEVER, .mtu_bytes = 1500, .pool_packets = 131072,
                                .ring_frames = 8192, .gateway_mac = {0x02, 0x53, 0x47, 0, 0, 1}};
    inet_pton(AF_INET, "169.254.1.1", &options->gateway);
    int key;
    while ((key = getopt_long(count, arguments, "", LONG_OPTIONS, NULL)) != -1)
        if (!read_option(options, key, optarg ? optarg : ""))
            return false;
    return optind == count;
}

/* Dies with its parent; a parent that was gone before we asked is noticed by its number. */
static bool tie_to_parent(uint64_t parent)
{
    if (!parent)
        return true;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return (uint64_t)getppid() == parent;
}

static bool read_configuration(struct emulator *emu, char *error)
{
    char *line = NULL;
    size_t capacity = 0;
    unsigned number = 0;
    bool ok = true;
    ssize_t length;
    while (ok && (length = getline(&line, &capacity, stdin)) > 0) {
        struct text reply = {0};
        number++;
        if (line[length - 1] == '\n')
            line[length - 1] = 0;
        if (line[strspn(line, " \t\r")] == 0 || line[0] == '#')
            continue;
        ok = command_run(emu, line, &reply);
        if (!ok)
            snprintf(error, ERROR_BYTES, "line %u of the configuration is refused: %.180s", number,
                     reply.data ? reply.data : "out of memory");
        free(reply.data);
    }
    free(line);
    return ok && (emu->pairs || fabric_start(emu, error));
}

static bool start(struct emulator *emu, struct control *control, const struct options *options, char *error)
{
    if (!read_configuration(emu, error))
        return false;
    for (uint32_t i = 0; i < emu->num_ports; i++)
        if (!port_open(emu, &emu->ports[i], error))
            return false;
    if (options->socket && !control_listen(control, options->socket, error))
        return false;
    if (options->control_fd != NEVER && !control_adopt(control, (int)options->control_fd)) {
        snprintf(error, ERROR_BYTES, "--control-fd is not an open socket");
        return false;
    }
    if (options->owner_fd != NEVER)
        control->owner = (int)options->owner_fd;
    emu->running = true;
    return true;
}

static int switch_off(const char *interface)
{
    char error[ERROR_BYTES] = "";
    if (offloads_off(interface, error))
        return 0;
    fprintf(stderr, "linkemu: %s\n", error);
    return 1;
}

int main(int count, char **arguments)
{
    static struct emulator emu;
    static struct control control;
    struct options options;
    char error[ERROR_BYTES] = "";
    if (count == 3 && strcmp(arguments[1], "offload") == 0)
        return switch_off(arguments[2]);
    if (!read_options(&options, count, arguments)) {
        fprintf(stderr, "linkemu: not an option, or not a value for it; see README.md\n");
        return 2;
    }
    if (!tie_to_parent(options.parent))
        return 0;
    emu.mtu_bytes = (uint32_t)options.mtu_bytes;
    emu.pool_packets = (uint32_t)options.pool_packets;
    emu.ring_frames = (uint32_t)options.ring_frames;
    emu.seed = options.seed;
    emu.gateway_address = ntohl(options.gateway.s_addr);
    memcpy(emu.gateway_mac, options.gateway_mac, MAC_BYTES);
    control_init(&control);
    if (!start(&emu, &control, &options, error)) {
        fprintf(stderr, "linkemu: %s\n", error);
        return 1;
    }
    printf("{\"ok\":true,\"pid\":%d}\n", (int)getpid());
    fflush(stdout);
    loop_run(&emu, &control);
    control_close(&control, options.socket);
    for (uint32_t i = 0; i < emu.num_ports; i++)
        port_close(&emu.ports[i]);
    return 0;
}

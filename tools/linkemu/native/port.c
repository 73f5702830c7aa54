/* What packet sockets and TUN devices have in common: opening, and entering a region's network namespace. */
#define _GNU_SOURCE
#include "linkemu.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* Runs `work` inside the region's namespace and comes back; a namespace that cannot be left again ends the program. */
static bool in_namespace(struct port *port, bool (*work)(struct port *, char *), char *error)
{
    if (!port->netns[0])
        return work(port, error);
    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    int there = open(port->netns, O_RDONLY | O_CLOEXEC);
    bool ok = false;
    if (home < 0 || there < 0 || setns(there, CLONE_NEWNET) < 0) {
        snprintf(error, ERROR_BYTES, "region %s: cannot enter its network namespace (%s); run the emulator as root of "
                 "the user namespace that owns it", port->name, strerror(errno));
    } else {
        ok = work(port, error);
        if (setns(home, CLONE_NEWNET) < 0) {
            perror("linkemu: cannot return from a region's network namespace");
            _exit(1);
        }
    }
    if (home >= 0)
        close(home);
    if (there >= 0)
        close(there);
    return ok;
}

static bool read_peer(struct port *port, char *error)
{
    if (!offloads_off(port->peer, error))
        return false;
    struct ifreq request;
    memset(&request, 0, sizeof request);
    memcpy(request.ifr_name, port->peer, sizeof request.ifr_name);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool ok = fd >= 0 && ioctl(fd, SIOCGIFHWADDR, &request) == 0;
    if (!ok)
        snprintf(error, ERROR_BYTES, "region %s: cannot read the address of %s: %s", port->name, port->peer,
                 strerror(errno));
    else if (!port->mac_known)
        memcpy(port->mac, request.ifr_hwaddr.sa_data, MAC_BYTES);
    port->mac_known |= ok;
    if (fd >= 0)
        close(fd);
    return ok;
}

bool port_open(struct emulator *emu, struct port *port, char *error)
{
    port->last_arrival_ns = 0;
    switch (port->kind) {
    case PORT_TUN:
        return in_namespace(port, tun_open, error);
    case PORT_PACKET:
        if (port->netns[0] && !in_namespace(port, read_peer, error))
            return false;
        return packet_open(emu, port, error);
    case PORT_NULL:
        break;
    }
    return true;
}

void port_close(struct port *port)
{
    if (port->ring.memory)
        munmap(port->ring.memory, port->ring.memory_bytes);
    if (port->send_fd >= 0 && port->send_fd != port->receive_fd)
        close(port->send_fd);
    if (port->receive_fd >= 0)
        close(port->receive_fd);
    memset(&port->ring, 0, sizeof port->ring);
    port->receive_fd = port->send_fd = -1;
}

unsigned port_receive(struct emulator *emu, struct port *port, unsigned budget)
{
    if (port->receive_fd < 0)
        return 0;
    return port->kind == PORT_TUN ? tun_receive(emu, port, budget) : packet_receive(emu, port, budget);
}

/* An interface that went down leaves one error on its socket; read it, or poll() would return at once for ever. */
void port_clear_error(struct port *port)
{
    int value = 0;
    socklen_t length = sizeof value;
    port->counters.device_errors++;
    if (port->kind != PORT_PACKET || getsockopt(port->receive_fd, SOL_SOCKET, SO_ERROR, &value, &length) < 0)
        port_close(port);       /* a TUN whose namespace is gone has no way back: `reopen` makes a new one */
}

/* The kernel's own drop count starts anew with each reading. */
void port_read_statistics(struct port *port)
{
    struct tpacket_stats statistics;
    socklen_t length = sizeof statistics;
    if (port->kind == PORT_PACKET && port->receive_fd >= 0
        && getsockopt(port->receive_fd, SOL_PACKET, PACKET_STATISTICS, &statistics, &length) == 0)
        port->counters.ring_full += statistics.tp_drops;
}

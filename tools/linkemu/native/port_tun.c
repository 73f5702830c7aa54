/* A region behind a TUN device: for machines where /dev/net/tun may be opened. No Ethernet, one call per packet.
 *
 * The device is made here; its address, route and a queue long enough for a TCP sender's burst are the caller's to set
 * (a privileged ioctl sets the queue length, netlink does so without).
 */
#define _GNU_SOURCE
#include "linkemu.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define MAX_IP_BYTES 65536

/* Called inside the region's namespace; the descriptor keeps working outside. */
bool tun_open(struct port *port, char *error)
{
    struct ifreq request;
    memset(&request, 0, sizeof request);
    memcpy(request.ifr_name, port->interface, sizeof request.ifr_name);
    request.ifr_flags = IFF_TUN | IFF_NO_PI;
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        snprintf(error, ERROR_BYTES, "region %s: cannot open /dev/net/tun (%s); use a veth instead", port->name,
                 strerror(errno));
        return false;
    }
    if (ioctl(fd, TUNSETIFF, &request) < 0) {
        snprintf(error, ERROR_BYTES, "region %s: cannot make the TUN device %s: %s", port->name, port->interface,
                 strerror(errno));
        close(fd);
        return false;
    }
    port->receive_fd = port->send_fd = fd;
    return true;
}

unsigned tun_receive(struct emulator *emu, struct port *port, unsigned budget)
{
    unsigned char packet[MAX_IP_BYTES];
    unsigned taken = 0;
    for (; taken < budget; taken++) {
        ssize_t bytes = read(port->receive_fd, packet, sizeof packet);
        if (bytes <= 0)
            break;
        port->counters.in_packets++;
        if (packet[0] >> 4 != 4)
            port->counters.not_ipv4++;
        else
            fabric_accept(emu, port, packet, (uint32_t)bytes, clock_ns());
    }
    return taken;
}

unsigned tun_send(struct emulator *emu, struct port *port)
{
    for (uint32_t i = 0; i < port->batch_used; i++) {
        if (write(port->send_fd, pool_ip(&emu->pool, port->batch[i]), emu->pool.packets[port->batch[i]].ip_bytes) < 0) {
            port->counters.device_errors++;
            return i;
        }
    }
    return port->batch_used;
}

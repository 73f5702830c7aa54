/* A region behind a veth: an AF_PACKET ring to receive, batches to send. Works for root of any user namespace.
 *
 * Ethernet is a formality here: a region sends everything to a gateway address that does not exist, and gets packets
 * from it. So no neighbour discovery is needed; ARP for the gateway is answered all the same.
 */
#define _GNU_SOURCE
#include "linkemu.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif
#define BLOCK_BYTES (128u << 10)
#define WAIT_MS 1
#define FULL_WAIT_US 50
#define MAX_WAITS 8u
#define FRAME_OVERHEAD_BYTES 128u       /* the kernel's header, its address and alignment, Ethernet */

static bool fail(struct port *port, const char *what, char *error)
{
    snprintf(error, ERROR_BYTES, "region %s: %s on %s: %s", port->name, what, port->interface, strerror(errno));
    port_close(port);
    return false;
}

static bool map_ring(struct emulator *emu, struct port *port)
{
    unsigned frame_bytes = 2048;
    while (frame_bytes < emu->mtu_bytes + FRAME_OVERHEAD_BYTES)
        frame_bytes *= 2;
    struct tpacket_req request = {.tp_block_size = BLOCK_BYTES, .tp_frame_size = frame_bytes};
    request.tp_block_nr = emu->ring_frames / (BLOCK_BYTES / frame_bytes) + 1;
    request.tp_frame_nr = request.tp_block_nr * (BLOCK_BYTES / frame_bytes);
    if (setsockopt(port->receive_fd, SOL_PACKET, PACKET_RX_RING, &request, sizeof request) < 0)
        return false;
    size_t bytes = (size_t)request.tp_block_nr * BLOCK_BYTES;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, port->receive_fd, 0);
    if (memory == MAP_FAILED)
        return false;
    port->ring = (struct ring){
        .memory = memory, .memory_bytes = bytes, .frame_bytes = frame_bytes, .frames = request.tp_frame_nr};
    return true;
}

bool packet_open(struct emulator *emu, struct port *port, char *error)
{
    int one = 1, version = TPACKET_V2;
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_ifindex = (int)if_nametoindex(port->interface)};
    if (!address.sll_ifindex)
        return fail(port, "there is no such interface", error);
    if (!offloads_off(port->interface, error))
        return false;
    /* Protocol 0 until bound: nothing of other interfaces gets in before. */
    port->receive_fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    port->send_fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (port->receive_fd < 0 || port->send_fd < 0)
        return fail(port, "cannot open a packet socket (CAP_NET_RAW is needed)", error);
    if (bind(port->send_fd, (struct sockaddr *)&address, sizeof address) < 0)
        return fail(port, "cannot bind to send", error);
    if (setsockopt(port->send_fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof one) < 0)
        return fail(port, "cannot bypass the queueing discipline", error);
    if (setsockopt(port->receive_fd, SOL_PACKET, PACKET_VERSION, &version, sizeof version) < 0
        || setsockopt(port->receive_fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one) < 0)
        return fail(port, "the kernel is too old (4.20 is needed)", error);
    if (!map_ring(emu, port))
        return fail(port, "cannot map a receive ring", error);
    address.sll_protocol = htons(ETH_P_ALL);
    if (bind(port->receive_fd, (struct sockaddr *)&address, sizeof address) < 0)
        return fail(port, "cannot bind to receive", error);
    return true;
}

/* "Who has the gateway?" turned round in place. */
static void answer_arp(struct emulator *emu, struct port *port, const unsigned char *frame, uint32_t bytes)
{
    static const unsigned char request[8] = {0, 1, 8, 0, 6, 4, 0, 1};   /* Ethernet, IPv4, lengths, a question */
    unsigned char reply[42];
    uint32_t target;
    if (bytes < sizeof reply || memcmp(frame + 14, request, sizeof request) != 0)
        return;
    memcpy(&target, frame + 38, sizeof target);
    if (ntohl(target) != emu->gateway_address)
        return;
    memcpy(reply, frame + 6, MAC_BYTES);
    memcpy(reply + 6, emu->gateway_mac, MAC_BYTES);
    memcpy(reply + 12, frame + 12, 10);
    reply[20] = 0;
    reply[21] = 2;
    memcpy(reply + 22, emu->gateway_mac, MAC_BYTES);
    memcpy(reply + 28, frame + 38, 4);
    memcpy(reply + 32, frame + 22, 10);
    if (send(port->send_fd, reply, sizeof reply, 0) < 0)
        port->counters.device_errors++;
}

static void take_frame(struct emulator *emu, struct port *port, const struct tpacket2_hdr *header, uint64_t arrival_ns)
{
    const unsigned char *frame = (const unsigned char *)header + header->tp_mac;
    uint32_t bytes = header->tp_snaplen;
    port->counters.in_packets++;
    if (bytes < ETHERNET_BYTES) {
        port->counters.malformed++;
        return;
    }
    unsigned protocol = (unsigned)frame[12] << 8 | frame[13];
    if (!port->mac_known) {
        memcpy(port->mac, frame + 6, MAC_BYTES);
        port->mac_known = true;
    }
    if (protocol == ETH_P_ARP) {
        answer_arp(emu, port, frame, bytes);
    } else if (protocol != ETH_P_IP) {
        port->counters.not_ipv4++;
    } else if (header->tp_len > emu->mtu_bytes + ETHERNET_BYTES || header->tp_status & TP_STATUS_CSUMNOTREADY) {
        port->counters.offloaded++;     /* the region's end still leaves work to hardware that is not there */
    } else {
        fabric_accept(emu, port, frame + ETHERNET_BYTES, bytes - ETHERNET_BYTES, arrival_ns);
    }
}

/* When the packet reached us, on the monotonic clock. The kernel stamped it with wall-clock time; a stamp that makes no
 * sense (the clock was set) counts as now. With it, a link's delay does not depend on when we got round to reading. */
static uint64_t arrival_of(struct port *port, const struct tpacket2_hdr *header, uint64_t now_ns, uint64_t wall_ns)
{
    uint64_t stamp_ns = (uint64_t)header->tp_sec * NS_PER_S + header->tp_nsec;
    uint64_t age_ns = stamp_ns < wall_ns ? wall_ns - stamp_ns : 0;
    uint64_t arrival_ns = age_ns < NS_PER_S && age_ns < now_ns ? now_ns - age_ns : now_ns;
    if (arrival_ns < port->last_arrival_ns)
        arrival_ns = port->last_arrival_ns;
    return port->last_arrival_ns = arrival_ns;
}

unsigned packet_receive(struct emulator *emu, struct port *port, unsigned budget)
{
    struct ring *ring = &port->ring;
    uint64_t now_ns = 0, wall_ns = 0;
    unsigned taken = 0;
    for (; taken < budget; taken++) {
        struct tpacket2_hdr *header = (void *)(ring->memory + (size_t)ring->next * ring->frame_bytes);
        if (!(__atomic_load_n(&header->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER))
            break;
        if (!taken) {
            now_ns = clock_ns();
            wall_ns = wall_clock_ns();
        }
        take_frame(emu, port, header, arrival_of(port, header, now_ns, wall_ns));
        __atomic_store_n(&header->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
        ring->next = ring->next + 1 == ring->frames ? 0 : ring->next + 1;
    }
    return taken;
}

/* Waits until the region has taken in some of what it was sent: a region that receives on other cores than ours frees
 * our send buffer when it gets to it. What the wait costs is lateness, and counted as such. */
static bool await_room(const struct port *port, int error, unsigned *waits)
{
    if ((error != EAGAIN && error != ENOBUFS) || (*waits)++ == MAX_WAITS)
        return false;
    struct pollfd writable = {.fd = port->send_fd, .events = POLLOUT};
    if (error == EAGAIN)
        poll(&writable, 1, WAIT_MS);
    else
        usleep(FULL_WAIT_US);
    return true;
}

/* Says how many packets of the batch went out; the rest is lost (the region's interface is down or stays full). */
unsigned packet_send(struct emulator *emu, struct port *port)
{
    struct mmsghdr messages[BATCH_PACKETS];
    struct iovec parts[BATCH_PACKETS];
    if (!port->mac_known) {
        port->counters.no_neighbour += port->batch_used;
        return 0;
    }
    memset(messages, 0, sizeof messages[0] * port->batch_used);
    for (uint32_t i = 0; i < port->batch_used; i++) {
        unsigned char *frame = pool_ip(&emu->pool, port->batch[i]) - ETHERNET_BYTES;
        memcpy(frame, port->mac, MAC_BYTES);
        memcpy(frame + 6, emu->gateway_mac, MAC_BYTES);
        frame[12] = ETH_P_IP >> 8;
        frame[13] = ETH_P_IP & 0xff;
        parts[i] = (struct iovec){frame, emu->pool.packets[port->batch[i]].ip_bytes + ETHERNET_BYTES};
        messages[i].msg_hdr.msg_iov = &parts[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    unsigned sent = 0, waits = 0;
    while (sent < port->batch_used) {
        int count = sendmmsg(port->send_fd, messages + sent, port->batch_used - sent, 0);
        if (count <= 0) {
            if (count < 0 && await_room(port, errno, &waits))
                continue;
            port->counters.device_errors++;
            break;
        }
        sent += (unsigned)count;
    }
    return sent;
}

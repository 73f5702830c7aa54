/* Switches off what a veth leaves to hardware: transmit checksums and segmentation, by the kernel's feature names.
 *
 * A veth has no hardware. With offloads on, packets of 64 kB without checksums would reach the emulator; a loss would
 * then hit 44 wire packets at once, and the checksums would never be made. Generic segmentation stays on: the kernel
 * then cuts large sends into wire packets just before the device, which is cheaper than small sends all the way.
 */
#define _GNU_SOURCE
#include "linkemu.h"

#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static bool ethtool(int fd, const char *interface, void *command)
{
    struct ifreq request;
    memset(&request, 0, sizeof request);
    memcpy(request.ifr_name, interface, strnlen(interface, sizeof request.ifr_name - 1));
    request.ifr_data = command;
    return ioctl(fd, SIOCETHTOOL, &request) >= 0;
}

static bool must_go(const char *feature)
{
    if (strcmp(feature, "tx-generic-segmentation") == 0)
        return false;
    return strncmp(feature, "tx-checksum-", 12) == 0 || strncmp(feature, "tx-gso-", 7) == 0
        || (strncmp(feature, "tx-", 3) == 0 && strstr(feature, "segmentation"));
}

static uint32_t count_features(int fd, const char *interface)
{
    struct ethtool_sset_info *query = calloc(1, sizeof *query + sizeof query->data[0]);
    uint32_t count = 0;
    if (query) {
        query->cmd = ETHTOOL_GSSET_INFO;
        query->sset_mask = 1ull << ETH_SS_FEATURES;
        if (ethtool(fd, interface, query) && query->sset_mask)
            count = query->data[0];
    }
    free(query);
    return count;
}

static bool clear_features(int fd, const char *interface, uint32_t count)
{
    uint32_t blocks = (count + 31) / 32;
    struct ethtool_gstrings *names = calloc(1, sizeof *names + (size_t)count * ETH_GSTRING_LEN);
    struct ethtool_sfeatures *wanted = calloc(1, sizeof *wanted + blocks * sizeof wanted->features[0]);
    bool ok = false;
    if (names && wanted) {
        names->cmd = ETHTOOL_GSTRINGS;
        names->string_set = ETH_SS_FEATURES;
        names->len = count;
        wanted->cmd = ETHTOOL_SFEATURES;
        wanted->size = blocks;
        ok = ethtool(fd, interface, names);
        for (uint32_t i = 0; ok && i < count; i++) {
            char name[ETH_GSTRING_LEN + 1] = {0};
            memcpy(name, names->data + (size_t)i * ETH_GSTRING_LEN, ETH_GSTRING_LEN);
            if (must_go(name))
                wanted->features[i / 32].valid |= 1u << i % 32;
        }
        ok = ok && ethtool(fd, interface, wanted);
    }
    free(names);
    free(wanted);
    return ok;
}

bool offloads_off(const char *interface, char *error)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    uint32_t count = fd >= 0 ? count_features(fd, interface) : 0;
    bool ok = count && clear_features(fd, interface, count);
    if (!ok)
        snprintf(error, ERROR_BYTES, "cannot switch off the offloads of %s: %s", interface, strerror(errno));
    if (fd >= 0)
        close(fd);
    return ok;
}

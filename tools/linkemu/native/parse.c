/* Numbers, addresses and prefixes out of text that nobody has checked: all or nothing. */
#define _GNU_SOURCE
#include "linkemu.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

bool parse_number(const char *digits, uint64_t *value)
{
    size_t length = strlen(digits);
    if (length == 0 || length > 18 || strspn(digits, "0123456789") != length)
        return false;
    *value = strtoull(digits, NULL, 10);
    return true;
}

bool parse_mac(const char *string, unsigned char mac[MAC_BYTES])
{
    if (strlen(string) != 17 || strspn(string, "0123456789abcdefABCDEF:") != 17)
        return false;
    for (unsigned i = 0; i < MAC_BYTES; i++) {
        char pair[3] = {string[3 * i], string[3 * i + 1], 0}, *end;
        mac[i] = (unsigned char)strtoul(pair, &end, 16);
        if (*end || (i < MAC_BYTES - 1 && string[3 * i + 2] != ':'))
            return false;
    }
    return !(mac[0] & 1);       /* a region has a unicast address */
}

bool parse_prefix(const char *string, uint32_t *address, uint8_t *length)
{
    const char *slash = strchr(string, '/');
    uint64_t bits = 32;
    struct in_addr parsed;
    char dotted[INET_ADDRSTRLEN];
    size_t dotted_bytes = slash ? (size_t)(slash - string) : strlen(string);
    if (dotted_bytes >= sizeof dotted || (slash && (!parse_number(slash + 1, &bits) || bits > 32)))
        return false;
    memcpy(dotted, string, dotted_bytes);
    dotted[dotted_bytes] = 0;
    if (inet_pton(AF_INET, dotted, &parsed) != 1)
        return false;
    *address = ntohl(parsed.s_addr);
    *length = (uint8_t)bits;
    return true;
}
